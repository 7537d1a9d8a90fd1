package oracle_test

import (
	"testing"
	"time"

	"sluice/testharness/oracle"
)

// The oracle itself is checked by hand, one story of 10 units within 100.
func TestLimiter(t *testing.T) {
	l := oracle.New(oracle.Rate{Units: 10, Window: 100 * time.Second})
	at := func(seconds int) time.Duration { return time.Duration(seconds) * time.Second }

	strict := l.Reserve(at(0), "a", 4, 1, 0, 0)
	if strict.Units != 4 || strict.Start != 0 || strict.End != 0 || strict.Denied {
		t.Errorf("4 of 10: %+v", strict)
	}
	lease := l.Reserve(at(10), "b", 9, 3, at(20), 0)
	if lease.Units != 6 || lease.End != at(30) || !lease.Denied || lease.RetryAt != at(100) || lease.DenyUntil != at(11) {
		t.Errorf("two threes of the six that are left, until 30; the next when the four go: %+v", lease)
	}
	if none := l.Reserve(at(20), "c", 7, 7, 0, 0); none.Units != 0 || none.RetryAt != at(130) || none.DenyUntil != at(100) {
		t.Errorf("7 when the lease's six leave as well; not before the four go, whatever comes back: %+v", none)
	}
	if never := l.Reserve(at(20), "c", 11, 11, 0, 0); !never.Never {
		t.Errorf("11 of 10: %+v", never)
	}
	l.Settle(lease.Number, []oracle.Use{{At: at(15), Units: 1}, {At: at(25), Units: 2}}, 1)
	l.Settle(lease.Number, nil, 6)
	if state := l.Least(at(40)); state.Remaining != 1 || state.Reset != at(90) {
		t.Errorf("one came back, two keep the lease's end: %+v", state)
	}
	future := l.Reserve(at(99), "d", 10, 5, at(1), at(1))
	if future.Units != 5 || future.Start != at(100) || future.End != at(101) || future.RetryAt != at(130) {
		t.Errorf("the four of 0 and the one that came back, from 100 on: %+v", future)
	}
	l.Cancel("d")
	l.Record([]oracle.Use{{At: at(98), Units: 9}})
	if state := l.Least(at(99)); state.Remaining != 0 || state.Reset != at(99) {
		t.Errorf("over the limit: %+v", state)
	}
	l.Reset()
	if state := l.Least(at(99)); state.Remaining != 10 || state.Reset != 0 {
		t.Errorf("reset: %+v", state)
	}
}

// By hand: 10 units within 100 s, in 10 buckets of 10 s. What is spent from 20 s on, but not at 20 s, counts until 130 s.
func TestBuckets(t *testing.T) {
	l := oracle.NewBuckets(10, oracle.Rate{Units: 10, Window: 100 * time.Second})
	at := func(seconds int) time.Duration { return time.Duration(seconds) * time.Second }
	l.Reserve(at(20), "a", 2, 2, 0, 0)
	l.Reserve(at(21), "b", 3, 3, 0, 0)
	lease := l.Reserve(at(21), "c", 5, 5, at(12), 0)
	if lease.Units != 5 || lease.End != at(33) {
		t.Errorf("five for 12 s: %+v", lease)
	}
	for _, want := range []struct {
		at, retry time.Duration
		units     int64
	}{{at(40), at(120), 2}, {at(40), at(130), 5}, {at(40), at(140), 10}} {
		if none := l.Reserve(want.at, "d", want.units, want.units, 0, 0); none.Units != 0 || none.RetryAt != want.retry {
			t.Errorf("%d units: %+v, want them at %v", want.units, none, want.retry)
		}
	}
	l.Settle(lease.Number, []oracle.Use{{At: at(30), Units: 1}, {At: at(31), Units: 1}}, 3)
	for _, want := range []struct {
		at        time.Duration
		remaining int64
	}{{at(119), 3}, {at(120), 5}, {at(129), 5}, {at(130), 9}, {at(139), 9}, {at(140), 10}} {
		if got := l.Least(want.at).Remaining; got != want.remaining {
			t.Errorf("at %v: %d remain, want %d", want.at, got, want.remaining)
		}
	}
}
