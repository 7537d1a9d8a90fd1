package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
)

//go:embed primary.lua
var primarySource string

// quiet grants nothing for a period after the primary has changed, or has started without what it held: with the period as
// long as a window and the longest lease together, whatever the change has lost is out of the window by then. Every
// connection asks before it carries anything, so nothing that another server granted gets past it.
type quiet struct {
	period time.Duration
	now    func() instant.Instant
	until  atomic.Int64 // an instant of now's clock
}

// onConnect asks a server that was just connected to.
func (q *quiet) onConnect(ctx context.Context, connection *goredis.Conn) error {
	info, err := connection.Info(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("asking who the primary is: %w", err)
	}
	if infoField(info, "redis_mode") == "sentinel" {
		return nil // the client asks them by the same way
	}
	left, err := connection.Eval(ctx, primarySource, []string{"sluice:{primary}"},
		infoField(info, "run_id"), infoField(info, "uptime_in_seconds"), q.period.Microseconds()).Int64()
	if err != nil {
		return fmt.Errorf("noting who the primary is: %w", err)
	}
	until := int64(q.now().Add(time.Duration(left) * time.Microsecond))
	for {
		known := q.until.Load()
		if left == 0 || known >= until || q.until.CompareAndSwap(known, until) {
			return nil
		}
	}
}

// left is for how long nothing is to be granted.
func (q *quiet) left() time.Duration {
	if q == nil {
		return 0
	}
	return max(0, instant.Instant(q.until.Load()).Sub(q.now()))
}

// denyAll answers reserves while nothing is granted.
func denyAll(operations []authority.Reserve, left time.Duration) []authority.Reserved {
	out := make([]authority.Reserved, len(operations))
	for i, r := range operations {
		if err := store.CheckReserve(r); err != nil {
			out[i].Err = fmt.Errorf("reserve: %w", err)
			continue
		}
		out[i] = authority.Reserved{
			State: authority.State{Rate: r.Key.Rates[0], Reset: left}, Denied: true,
			Denial: authority.Denial{RetryAfter: left, DenyFor: left},
		}
		for _, rate := range r.Key.Rates {
			if r.Min > rate.Units {
				out[i].Denial = authority.Denial{Never: true}
			}
		}
	}
	return out
}

// withhold takes back what was granted by a server that turned out to be a new primary, while it was asked.
func (s *Store) withhold(ctx context.Context, operations []authority.Reserve, out []authority.Reserved) []authority.Reserved {
	left := s.quiet.left()
	if left == 0 {
		return out
	}
	var cancels []authority.Cancel
	for i := range out {
		if out[i].Units > 0 {
			cancels = append(cancels, authority.Cancel{Key: operations[i].Key, Call: operations[i].Call, Part: operations[i].Part})
		}
	}
	_ = errors.Join(s.Cancel(ctx, cancels)...) // what stays costs capacity, and runs out by itself
	denied := denyAll(operations, left)
	for i := range out {
		if out[i].Err != nil {
			denied[i] = out[i]
		}
	}
	return denied
}
