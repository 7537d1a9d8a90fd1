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

// TestPoints holds what leases are for: few calls, hardly anybody waits, and nearly all is admitted that could be.
func TestPoints(t *testing.T) {
	t.Parallel()
	for _, p := range []struct {
		name                   string
		units                  int64
		workers                int
		load                   float64
		calls, waited, atLeast float64
	}{
		{name: "1000/s, 4 workers, 0.5×", units: 1000, workers: 4, load: 0.5, calls: 0.04, waited: 0.01, atLeast: 0.98},
		{name: "1000/s, 4 workers, 2×", units: 1000, workers: 4, load: 2, calls: 0.04, waited: 1, atLeast: 0.98},
		{name: "1000/s, 4 workers, 5×", units: 1000, workers: 4, load: 5, calls: 0.02, waited: 1, atLeast: 0.98},
		{name: "10000/s, 64 workers, 2×", units: 10_000, workers: 64, load: 2, calls: 0.06, waited: 1, atLeast: 0.98},
		{name: "10/s, 4 workers, 2×", units: 10, workers: 4, load: 2, calls: 1, waited: 1, atLeast: 0.97},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			result := sim.Run(hotKey(p.units, p.workers, p.load))
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
