package replica

import (
	"context"
	"sync"
	"time"

	"sluice/filter/control"
	"sluice/filter/host"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// worker is one worker of the store's. Its lock is held for as long as a decision takes, and never across a wait.
type worker struct {
	config *Config
	calls  sync.WaitGroup
	// records are those of requests that are over, to be used again.
	records sync.Pool

	mu     sync.Mutex
	port   port
	client *control.Client
	keys   *control.Keys
	// pending are the requests that wait.
	pending map[*control.Request]*pending
	// wake has the replica tick sooner than at nextTick, for a request is held.
	wake     chan struct{}
	nextTick instant.Instant
	// lastRequest is when there was a request last, and the beginning of time before the first.
	lastRequest instant.Instant

	// own are the limits with rates that requests bring.
	own map[ownRate]*policy.Limit

	// Space that is used again by every request.
	rule   policy.Rule
	bound  []*control.Key
	nobody control.Request
}

// pending is a request that is decided, or waits for the store's answer or for a lease to start.
type pending struct {
	request control.Request
	done    chan struct{} // one is sent when it has waited and been decided
	into    *Decision
	demands []admission.Demand
	// places are those of the demands among the request's standings.
	places []int
}

// maxCalls is how many calls of a worker's are under way at once: for each of the two pipelines that the store has to a server
// one that is in it, and one that waits for it. More would only be smaller, and cost as much each.
const maxCalls = 4

// apart is for how long a worker waits for a call's answer before it makes another.
const apart = 5 * time.Millisecond

// maxOwn bounds the limits with rates of requests' own that are remembered. Whoever brings more has each made anew.
const maxOwn = 256

type ownRate struct {
	of   *policy.Limit
	rate limit.Rate
}

// withRate gives a limit with a rate that a request brings, the same one as long as it is remembered.
func (w *worker) withRate(of *policy.Limit, rate limit.Rate) *policy.Limit {
	l, known := w.own[ownRate{of, rate}]
	if !known {
		l = of.WithRate(rate)
		if len(w.own) >= maxOwn {
			clear(w.own)
		}
		w.own[ownRate{of, rate}] = l
	}
	return l
}

func newWorker(config *Config, wake chan struct{}) *worker {
	w := &worker{config: config, pending: map[*control.Request]*pending{}, own: map[ownRate]*policy.Limit{}, wake: wake}
	w.port = port{worker: w, config: config}
	w.client = control.New(&w.port, control.Config{
		Cluster: "store", Timeout: config.Timeout, MaxPaused: config.MaxPaused, MaxCalls: maxCalls, Apart: apart,
		MaxHeld: max(1, config.MaxHeld/config.Workers),
	}, w)
	w.keys = control.NewKeys(w.client, max(1, config.MaxKeys/config.Workers))
	return w
}

// PolicyArrived takes a policy over, with the counts of the limits that stay.
func (w *worker) PolicyArrived(p *policy.Policy) {
	clear(w.own)
	w.keys.SetPolicy(p)
}

// adopt puts the authority's policy in force; false where that is another one than the request was made for.
func (w *worker) adopt(p *policy.Policy) bool {
	if w.client.Policy() == p {
		return true
	}
	if w.config.Authority.Policy() != p {
		return false
	}
	w.client.Adopt(p)
	return true
}

// tick does what time alone brings about, and says when to look again at the latest.
func (w *worker) tick() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.config.Now()
	next := tickEvery
	if now.Sub(w.lastRequest) > idleAfter {
		next = idleTick
	}
	if p := w.config.Authority.Policy(); p != nil && w.adopt(p) {
		w.client.Tick()
		w.keys.Tick(now)
		next = min(next, max(time.Millisecond, w.client.NextHeld().Sub(now)))
	}
	w.nextTick = now.Add(next)
	return next
}

// ended takes the answer to a call, and gives the call that is to be made next, if any.
func (w *worker) ended(id host.CallID, r reply) (next func() (host.CallID, reply)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.port.answering = true
	w.client.CallEnded(id, r)
	w.tickInTime()
	next = w.port.next
	w.port.answering, w.port.next = false, nil
	return next
}

// tickInTime has the replica tick as early as the next request that is held is due.
func (w *worker) tickInTime() {
	if w.client.NextHeld() < w.nextTick {
		w.wakeUp()
	}
}

func (w *worker) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

func (w *worker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client.Stop()
}

