package sim_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/shared/limit"
	"sluice/testharness/sim"
)

// defaultSeeds is how many seeds fit into about half a minute on two processors: four times as many as each mutation is to be
// noticed within. make sim plays more.
const defaultSeeds = 4_000

// TestMain has garbage collected less often than Go does by itself: a run makes much of it and keeps little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// fromEnvironment reads a whole number from a variable, where it is set.
func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q in the environment: want a whole number from 0", name, text)
	}
	return n
}

// TestNoWindowEverHoldsMore plays many seeds with every fault there is: SIM_SEEDS of them. A failing one is made as small
// as it gets, and printed with the commands that repeat it.
func TestNoWindowEverHoldsMore(t *testing.T) {
	otherwise := uint64(defaultSeeds)
	if testing.Short() {
		otherwise = 1000
	}
	n := fromEnvironment(t, "SIM_SEEDS", otherwise)
	sum := &sums{t: t, of: n, told: time.Now()}
	failed, violations := firstFailure(1, n, func(s sim.Scenario) sim.Scenario { return s }, sum.add)
	if violations != nil {
		t.Fatal(failure(failed, violations))
	}
	t.Log(sum)
	if sum.figures.Admitted == 0 || sum.figures.Denied == 0 || sum.figures.Waited == 0 || sum.figures.SubLeases == 0 {
		t.Error("want requests of every outcome, and sub-leases")
	}
}

// sums adds the figures of many runs up, and tells from time to time how far they are.
type sums struct {
	t    *testing.T
	of   uint64
	told time.Time

	mu      sync.Mutex
	seeds   uint64
	figures sim.Figures
}

func (s *sums) add(f sim.Figures) {
	const pause = 10 * time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds++
	s.figures.Requests += f.Requests
	s.figures.Admitted += f.Admitted
	s.figures.Denied += f.Denied
	s.figures.Waited += f.Waited
	s.figures.Calls += f.Calls
	s.figures.SubLeases += f.SubLeases
	s.figures.Worst = max(s.figures.Worst, f.Worst)
	s.figures.WorstBeyond = max(s.figures.WorstBeyond, f.WorstBeyond)
	if time.Since(s.told) >= pause {
		s.told = time.Now()
		s.t.Log(s)
	}
}

// String gives the sums on one line.
func (s *sums) String() string {
	f := s.figures
	return fmt.Sprintf("%d of %d seeds: %d requests, %d admitted, %d denied, %d waited, %d calls, %d sub-leases, "+
		"the fullest window %.3f of its limit, in mode async %.3f",
		s.seeds, s.of, f.Requests, f.Admitted, f.Denied, f.Waited, f.Calls, f.SubLeases, f.Worst, f.WorstBeyond)
}

// failure says what a scenario broke, what the smallest one like it breaks, and how to see both again.
func failure(failed sim.Scenario, violations []string) string {
	const again = "go test -count=1 -v -run TestOneSeed ./testharness/sim"
	smallest, why := sim.Shrink(failed)
	text, err := printed(smallest)
	if err != nil {
		text = []byte(err.Error())
	}
	const between = "\n\t"
	said := fmt.Sprintf("%v\n\t%s\n", failed, strings.Join(violations, between))
	if failed.String() == sim.Draw(failed.Seed).String() {
		said += fmt.Sprintf("again: SIM_SEED=%d %s\n", failed.Seed, again)
	}
	return said + fmt.Sprintf("smallest: %v\n\t%s\nagain: SIM_SCENARIO='%s' %s", smallest, strings.Join(why, between), text, again)
}

// printed gives a scenario as SIM_SCENARIO takes it.
func printed(s sim.Scenario) ([]byte, error) {
	return json.Marshal(s) //nolint:musttag // the fields' own names will do: nobody but read reads them
}

func read(text []byte) (s sim.Scenario, err error) {
	err = json.Unmarshal(text, &s) //nolint:musttag // as printed has them
	return s, err
}

