package sim_test

import (
	"strconv"
	"testing"
	"time"

	"sluice/shared/limit"
	"sluice/testharness/sim"
)

// TestOutage cuts workers off the service, under twice the limit's load, and lets them come back. With local each worker
// admits its share meanwhile, and reports it afterwards: where all are cut off, all in all at most a window more than there
// were passes; where only some are, at most their shares more for as long as it lasts; and at least most of the limit. No window
// holds more than twice the limit, nor, two seconds after it, more than the limit.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, mode := range []limit.Mode{limit.Strict, limit.Lease} {
		for _, cutOff := range []int{0, 1, 2, 3} {
			t.Run(mode.String()+", cut off "+strconv.Itoa(cutOff), func(t *testing.T) {
				t.Parallel()
				const seeds, windows, units, workers = 10, 8, 100, 4
				const reaches = 3 // windows, of which the outage has a part
				most := int64(units*(windows+1) + cutOff*units/workers*reaches)
				var sum int64
				for seed := range uint64(seeds) {
					result := sim.Run(outage(seed, mode, limit.Local, cutOff))
					if len(result.Violations) > 0 {
						t.Fatalf("seed %d: %v", seed, result.Violations)
					}
					if got := result.Figures.Admitted; got > most || got < units*windows*9/10 {
						t.Errorf("seed %d: %d admitted in %d windows of %d; want at most %d, and nine tenths of them",
							seed, got, windows, units, most)
					}
					sum += result.Figures.Admitted
				}
				t.Logf("%d admitted in %d runs of %d windows of %d", sum, seeds, windows, units)
				// What the fallback admitted counts when the service is back: there is no second burst.
				if cutOff == 0 && sum > seeds*windows*units*102/100 {
					t.Errorf("%d admitted; want at most 2 %% more than the limit", sum)
				}
			})
		}
	}
}

// outage is 40 s of a hot key under 100 units for 5 s, with some of the workers, or all, cut off from 12 s to 23 s.
func outage(seed uint64, mode limit.Mode, unavailable limit.Unavailable, cutOff int) sim.Scenario {
	s := hotKey(100, 4, 2)
	s.Seed, s.Duration, s.Outage, s.OutageFor, s.CutOff = seed, 40*time.Second, 12*time.Second, 11*time.Second, cutOff
	s.Limits[0].Rates[0].Window = 5 * time.Second
	s.Limits[0].Mode, s.Limits[0].OnUnavailable = mode, unavailable
	return s
}

// TestOutageAllowed: with allow nobody is denied for as long as he is cut off, and the limit holds again two seconds later.
func TestOutageAllowed(t *testing.T) {
	t.Parallel()
	for _, cutOff := range []int{0, 2} {
		for seed := range uint64(5) {
			result := sim.Run(outage(seed, limit.Lease, limit.Allow, cutOff))
			if len(result.Violations) > 0 {
				t.Fatalf("seed %d: %v", seed, result.Violations)
			}
			denied := sim.Run(outage(seed, limit.Lease, limit.Deny, cutOff))
			if len(denied.Violations) > 0 {
				t.Fatalf("seed %d, denied: %v", seed, denied.Violations)
			}
			if result.Figures.Admitted < denied.Figures.Admitted+100 {
				t.Errorf("seed %d: %d admitted with allow, %d with deny", seed, result.Figures.Admitted, denied.Figures.Admitted)
			}
		}
	}
}

// TestAloneByShares plays every fault there is but the drift of clocks, and outages of some workers, on limits with local:
// no window holds more than the limit and, on top, the shares that the workers were told.
func TestAloneByShares(t *testing.T) {
	t.Parallel()
	otherwise := uint64(800)
	if testing.Short() {
		otherwise = 200
	}
	n := min(fromEnvironment(t, "SIM_SEEDS", otherwise), 10*otherwise)
	failed, violations := firstFailure(1, n, away, func(sim.Figures) {})
	if violations != nil {
		t.Fatal(failure(failed, violations))
	}
}

// away makes every limit of a scenario local and exact, with nobody held, and cuts some workers off for a while.
func away(s sim.Scenario) sim.Scenario {
	for i := range s.Limits {
		s.Limits[i].OnUnavailable, s.Limits[i].MaxWait = limit.Local, 0
		if s.Limits[i].Mode == limit.Async {
			s.Limits[i].Mode = limit.Lease
		}
		if s.Limits[i].Algorithm != limit.SlidingBuckets {
			s.Limits[i].Algorithm = limit.SlidingLog
		}
		for j := range s.Limits[i].Rates {
			s.Limits[i].Rates[j].Burst = 0
		}
	}
	s.Faults.Drift = 0
	s.Outage, s.OutageFor, s.CutOff = s.Duration/3, s.Duration/4, int(s.Seed)%s.Workers
	return s
}
