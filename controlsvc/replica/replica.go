// Package replica makes a replica of the service a worker of its own store: it decides requests itself, for those who ask
// for a decision and hold no leases, as Envoy's own rate limit filter.
//
// It is the filter's conversation (filter/control) and decision (shared/admission), with a port in process where the filter
// has a proxy. So what the replica spends is leased, charged, settled and abandoned as a filter's worker does it, under the
// same guarantee. There are several workers, each with a lock of its own; a request belongs to the one of its first key.
package replica

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"sync/atomic"
	"time"

	"sluice/controlsvc/authority"
	"sluice/filter/control"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/ratefields"
)

// ErrPolicyChanged says that the demands were made of a policy that is not in force any more: they are to be made again.
var ErrPolicyChanged = errors.New("the policy has changed")

// Config says what a Replica stands on. Authority, Now, Random and Logger have to be set.
type Config struct {
	Authority *authority.Authority
	// Now reads a clock that never steps back. Random draws numbers that no other process draws.
	Now    func() instant.Instant
	Random func() uint64
	Logger *slog.Logger
	// Workers is how many requests are decided at once at most, 1 to 64; 0: 1.
	Workers int
	// Timeout is how long a request waits for the store until its limits' on_unavailable decides; 0: DefaultTimeout.
	Timeout time.Duration
	// Left gives how long it is until a context's deadline, before which a request is decided that max_wait would hold for
	// longer; nil: requests are held for as long as max_wait says.
	Left func(deadline time.Time) time.Duration
	// MaxKeys bounds the keys that are remembered, MaxPaused the requests of a worker that wait for the store at once, and MaxHeld
	// those of all workers that max_wait holds at once; 0: the defaults.
	MaxKeys, MaxPaused, MaxHeld int
}

// What a Config stands for where it says nothing.
const (
	DefaultTimeout   = 75 * time.Millisecond
	DefaultMaxKeys   = 100_000
	DefaultMaxPaused = 4096

	maxWorkers = 64
	// Of what a caller has left until its deadline one part in answerShare, and minAnswer at least, is for the answer's way: it is
	// not held then.
	answerShare = 10
	minAnswer   = 5 * time.Millisecond
	// tickEvery is how often deadlines and leases are looked at while there are requests, and idleTick how often once there has
	// been none for idleAfter: nothing waits by then, and every lease has ended.
	tickEvery = 10 * time.Millisecond
	idleTick  = 500 * time.Millisecond
	idleAfter = 10 * time.Second
)

// Replica decides requests. Its methods may be called by many goroutines at once.
type Replica struct {
	config  Config
	workers []*worker
	seed    maphash.Seed
	// wake has Run look at the workers sooner than it would, for a request is held.
	wake chan struct{}
	// looks counts the calls that only look, of which the replica is another worker.
	looks atomic.Uint64
}

// New gives a replica that holds nothing yet. Run has to be called.
func New(config Config) *Replica {
	config.Workers = min(max(config.Workers, 1), maxWorkers)
	if config.Timeout <= 0 {
		config.Timeout = DefaultTimeout
	}
	if config.MaxKeys <= 0 {
		config.MaxKeys = DefaultMaxKeys
	}
	if config.MaxPaused <= 0 {
		config.MaxPaused = DefaultMaxPaused
	}
	if config.MaxHeld <= 0 {
		config.MaxHeld = config.Workers * control.MaxHeld
	}
	r := &Replica{config: config, seed: maphash.MakeSeed(), wake: make(chan struct{}, 1)}
	for range config.Workers {
		r.workers = append(r.workers, newWorker(&r.config, r.wake))
	}
	return r
}

// Run keeps deadlines until the context ends.
func (r *Replica) Run(ctx context.Context, after func(time.Duration) <-chan time.Time) {
	for {
		next := idleTick
		for _, w := range r.workers {
			next = min(next, w.tick())
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-after(max(next, time.Millisecond)):
		}
	}
}

// Stop gives back what the replica holds, and waits for what is under way. It is called once nothing is decided any more.
func (r *Replica) Stop() {
	for range 2 { // the second time they tell what a report on its way has kept back
		for _, w := range r.workers {
			w.stop()
		}
		for _, w := range r.workers {
			w.calls.Wait()
		}
	}
}

// Demand is what a request needs of one limit: Cost units of a key, as policy.Bound has it. Of cost 0 the limit is only
// looked at, and denies where it has nothing left.
type Demand struct {
	// Limit is an index into the policy's limits.
	Limit int
	Key   string
	Cost  int64
	// Own is a rate that holds instead of the limit's, and whose count is apart from it; the zero value: none.
	Own limit.Rate
}

// rule gives what holds for the demand.
func (d *Demand) rule(p *policy.Policy, own func(of *policy.Limit, rate limit.Rate) *policy.Limit) policy.Rule {
	l := &p.Limits[d.Limit]
	if d.Own.Window != 0 {
		l = own(l, d.Own)
	}
	return l.Rule("", d.Key)
}

// Standing is how a limit stands after a decision.
type Standing struct {
	// Told is the limit; nil where it does not bind the key.
	Told *ratefields.Limit
	// Over says that the limit denies the request, or would by itself in shadow.
	Over bool
	// Rate, Remaining, Reset and RetryAfter are as in admission.Output.
	Rate              limit.Rate
	Remaining         int64
	Reset, RetryAfter time.Duration
}

// Decision is what became of a request. A caller that uses it again keeps its space.
type Decision struct {
	admission.Output

	// Limits are those that were decided; Output.Demand is an index into them.
	Limits []*ratefields.Limit
	// Standings are how the demands' limits stand, in their order.
	Standings []Standing
}

// Decide decides a request that is under several limits of a policy, all or nothing: a denied one is charged nothing. No two
// demands are for one key. A request that cannot be held until its units are free is denied at once. An error: the context ended,
// or ErrPolicyChanged.
func (r *Replica) Decide(ctx context.Context, p *policy.Policy, demands []Demand, into *Decision) error {
	into.Output = admission.Output{Verdict: admission.Admit, Source: admission.FromPolicy, Demand: -1}
	into.Limits, into.Standings = into.Limits[:0], into.Standings[:0]
	if len(demands) == 0 {
		r.workers[0].count(p, "", into.Output)
		return nil
	}
	for i := range demands {
		if demands[i].Cost == 0 {
			return r.look(ctx, p, demands, into)
		}
	}
	return r.decide(ctx, p, demands, into)
}

func (r *Replica) decide(ctx context.Context, p *policy.Policy, demands []Demand, into *Decision) error {
	w := r.workers[0]
	if len(r.workers) > 1 {
		w = r.workers[maphash.String(r.seed, demands[0].Key)%uint64(len(r.workers))]
	}
	waits, err := w.begin(ctx, p, demands, into)
	if waits == nil || err != nil {
		return err
	}
	select {
	case <-waits.done:
	case <-ctx.Done():
		if w.forget(waits) {
			return ctx.Err()
		}
		<-waits.done // it has been decided meanwhile
	}
	w.release(waits)
	return nil
}
