package plugin_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/wire"
)

// flight is a call on its way, with the answers that the service has given to it so far.
type flight struct {
	worker  int
	call    *fake.Call
	answers []fake.Reply
}

// chaos is workers and a service between which everything is delayed, lost and repeated.
type chaos struct {
	*world
	rt       *rapid.T
	requests [][]int // of each worker
	kinds    []map[int]kind
	flights  []*flight
}

// kind is what a request is under.
type kind struct {
	tenant  string
	reports bool
}

const (
	chaosWorkers   = 3
	chaosRate      = 12
	chaosWindow    = 300 * milli
	chaosReports   = 30 // an hour: over a whole run, so that a unit spent twice is seen whenever it happens
	chaosNoAnswers = 40
)

func newChaos(t *testing.T, rt *rapid.T) *chaos {
	c := &chaos{world: newWorld(t, chaosWorkers, newNative), rt: rt}
	c.with(withReports(shop("v1", limit.Deny, rate(chaosRate, chaosWindow)), rate(chaosReports, time.Hour)))
	for range c.workers {
		c.requests = append(c.requests, nil)
		c.kinds = append(c.kinds, map[int]kind{})
	}
	return c
}

func (c *chaos) some() int { return rapid.IntRange(0, chaosWorkers-1).Draw(c.rt, "worker") }

func (c *chaos) someone() (worker int, k kind) {
	return c.some(), kind{
		tenant:  rapid.SampledFrom([]string{"acme", "beta"}).Draw(c.rt, "tenant"),
		reports: rapid.Bool().Draw(c.rt, "reports"),
	}
}

func (c *chaos) request(worker int, k kind) {
	headers := get(k.tenant)
	if k.reports {
		headers = post(k.tenant)
	}
	r := c.workers[worker].request(headers, nil)
	c.requests[worker] = append(c.requests[worker], r)
	c.kinds[worker][r] = k
}

// collect takes the calls that were made since; of very many that nobody answered the oldest are lost.
func (c *chaos) collect() {
	for i, worker := range c.workers {
		for _, call := range worker.calls() {
			c.flights = append(c.flights, &flight{worker: i, call: call})
		}
	}
	if over := len(c.flights) - chaosNoAnswers; over > 0 {
		c.flights = c.flights[over:]
	}
}

func (c *chaos) flight() *flight {
	if len(c.flights) == 0 {
		return nil
	}
	// Mostly one of the latest, for the others are given up by now.
	oldest := 0
	if rapid.IntRange(0, 9).Draw(c.rt, "any") > 0 {
		oldest = max(0, len(c.flights)-5)
	}
	return c.flights[rapid.IntRange(oldest, len(c.flights)-1).Draw(c.rt, "call")]
}

func (c *chaos) step() {
	switch action := rapid.IntRange(0, 21).Draw(c.rt, "action"); action {
	case 0, 1, 2, 3: // a burst from one tenant, of one kind
		worker, k := c.someone()
		for range rapid.IntRange(1, 4).Draw(c.rt, "requests") {
			c.request(worker, k)
		}
	case 4, 5, 6:
		c.advance(time.Duration(rapid.IntRange(0, 60_000).Draw(c.rt, "µs")) * time.Microsecond)
	case 7, 8, 9, 10, 11: // a round trip
		if f := c.flight(); f != nil {
			answer := c.execute(f.call)
			f.answers = append(f.answers, answer)
			c.leave(f.worker)
			c.workers[f.worker].finish(f.call, answer)
		}
	case 12, 13, 14: // the service acts on a call, perhaps not for the first time
		if f := c.flight(); f != nil {
			f.answers = append(f.answers, c.execute(f.call))
		}
	case 15, 16: // an answer arrives, perhaps not for the first time
		if f := c.flight(); f != nil && len(f.answers) > 0 {
			answer := f.answers[rapid.IntRange(0, len(f.answers)-1).Draw(c.rt, "answer")]
			c.workers[f.worker].finish(f.call, answer)
		}
	case 17: // a call breaks
		if f := c.flight(); f != nil {
			c.workers[f.worker].finish(f.call, fake.Reply{})
		}
	case 18, 19, 20:
		c.leave(c.some())
	case 21:
		c.trouble()
	}
	c.collect()
}

// leave ends a stream, perhaps: its client leaves, or has its answer.
func (c *chaos) leave(worker int) {
	n := len(c.requests[worker])
	if n == 0 || rapid.Bool().Draw(c.rt, "stays") {
		return
	}
	r := c.requests[worker][rapid.IntRange(max(0, n-10), n-1).Draw(c.rt, "request")]
	if c.workers[worker].outcome(r).fate == fake.Passed {
		c.workers[worker].respond(r)
	}
	c.workers[worker].end(r)
}

