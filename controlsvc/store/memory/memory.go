// Package memory is a store within the process. It is for one replica: what is in it is gone with the process, and no other
// process sees it. Nothing runs in the background; what has expired is cleared away by the operations that follow.
package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
)

// Store implements authority.Store.
type Store struct {
	now     func() instant.Instant
	seed    maphash.Seed
	shards  []shard
	maxKeys int64
	// keys is how many there are in all shards together.
	keys     atomic.Int64
	evicted  atomic.Int64
	closed   atomic.Bool
	workers  workers
	sayings  sayings
	overlays overlays
}

var _ authority.Store = (*Store)(nil)

// Fewer keys than this lie in one shard, so that of all of them the one goes whose use is longest ago.
const (
	shardedFrom = 4096
	shardCount  = 64
)

// errFull refuses what would make one key too large.
var errFull = fmt.Errorf("the key holds %d charges, or %d units, within one window already", store.MaxCharges, int64(store.MaxHeld))

var errClosed = fmt.Errorf("the memory store is closed: %w", authority.ErrUnavailable)

// New gives an empty store of at most maxKeys keys (at least one), and one for each shard. A key beyond takes the place of an
// expired one, or else of the one of its shard whose use is longest ago, whose charges are forgotten: Evicted counts those.
//
// now reads the store's clock, best one that does not follow the wall clock's steps. A step back makes charges live longer;
// a step forward ages them early.
func New(now func() instant.Instant, maxKeys int) *Store {
	shards := 1
	if maxKeys >= shardedFrom {
		shards = shardCount
	}
	s := &Store{
		now: now, seed: maphash.MakeSeed(), shards: make([]shard, shards), maxKeys: int64(max(1, maxKeys)),
		workers: workers{domains: map[string]*domain{}}, overlays: overlays{domains: map[string]*overlay{}},
	}
	for i := range s.shards {
		s.shards[i].keys = map[id]*key{}
	}
	return s
}

// Evicted is how many keys with charges had to go to make room for others.
func (s *Store) Evicted() int64 { return s.evicted.Load() }

// Len is how many keys there are, some of them expired perhaps.
func (s *Store) Len() int64 { return s.keys.Load() }

// Reserve implements authority.Store.
func (s *Store) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	out := make([]authority.Reserved, len(operations))
	for i, r := range operations {
		if out[i].Err = s.check(ctx, store.CheckReserve(r)); out[i].Err == nil {
			s.with(r.Key, true, func(k *key, now instant.Instant) { out[i] = k.reserve(r, now) })
		}
		if out[i].Err != nil {
			out[i].Err = fmt.Errorf("reserve: %w", out[i].Err)
		}
	}
	return out
}

// Settle implements authority.Store.
func (s *Store) Settle(ctx context.Context, operations []authority.Settle) []error {
	out := make([]error, len(operations))
	for i, o := range operations {
		if out[i] = s.check(ctx, store.CheckSettle(o)); out[i] != nil {
			out[i] = fmt.Errorf("settle: %w", out[i])
			continue
		}
		s.with(o.Key, false, func(k *key, now instant.Instant) { k.settle(o, now) })
	}
	return out
}

// Cancel implements authority.Store.
func (s *Store) Cancel(ctx context.Context, operations []authority.Cancel) []error {
	out := make([]error, len(operations))
	for i, o := range operations {
		if out[i] = s.check(ctx, store.CheckCancel(o)); out[i] != nil {
			out[i] = fmt.Errorf("cancel: %w", out[i])
			continue
		}
		s.with(o.Key, false, func(k *key, now instant.Instant) { k.count.cancel(o.Call, o.Part, now) })
	}
	return out
}

// Record implements authority.Store.
func (s *Store) Record(ctx context.Context, operations []authority.Record) []error {
	out := make([]error, len(operations))
	for i, o := range operations {
		if out[i] = s.check(ctx, store.CheckRecord(o)); out[i] == nil {
			s.with(o.Key, true, func(k *key, now instant.Instant) { out[i] = k.record(o, now) })
		}
		if out[i] != nil {
			out[i] = fmt.Errorf("record: %w", out[i])
		}
	}
	return out
}

// Peek implements authority.Store.
func (s *Store) Peek(ctx context.Context, wanted authority.Key) ([]authority.State, error) {
	if err := s.check(ctx, store.CheckKey(wanted)); err != nil {
		return nil, fmt.Errorf("peek: %w", err)
	}
	rates := store.Windows(wanted.Rates)
	standing := make([]store.Standing, len(rates))
	s.with(wanted, false, func(k *key, now instant.Instant) {
		standing = standings(k.count.windows(rates, now), rates, now)
	})
	return store.States(wanted.Rates, rates, standing), nil
}

// Inspect implements authority.Store.
func (s *Store) Inspect(ctx context.Context, wanted authority.Key, units int64) (authority.Inspection, error) {
	if err := s.check(ctx, store.CheckInspect(wanted, units)); err != nil {
		return authority.Inspection{}, fmt.Errorf("inspect: %w", err)
	}
	rates := store.Windows(wanted.Rates)
	standing, free := make([]store.Standing, len(rates)), make([]time.Duration, len(rates))
	var leases []authority.LiveLease
	s.with(wanted, false, func(k *key, now instant.Instant) {
		windows := k.count.windows(rates, now)
		standing = standings(windows, rates, now)
		for i, w := range windows {
			if units <= rates[i].Most() {
				at, _ := w.soonest(rates[i], units, 0, now)
				free[i] = at.Sub(now)
			}
		}
		for _, l := range k.count.leases(now) {
			leases = append(leases, authority.LiveLease{
				Lease: l.grant.Name(), Call: l.grant.Call, Units: l.grant.Units, Age: now.Sub(l.grant.Minted), EndIn: l.end.Sub(now),
			})
		}
	})
	return store.Inspection(wanted.Rates, rates, standing, free, units, leases), nil
}

// Reset implements authority.Store.
func (s *Store) Reset(ctx context.Context, wanted authority.Key) error {
	if err := s.check(ctx, store.CheckKey(wanted)); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	s.with(wanted, false, func(k *key, _ instant.Instant) { k.count.reset(wanted.Rates) })
	return nil
}

// Connected implements authority.Store.
func (s *Store) Connected(ctx context.Context, domain string, worker uint64, ttl time.Duration) (authority.Share, error) {
	err := s.check(ctx, store.CheckConnected(domain, ttl))
	if err != nil {
		return authority.Share{}, fmt.Errorf("connected: %w", err)
	}
	share, err := s.workers.connected(domain, worker, ttl, s.now())
	if err != nil {
		return authority.Share{}, fmt.Errorf("connected: %w", err)
	}
	return share, nil
}

// Exchange implements authority.Store.
func (s *Store) Exchange(ctx context.Context, domain string, replica uint64, says []byte, ttl time.Duration) ([][]byte, error) {
	if err := s.check(ctx, store.CheckExchange(domain, says, ttl)); err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	others, err := s.sayings.exchange(domain, replica, says, s.now(), ttl)
	if err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	return others, nil
}

// Ping implements authority.Store.
func (s *Store) Ping(ctx context.Context) error { return s.check(ctx, nil) }

// Close implements authority.Store.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// check says why an operation is not to be executed: it is wrong itself, or too late, or there is no store any more.
func (s *Store) check(ctx context.Context, wrong error) error {
	if wrong != nil {
		return wrong
	}
	if s.closed.Load() {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(authority.ErrUnavailable, err)
	}
	return nil
}
