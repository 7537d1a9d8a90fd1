package plugin_test

import (
	"testing"
	"time"

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
