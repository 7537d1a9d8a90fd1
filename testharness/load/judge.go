package load

import (
	"slices"
	"time"

	"sluice/testharness/oracle"
)

// How much a Judge remembers.
const (
	// lateness is how much later than another, by their Answered, an admission may be told to the judge.
	lateness = time.Second
	// evaluateAfter and mostKept bound the admissions that are kept.
	evaluateAfter = 4_096
	mostKept      = 1 << 20
)

// Judge finds the worst window of a key from its clients' side alone, while requests go on: of the admitted requests, each
// of which was certainly admitted between its Left and its Answered, the largest number that lies within one window.
type Judge struct {
	rates  []oracle.Rate
	worst  []int64
	window time.Duration // the longest
	kept   []oracle.Interval
	newest time.Duration
	fresh  int
	forgot int64
}

// NewJudge judges a key that is under all of the rates.
func NewJudge(rates ...oracle.Rate) *Judge {
	j := &Judge{rates: slices.Clone(rates), worst: make([]int64, len(rates))}
	for _, rate := range rates {
		j.window = max(j.window, rate.Window)
	}
	return j
}

// Admitted notes an admission of one unit. Admissions come in any order, at most a second out of it.
func (j *Judge) Admitted(left, answered time.Duration) {
	j.kept = append(j.kept, oracle.Interval{Left: left, Answered: answered, Units: 1})
	j.newest = max(j.newest, answered)
	j.fresh++
	if j.fresh >= evaluateAfter {
		j.evaluate()
	}
}

// Worst gives the largest number in any window so far, for each rate.
func (j *Judge) Worst() []int64 {
	j.evaluate()
	return slices.Clone(j.worst)
}

// Held says whether no window held more than its rate's units, but for so many that were admitted besides. It is false where
// so much was admitted that the judge could not remember it.
func (j *Judge) Held(besides int64) bool {
	for i, worst := range j.Worst() {
		if worst > j.rates[i].Units+besides {
			return false
		}
	}
	return j.forgot == 0
}

func (j *Judge) evaluate() {
	if j.fresh == 0 {
		return
	}
	j.fresh = 0
	for i, rate := range j.rates {
		j.worst[i] = max(j.worst[i], oracle.WorstWindow(j.kept, rate.Window))
	}
	// Whatever is still to come was answered after newest − lateness; no window that ends there reaches further back.
	j.kept = slices.DeleteFunc(j.kept, func(a oracle.Interval) bool { return a.Left <= j.newest-lateness-j.window })
	if over := len(j.kept) - mostKept; over > 0 {
		j.forgot += int64(over)
		j.kept = slices.Delete(j.kept, 0, over)
	}
}

// Possible is how many of the requests a limiter that knows everything at once could have admitted, one unit each: in the
// order in which they left, each as soon as every window has room. Refusing one that fits never lets more through later.
func Possible(left []time.Duration, rates ...oracle.Rate) int64 {
	left = slices.Sorted(slices.Values(left))
	var admitted []time.Duration
	for _, t := range left {
		fits := true
		for _, rate := range rates {
			// The window (t − W, t] has room unless the admission rate.Units places back is in it.
			back := int64(len(admitted)) - rate.Units
			if rate.Units == 0 || back >= 0 && admitted[back] > t-rate.Window {
				fits = false
			}
		}
		if fits {
			admitted = append(admitted, t)
		}
	}
	return int64(len(admitted))
}
