package sim

import (
	"context"
	"strings"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/branch"
	"sluice/shared/instant"
)

// Several replicas in front of one store. A Sync is executed at one instant of the world's, that at which the store executes
// what it asks of it. The replica's clock is made to show what it would: before the store's first answer, the instant at which
// the call came to the replica; after it, the one at which that answer did.

// clock is a replica's monotonic clock.
type clock struct {
	world  *world
	origin instant.Instant
	ppm    int64
	// skew is how far from the world's instant the clock is read.
	skew time.Duration
}

// draw has the clock begin anywhere and run as wrong as the workers' may.
func (c *clock) draw(drift int64) {
	c.origin = instant.Instant(c.world.random.Int64N(1e12))
	if drift > 0 {
		c.ppm = c.world.random.Int64N(2*drift+1) - drift
	}
}

func (c *clock) now() instant.Instant {
	passed := int64(c.world.now.Add(c.skew) - origin)
	return c.origin + instant.Instant(passed+passed*c.ppm/1_000_000)
}

// stay is how long a call is in a replica before and after the store executes what it asks of it.
type stay struct{ before, after time.Duration }

// drawStay is for one execution of a call.
func (r *run) drawStay() (s stay) {
	if r.scenario.Replicas > 1 {
		s.before, s.after = r.world.spread(r.scenario.Faults.Jitter/4), r.world.spread(r.scenario.Faults.Jitter/4)
	}
	return s
}

// begin and end enclose one execution of a call.
func (s *service) begin(in stay) {
	s.branch.after, s.branch.strictAt = in.after, map[strictKey]instant.Instant{}
	s.clock.skew = -in.before
}

func (s *service) end() { s.clock.skew = 0 }

// tick has the branch settle what is over, for as long as the process lives.
func (s *service) tick(life int) {
	const every = 20 * time.Millisecond
	s.run.world.after(every, func() {
		if life != s.life {
			return
		}
		s.branch.Tick(context.Background())
		s.tick(life)
	})
}

// strictKey tells apart what one call was granted as strict charges: of a key, by a plan's rates.
type strictKey struct {
	name  string
	units int64
}

// watchedBranch notes at which instants strict charges are spent, and has flaws.
type watchedBranch struct {
	*branch.Branch

	service  *service
	after    time.Duration
	strictAt map[strictKey]instant.Instant
}

func (s *service) newBranch() *watchedBranch {
	return &watchedBranch{service: s, Branch: branch.New(branch.Config{
		Store: behindReplica{s.store, s}, Now: s.clock.now, Replica: s.run.world.random.Uint64(),
		HotAsks: s.run.scenario.HotAsks, BatchShare: s.run.scenario.BatchShare,
	})}
}

// Reserve implements authority.Store. It goes on one by one, to know at which instant each is served.
func (w *watchedBranch) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	results := make([]authority.Reserved, len(operations))
	for i := range operations {
		o := &operations[i]
		results[i] = w.Branch.Reserve(ctx, operations[i:i+1])[0]
		r := &results[i]
		if r.Units == 0 {
			continue
		}
		isSub := strings.HasPrefix(r.Lease, "sub:")
		if isSub {
			w.service.run.figures.SubLeases++
			w.service.store.flaws.divided(o, r)
		}
		if r.EndIn == 0 {
			at := w.service.run.world.now
			if isSub {
				at = at.Add(w.service.clock.skew)
			}
			w.strictAt[strictKey{o.Key.Name, o.Key.Rates[0].Units}] = at
		}
	}
	return results
}

// Settle implements authority.Store.
func (w *watchedBranch) Settle(ctx context.Context, operations []authority.Settle) []error {
	for i := range operations {
		if strings.HasPrefix(operations[i].Lease, "sub:") {
			w.service.store.flaws.subSettled(ctx, w.service.store.Store, w.service.run.world.now, &operations[i])
		}
	}
	return w.Branch.Settle(ctx, operations)
}

// behindReplica is the store as a replica sees it: its answers come later.
type behindReplica struct {
	authority.Store

	service *service
}

func (b behindReplica) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	results := b.Store.Reserve(ctx, operations)
	b.service.clock.skew = b.service.branch.after
	return results
}
