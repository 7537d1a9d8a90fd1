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

// TestBucketPoints holds what leases of a token bucket cost: calls at half of its rate, where it is nearly always full and leases
// are short; and, where every second window begins with a flood, what a flood misses while leases are out, of what is admitted by
// strict charges alone.
func TestBucketPoints(t *testing.T) {
	t.Parallel()
	for _, p := range []struct {
		name           string
		workers        int
		load           float64
		floods         bool
		calls, atLeast float64
	}{
		{"4 workers, 0.5×", 4, 0.5, false, 0.13, 0.999},
		{"16 workers, 0.5×", 16, 0.5, false, 0.75, 0.999},
		{"4 workers, floods", 4, 1.6, true, 0.04, 0.99},
		{"16 workers, floods", 16, 1.6, true, 0.13, 0.9},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := hotKey(1000, p.workers, p.load)
			s.Duration = 5 * time.Second
			s.Tides, s.Bursts = p.floods, p.floods
			s.Limits[0].Algorithm, s.Limits[0].Mode = limit.TokenBucket, limit.Strict
			admitted := func(f sim.Figures) float64 { return float64(f.Admitted) / float64(f.Requests) }
			strict := admitted(sim.Run(s).Figures)
			s.Limits[0].Mode = limit.Lease
			result := sim.Run(s)
			f, share := result.Figures, admitted(result.Figures)/strict
			t.Logf("%d requests: %.4f calls per request, %.4f of what strict charges admit", f.Requests, f.CallsPerRequest(), share)
			if len(result.Violations) > 0 {
				t.Fatal(result.Violations)
			}
			if f.CallsPerRequest() > p.calls || share < p.atLeast {
				t.Errorf("want at most %g calls, at least %g", p.calls, p.atLeast)
			}
		})
	}
}