func (c *chaos) trouble() {
	s := c.service
	if s.storeDown || s.deaf || s.flaky != nil {
		c.calm()
		return
	}
	switch rapid.IntRange(0, 4).Draw(c.rt, "trouble") {
	case 0:
		s.storeDown, s.chargeAnyway = true, rapid.Bool().Draw(c.rt, "charge anyway")
	case 1:
		s.deaf = true
	case 2:
		s.flaky = func() bool { return rapid.Bool().Draw(c.rt, "lost") }
	case 3:
		next := *s.policy
		next.Version += "'"
		if len(next.Version) < 100 {
			s.policy = &next
		}
	case 4:
		worker, k := c.someone()
		c.workers[worker].refuse(true)
		c.request(worker, k)
		c.workers[worker].refuse(false)
	}
}

func (c *chaos) calm() { c.service.storeDown, c.service.deaf, c.service.flaky = false, false, nil }

// inTime checks that nobody waits longer than a timeout and a tick.
func (c *chaos) inTime() {
	for i, worker := range c.workers {
		for _, r := range c.requests[i] {
			o := worker.outcome(r)
			until := o.decided
			if o.fate == fake.Waiting {
				until = worker.now()
			}
			if waited := until.Sub(o.arrived); waited > timeout+tick {
				c.rt.Fatalf("worker %d, request %d: %s after %v", i, r, o.fate, waited)
			}
		}
	}
}

// span is an admitted request: it was admitted at an instant of these, both included.
type span struct{ arrived, released instant.Instant }

// worst is the most that was certainly admitted in any window, seen from outside: requests that came after it began and
// were let go before it ended.
func worst(spans []span, window time.Duration) int {
	most := 0
	for _, last := range spans {
		n := 0
		for _, s := range spans {
			if s.arrived > last.released.Add(-window) && s.released <= last.released {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// held checks that no window holds more than its limit.
func (c *chaos) held() {
	byTenant, reports := map[string][]span{}, map[string][]span{}
	for i, worker := range c.workers {
		if misuse := worker.misuse(); len(misuse) > 0 {
			c.rt.Fatalf("worker %d: misuse of the proxy:\n%s", i, strings.Join(misuse, "\n"))
		}
		for _, r := range c.requests[i] {
			o, k := worker.outcome(r), c.kinds[i][r]
			if o.fate != fake.Passed {
				continue
			}
			s := span{o.arrived, o.decided}
			byTenant[k.tenant] = append(byTenant[k.tenant], s)
			if k.reports {
				reports[k.tenant] = append(reports[k.tenant], s)
			}
		}
	}
	for tenant, spans := range byTenant {
		c.paidFor("tenant", tenant, len(spans))
		if n := worst(spans, chaosWindow); n > chaosRate {
			c.rt.Fatalf("%s: %d admitted within %v, want at most %d", tenant, n, chaosWindow, chaosRate)
		}
	}
	for tenant, spans := range reports {
		c.paidFor("reports", tenant, len(spans))
		if n := worst(spans, time.Hour); n > chaosReports {
			c.rt.Fatalf("%s: %d reports admitted within an hour, want at most %d", tenant, n, chaosReports)
		}
	}
}

// paidFor checks that no unit was given back or cancelled that a request was admitted by.
func (c *chaos) paidFor(limit, tenant string, admitted int) {
	if charged := c.service.count(wire.KeyRef{Limit: limit, Key: tenant}, c.clock(), 24*time.Hour); charged < int64(admitted) {
		c.rt.Fatalf("%s/%s: %d admitted, and only %d units are left charged", limit, tenant, admitted, charged)
	}
}

// Under random arrivals, delays, losses and repeats, of requests, calls, answers and reports: no window ever holds more
// than its limit, every request is decided exactly once, and by its deadline.
func TestNoWindowIsEverOverItsLimit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newChaos(t, rt)
		for range rapid.IntRange(50, 300).Draw(rt, "steps") {
			c.step()
			c.inTime()
		}
		c.advance(timeout + tick)
		c.inTime()
		c.held()
		// Nothing is stuck: with a service that answers, a fresh key is admitted and no pause is left.
		c.calm()
		c.flights = nil
		c.pass(6 * time.Second)
		for i, worker := range c.workers {
			r := worker.request(get("fresh"+string(rune('a'+i))), nil)
			c.serve()
			if o := worker.outcome(r); o.fate != fake.Passed {
				rt.Fatalf("worker %d: a request that fits is %s %d in the end", i, o.fate, o.status)
			}
		}
	})
}

// What a worker denies on the spot, the store would deny at that instant, by its own clock, which runs up to a thousandth
// faster or slower: the fast path never contradicts an exact log of all charges. Requests come when a denial ends, give or
// take a little.
func TestALocalDenialIsTheStoresOwn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, 1, newNative)
		w.drift = rapid.Int64Range(-1000, 1000).Draw(rt, "drift, ppm")
		units := rapid.Int64Range(1, 5).Draw(rt, "units")
		w.with(withReports(shop("v1", limit.Deny, rate(units, 300*milli)), rate(2, 100*milli), rate(5, time.Second)))
		micros := func(least, most int) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(rt, "µs")) * time.Microsecond
		}
		for i := range rapid.IntRange(20, 150).Draw(rt, "steps") {
			wait := micros(0, 80_000)
			if rapid.Bool().Draw(rt, "at the edge") {
				wait = max(0, w.nextFree()+micros(-1500, 1500))
			}
			w.advance(wait)
			w.serve()
			headers, names := get("acme"), []string{"tenant"}
			if rapid.Bool().Draw(rt, "reports") {
				headers, names = post("acme"), []string{"tenant", "reports"}
			}
			fits := true
			for _, name := range names {
				for _, rate := range w.service.limit(name).Rates {
					fits = fits && w.service.count(wire.KeyRef{Limit: name, Key: "acme"}, w.clock(), rate.Window) < rate.Units
				}
			}
			r := w.worker().request(headers, nil)
			if w.worker().outcome(r).fate == fake.Answered {
				if fits {
					rt.Fatalf("request %d is denied on the spot; an exact log admits it", i)
				}
				continue
			}
			for _, call := range w.worker().calls() {
				w.advance(micros(0, 3000))
				reply := w.execute(call)
				w.advance(micros(0, 3000))
				w.worker().finish(call, reply)
			}
		}
	})
}

