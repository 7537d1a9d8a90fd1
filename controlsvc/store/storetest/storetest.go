// Package storetest is the conformance suite of authority.Store: what every store must do, run on each of them.
package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/limit"
)

// Harness is one store to test, empty, and what the suite may do with it. It lives as long as the test that opened it.
type Harness struct {
	Store authority.Store
	// Advance lets time pass on the store's clock, which reads Start at first and stands still otherwise, or lets it step
	// back. nil: the clock is real; then only what does not depend on the time is tested, and no duration is looked at.
	Advance func(d time.Duration)
	// Entries gives how many entries are stored for each rate of a key: charges, or buckets and live grants. nil: it cannot
	// be told.
	Entries func(key authority.Key) []int
	// Lifetimes gives how long all that is stored for each rate of a key will live if nobody touches it, the shortest
	// where it is several things; 0 where nothing is stored. nil: nothing to tell.
	Lifetimes func(key authority.Key) []time.Duration

	// Run sets these: what is expected of the algorithm that is tested, and what the clock reads.
	expected expected
	read     *time.Duration
}

// Start is what the clock of a store with Advance reads at first, since 1970.
const Start = 1_763_719_200_123_456 * time.Microsecond

// Run runs the suite for every algorithm. open gives a store that no other test uses at the same time; it fails the test
// where it cannot.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, a := range algorithms() {
		t.Run(a.algorithm.String(), func(t *testing.T) {
			a.run(t, func(t *testing.T) Harness {
				t.Helper()
				h := open(t)
				h.expected, h.read = a, new(time.Duration)
				if advance := h.Advance; advance != nil {
					*h.read = Start
					h.Advance = func(d time.Duration) {
						*h.read += d
						advance(d)
					}
				}
				return h
			})
		})
	}
	t.Run("workers", func(t *testing.T) { testWorkers(t, open(t)) })
	t.Run("replicas", func(t *testing.T) { testReplicas(t, open(t)) })
	t.Run("overlay", func(t *testing.T) { testOverlay(t, open(t)) })
}

// run runs what is tested of each algorithm.
func (e expected) run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, s := range e.scenarios {
		t.Run(s.name, func(t *testing.T) { s.run(t, open(t)) })
	}
	t.Run("a flood", func(t *testing.T) { testFlood(t, open(t)) })
	t.Run("what another limit denied", func(t *testing.T) { testDeniedElsewhere(t, open(t)) })
	t.Run("a batch", func(t *testing.T) { testBatch(t, open(t)) })
	t.Run("hostile names", func(t *testing.T) { testHostileNames(t, open(t)) })
	t.Run("inspected", func(t *testing.T) { testInspect(t, open(t)) })
	t.Run("operations that are wrong", func(t *testing.T) { testWrong(t, open(t)) })
	if e.entries {
		t.Run("one entry for each charge", func(t *testing.T) { testEntries(t, open(t)) })
	}
	if e.bound > 0 {
		t.Run("no more entries for more units", func(t *testing.T) { testBounded(t, open(t)) })
		t.Run("no entries of workers that crashed", func(t *testing.T) { testCrashedWorkers(t, open(t)) })
		t.Run("buckets that come again", func(t *testing.T) { testBucketsComeAgain(t, open(t)) })
	}
	if !e.entries {
		t.Run("too many strict charges to know them all", func(t *testing.T) { testForgotten(t, open(t)) })
	}
	if !e.entries && !e.flows {
		t.Run("many leases that come back", func(t *testing.T) { testLeasesComeBack(t, open(t)) })
	}
	if e.late != nil {
		t.Run("a long report", func(t *testing.T) { testLongReport(t, open(t)) })
		t.Run("how long a key lives", func(t *testing.T) { testLifetimes(t, open(t)) })
	} else {
		t.Run("how long a key lives", func(t *testing.T) { testOutlives(t, open(t)) })
	}
	t.Run("a context that has ended", func(t *testing.T) { testEnded(t, open(t)) })
	t.Run("like the oracle", func(t *testing.T) { testLikeOracle(t, open(t)) })
	t.Run("whatever the clock does", func(t *testing.T) { testClockStepsBack(t, open(t)) })
}

// exact says whether durations are exact: the clock stands still while an operation is under way.
func (h Harness) exact() bool { return h.Advance != nil }

// needsClock ends a test that has nothing to say on a real clock.
func (h Harness) needsClock(t *testing.T) bool {
	t.Helper()
	if h.exact() {
		return true
	}
	t.Log("this store's clock is real: nothing to test here")
	return false
}

func (h Harness) reserve(t testing.TB, r authority.Reserve) authority.Reserved {
	t.Helper()
	out := h.Store.Reserve(context.Background(), []authority.Reserve{r})
	if len(out) != 1 {
		t.Fatalf("%d results of one reserve", len(out))
	}
	if out[0].Err != nil {
		t.Fatalf("reserve %+v: %v", r, out[0].Err)
	}
	return out[0]
}

func (h Harness) settle(t testing.TB, s authority.Settle) {
	t.Helper()
	wantNoErrors(t, h.Store.Settle(context.Background(), []authority.Settle{s}))
}

func (h Harness) cancel(t testing.TB, c authority.Cancel) {
	t.Helper()
	wantNoErrors(t, h.Store.Cancel(context.Background(), []authority.Cancel{c}))
}

func (h Harness) record(t testing.TB, r authority.Record) {
	t.Helper()
	wantNoErrors(t, h.Store.Record(context.Background(), []authority.Record{r}))
}

func (h Harness) peek(t testing.TB, key authority.Key) []authority.State {
	t.Helper()
	states, err := h.Store.Peek(context.Background(), key)
	if err != nil {
		t.Fatalf("peek: %v", err)
	}
	if len(states) != len(key.Rates) {
		t.Fatalf("%d states of %d rates", len(states), len(key.Rates))
	}
	return states
}

func wantNoErrors(t testing.TB, errs []error) {
	t.Helper()
	if len(errs) != 1 || errs[0] != nil {
		t.Fatalf("errors of one operation: %v", errs)
	}
}

// key gives a key under rates such as "10/100s".
func (h Harness) key(name string, rates ...string) authority.Key { return h.keyWith(0, name, rates...) }

// keyWith gives one whose rates have a burst.
func (h Harness) keyWith(burst int64, name string, rates ...string) authority.Key {
	k := authority.Key{Name: "test/" + name, Algorithm: h.expected.algorithm}
	for _, text := range rates {
		r, err := limit.ParseRate(text)
		if err != nil {
			panic(fmt.Sprintf("the suite itself is wrong: %v", err))
		}
		r.Burst = burst
		k.Rates = append(k.Rates, r)
	}
	return k
}
