package replica

import (
	"sync"
	"time"

	"sluice/filter/control"
	"sluice/filter/host"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// worker is one worker of the store's. Its lock is held for as long as a decision takes, and never across a wait.
type worker struct {
	config *Config
	calls  sync.WaitGroup
	// records are those of requests that do not wait any more, to be used again.
	records sync.Pool

	mu     sync.Mutex
	port   port
	client *control.Client
	keys   *control.Keys
	// pending are the requests that wait, and shadows those that nobody waits for.
	pending map[*control.Request]*pending
	shadows int
	// due are the limits in shadow of requests that have just been admitted: nothing is asked while the client decides.
	due []shadow
	// wake has the replica tick sooner than at nextTick, for a request is held.
	wake     chan struct{}
	nextTick instant.Instant
	// lastRequest is when there was a request last, and the beginning of time before the first.
	lastRequest instant.Instant

	// own are the limits with rates that requests bring.
	own map[ownRate]*policy.Limit

	// Space that is used again by every request.
	rule     policy.Rule
	bound    []*control.Key
	demands  []admission.Demand
	inShadow []shadow
}

// pending is a request that waits for the store's answer, or for a lease to start.
type pending struct {
	request control.Request
	done    chan struct{} // one is sent when it has been decided
	into    *Decision     // nil for a shadow
	demands []admission.Demand
	shadows []shadow
	// places are those of the demands among the request's standings.
	places []int
	// late says that the caller waits for done; before then it takes the decision from here.
	late bool
}

// shadow is a limit in shadow that a request is under.
type shadow struct {
	key   *control.Key
	cost  int64
	place int
}

// shadowShare is which part of the requests that may wait at once, one in so many, may wait for the sake of a shadow.
const shadowShare = 4

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
	w.client = control.New(&w.port, control.Config{Cluster: "store", Timeout: config.Timeout, MaxPaused: config.MaxPaused}, w)
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
		w.decideShadows(now)
		next = min(next, max(time.Millisecond, w.client.NextHeld().Sub(now)))
	}
	w.nextTick = now.Add(next)
	return next
}

func (w *worker) ended(id host.CallID, r reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client.CallEnded(id, r)
	w.decideShadows(w.config.Now())
	w.tickInTime()
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

// begin decides a request, or has it wait.
func (w *worker) begin(p *policy.Policy, demands []Demand, into *Decision) (*pending, error) {
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
	w.bound, w.demands, w.inShadow = w.bound[:0], w.demands[:0], w.inShadow[:0]
	var room [16]int
	places := room[:0]
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
			w.inShadow = append(w.inShadow, shadow{e.Key, d.Cost, i})
			continue
		}
		into.Limits = append(into.Limits, e.Told)
		places = append(places, i)
		w.bound = append(w.bound, e.Key)
		w.demands = append(w.demands, e.Key.Demand(d.Cost))
	}
	waits := w.decide(now, into, places)
	w.decideShadows(now)
	w.tickInTime()
	return waits, nil
}

func (w *worker) decide(now instant.Instant, into *Decision, places []int) *pending {
	in := w.client.Input(w.demands)
	in.Since = now
	out := admission.Step(now, in)
	if out.Verdict == admission.Ask {
		pd := w.take(into, places)
		if w.client.Ask(now, &pd.request, w.bound, pd.demands) {
			if _, waits := w.pending[&pd.request]; waits {
				pd.late = true
				return pd
			}
			w.release(pd)
			return nil
		}
		w.drop(pd)
		in.Away, in.Again = true, true
		out = admission.Step(now, in)
	}
	if out.Verdict == admission.Hold {
		pd := w.take(into, places)
		if w.client.Hold(now, &pd.request, w.bound, pd.demands, out.RetryAfter) {
			pd.late = true
			return pd
		}
		w.drop(pd)
		out.Verdict = admission.Deny // there is no room to wait
	}
	if out.Verdict == admission.Admit {
		w.client.Admitted(now, w.bound)
	} else if out.Source == admission.FromCount {
		w.client.Recount(now, w.bound)
	}
	into.Output = out
	stand(now, into, w.demands, places)
	if out.Verdict == admission.Admit {
		w.due = append(w.due, w.inShadow...)
	}
	return nil
}

