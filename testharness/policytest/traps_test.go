package policytest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/filter/host"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
	"sluice/testharness/policytest"
	"sluice/testharness/wasmhost"
)

// What goes wrong in proxy-wasm filters, each on the .wasm of stock Go, with the real service behind it. The plugin's own
// stories, in filter/plugin, run on the .wasm as well.

// proxy is the filter in wasmhost, and the service.
type proxy struct {
	*wasmhost.Host

	t       *testing.T
	service *policytest.Service
	delay   time.Duration
	heard   []wire.SyncRequest
	// keep has the proxy tell of no call's end; the calls are in kept, with the answers that the service gave.
	keep bool
	kept []keptCall
	// leaseEnd is when the last lease that was granted ends, as long as answers take no time.
	leaseEnd time.Duration
}

type keptCall struct {
	call  *wasmhost.Call
	reply wasmhost.Reply
}

func newProxy(t *testing.T, p *policy.Policy, c wasmhost.Config) *proxy {
	t.Helper()
	x := &proxy{t: t}
	x.service = policytest.NewService(p, func() instant.Instant { return instant.Instant(1_764_000_000_000_000).Add(x.Now()) })
	x.service.OnSync(func(r *wire.SyncRequest) { x.heard = append(x.heard, *r) })
	c.HTTPCall = func(call *wasmhost.Call) wasmhost.Reply {
		// The service acts at once; its answer takes a while.
		r := x.service.Answer(context.Background(), call.Headers.Get(":path"), call.Body)
		reply := wasmhost.Reply{Headers: fields(r.Headers), Trailers: fields(r.Trailers), Body: r.Content, Delay: x.delay}
		x.noteLeases(r.Content)
		if x.keep {
			x.kept = append(x.kept, keptCall{call, reply})
			return wasmhost.Reply{Lost: true}
		}
		return reply
	}
	var err error
	// The service may be asked while the host is still being made: its clock then reads 0.
	x.Host, err = wasmhost.New(t.Context(), filterWasm(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	x.Advance(time.Second) // the policy arrives
	return x
}

func fields(from []host.Header) wasmhost.Headers {
	var out wasmhost.Headers
	for _, h := range from {
		out = append(out, h)
	}
	return out
}

func tenants(mode limit.Mode, rates ...limit.Rate) *policy.Policy {
	return &policy.Policy{
		Version: "v1", Domain: "shop",
		Identities: []policy.Identity{{Name: "tenant", Source: policy.FromHeader, Header: "x-tenant-id"}},
		Limits: []policy.Limit{{
			Name: "tenant", Key: []uint32{0}, Rates: rates, Algorithm: limit.SlidingLog, Mode: mode, OnUnavailable: limit.Deny,
		}},
	}
}

func per(units int64, window time.Duration) limit.Rate {
	return limit.Rate{Units: units, Window: window}
}

func asTenant(name string) wasmhost.Headers {
	return wasmhost.Headers{{":method", "GET"}, {":path", "/"}, {":authority", "shop"}, {":scheme", "http"}, {"x-tenant-id", name}}
}

// get sends a request, answers it, and gives its status.
func (x *proxy) get(worker int, tenant string) int {
	x.t.Helper()
	s := x.Worker(worker).Request(asTenant(tenant))
	for range 1000 {
		if s.Outcome().Kind != wasmhost.Pending {
			break
		}
		x.Advance(time.Millisecond)
	}
	switch o := s.Outcome(); o.Kind {
	case wasmhost.Continued:
		s.RespondUpstream(wasmhost.Headers{{":status", "200"}})
		return 200
	case wasmhost.LocalReply:
		return o.Status
	default:
		x.t.Fatalf("a request is %v", o)
		return 0
	}
}

func (x *proxy) sound() {
	x.t.Helper()
	for _, v := range x.Violations() {
		x.t.Error(v)
	}
}

func (x *proxy) noteLeases(content []byte) {
	if x.keep {
		return
	}
	message, err := wire.Unframe(content, wire.MaxMessageSize)
	if err != nil {
		return
	}
	response, err := wire.ParseSyncResponse(message)
	if err != nil {
		return // the answer to GetPolicy
	}
	for _, r := range response.Results {
		if r.Units > 0 && r.EndIn > 0 {
			x.leaseEnd = max(x.leaseEnd, x.Now()+r.EndIn)
		}
	}
}

// release sends the answers that were kept.
func (x *proxy) release() {
	for _, k := range x.kept {
		if !k.call.Respond(k.reply) {
			k.call.RespondAgain(k.reply)
		}
	}
	x.Advance(0)
}

// A reply after the request's deadline admits nothing, and what it was granted is cancelled.
func TestALateReply(t *testing.T) {
	x := newProxy(t, tenants(limit.Strict, per(1, time.Hour)), wasmhost.Config{})
	x.keep = true
	s := x.Worker(0).Request(asTenant("acme"))
	x.Advance(300 * time.Millisecond)
	if o := s.Outcome(); o.Status != 503 || o.At-s.Started() > 220*time.Millisecond {
		t.Errorf("after its deadline: %v, at %v", o, o.At-s.Started())
	}
	if x.left("acme") != 0 {
		t.Error("the service granted nothing: this tests nothing")
	}
	x.keep = false
	x.release()
	if o := s.Outcome(); o.Status != 503 {
		t.Errorf("after the late reply: %v", o)
	}
	x.Advance(3 * time.Second)
	if x.left("acme") != 1 {
		t.Error("what the late reply was granted was not cancelled")
	}
	if got := x.get(0, "acme"); got != 200 {
		t.Errorf("the next request: %d", got)
	}
	x.sound()
}

// A call whose end nobody ever tells holds up its own requests until their deadline, and its key no longer.
func TestAReplyThatNeverComes(t *testing.T) {
	x := newProxy(t, tenants(limit.Strict, per(9, time.Second)), wasmhost.Config{})
	for range 50 {
		x.keep = true
		lost := x.Worker(0).Request(asTenant("acme"))
		x.keep = false
		x.Advance(100 * time.Millisecond)
		behind := x.Worker(0).Request(asTenant("acme"))
		x.Advance(121 * time.Millisecond)
		if lost.Outcome().Status != 503 || behind.Outcome().Kind != wasmhost.Continued {
			t.Fatalf("the lost one: %v; the one behind it: %v", lost.Outcome(), behind.Outcome())
		}
		behind.Cancel()
	}
	if n := x.Worker(0).OpenStreams(); n != 0 {
		t.Errorf("%d streams are open", n)
	}
	x.sound()
}

// A client that leaves while it is paused is not answered; the reply to the call that was made for it is used by others.
func TestAClientThatLeavesWhilePaused(t *testing.T) {
	x := newProxy(t, tenants(limit.Lease, per(100, time.Second)), wasmhost.Config{})
	x.keep = true
	gone := x.Worker(0).Request(asTenant("acme"))
	x.keep = false
	gone.Cancel()
	x.release()
	if o := gone.Outcome(); o.Kind != wasmhost.Cancelled {
		t.Errorf("it is %v", o)
	}
	if got := x.get(0, "acme"); got != 200 {
		t.Errorf("the next request: %d", got)
	}
	x.Advance(7 * time.Second)
	if got := x.left("acme"); got != 100 {
		t.Errorf("%d units left of 100 in the end", got)
	}
	x.sound()
}

// Whatever the proxy repeats, nobody is answered twice, nor after the client has left.
func TestNobodyIsAnsweredTwice(t *testing.T) {
	x := newProxy(t, tenants(limit.Strict, per(2, time.Second)), wasmhost.Config{})
	x.keep = true
	var streams []*wasmhost.Stream
	for i := range 6 {
		streams = append(streams, x.Worker(0).Request(asTenant("acme")))
		if i == 3 {
			streams[3].Cancel()
		}
	}
	for range 4 {
		x.release()
	}
	x.keep = false
	x.Advance(time.Second)
	for range 2 {
		x.release()
	}
	passed := 0
	for i, s := range streams {
		switch o := s.Outcome(); {
		case o.Kind == wasmhost.Continued:
			passed++
		case o.Kind == wasmhost.Cancelled && i == 3, o.Kind == wasmhost.LocalReply:
		default:
			t.Errorf("request %d: %v", i, o)
		}
	}
	if passed != 2 {
		t.Errorf("%d passed, want 2", passed)
	}
	x.sound()
}

// A step of the wall clock, back or forth, changes neither a denial nor a window nor a deadline.
func TestAStepOfTheWallClockChangesNothing(t *testing.T) {
	for _, step := range []time.Duration{-20 * 365 * 24 * time.Hour, -time.Second, time.Second, 20 * 365 * 24 * time.Hour} {
		x := newProxy(t, tenants(limit.Strict, per(1, 10*time.Second)), wasmhost.Config{})
		if got := x.get(0, "acme"); got != 200 {
			t.Errorf("%v: the first request: %d", step, got)
		}
		if got := x.get(0, "acme"); got != 429 {
			t.Errorf("%v: the second request: %d", step, got)
		}
		asked := x.service.Asks()
		wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		x.SetWall(wall.Add(step))
		x.Advance(4 * time.Second)
		s := x.Worker(0).Request(asTenant("acme"))
		if o := s.Outcome(); o.Status != 429 || o.Headers.Get("retry-after") != "6" || x.service.Asks() != asked {
			t.Errorf("%v: after the step: %v, %v, asked %d times more", step, o, o.Headers, x.service.Asks()-asked)
		}
		// A call that is under way at a step has as long as any other.
		x.delay = 150 * time.Millisecond
		s = x.Worker(0).Request(asTenant("other"))
		x.SetWall(wall.Add(2 * step))
		x.Advance(149 * time.Millisecond)
		if o := s.Outcome(); o.Kind != wasmhost.Pending {
			t.Errorf("%v: before its answer: %v", step, o)
		}
		x.Advance(time.Millisecond)
		if o := s.Outcome(); o.Kind != wasmhost.Continued {
			t.Errorf("%v: after its answer: %v", step, o)
		}
		x.delay = 0
		x.Advance(6 * time.Second)
		if got := x.get(0, "acme"); got != 200 {
			t.Errorf("%v: a window later: %d", step, got)
		}
		x.sound()
	}
}

// The instance on the proxy's main thread ticks and keeps its policy, and never counts as a worker: the shares of those
// that do are as if it were not there.
func TestTheMainThreadIsNoWorker(t *testing.T) {
	x := newProxy(t, tenants(limit.Strict, per(10, time.Second)), wasmhost.Config{Workers: 2})
	main, err := x.MainThread()
	if err != nil {
		t.Fatal(err)
	}
	x.Advance(5 * time.Second)
	for _, h := range x.heard {
		if h.Active || len(h.Asks) > 0 {
			t.Fatalf("an instance that has seen no request says %+v", h)
		}
	}
	if main.TickPeriod() == 0 {
		t.Error("the main thread's does not tick")
	}
	for i := range 4 {
		x.get(i%2, "acme")
	}
	x.heard = nil
	x.Advance(5 * time.Second)
	active := map[uint64]bool{}
	for _, h := range x.heard {
		if h.Active {
			active[h.WorkerID] = true
		}
	}
	if len(active) != 2 {
		t.Errorf("%d instances are active, want the 2 that have asked", len(active))
	}
	x.sound()
}

// A VM that traps is made anew, and what it held runs out by itself: the next life asks again, under another id, and the
// window still counts what the first one spent.
func TestATrapAndAnotherLife(t *testing.T) {
	p := tenants(limit.Lease, per(100, time.Second))
	// Little more memory than the filter needs to begin with, so that many long keys are too much for it.
	x := newProxy(t, p, wasmhost.Config{MaxMemoryBytes: 24 << 20})
	if got := x.get(0, "acme"); got != 200 {
		t.Fatalf("before: %d", got)
	}
	first := x.heard[len(x.heard)-1].WorkerID
	for i := 0; i < 60_000 && x.TrapCount() == 0; i++ {
		x.Worker(0).Request(asTenant(fmt.Sprintf("%06d%s", i, strings.Repeat("x", 200)))).Cancel()
		if i%100 == 0 {
			x.Advance(0)
		}
	}
	if x.TrapCount() == 0 {
		t.Fatalf("60,000 keys in %d bytes, and no trap: it has to be provoked in another way", x.Worker(0).MemoryBytes())
	}
	x.Advance(2 * time.Second)
	s := x.Worker(0).Request(asTenant("acme")) // makes the next life, which has no policy yet
	if s.Outcome().Kind == wasmhost.Pending {
		t.Error("a request before the policy waits")
	}
	s.Cancel()
	x.Advance(time.Second)
	x.heard = nil
	admitted := 0
	for range 120 {
		if x.get(0, "acme") == 200 {
			admitted++
		}
	}
	if admitted == 0 || admitted > 100 {
		t.Errorf("the next life admits %d of 120 at once, want some, and at most 100", admitted)
	}
	if len(x.heard) == 0 || x.heard[0].WorkerID == first {
		t.Error("the next life has the id of the first")
	}
	if x.Worker(0).Loads() != 2 {
		t.Errorf("%d lives, want 2", x.Worker(0).Loads())
	}
	x.sound()
}

// An instance that is thrown away with leases in hand: they block their units until they end, and no longer.
func TestLeasesOfAnInstanceThatIsGoneRunOut(t *testing.T) {
	x := newProxy(t, tenants(limit.Lease, per(20, time.Second)), wasmhost.Config{Workers: 2})
	for range 4 {
		if got := x.get(0, "acme"); got != 200 {
			t.Fatalf("before: %d", got)
		}
	}
	if err := x.Worker(0).Reload(); err != nil {
		t.Fatal(err)
	}
	admitted := 0
	for range 20 {
		if x.get(1, "acme") == 200 {
			admitted++
		}
	}
	if admitted > 16 {
		t.Errorf("%d admitted after 4 within one window of 20", admitted)
	}
	x.Advance(7 * time.Second) // the longest lease, and a window
	admitted = 0
	for range 20 {
		if x.get(1, "acme") == 200 {
			admitted++
		}
	}
	if admitted < 18 || admitted > 20 {
		t.Errorf("%d of 20 once the lost leases have run out", admitted)
	}
	x.sound()
}

// Keys are capped: the one used longest ago goes, and what is leased to it is given back at once, not when it ends.
func TestAKeyThatGoesSettlesItsLease(t *testing.T) {
	x := newProxy(t, tenants(limit.Lease, per(1000, 10*time.Second)), wasmhost.Config{PluginConfig: []byte(`{"max_keys":100}`)})
	for range 3 {
		if got := x.get(0, "first"); got != 200 {
			t.Fatalf("first: %d", got)
		}
	}
	leased := x.left("first")
	if leased > 990 {
		t.Fatalf("%d of 1000 units left after 3 requests: nothing is leased", leased)
	}
	x.heard = nil
	for i := range 100 {
		x.get(0, fmt.Sprintf("t%d", i))
	}
	x.Advance(50 * time.Millisecond)
	x.get(0, "t99") // a call of its own would carry it within a second at most
	x.Advance(1100 * time.Millisecond)
	settled := 0
	for _, h := range x.heard {
		for _, s := range h.Settles {
			if s.Key == "first" {
				settled++
			}
		}
	}
	if settled == 0 {
		t.Error("the lease of a key that went was not settled")
	}
	if got := x.left("first"); got != 997 {
		t.Errorf("%d units left of 1000, want all but the 3 that were spent", got)
	}
	x.heard = nil
	before := x.service.Asks()
	x.get(0, "t99") // known and leased: no call
	if got := x.service.Asks() - before; got != 0 {
		t.Errorf("%d calls for a key that is known", got)
	}
	x.sound()
}

// left is what the store could still grant for a tenant.
func (x *proxy) left(tenant string) int64 {
	x.t.Helper()
	states, err := x.service.Peek(x.t.Context(), "tenant", tenant)
	if err != nil || len(states) != 1 {
		x.t.Fatalf("peek: %v, %v", states, err)
	}
	return states[0].Remaining
}

// Between two ticks a lease that has ended is not spent: its end is looked at with every decision. Here nothing follows it, and requests come every half millisecond, while ticks are 20 ms
// apart.
func TestALeaseIsNotSpentBetweenItsEndAndTheNextTick(t *testing.T) {
	for offset := range 5 {
		x := newProxy(t, tenants(limit.Lease, per(4000, time.Second)), wasmhost.Config{})
		x.Advance(time.Duration(offset) * 3700 * time.Microsecond)
		for range 2000 { // so that the worker is known to want as many
			x.get(0, "acme")
			x.Advance(500 * time.Microsecond)
		}
		end := x.leaseEnd
		x.keep = true
		spent, after, began, last := 0, 0, x.Now(), time.Duration(0)
		for x.Now() < end+100*time.Millisecond {
			// Slowly at first, so that some units are left at the end.
			if x.Now() < end-6*time.Millisecond {
				x.Advance(5 * time.Millisecond)
			} else {
				x.Advance(500 * time.Microsecond)
			}
			s := x.Worker(0).Request(asTenant("acme"))
			if s.Outcome().Kind != wasmhost.Continued {
				s.Cancel()
				continue
			}
			s.RespondUpstream(wasmhost.Headers{{":status", "200"}})
			spent++
			last = x.Now()
			if x.Now() > end {
				after++
			}
		}
		t.Logf("%d units were spent from %v until %v before the lease's end", spent, end-began, end-last)
		if after > 0 || spent < 10 {
			t.Errorf("offset %d: %d units were spent, and %d of them after the lease's end", offset, spent, after)
		}
		x.sound()
	}
}