// begin decides a request, and gives none, or has it wait.
func (w *worker) begin(ctx context.Context, p *policy.Policy, demands []Demand, into *Decision) (*pending, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.adopt(p) {
		return nil, ErrPolicyChanged
	}
	now := w.config.Now()
	if w.nextTick.Sub(now) > tickEvery {
		w.wakeUp() // it has been idle
	}
	w.lastRequest = now
	w.client.Release(now)
	w.bound = w.bound[:0]
	pd := w.take(into)
	wait := time.Duration(0)
	for i := range demands {
		d := &demands[i]
		w.rule = d.rule(p, w.withRate)
		if w.rule.Unlimited {
			into.Standings = append(into.Standings, Standing{})
			continue
		}
		e := w.keys.Get(now, &policy.Bound{Limit: d.Limit, Rule: &w.rule, Key: d.Key, Cost: d.Cost})
		into.Standings = append(into.Standings, Standing{Told: e.Told})
		if w.rule.Shadow {
			pd.request.Shadows = append(pd.request.Shadows, control.Shadow{Key: e.Key, Cost: d.Cost})
			continue
		}
		into.Limits = append(into.Limits, e.Told)
		pd.places = append(pd.places, i)
		pd.demands = append(pd.demands, e.Key.Demand(d.Cost))
		w.bound = append(w.bound, e.Key)
		wait = max(wait, e.Key.Admission.MaxWait())
	}
	if wait > 0 {
		pd.request.Until = w.until(ctx, now)
	}
	out, decided := w.client.Decide(now, &pd.request, w.bound, pd.demands)
	w.tickInTime()
	if decided {
		pd.stand(now, out)
		w.release(pd)
		pd = nil
	} else {
		w.pending[&pd.request] = pd
	}
	return pd, nil
}

// until gives when a request has to be decided, for its answer to be there before its caller's deadline; 0 where it has none.
func (w *worker) until(ctx context.Context, now instant.Instant) instant.Instant {
	deadline, has := ctx.Deadline()
	if !has || w.config.Left == nil {
		return 0
	}
	left := w.config.Left(deadline)
	return now.Add(max(0, left-max(minAnswer, left/answerShare)))
}

// free gives the units of leases in hand that may be spent for a demand.
func (w *worker) free(p *policy.Policy, d *Demand, rule *policy.Rule) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client.Policy() != p {
		return 0
	}
	return w.keys.Free(w.config.Now(), &policy.Bound{Limit: d.Limit, Rule: rule, Key: d.Key})
}

// stand notes what was decided, and how the limits stand that it was decided by.
func (pd *pending) stand(now instant.Instant, out admission.Output) {
	pd.into.Output = out
	denied := out.Verdict != admission.Admit
	for i, d := range pd.demands {
		one := out
		if i != out.Demand {
			one = d.Standing(now, denied)
		}
		s := &pd.into.Standings[pd.places[i]]
		s.Over = one.Verdict == admission.Deny
		s.Rate, s.Remaining, s.Reset, s.RetryAfter = one.Rate, one.Remaining, one.Reset, one.RetryAfter
	}
}

// Decided ends a wait.
func (w *worker) Decided(now instant.Instant, r *control.Request, out admission.Output) {
	pd := w.pending[r]
	delete(w.pending, r)
	pd.stand(now, out)
	pd.done <- struct{}{}
}

// ShadowDecided is told what nobody waits for.
func (w *worker) ShadowDecided(instant.Instant, control.Shadow, admission.Output) {}

// TraceID knows of none: Envoy's own rate limit filter sends no request's headers.
func (w *worker) TraceID(*control.Request) string { return "" }

// count counts a request that no worker of the store's has decided.
func (w *worker) count(p *policy.Policy, limit string, out admission.Output) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.adopt(p) // without one it reports nothing
	w.client.Count(w.config.Now(), &w.nobody, wire.KeyRef{Limit: limit}, &out)
}

// take gives a record of a request.
func (w *worker) take(into *Decision) *pending {
	pd, _ := w.records.Get().(*pending)
	if pd == nil {
		pd = &pending{done: make(chan struct{}, 1)}
	}
	pd.into = into
	return pd
}

// release takes a record back that nothing refers to any more.
func (w *worker) release(pd *pending) {
	clear(pd.demands)
	clear(pd.request.Shadows)
	pd.request.Until, pd.request.Shadows = 0, pd.request.Shadows[:0]
	pd.into, pd.demands, pd.places = nil, pd.demands[:0], pd.places[:0]
	w.records.Put(pd)
}

// forget drops a request whose caller waits no more; false where it has been decided.
func (w *worker) forget(pd *pending) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waits := w.pending[&pd.request]; !waits {
		return false
	}
	w.client.Forget(&pd.request)
	delete(w.pending, &pd.request)
	w.release(pd)
	return true
}