// stand notes how the limits stand that were decided.
func stand(now instant.Instant, into *Decision, demands []admission.Demand, places []int) {
	denied := into.Verdict != admission.Admit
	for i, d := range demands {
		out := into.Output
		if i != into.Demand {
			out = d.Standing(now, denied)
		}
		s := &into.Standings[places[i]]
		s.Over = out.Verdict == admission.Deny
		s.Rate, s.Remaining, s.Reset, s.RetryAfter = out.Rate, out.Remaining, out.Reset, out.RetryAfter
	}
}

// Decided ends a wait.
func (w *worker) Decided(now instant.Instant, r *control.Request, out admission.Output) {
	pd := w.pending[r]
	delete(w.pending, r)
	if pd.into == nil {
		w.shadows--
		w.release(pd)
		return
	}
	pd.into.Output = out
	stand(now, pd.into, pd.demands, pd.places)
	if out.Verdict == admission.Admit {
		w.due = append(w.due, pd.shadows...)
	}
	if pd.late {
		pd.done <- struct{}{}
	}
}

// decideShadows decides the limits in shadow of requests that were admitted, each by itself and as if it were in force.
// Where that takes the store's answer nobody waits for it.
func (w *worker) decideShadows(now instant.Instant) {
	for next := 0; next < len(w.due); { // an ask that cannot be made may decide others, and add to them
		s := w.due[next]
		next++
		w.decideShadow(now, s)
	}
	clear(w.due)
	w.due = w.due[:0]
}

func (w *worker) decideShadow(now instant.Instant, s shadow) {
	w.bound = append(w.bound[:0], s.key)
	w.demands = append(w.demands[:0], s.key.Demand(s.cost))
	in := w.client.Input(w.demands)
	in.Since = now
	out := admission.Step(now, in)
	if out.Verdict == admission.Ask {
		if w.shadows < max(1, w.config.MaxPaused/shadowShare) {
			w.inShadow = w.inShadow[:0]
			pd := w.take(nil, nil)
			w.shadows++
			if w.client.Ask(now, &pd.request, w.bound, pd.demands) {
				return
			}
			w.shadows--
			w.drop(pd)
		}
		in.Away, in.Again = true, true
		out = admission.Step(now, in)
	}
	switch {
	case out.Verdict == admission.Admit:
		w.client.Admitted(now, w.bound)
	case out.Source == admission.FromCount:
		w.client.Recount(now, w.bound)
	}
}

// take gives a record of a request that is to wait.
func (w *worker) take(into *Decision, places []int) *pending {
	pd, _ := w.records.Get().(*pending)
	if pd == nil {
		pd = &pending{done: make(chan struct{}, 1)}
	}
	pd.into, pd.late = into, false
	pd.demands = append(pd.demands[:0], w.demands...)
	pd.places = append(pd.places[:0], places...)
	pd.shadows = append(pd.shadows[:0], w.inShadow...)
	w.pending[&pd.request] = pd
	return pd
}

// release takes a record back that nothing refers to any more.
func (w *worker) release(pd *pending) {
	clear(pd.demands)
	clear(pd.shadows)
	pd.into = nil
	w.records.Put(pd)
}

// drop takes back the record of a request that cannot wait.
func (w *worker) drop(pd *pending) {
	delete(w.pending, &pd.request)
	w.release(pd)
}

// forget drops a request whose caller waits no more; false where it has been decided.
func (w *worker) forget(pd *pending) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waits := w.pending[&pd.request]; !waits {
		return false
	}
	w.client.Forget(&pd.request)
	w.drop(pd)
	return true
}
