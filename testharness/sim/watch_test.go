package sim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/shared/limit"
	"sluice/testharness/sim"
)

// TestWatchingChangesNothing: a run that is watched is the same run, and what was told adds up to its figures.
func TestWatchingChangesNothing(t *testing.T) {
	for seed := range uint64(50) {
		s := sim.Draw(seed)
		var spent, fullest int64
		var parts int
		var passed, held time.Duration
		for _, l := range s.Limits {
			held = max(held, l.MaxWait)
		}
		watched := sim.RunWatched(s, sim.Watch{
			Spent: func(limit, _ string, at time.Duration, units int64) {
				if at < 0 || at > s.Duration+held+s.Timeout+time.Second {
					t.Errorf("seed %d: spent at %v of %v", seed, at, s.Duration)
				}
				if limit == s.Limits[0].Name {
					spent += units
				}
			},
			Window: func(limit, _ string, rate int, _ time.Duration, units int64) {
				if limit == s.Limits[0].Name && rate == 0 {
					fullest = max(fullest, units)
				}
			},
			Passed: func(d time.Duration) { parts, passed = parts+1, d },
		})
		if diff := cmp.Diff(sim.Run(s), watched); diff != "" {
			t.Fatalf("seed %d (-unwatched +watched):\n%s", seed, diff)
		}
		if most := max(s.Limits[0].Rates[0].Units, s.ChangeTo, s.Paid); spent < watched.Figures.Admitted ||
			fullest > most && s.Limits[0].Mode != limit.Async {
			t.Errorf("seed %d: told of %d units spent by %d requests, and of %d in a window of %d",
				seed, spent, watched.Figures.Admitted, fullest, most)
		}
		if parts != 100 || passed != s.Duration {
			t.Errorf("seed %d: %d parts, the last at %v; want 100, to %v", seed, parts, passed, s.Duration)
		}
	}
}
