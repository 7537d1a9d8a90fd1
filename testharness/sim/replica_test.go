package sim_test

import (
	"os"
	"testing"
	"time"

	"sluice/testharness/sim"
)

// TestReplicaPoints holds what leases of the replicas' own are for: under a hot key of many workers the store executes a
// fraction of what it would, and as much is admitted.
func TestReplicaPoints(t *testing.T) {
	t.Parallel()
	for _, p := range []struct {
		name     string
		units    int64
		workers  int
		load     float64
		replicas int
		roam     float64
		// operations of the store, of those without any lease of a replica's, and the least admitted of what is possible.
		operations, atLeast float64
	}{
		{"10000/s, 256 workers, 2×, 1 replica", 10_000, 256, 2, 1, 0, 0.2, 0.98},
		{"10000/s, 256 workers, 2×, 3 replicas", 10_000, 256, 2, 3, 0, 0.4, 0.98},
		{"10000/s, 256 workers, 0.5×, 3 replicas", 10_000, 256, 0.5, 3, 0, 0.5, 0.99},
		{"10000/s, 256 workers, 2×, 3 replicas, roaming", 10_000, 256, 2, 3, 1, 1.1, 0.97},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if (p.load < 1 || p.roam > 0) && os.Getenv("SLUICE_LONG") == "" {
				t.Skip("takes a quarter of a minute: SLUICE_LONG=1")
			}
			s := hotKey(p.units, p.workers, p.load)
			s.Duration, s.Replicas, s.Roam = 3*time.Second, p.replicas, p.roam
			operations := func(hot int64) float64 {
				s.HotAsks = hot
				result := sim.Run(s)
				f := result.Figures
				each := float64(f.StoreOperations) / float64(f.Requests)
				t.Logf("hot from %d asks/s: %d requests, %.4f calls and %.4f operations of the store for each, %d sub-leases, %.2f %% waited, %.4f of what was possible admitted, worst window %.3f",
					hot, f.Requests, f.CallsPerRequest(), each, f.SubLeases, 100*f.WaitedShare(), f.AdmittedShare(), f.Worst)
				if len(result.Violations) > 0 {
					t.Fatal(result.Violations)
				}
				if f.AdmittedShare() < p.atLeast {
					t.Errorf("want at least %g admitted", p.atLeast)
				}
				return each
			}
			const never = 1 << 20
			if without, with := operations(never), operations(0); with > p.operations*without {
				t.Errorf("%.4f operations; want at most %g of %.4f", with, p.operations, without)
			}
		})
	}
}
