// Package branch is a store between a replica of the service and the store of all replicas. For a key that is asked for often
// it holds leases of its own, and divides them: into sub-leases for the workers that ask this replica, and into single units
// for requests that are paused. So such a key costs the store a call for each lease, and not one for each ask. All other
// keys it hands on.
//
// Why that keeps the guarantee is in RATIONALE.md, sub-leases.
package branch

import (
	"context"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/instant"
	"sluice/shared/lease"
)

// Config says what a Branch stands on. Store, Now and Replica have to be set.
type Config struct {
	// Store is that of all replicas.
	Store authority.Store
	// Now reads a clock that never steps back.
	Now func() instant.Instant
	// Replica is a random number that no other replica has, and no earlier life of this one had.
	Replica uint64
	// HotAsks is from how many asks a second on a key is hot; 0: DefaultHotAsks.
	HotAsks int64
	// BatchShare: where little is free a lease of the replica's is 1/BatchShare of its part of the limit; 0: DefaultBatchShare.
	BatchShare int64
}

// What a Config stands for where it says nothing. Of a lease's units the first lies idle until the last is free, so that the
// replicas together lose 1/(2 BatchShare) of a limit.
const (
	DefaultHotAsks    = 500
	DefaultBatchShare = 100
)

// Branch implements authority.Store. Its methods may be called by many goroutines at once.
type Branch struct {
	authority.Store

	config Config
	// id names this life of the branch; serial numbers what it names.
	id     string
	serial atomic.Uint64
	seed   maphash.Seed
	shards [shards]shard
	crowd  crowd

	mu   sync.Mutex
	owed []debt
}

// New gives a branch that holds nothing. Run has to be called, or Tick, and Stop at the end.
func New(config Config) *Branch {
	if config.HotAsks <= 0 {
		config.HotAsks = DefaultHotAsks
	}
	if config.BatchShare <= 0 {
		config.BatchShare = DefaultBatchShare
	}
	b := &Branch{Store: config.Store, config: config, id: strconv.FormatUint(config.Replica, 16), seed: maphash.MakeSeed()}
	for i := range b.shards {
		b.shards[i] = newShard()
	}
	return b
}

// subPrefix begins the name of a sub-lease, which the replica's id follows. No lease of a store's begins with it.
const subPrefix = "sub:"

// name gives a new sub-lease's name.
func (b *Branch) name() string {
	return subPrefix + b.id + ":" + strconv.FormatUint(b.serial.Add(1), 16)
}

// maxRounds bounds how often a reserve waits for a lease to divide, until it goes to the store by itself.
const maxRounds = 3

// step is what has to happen next for a reserve.
type step int

const (
	done step = iota
	hand      // the store answers it
	buy       // a lease is bought for it
	wait      // somebody else buys one
)

// pending is a reserve that is not answered yet.
type pending struct {
	operation *authority.Reserve
	result    *authority.Reserved
	key       *key
	next      step
	buy       authority.Reserve
	bought    chan struct{}
}

// Reserve implements authority.Store.
func (b *Branch) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	if !slices.ContainsFunc(operations, func(o authority.Reserve) bool { return o.Shared }) {
		return b.Store.Reserve(ctx, operations) // nothing that is held here will do
	}
	results := make([]authority.Reserved, len(operations))
	open := make([]pending, len(operations))
	for i := range operations {
		open[i] = pending{operation: &operations[i], result: &results[i]}
	}
	for round := 0; len(open) > 0; round++ {
		left := open[:0]
		for _, p := range open {
			if b.decide(&p, round); p.next != done {
				left = append(left, p)
			}
		}
		open = b.execute(ctx, left)
	}
	return results
}

// execute has the store do what has to be done there, and then waits for what others have it do: nobody waits for
// somebody who waits. It gives those that are to be decided again.
func (b *Branch) execute(ctx context.Context, all []pending) (again []pending) {
	if len(all) == 0 {
		return nil
	}
	reserves := make([]authority.Reserve, 0, len(all))
	for i := range all {
		if p := &all[i]; p.next == hand {
			reserves = append(reserves, *p.operation)
		} else if p.next == buy {
			reserves = append(reserves, p.buy)
		}
	}
	sent := b.config.Now()
	var answers []authority.Reserved
	if len(reserves) > 0 {
		answers = b.Store.Reserve(ctx, reserves)
	}
	received := b.config.Now()
	for i := range all {
		p := &all[i]
		if p.next == wait {
			continue
		}
		answer := answers[0]
		answers = answers[1:]
		if p.next == hand {
			*p.result = answer
			b.handed(p, sent, received)
		} else if b.took(p, answer, sent, received); p.result.Err == nil {
			again = append(again, *p)
		}
	}
	for i := range all {
		if p := &all[i]; p.next == wait {
			select {
			case <-p.bought:
			case <-ctx.Done(): // the store says so too
			}
			again = append(again, *p)
		}
	}
	return again
}

