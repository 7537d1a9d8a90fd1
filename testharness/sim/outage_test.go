package sim_test

import (
	"testing"
	"time"

	"sluice/shared/limit"
	"sluice/testharness/sim"
)

// TestOutage cuts all workers off the service, under twice the limit's load, and lets it come back. With local each worker
// admits its share meanwhile, and reports it afterwards: all in all at most a window more than there were passes, and at
// least most of the limit.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, mode := range []limit.Mode{limit.Strict, limit.Lease} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			const seeds, windows, units = 10, 8, 100
			var sum int64
			for seed := range uint64(seeds) {
				s := hotKey(100, 4, 2)
				s.Seed, s.Duration, s.Outage, s.OutageFor = seed, 40*time.Second, 12*time.Second, 11*time.Second
				s.Limits[0].Rates[0].Window = 5 * time.Second
				s.Limits[0].Mode, s.Limits[0].OnUnavailable = mode, limit.Local
				result := sim.Run(s)
				if len(result.Violations) > 0 {
					t.Fatalf("seed %d: %v", seed, result.Violations)
				}
				if got := result.Figures.Admitted; got > units*(windows+1) || got < units*windows*9/10 {
					t.Errorf("seed %d: %d admitted in %d windows of %d; want at most one window more, and nine tenths",
						seed, got, windows, units)
				}
				sum += result.Figures.Admitted
			}
			// What the fallback admitted counts when the service is back: there is no second burst.
			if sum > seeds*windows*units*102/100 {
				t.Errorf("%d admitted in %d runs of %d windows of %d; want at most 2 %% more", sum, seeds, windows, units)
			}
		})
	}
}
