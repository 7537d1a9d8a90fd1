package admission_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// exactLog is the oracle: every admitted unit's instant on the store's clock.
type exactLog struct {
	l  int64
	w  time.Duration
	at []instant.Instant
}

func (e *exactLog) count(now instant.Instant) (n int64) {
	for _, at := range e.at {
		if at > now.Add(-e.w) {
			n++
		}
	}
	return n
}

// reserve answers as the store does: whole multiples of min, and the exact instant at which min is free again.
func (e *exactLog) reserve(now instant.Instant, want, minimum int64) wire.AskResult {
	free := e.l - e.count(now)
	units := max(0, min(want, free)/minimum*minimum)
	for range units {
		e.at = append(e.at, now)
	}
	result := wire.AskResult{Units: units, Limit: e.l, Window: e.w, Remaining: max(0, free-units), Reset: e.w}
	if units > 0 {
		result.Lease = "lease"
	}
	if units < want {
		at := now
		for e.l-e.count(at) < minimum {
			at++
			for _, charge := range e.at { // step from one expiry to the next
				if end := charge.Add(e.w); end >= at && e.l-e.count(end) >= minimum {
					at = end
					break
				}
			}
		}
		result.Denied = true
		result.Denial = wire.Denial{DenyFor: at.Sub(now), RetryAfter: at.Sub(now)}
	}
	return result
}

// simulatedWorker is a worker with a clock of its own: an origin, and a rate within ρ of the store's.
type simulatedWorker struct {
	key    *admission.Key
	origin instant.Instant
	ppm    int64
	paused []instant.Instant // when each asked request arrived, on the worker's clock
	// The call under way, at most one.
	calling         bool
	sent, executeAt instant.Instant
	answerAt        instant.Instant
	asked           int
	result          wire.AskResult
}

func (w *simulatedWorker) clock(store instant.Instant) instant.Instant {
	return w.origin + store + instant.Instant(int64(store)*w.ppm/1_000_000)
}

// TestLocalDenialsNeverContradictTheOracle runs workers with drifting clocks, slow calls and leaving clients against an
// exact log. Whatever a worker denies on the spot, the exact log would deny at that instant; what it admits, the log has
// admitted, so that no window ever holds more than the limit.
func TestLocalDenialsNeverContradictTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		oracle := &exactLog{l: rapid.Int64Range(1, 12).Draw(t, "L"), w: 50 * time.Millisecond}
		l := &policy.Limit{
			Name: "tenant", Rates: []limit.Rate{{Units: oracle.l, Window: oracle.w}},
			Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Deny,
		}
		workers := make([]*simulatedWorker, rapid.IntRange(1, 3).Draw(t, "workers"))
		for i := range workers {
			workers[i] = &simulatedWorker{
				key:    admission.NewKey(l.Rule("", "")),
				origin: instant.Instant(rapid.Int64Range(0, 1e12).Draw(t, "origin")),
				ppm:    rapid.Int64Range(-999, 999).Draw(t, "ppm"),
			}
		}
		cost := rapid.Int64Range(1, oracle.l).Draw(t, "cost")
		now := instant.Instant(0)
		for range rapid.IntRange(10, 200).Draw(t, "steps") {
			now += instant.Instant(rapid.Int64Range(1, 9000).Draw(t, "pause"))
			w := rapid.SampledFrom(workers).Draw(t, "worker")
			advance(t, w, oracle, cost, now)
			out := admission.Step(w.clock(now), admission.Input{Demands: []admission.Demand{{Key: w.key, Cost: cost}}})
			switch out.Verdict {
			case admission.Admit:
				t.Fatalf("admitted on the spot from %q in strict mode", out.Source)
			case admission.Deny:
				if free := oracle.l - oracle.count(now); free >= cost && out.Source != admission.FromPolicy {
					t.Fatalf("denied from %q at %d, where %d are free and %d asked", out.Source, now, free, cost)
				}
			case admission.Ask:
				w.paused = append(w.paused, w.clock(now))
			}
		}
	})
}

// advance executes and answers the worker's call where it is due, and sends the next.
func advance(t *rapid.T, w *simulatedWorker, oracle *exactLog, cost int64, now instant.Instant) {
	if w.calling && now >= w.executeAt && w.asked > 0 {
		w.result = oracle.reserve(now, int64(w.asked)*cost, cost)
		if got := oracle.count(now); got > oracle.l {
			t.Fatalf("the oracle itself holds %d of %d", got, oracle.l)
		}
		w.asked = -w.asked // executed
	}
	if w.calling && now >= w.answerAt && w.asked < 0 {
		in := admission.Input{Demands: []admission.Demand{{Key: w.key, Cost: cost}}}
		a := admission.NewAnswer(w.sent, w.clock(now), in, []wire.AskResult{w.result})
		admitted := int64(0)
		for range -w.asked {
			if a.Next(admission.Patience{}).Verdict == admission.Admit {
				admitted++
			}
		}
		if admitted*cost > w.result.Units {
			t.Fatalf("admitted %d requests of %d with %d units", admitted, cost, w.result.Units)
		}
		w.calling = false
	}
	if !w.calling && len(w.paused) > 0 {
		w.calling, w.sent, w.asked = true, w.clock(now), len(w.paused)
		w.executeAt = now + instant.Instant(rapid.Int64Range(0, 20_000).Draw(t, "there"))
		w.answerAt = w.executeAt + instant.Instant(rapid.Int64Range(0, 20_000).Draw(t, "back"))
		w.paused = nil
	}
}