// TestOneSeed repeats one run exactly: that of the seed SIM_SEED, or of the scenario SIM_SCENARIO, as a failure prints them.
func TestOneSeed(t *testing.T) {
	s := sim.Draw(fromEnvironment(t, "SIM_SEED", 1))
	if text := os.Getenv("SIM_SCENARIO"); text != "" {
		var err error
		if s, err = read([]byte(text)); err != nil {
			t.Fatalf("SIM_SCENARIO in the environment: %v; want the JSON that a failure prints", err)
		}
	}
	result := sim.Run(s)
	if result.Violations != nil {
		t.Fatal(failure(s, result.Violations))
	}
	t.Logf("%v\n%+v", s, result.Figures)
}

// TestAScenarioIsPrintedWhole: what SIM_SCENARIO takes is the scenario that was printed.
func TestAScenarioIsPrintedWhole(t *testing.T) {
	for seed := range uint64(200) {
		want := sim.Draw(seed)
		want.Mutation = sim.OneMore
		text, err := printed(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-drawn +printed and read):\n%s", seed, diff)
		}
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
	for range runtime.GOMAXPROCS(0) {
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
				func(s sim.Scenario) sim.Scenario {
					if s.Mutation = m; m == sim.SubOwnEnd && !s.Tides {
						s.Duration = 0 // nothing of a sub-lease would be left over
					}
					return s
				},
				func(sim.Figures) { tried.Add(1) })
			if violations == nil {
				t.Fatalf("not noticed within %d seeds", within)
			}
			t.Logf("noticed with seed %d, after about %d runs: %s", failed.Seed, tried.Load(), violations[0])
		})
	}
}

// TestABoundOfEachAlgorithmIsJudged: under each of the approximate algorithms one unit more than the limit is noticed, strict
// and by leases; under a token bucket also that a lease's units are counted as spent too early.
func TestABoundOfEachAlgorithmIsJudged(t *testing.T) {
	const within = 50
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindowCounter, limit.TokenBucket} {
		for _, mode := range []limit.Mode{limit.Strict, limit.Lease} {
			for _, m := range []sim.Mutation{"", sim.OneMore, sim.ScoreAtStart} {
				if m == sim.ScoreAtStart && (a != limit.TokenBucket || mode != limit.Lease) {
					continue // a lease of a window ends with it, whenever it is counted
				}
				t.Run(fmt.Sprintf("%v, %v, %s", a, mode, m), func(t *testing.T) {
					failed, violations := firstFailure(1, within, func(s sim.Scenario) sim.Scenario {
						s.Limits, s.Paid, s.Mutation = s.Limits[:1], 0, m
						l := &s.Limits[0]
						l.Algorithm, l.Mode, l.MaxWait, l.Rates = a, mode, 0, slices.Clone(l.Rates[:1])
						if l.Rates[0].Burst = 0; a == limit.TokenBucket && s.Seed%2 == 0 {
							l.Rates[0].Burst = l.RequestCost() + int64(s.Seed)%20
						}
						if m == sim.ScoreAtStart { // of which a lease of a full bucket may lose some
							s.Bursts, s.Load, l.Cost, l.Rates[0] = true, 2, 0, limit.Rate{Units: 400, Window: time.Second}
						}
						if mode == limit.Lease && s.Seed%4 < 2 { // enough to be leased ahead of need
							l.Rates[0].Units += 20 * l.RequestCost()
							if l.Rates[0].Burst > 0 {
								l.Rates[0].Burst += 20 * l.RequestCost()
							}
						}
						return s
					}, func(sim.Figures) {})
					if (violations != nil) != (m != "") {
						t.Fatalf("within %d seeds: %v, %q", within, failed, violations)
					}
				})
			}
		}
	}
}

func ExampleRun() {
	scenario := sim.Draw(7)
	scenario.Faults = sim.Faults{}
	fmt.Println(len(sim.Run(scenario).Violations))
	// Output: 0
}
