package sim_test

import (
	"testing"
	"time"

	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/testharness/sim"
)

// hotKey is one key that all workers want, with round trips of a millisecond and nothing going wrong.
func hotKey(units int64, workers int, load float64) sim.Scenario {
	return sim.Scenario{
		Seed: 1, Workers: workers, Tenants: 1, Load: load, Duration: 10 * time.Second, Timeout: 200 * time.Millisecond,
		Limits: []policy.Limit{{
			Name: "tenant", Key: []uint32{0}, Rates: []limit.Rate{{Units: units, Window: time.Second}},
			Algorithm: limit.SlidingLog, Mode: limit.Lease, OnUnavailable: limit.Deny,
		}},
		Faults: sim.Faults{Delay: 500 * time.Microsecond},
	}
}

// TestPoints holds what leases are for: few calls, hardly anybody waits, and nearly all is admitted that could be. In
// overload a run lasts a minute: how the units lie in the workers' hands takes some windows to settle.
func TestPoints(t *testing.T) {
	t.Parallel()
	for _, p := range []struct {
		name                   string
		units                  int64
		workers                int
		load                   float64
		lasts                  time.Duration
		calls, waited, atLeast float64
	}{
		{"1000/s, 4 workers, 0.5×", 1000, 4, 0.5, 10 * time.Second, 0.04, 0.01, 0.98},
		{"1000/s, 4 workers, 2×", 1000, 4, 2, time.Minute, 0.035, 0.01, 0.98},
		{"1000/s, 4 workers, 5×", 1000, 4, 5, time.Minute, 0.02, 0.01, 0.98},
		{"1000/s, 16 workers, 1×", 1000, 16, 1, time.Minute, 0.22, 0.01, 0.95},
		{"1000/s, 16 workers, 2×", 1000, 16, 2, time.Minute, 0.09, 0.01, 0.97},
		{"1000/s, 32 workers, 2×", 1000, 32, 2, time.Minute, 0.15, 0.01, 0.96},
		{"1000/s, 64 workers, 2×", 1000, 64, 2, time.Minute, 0.75, 0.75, 0.99},
		{"10000/s, 64 workers, 2×", 10_000, 64, 2, 10 * time.Second, 0.06, 0.01, 0.98},
		{"10/s, 4 workers, 2×", 10, 4, 2, time.Minute, 1, 1, 0.97},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := hotKey(p.units, p.workers, p.load)
			s.Duration = p.lasts
			result := sim.Run(s)
			f := result.Figures
			t.Logf("%d requests: %.4f calls per request, %.2f %% waited, %.4f of what was possible admitted, worst window %.3f",
				f.Requests, f.CallsPerRequest(), 100*f.WaitedShare(), f.AdmittedShare(), f.Worst)
			if len(result.Violations) > 0 {
				t.Fatal(result.Violations)
			}
			if f.CallsPerRequest() > p.calls || f.WaitedShare() > p.waited || f.AdmittedShare() < p.atLeast {
				t.Errorf("want at most %g calls, %g waited, at least %g admitted", p.calls, p.waited, p.atLeast)
			}
		})
	}
}
