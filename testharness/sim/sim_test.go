package sim_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/testharness/sim"
)

// seeds is how many runs TestNoWindowEverHoldsMore makes: SIM_SEEDS, or what fits into a test.
func seeds(t *testing.T) uint64 {
	text := os.Getenv("SIM_SEEDS")
	if text == "" {
		return 1000
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("SIM_SEEDS: %v", err)
	}
	return n
}

// TestNoWindowEverHoldsMore plays many seeds with every fault there is. A failing one is made as small as it gets, and
// printed; Run with the printed scenario repeats it.
func TestNoWindowEverHoldsMore(t *testing.T) {
	n := seeds(t)
	var admitted, denied, waited, calls atomic.Int64
	failed, violations := firstFailure(1, n, func(s sim.Scenario) sim.Scenario { return s }, func(f sim.Figures) {
		admitted.Add(f.Admitted)
		denied.Add(f.Denied)
		waited.Add(f.Waited)
		calls.Add(f.Calls)
	})
	if violations != nil {
		smallest, why := sim.Shrink(failed)
		t.Fatalf("%v\n\t%s\nsmallest: %#v\n\t%s", failed, strings.Join(violations, "\n\t"), smallest, strings.Join(why, "\n\t"))
	}
	t.Logf("%d seeds: %d admitted, %d denied, %d waited, %d calls",
		n, admitted.Load(), denied.Load(), waited.Load(), calls.Load())
	if admitted.Load() == 0 || denied.Load() == 0 || waited.Load() == 0 {
		t.Error("want requests of every outcome")
	}
}

// firstFailure plays the seeds from first on, on all processors, and gives a failing scenario with what it broke.
func firstFailure(
	first, n uint64, change func(sim.Scenario) sim.Scenario, count func(sim.Figures),
) (failed sim.Scenario, violations []string) {
	var next atomic.Uint64
	next.Store(first)
	var mu sync.Mutex
	var players sync.WaitGroup
	for range 2 {
		players.Go(func() {
			for {
				seed := next.Add(1) - 1
				mu.Lock()
				over := seed >= first+n || violations != nil
				mu.Unlock()
				if over {
					return
				}
				s := change(sim.Draw(seed))
				result := sim.Run(s)
				count(result.Figures)
				if len(result.Violations) > 0 {
					mu.Lock()
					if violations == nil {
						failed, violations = s, result.Violations
					}
					mu.Unlock()
				}
			}
		})
	}
	players.Wait()
	return failed, violations
}

// TestASeedRepeats: the same seed gives the same run, to the last request.
func TestASeedRepeats(t *testing.T) {
	for seed := range uint64(20) {
		first, second := sim.Run(sim.Draw(seed)), sim.Run(sim.Draw(seed))
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("seed %d (-first +second):\n%s", seed, diff)
		}
	}
}

// TestMutationsAreCaught breaks one rule at a time: the simulation has to notice within a thousand seeds.
func TestMutationsAreCaught(t *testing.T) {
	const within = 1000
	for _, m := range sim.Mutations() {
		t.Run(string(m), func(t *testing.T) {
			tried := atomic.Int64{}
			failed, violations := firstFailure(1, within,
				func(s sim.Scenario) sim.Scenario { s.Mutation = m; return s },
				func(sim.Figures) { tried.Add(1) })
			if violations == nil {
				t.Fatalf("not noticed within %d seeds", within)
			}
			t.Logf("noticed with seed %d, after about %d runs: %s", failed.Seed, tried.Load(), violations[0])
		})
	}
}

func ExampleRun() {
	scenario := sim.Draw(7)
	scenario.Faults = sim.Faults{}
	fmt.Println(len(sim.Run(scenario).Violations))
	// Output: 0
}