// decide answers a reserve out of what is held, or says what has to happen first.
func (b *Branch) decide(p *pending, round int) {
	s := b.shard(p.operation.Key.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := b.config.Now()
	if round == 0 {
		p.key = s.ask(p.operation, now, b.config.HotAsks)
	}
	if p.key != nil && !same(p.key.of, p.operation.Key) {
		p.key = nil // while this one waited another plan's ask has taken the key over, with leases of its own rates
	}
	if p.key == nil {
		p.next = hand
		return
	}
	k := p.key
	k.part = b.crowd.part()
	terms, what := k.terms(p.operation, now, k.part/float64(b.config.BatchShare))
	switch {
	case (p.operation.TTL == 0 || k.trusts(now)) && k.serve(p, now, round > 0 || what == denied, b.name):
		p.next = done
	case what == denied:
		k.deny(p, now)
		p.next = done
	case what == byItself || round >= maxRounds:
		p.next = hand
	case k.buying != nil:
		p.next, p.bought = wait, k.buying
	default:
		p.next, p.buy = buy, terms
		p.buy.Call = authority.ReplicaCall(b.config.Replica, b.serial.Add(1))
		k.buying = make(chan struct{})
	}
}

// handed notes what the store answered to a reserve of a hot key that was handed on.
func (b *Branch) handed(p *pending, sent, received instant.Instant) {
	if p.key == nil || p.result.Err != nil {
		return
	}
	s := b.shard(p.operation.Key.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if same(p.key.of, p.operation.Key) { // what is said of one plan is not true of another
		p.key.note(p.operation, p.result, false, sent, received)
	}
}

// took takes a lease in that was bought, or notes that there was none.
func (b *Branch) took(p *pending, r authority.Reserved, sent, received instant.Instant) {
	s := b.shard(p.operation.Key.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := p.key
	close(k.buying)
	k.buying = nil
	if r.Err != nil {
		p.result.Err = r.Err
		b.owe(debt{cancel: authority.Cancel{Key: p.buy.Key, Call: p.buy.Call}, until: received.Add(maxDebt)})
		return
	}
	k.note(&p.buy, &r, true, sent, received)
	if r.Units > 0 {
		k.leases = append(k.leases, newHeld(lease.New(r.Lease, r.Units, sent, received, r.StartIn, r.EndIn), r.Units))
		s.hold(k)
	}
}

// Settle implements authority.Store. A sub-lease of another replica's, or of an earlier life of this one, runs out by
// itself.
func (b *Branch) Settle(ctx context.Context, operations []authority.Settle) []error {
	errs := make([]error, len(operations))
	var through []authority.Settle
	var places []int
	for i := range operations {
		o := &operations[i]
		s := b.shard(o.Key.Name)
		if strings.HasPrefix(o.Lease, subPrefix) {
			s.settle(o, b.config.Now())
			continue
		}
		s.changed(o.Key.Name)
		through, places = append(through, *o), append(places, i)
	}
	if len(through) > 0 {
		for i, err := range b.Store.Settle(ctx, through) {
			errs[places[i]] = err
		}
	}
	return errs
}

// Cancel implements authority.Store. The call may have been granted units here, in the store, or both.
func (b *Branch) Cancel(ctx context.Context, operations []authority.Cancel) []error {
	for i := range operations {
		b.shard(operations[i].Key.Name).cancel(&operations[i], b.config.Now())
	}
	return b.Store.Cancel(ctx, operations)
}

// Peek implements authority.Store. What of this replica's own leases was given to nobody yet counts as left.
func (b *Branch) Peek(ctx context.Context, key authority.Key) ([]authority.State, error) {
	states, err := b.Store.Peek(ctx, key)
	free := b.shard(key.Name).free(key, b.config.Now())
	for i := range states {
		states[i].Remaining = min(states[i].Remaining+free, states[i].Rate.Most())
	}
	return states, err //nolint:wrapcheck // it is the store's own
}

// Reset implements authority.Store. This replica forgets what it knows and gives nothing more of what it holds; another one
// does by the end of its denials and leases.
func (b *Branch) Reset(ctx context.Context, key authority.Key) error {
	err := b.Store.Reset(ctx, key)
	if err == nil {
		b.shard(key.Name).reset(key.Name)
	}
	return err //nolint:wrapcheck // it is the store's own
}

// Inspect implements authority.Store. Of this replica's own leases it tells which sub-leases are out.
func (b *Branch) Inspect(ctx context.Context, key authority.Key, units int64) (authority.Inspection, error) {
	told, err := b.Store.Inspect(ctx, key, units)
	b.shard(key.Name).inspect(key.Name, told.Leases, b.config.Now())
	return told, err //nolint:wrapcheck // it is the store's own
}

// Connected implements authority.Store.
func (b *Branch) Connected(ctx context.Context, domain string, worker uint64, ttl time.Duration) (authority.Share, error) {
	share, err := b.Store.Connected(ctx, domain, worker, ttl)
	if err == nil {
		b.crowd.note(b.config.Now(), worker, share.Workers)
	}
	return share, err //nolint:wrapcheck // it is the store's own
}
