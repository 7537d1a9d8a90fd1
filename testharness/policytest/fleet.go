package policytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sort"
	"strings"
	"time"

	"sluice/controlsvc/policyfile"
	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/testharness/filterrun"
)

// Config says what a Fleet is made of.
type Config struct {
	// Policy is the policy file's text, and PolicyName what mistakes in it are told of; or Compiled is the policy itself.
	Policy     []byte
	PolicyName string
	Compiled   *policy.Policy
	// Wasm is the filter, as the proxy loads it.
	Wasm []byte
	// Workers is how many there are, 1 to 64; 0 means 1.
	Workers int
	// Plugin is the plugin's configuration, JSON; empty means {}.
	Plugin string
	// Network is what lies between the workers and the service, until SetNetwork.
	Network Network
	// Seed is what the workers' random numbers follow from.
	Seed uint64
	// NewRunner makes a worker in another way than from Wasm.
	NewRunner func(seed uint64) filterrun.Runner
}

// Network is what becomes of calls. The zero value is one that takes no time.
type Network struct {
	// Delay is how long a call and its answer take together. A call takes effect at half of it.
	Delay time.Duration
	// Away: every call fails at once, as where nobody listens.
	Away bool
	// LosesCalls: none arrives, and the proxy tells of a timeout. LosesAnswers: they arrive and are acted on.
	LosesCalls, LosesAnswers bool
	// Silent: none arrives, and nobody is ever told.
	Silent bool
}

// Header is a field's name, in lower case, and its value.
type Header = host.Header

// Request is what a client sends. An empty method is GET, an empty path /.
type Request struct {
	Method, Path string
	Headers      []Header
	// From is the client's address; empty means 127.0.0.1.
	From string
	// Properties are attributes of the proxy's, by their paths with slashes between the parts.
	Properties map[string]string
}

// Answer is what a client gets.
type Answer struct {
	// Fate is fake.Waiting until it is decided, fake.Gone where the client left before that.
	Fate fake.Fate
	// Status is 200 where the request was sent on: the upstream answers so at once.
	Status int
	// Headers are those that the filter gives or adds.
	Headers []Header
	// Body is the filter's own; empty where the upstream answered.
	Body string
	// Waited is how long the filter held the request.
	Waited time.Duration
}