// nextFree is how long it takes until some unit leaves its window.
func (w *world) nextFree() time.Duration {
	next := time.Duration(0)
	for ref, charges := range w.service.charges {
		for _, c := range charges {
			for _, rate := range w.service.limit(ref.Limit).Rates {
				if free := c.at.Add(rate.Window).Sub(w.clock()); free > 0 && (next == 0 || free < next) {
					next = free
				}
			}
		}
	}
	return next
}

// Whatever the headers hold, a request is decided, and no text reaches the proxy's log or a header that could break it.
func FuzzRequest(f *testing.F) {
	f.Add("acme", "/v1/reports", "POST", "application/grpc")
	f.Add("\xff\x00\r\n", "", "", "\xff")
	f.Add(strings.Repeat("x", 70_000), "/v1/reports/../..?x#y", "post", "application/grpc;x")
	f.Fuzz(func(t *testing.T, tenant, path, method, kind string) {
		w := newWorld(t, 1, newNative)
		w.with(withReports(shop("v1", limit.Deny, rate(1, time.Second)), rate(1, time.Second)))
		for i := range 2 {
			r := w.worker().request([]host.Header{{":method", method}, {":path", path}, {"x-tenant-id", tenant}, {"content-type", kind}}, nil)
			w.serve()
			if got, want := fateOf(w.worker().outcome(r)), []string{"passed", "429"}[i]; got != want {
				t.Fatalf("request %d: %s, want %s", i, got, want)
			}
			for _, h := range w.worker().respond(r) {
				if strings.ContainsAny(h[0]+h[1], "\r\n\x00") {
					t.Fatalf("header %q: %q", h[0], h[1])
				}
			}
		}
	})
}

// Whatever answers, and whatever it says: the request is decided once, and the next one is served.
func FuzzAnswer(f *testing.F) {
	f.Add("200", "0", []byte{0, 0, 0, 0, 0})
	f.Add("200", "0", good(wire.AppendSyncResponse(nil, &wire.SyncResponse{
		Results: []wire.AskResult{{Lease: "l", Units: 1, Denied: true, Denial: wire.Denial{DenyFor: time.Hour, RetryAfter: time.Hour}}},
	})).Content)
	f.Add("503", "", []byte("x"))
	f.Fuzz(func(t *testing.T, status, code string, content []byte) {
		w := newWorld(t, 1, newNative)
		w.with(shop("v1", limit.Local, rate(5, time.Second)))
		r := w.get("acme")
		w.worker().finish(w.only(), fake.Reply{
			Headers: []host.Header{{":status", status}}, Trailers: []host.Header{{"grpc-status", code}, {"grpc-message", code}}, Content: content,
		})
		if o := w.worker().outcome(r); o.fate == fake.Waiting {
			t.Fatal("still waiting")
		}
		w.pass(6 * time.Second)
		next := w.get("other")
		w.serve()
		w.want(next, "passed")
		if misuse := w.worker().misuse(); len(misuse) > 0 {
			t.Fatal(misuse)
		}
	})
}
