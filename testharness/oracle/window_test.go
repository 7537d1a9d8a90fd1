package oracle_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/testharness/oracle"
)

func TestWorstWindow(t *testing.T) {
	at := func(left, answered time.Duration, units int64) oracle.Interval {
		return oracle.Interval{Left: left, Answered: answered, Units: units}
	}
	for _, c := range []struct {
		name       string
		admissions []oracle.Interval
		want       int64
	}{
		{name: "nothing"},
		{name: "one", admissions: []oracle.Interval{at(0, 5, 3)}, want: 3},
		{name: "a window apart, for the interval is open at its start", admissions: []oracle.Interval{at(0, 0, 1), at(10, 10, 1)}, want: 1},
		{name: "just within", admissions: []oracle.Interval{at(0, 0, 1), at(9, 9, 1)}, want: 2},
		{name: "a slow answer may have been admitted late", admissions: []oracle.Interval{at(0, 10, 1), at(9, 9, 1)}, want: 1},
		{name: "in any order", admissions: []oracle.Interval{at(9, 9, 1), at(30, 30, 1), at(0, 0, 1)}, want: 2},
		{name: "answered together", admissions: []oracle.Interval{at(1, 9, 1), at(2, 9, 2), at(3, 9, 4)}, want: 7},
		{name: "longer than the window", admissions: []oracle.Interval{at(0, 30, 9), at(25, 31, 1)}, want: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := oracle.WorstWindow(c.admissions, 10); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// The sweep finds what trying every instant finds.
func TestWorstWindowIsTheWorst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.IntRange(1, 20).Draw(t, "window"))
		var admissions []oracle.Interval
		for range rapid.IntRange(0, 30).Draw(t, "admissions") {
			left := time.Duration(rapid.IntRange(0, 60).Draw(t, "left"))
			admissions = append(admissions, oracle.Interval{
				Left: left, Answered: left + time.Duration(rapid.IntRange(0, 25).Draw(t, "took")),
				Units: int64(rapid.IntRange(1, 5).Draw(t, "units")),
			})
		}
		var want int64
		for s := time.Duration(0); s <= 100; s++ {
			var sum int64
			for _, a := range admissions {
				if a.Left > s-window && a.Answered <= s {
					sum += a.Units
				}
			}
			want = max(want, sum)
		}
		if got := oracle.WorstWindow(admissions, window); got != want {
			t.Fatalf("got %d, want %d of %v", got, want, admissions)
		}
	})
}