// Get gives the header's first value; "" where there is none.
func (a Answer) Get(name string) string {
	for _, h := range a.Headers {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}

// Exchange is a request under way.
type Exchange struct {
	worker, number int
	answer         Answer
}

// Answer gives what has become of the request so far.
func (x *Exchange) Answer() Answer { return x.answer }

// Bounds on a Fleet.
const (
	maxWorkers = 64
	// maxWarmUp is how long the workers may take to get their policy.
	maxWarmUp = 30 * time.Second
	// maxWait bounds Do, and what Finish waits for.
	maxWait = 2 * time.Minute
	// maxAtOnce bounds what happens at one instant.
	maxAtOnce = 100_000
	// epoch is the service's clock when the fleet's is 0: no clock is compared across machines.
	epoch = instant.Instant(1_764_000_000_000_000)
)

// Fleet is workers and the service. It may be used by one goroutine at a time.
type Fleet struct {
	ctx      context.Context //nolint:containedctx // it bounds what the fleet does, in one goroutine
	runners  []filterrun.Runner
	service  *Service
	network  Network
	now      time.Duration
	began    time.Duration
	events   []event
	drawn    int
	open     []*Exchange
	policies int // how many fetches were answered
	problems []string
}

// event is something that happens at an instant; of those at one instant, the one that was planned first.
type event struct {
	at    time.Duration
	order int
	do    func()
}

// Start gives a fleet whose workers have their policy. Its time begins at 0.
func Start(ctx context.Context, c Config) (*Fleet, error) {
	p := c.Compiled
	if p == nil {
		var err error
		if p, err = policyfile.Parse(c.PolicyName, c.Policy); err != nil {
			return nil, err
		}
	}
	if c.Workers == 0 {
		c.Workers = 1
	}
	if c.Workers < 0 || c.Workers > maxWorkers {
		return nil, fmt.Errorf("%d workers: want 1 to %d", c.Workers, maxWorkers)
	}
	if c.NewRunner == nil {
		if len(c.Wasm) == 0 {
			return nil, errors.New("no filter: want the bytes of the .wasm")
		}
		c.NewRunner = func(seed uint64) filterrun.Runner { return filterrun.NewWasm(ctx, c.Wasm, seed) }
	}
	if c.Plugin == "" {
		c.Plugin = "{}"
	}
	f := &Fleet{ctx: ctx}
	f.service = NewService(p, func() instant.Instant { return epoch.Add(f.now) })
	for i := range c.Workers {
		r := c.NewRunner(c.Seed + uint64(i) + 1)
		f.runners = append(f.runners, r)
		if !r.Start(c.Plugin) {
			said := strings.Join(append(r.Log(), r.Misuse()...), "; ")
			f.Close()
			return nil, fmt.Errorf("the filter does not start: %s", said)
		}
	}
	for f.policies < c.Workers {
		if f.now >= maxWarmUp {
			f.Close()
			return nil, fmt.Errorf("after %v, %d of %d workers have a policy", maxWarmUp, f.policies, c.Workers)
		}
		f.Advance(10 * time.Millisecond)
	}
	f.began = f.now
	f.network = c.Network
	return f, nil
}

// Close ends the fleet.
func (f *Fleet) Close() {
	for _, r := range f.runners {
		r.Close()
	}
}

// Now is how long it is since the start.
func (f *Fleet) Now() time.Duration { return f.now - f.began }

// Service is what the workers ask.
func (f *Fleet) Service() *Service { return f.service }

// SetNetwork changes what becomes of the calls that are made from now on.
func (f *Fleet) SetNetwork(n Network) { f.network = n }

// SetPolicy puts another policy in force; the workers hear of it as they would.
func (f *Fleet) SetPolicy(name string, text []byte) error {
	p, err := policyfile.Parse(name, text)
	if err == nil {
		f.service.SetPolicy(p)
	}
	return err
}

// Problems lists what a filter did that a proxy would not forgive, and its traps. A test ends with a look at it.
func (f *Fleet) Problems() []string {
	out := append([]string(nil), f.problems...)
	for i, r := range f.runners {
		for _, line := range r.Misuse() {
			out = append(out, fmt.Sprintf("worker %d: %s", i+1, line))
		}
	}
	return out
}

// Do sends a request to a worker, counted from 0, and lets time pass until it is decided.
func (f *Fleet) Do(worker int, r Request) Answer {
	x := f.Send(worker, r)
	f.Finish()
	return x.Answer()
}

// Finish lets time pass until no request waits, at most two minutes.
func (f *Fleet) Finish() {
	f.settle()
	for end := f.now + maxWait; len(f.open) > 0 && f.now < end; {
		f.step(end)
	}
}

// Send sends a request to a worker, counted from 0. Its answer comes with time, or at once.
func (f *Fleet) Send(worker int, r Request) *Exchange {
	if r.Method == "" {
		r.Method = "GET"
	}
	if r.Path == "" {
		r.Path = "/"
	}
	if r.From == "" {
		r.From = "127.0.0.1"
	}
	headers := []host.Header{{":method", r.Method}, {":path", r.Path}, {":authority", "policytest"}, {":scheme", "http"}}
	for _, h := range r.Headers {
		if h[0] == ":authority" {
			headers[2][1] = h[1]
			continue
		}
		headers = append(headers, h)
	}
	address := r.From + ":50000"
	if strings.Contains(r.From, ":") {
		address = "[" + r.From + "]:50000"
	}
	properties := map[string]string{"source.address": address}
	maps.Copy(properties, r.Properties)
	x := &Exchange{worker: worker}
	x.number = f.runners[worker].Request(headers, properties)
	f.open = append(f.open, x)
	f.settle()
	return x
}

// Leave is the client hanging up.
func (f *Fleet) Leave(x *Exchange) {
	if x.answer.Fate == fake.Waiting {
		f.runners[x.worker].End(x.number)
		f.settle()
	}
}

// Advance lets time pass.
func (f *Fleet) Advance(d time.Duration) {
	f.settle()
	for end := f.now + d; ; {
		f.step(end)
		if f.now >= end {
			return
		}
	}
}

// step goes to the next instant at which something happens, or to the end, and does all that happens there.
func (f *Fleet) step(end time.Duration) {
	next := end
	for _, r := range f.runners {
		if d, ticks := r.NextTick(); ticks {
			next = min(next, f.now+max(0, d))
		}
	}
	if len(f.events) > 0 {
		next = min(next, f.events[0].at)
	}
	passed := next - f.now
	f.now = next
	for _, r := range f.runners {
		r.Advance(passed)
	}
	f.settle()
	for n := 0; len(f.events) > 0 && f.events[0].at <= f.now; n++ {
		if n >= maxAtOnce {
			f.problems = append(f.problems, fmt.Sprintf("more than %d things happen at %v", maxAtOnce, f.Now()))
			f.events = nil
			return
		}
		e := f.events[0]
		f.events = f.events[1:]
		e.do()
		f.settle()
	}
}

// after plans something.
func (f *Fleet) after(d time.Duration, do func()) {
	f.drawn++
	e := event{at: f.now + d, order: f.drawn, do: do}
	at := sort.Search(len(f.events), func(i int) bool { return f.events[i].at > e.at })
	f.events = append(f.events, event{})
	copy(f.events[at+1:], f.events[at:])
	f.events[at] = e
}

// settle takes up the calls that were made, and answers the clients of the requests that were decided.
func (f *Fleet) settle() {
	for i, r := range f.runners {
		for _, call := range r.Calls() {
			f.transmit(i, call)
		}
	}
	waiting := f.open[:0]
	for _, x := range f.open {
		if !f.decided(x) {
			waiting = append(waiting, x)
		}
	}
	clear(f.open[len(waiting):])
	f.open = waiting
}

func (f *Fleet) decided(x *Exchange) bool {
	r := f.runners[x.worker]
	o := r.Outcome(x.number)
	if o.Fate == fake.Waiting {
		return false
	}
	x.answer = Answer{Fate: o.Fate, Waited: o.Decided.Sub(o.Arrived), Status: o.Status, Body: o.Body, Headers: o.Headers}
	if o.Fate == fake.Passed {
		x.answer.Status, x.answer.Headers = 200, r.Respond(x.number)
	}
	r.End(x.number)
	return true
}

// transmit has the network take a call.
func (f *Fleet) transmit(worker int, call *fake.Call) {
	r, n, sent := f.runners[worker], f.network, f.now
	over := false
	finish := func(reply fake.Reply) {
		if !over {
			over = true
			r.Finish(call, reply)
		}
	}
	if n.Silent {
		return
	}
	if n.Away {
		f.after(0, func() { finish(failed(14, "no healthy upstream")) })
		return
	}
	if call.Timeout > 0 {
		f.after(call.Timeout, func() { finish(timedOut()) })
	}
	if n.LosesCalls {
		return
	}
	path, _ := call.Header(":path")
	f.after(n.Delay/2, func() {
		reply := f.service.Answer(f.ctx, path, call.Body)
		if n.LosesAnswers {
			return
		}
		f.after(n.Delay-(f.now-sent), func() {
			if strings.HasSuffix(path, "/GetPolicy") {
				f.policies++
			}
			finish(reply)
		})
	})
}
