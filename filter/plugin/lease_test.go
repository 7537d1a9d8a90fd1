package plugin_test

import (
	"strconv"
	"testing"
	"time"

	"sluice/shared/lease"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// inMode puts every limit of a policy into a mode.
func inMode(mode limit.Mode, p *policy.Policy) *policy.Policy {
	for i := range p.Limits {
		p.Limits[i].Mode = mode
	}
	return p
}

// crowd sends so many requests of a tenant's at once, and lets the service answer.
func (w *world) crowd(tenant string, n int) {
	w.t.Helper()
	requests := make([]int, n)
	for i := range requests {
		requests[i] = w.get(tenant)
	}
	w.serve()
	for _, r := range requests {
		w.want(r, "passed")
	}
}

func TestStoriesOfLeases(t *testing.T) {
	leased := func() *policy.Policy { return inMode(limit.Lease, shop("v1", limit.Deny, rate(1000, time.Second))) }

	scenario(t, "units of a lease are spent without a call", func(t *testing.T, w *world) {
		w.with(leased()).crowd("acme", 40)
		before := w.worker().metric("sluice.calls")
		for range 3 {
			w.want(w.get("acme"), "passed")
		}
		w.worker().advance(tick)
		w.worker().calls() // a lease may be followed by the next, but nobody waits for it
		if got := w.worker().metric("sluice.calls") - before; got > 1 {
			t.Errorf("%d calls for three requests under a lease, want at most one, for the next lease", got)
		}
	})

	scenario(t, "a lease that nobody spends goes back, and its units with it", func(t *testing.T, w *world) {
		w.with(leased()).crowd("acme", 40)
		if w.charged("tenant", "acme") <= 40 {
			t.Fatal("want units leased beyond those that were spent")
		}
		w.pass(900 * milli)
		w.wantCharged("tenant", "acme", 40)
	})

	scenario(t, "the next lease is asked for before the one in hand runs out, and nobody waits", func(t *testing.T, w *world) {
		w.with(inMode(limit.Lease, shop("v1", limit.Deny, rate(100_000, time.Second)))).crowd("acme", 40)
		ahead := 0
		for range 600 {
			w.want(w.get("acme"), "passed")
			calls := w.worker().calls()
			w.worker().advance(milli)
			w.want(w.get("acme"), "passed")
			for _, call := range calls {
				for _, ask := range w.read(call).Asks {
					if ahead++; ask.Waiting > 0 {
						t.Errorf("%d requests wait for a lease", ask.Waiting)
					}
				}
				w.worker().finish(call, w.execute(call))
			}
		}
		if ahead < 2 {
			t.Errorf("%d leases asked for ahead of need, want one before the end of each", ahead)
		}
	})

	scenario(t, "a lease that starts later denies until then, and needs no other call", func(t *testing.T, w *world) {
		const starts, every = 2900 * milli, 100 * milli
		w.with(inMode(limit.Lease, shop("v1", limit.Deny, rate(100, time.Minute))))
		first := w.get("acme")
		call := w.only()
		granted := wire.AskResult{
			Lease: "later", Units: w.read(call).Asks[0].Want, StartIn: starts, EndIn: starts + 3*time.Second,
			Limit: 100, Window: time.Minute, Reset: time.Minute,
		}
		response := wire.SyncResponse{PolicyVersion: "v1", Results: []wire.AskResult{granted}}
		w.worker().finish(call, good(wire.AppendSyncResponse(nil, &response)))
		w.want(first, "429")
		begins := w.worker().now().Add(lease.AtMost(starts))
		ask := func(fate, wait string) {
			r := w.get("acme")
			w.want(r, fate)
			if got := w.worker().outcome(r).field("retry-after"); got != wait {
				t.Errorf("retry-after %q %v before it starts, want %q", got, begins.Sub(w.worker().now()), wait)
			}
		}
		for begins.Sub(w.worker().now()) > every {
			ask("429", strconv.Itoa(int((begins.Sub(w.worker().now())+time.Second-1)/time.Second)))
			w.worker().advance(every)
			for _, call := range w.worker().calls() { // by which the service knows that the worker is there
				if asks := w.read(call).Asks; len(asks) > 0 {
					t.Errorf("it asks for %+v, with a lease to come", asks)
				}
				w.worker().finish(call, w.execute(call))
			}
		}
		w.advance(begins.Sub(w.worker().now()) - time.Microsecond)
		ask("429", "1")
		w.worker().calls()
		w.advance(time.Microsecond)
		for range granted.Units {
			ask("passed", "")
		}
	})

	scenario(t, "a lease that is over is settled, once, with what became of every unit", func(t *testing.T, w *world) {
		w.with(leased()).crowd("acme", 40)
		admitted := int64(40)
		for range 30 { // seldom enough that leases end before they are spent, too often to be idle
			w.pass(60 * milli)
			w.want(w.get("acme"), "passed")
			admitted++
		}
		w.pass(2 * time.Second)
		settles, granted := map[string]int{}, int64(0)
		for _, request := range w.service.heard {
			for _, s := range request.Settles {
				settles[s.Lease]++
				granted += s.Unused
				for _, use := range s.Uses {
					granted += use.Units
				}
			}
		}
		spent, leases := int64(0), 0
		for _, c := range w.service.charges[wire.KeyRef{Limit: "tenant", Key: "acme"}] {
			spent += c.units
			if c.leased == 0 {
				continue
			}
			granted -= c.leased
			if leases++; !c.settled || settles[c.lease] != 1 {
				t.Errorf("%s was settled %d times", c.lease, settles[c.lease])
			}
		}
		if leases < 3 || spent != admitted || granted != 0 {
			t.Errorf("%d leases, %d units charged for %d requests, %d more told than granted", leases, spent, admitted, granted)
		}
	})

	scenario(t, shutDown, func(t *testing.T, w *world) {
		w.with(leased()).crowd("acme", 40)
		if w.charged("tenant", "acme") <= 40 {
			t.Fatal("want units leased beyond those that were spent")
		}
		for r := range 40 { // the proxy ends them first
			w.worker().end(r)
		}
		if !w.worker().stop() {
			t.Error("it asks for time, which Envoy does not give")
		}
		last := w.only()
		if request := w.read(last); len(request.Settles) != 1 || len(request.Asks) > 0 {
			t.Errorf("its last call settles %+v and asks for %+v", request.Settles, request.Asks)
		}
		w.execute(last)
		w.wantCharged("tenant", "acme", 40)
	})

	scenario(t, "a call for a lease whose answer is lost is named to the service", func(t *testing.T, w *world) {
		w.with(leased()).crowd("acme", 40)
		w.pass(2 * time.Second)
		for range 40 {
			w.get("acme")
		}
		lost := w.only()
		w.execute(lost)
		w.advance(timeout + tick)
		w.pass(2 * time.Second)
		w.wantCharged("tenant", "acme", 0)
		named := false
		for _, request := range w.service.heard {
			for _, a := range request.Abandoned {
				named = named || a.CallID == w.read(lost).CallID
			}
		}
		if !named {
			t.Error("the lost call was never named")
		}
	})
}

func TestStoriesOfAsync(t *testing.T) {
	counted := func(units int64) *policy.Policy {
		return inMode(limit.Async, shop("v1", limit.Deny, rate(units, time.Second)))
	}

	scenario(t, "nobody waits, and what was admitted is reported", func(t *testing.T, w *world) {
		w.with(counted(5))
		for range 5 {
			w.want(w.get("acme"), "passed")
		}
		w.want(w.get("acme"), "429")
		w.pass(200 * milli)
		w.wantCharged("tenant", "acme", 5)
		w.wantMetric("sluice.denied.count", 1)
	})

	scenario(t, "what others admitted is known after a sync", func(t *testing.T, w *world) {
		w.with(counted(5))
		w.want(w.get("acme"), "passed")
		key := wire.KeyRef{Limit: "tenant", Key: "acme"}
		w.service.charges[key] = append(w.service.charges[key], &charge{units: 4, at: w.clock()})
		w.pass(100 * milli)
		w.want(w.get("acme"), "429") // with its own one the window is full
		w.pass(time.Second)
		w.want(w.get("acme"), "passed")
	})

	scenario(t, "a cost above one is spent whole", func(t *testing.T, w *world) {
		p := counted(5)
		p.Limits[0].Cost = 2
		w.with(p)
		w.want(w.get("acme"), "passed")
		w.want(w.get("acme"), "passed")
		w.want(w.get("acme"), "429")
		w.pass(100 * milli)
		w.wantCharged("tenant", "acme", 4)
	})
}
