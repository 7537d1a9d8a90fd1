package storetest

import (
	"context"
	"testing"
	"time"

	"sluice/controlsvc/authority"
)

// untilHour is from Start to the next hour, at which windows of an hour begin.
const untilHour = time.Hour - 123456*micro

// fixedWindowScenarios are the stories of fixed_window.
func fixedWindowScenarios() []scenario {
	const hour = time.Hour
	return []scenario{
		{name: "each window begins with nothing, whatever the one before held", rates: []string{"2/1h"}, steps: []step{
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, remaining: 1, reset: untilHour}},
			{at: untilHour - micro, do: strict("b", 2, 1), want: want{units: 1, denied: true, retry: micro, denyFor: micro, reset: micro}},
			{at: untilHour, do: strict("c", 3, 1), want: want{units: 2, denied: true, retry: hour, denyFor: hour, reset: hour}},
			{at: untilHour, do: strict("d", 3, 3), want: want{denied: true, never: true, reset: hour}},
		}},
		{name: "a lease ends with its window", rates: []string{"10/1h"}, steps: []step{
			{at: untilHour - sec, do: lease("a", 4, 1, 5*sec, 0), want: want{units: 4, remaining: 6, end: sec - micro, reset: sec}},
			{at: untilHour - sec, do: lease("b", 4, 1, 200*time.Millisecond, 0), want: want{
				units: 4, remaining: 2, end: 200 * time.Millisecond, reset: sec,
			}},
			{at: untilHour - 20*time.Millisecond, do: lease("c", 1, 1, sec, 0), want: want{
				units: 1, remaining: 1, reset: 20 * time.Millisecond, // too short for a lease: strict
			}},
			{at: untilHour - 10*time.Millisecond, do: lease("d", 1, 1, 10*time.Millisecond-micro, 0), want: want{
				units: 1, end: 10*time.Millisecond - micro, reset: 10 * time.Millisecond, // as short as it was asked for
			}},
		}},
		{name: "a lease of the next window is counted there", rates: []string{"10/1h"}, steps: []step{
			{at: untilHour - 4*sec, do: strict("a", 10, 1), want: want{units: 10, reset: 4 * sec}},
			{at: untilHour - 4*sec, do: lease("b", 7, 1, 5*sec, 4*sec-micro), want: want{denied: true, retry: 4 * sec, denyFor: 4 * sec, reset: 4 * sec}},
			{at: untilHour - 4*sec, do: lease("c", 7, 1, 5*sec, 4*sec), want: want{units: 7, start: 4 * sec, end: 9 * sec, reset: hour + 4*sec}},
			{at: untilHour - 4*sec, do: strict("d", 4, 4), want: want{denied: true, retry: hour + 4*sec, denyFor: 4 * sec, reset: hour + 4*sec}},
			{at: untilHour, do: peek(), want: want{remainingOfRate: []int64{3}, reset: hour}},
			{at: untilHour, do: settle("c", 6, used(0, 1))},
			{at: untilHour, do: settle("c", 6, used(0, 1))},
			{at: untilHour, do: settle("a", 10)}, // of the window before: nothing to give back here
			{at: untilHour, do: peek(), want: want{remainingOfRate: []int64{9}, reset: hour}},
		}},
		{name: "strict charges and leases are cancelled, and records counted where they were spent", rates: []string{"10/1h"}, steps: []step{
			{at: 0, do: strict("a", 3, 1), want: want{units: 3, remaining: 7, reset: untilHour}},
			{at: 0, do: lease("a", 3, 1, 5*sec, 0), want: want{units: 3, remaining: 4, end: 5 * sec, reset: untilHour}},
			{at: 0, do: partly("p", "b", 2)},
			{at: 0, do: partly("q", "b", 1)},
			{at: sec, do: cancel("a")},
			{at: sec, do: cancelPart("p", "b")},
			{at: sec, do: peek(), want: want{remainingOfRate: []int64{9}, reset: untilHour - sec}},
			{at: sec, do: record("r", used(2*sec, 4), used(0, 12))}, // the former in the hour before
			{at: sec, do: peek(), want: want{remainingOfRate: []int64{0}, reset: untilHour - sec}},
			{at: sec, do: strict("c", 1, 1), want: want{denied: true, retry: untilHour - sec, denyFor: untilHour - sec, reset: untilHour - sec}},
			{at: sec, do: reset()},
			{at: sec, do: strict("d", 1, 1), want: want{units: 1, remaining: 9, reset: untilHour - sec}},
		}},
		{name: "where the clock steps back time stands still", rates: []string{"1/1h"}, steps: []step{
			{at: untilHour - sec, do: strict("a", 1, 1), want: want{units: 1, reset: sec}},
			{at: untilHour, do: strict("b", 1, 1), want: want{units: 1, reset: hour}},
			{at: untilHour - 2*sec, do: strict("c", 1, 1), want: want{denied: true, retry: hour, denyFor: hour, reset: hour}},
			{at: untilHour + sec, do: strict("d", 1, 1), want: want{denied: true, retry: hour - sec, denyFor: hour - sec, reset: hour - sec}},
		}},
		{name: "of leases that may come back a denial is short", rates: []string{"10/1h", "12/2h"}, steps: []step{
			{at: 0, do: strict("a", 4, 1), want: want{units: 4, remaining: 6, reset: untilHour}},
			{at: 0, do: lease("b", 5, 1, 5*sec, 0), want: want{units: 5, remaining: 1, end: 5 * sec, reset: untilHour}},
			{at: 0, do: strict("c", 2, 2), want: want{denied: true, retry: untilHour, denyFor: sec, remaining: 1, reset: untilHour}},
			{at: 0, do: strict("d", 7, 7), want: want{denied: true, retry: untilHour + hour, denyFor: untilHour, remaining: 1, reset: untilHour}},
		}},
	}
}

// slidingWindowCounterScenarios are the stories of sliding_window_counter.
func slidingWindowCounterScenarios() []scenario {
	const (
		hour   = time.Hour
		minute = time.Minute
	)
	return []scenario{
		{name: "what the window before held counts by its overlap", rates: []string{"10/1h"}, steps: []step{
			{at: untilHour - sec, do: strict("a", 8, 1), want: want{units: 8, remaining: 2, reset: hour + sec}},
			{at: untilHour, do: peek(), want: want{remainingOfRate: []int64{2}, reset: hour}},
			{at: untilHour + micro, do: peek(), want: want{remainingOfRate: []int64{2}, reset: hour - micro}}, // rounded up
			{at: untilHour + 15*minute, do: strict("b", 5, 5), want: want{
				denied: true, retry: 7*minute + 30*sec, denyFor: 7*minute + 30*sec, remaining: 4, reset: 45 * minute,
			}},
			{at: untilHour + 22*minute + 30*sec - micro, do: strict("c", 5, 5), want: want{
				denied: true, retry: micro, denyFor: micro, remaining: 4, reset: 37*minute + 30*sec + micro,
			}},
			{at: untilHour + 22*minute + 30*sec, do: strict("d", 5, 5), want: want{units: 5, reset: hour + 37*minute + 30*sec}},
			{at: untilHour + hour + 30*minute, do: peek(), want: want{remainingOfRate: []int64{7}, reset: 30 * minute}}, // 2.5
		}},
		{name: "a lease ends with its window, and may still come back in the next", rates: []string{"10/1h"}, steps: []step{
			{at: untilHour - 2*sec, do: lease("a", 10, 1, 5*sec, 0), want: want{units: 10, end: 2*sec - micro, reset: hour + 2*sec}},
			{at: untilHour, do: strict("b", 1, 1), want: want{denied: true, retry: 6 * minute, denyFor: sec, reset: hour}},
			{at: untilHour, do: settle("a", 6, used(sec, 4))},
			{at: untilHour, do: settle("a", 10)},
			{at: untilHour, do: cancel("a")},
			{at: untilHour, do: peek(), want: want{remainingOfRate: []int64{6}, reset: hour}},
		}},
		{name: "a scheduled lease starts when the share has fallen", rates: []string{"10/1h"}, steps: []step{
			{at: untilHour - sec, do: strict("a", 10, 1), want: want{units: 10, reset: hour + sec}},
			{at: untilHour + 2*minute, do: lease("b", 9, 2, 5*sec, 10*minute), want: want{
				units: 2, start: 10 * minute, end: 10*minute + 5*sec, denied: true, retry: 22 * minute, denyFor: 10 * minute,
				reset: hour + 58*minute,
			}},
		}},
		{name: "records count where they were spent, and are forgotten by a reset", clocked: true, rates: []string{"10/1h"}, steps: []step{
			{at: 0, do: record("r", used(2*sec, 4), used(0, 1), used(time.Hour+2*sec, 7))},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{5}, reset: hour + untilHour}}, // 0.123456 s into the hour: 4 are 3.9998…
			{at: untilHour - 1800*sec, do: peek(), want: want{remainingOfRate: []int64{7}, reset: hour + 1800*sec}},
			{at: untilHour - 1800*sec, do: reset()},
			{at: untilHour - 1800*sec, do: strict("a", 11, 1), want: want{
				units: 10, denied: true, retry: 1800*sec + 6*minute, denyFor: 1800*sec + 6*minute, reset: hour + 1800*sec,
			}},
		}},
		{name: "numbers that no double holds", clocked: true, rates: []string{"1000000000000/8784h"}, steps: []step{
			{at: 0, do: record("r", used(8784*time.Hour, 999_999_999_895), used(0, 3))},
			// 1763719200.123456 s are 55 windows of 31622400 s and 24487200.123456 s: 7135199.876544/31622400 of the former are left.
			{at: 0, do: peek(), want: want{
				remainingOfRate: []int64{1_000_000_000_000 - 3 - 225_637_518_841}, reset: 31622400*sec + 7135199_876544*micro,
			}},
		}},
	}
}

// tokenBucketScenarios are the stories of token_bucket.
func tokenBucketScenarios() []scenario {
	const minute = time.Minute
	return []scenario{
		{name: "units flow in one by one", rates: []string{"6/1h"}, steps: []step{
			{at: 0, do: strict("a", 7, 1), want: want{units: 6, denied: true, retry: 10 * minute, denyFor: 10 * minute, reset: 60 * minute}},
			{at: 10*minute - micro, do: strict("b", 1, 1), want: want{denied: true, retry: micro, denyFor: micro, reset: 50*minute + micro}},
			{at: 10 * minute, do: strict("c", 1, 1), want: want{units: 1, reset: 60 * minute}},
			{at: 35 * minute, do: strict("d", 4, 2), want: want{units: 2, denied: true, retry: 15 * minute, denyFor: 15 * minute, reset: 55 * minute}},
			{at: 95 * minute, do: peek(), want: want{remainingOfRate: []int64{6}}},
			{at: 95 * minute, do: strict("e", 7, 7), want: want{denied: true, never: true, remaining: 6}},
		}},
		{name: "a lease counts as spent at its end", rates: []string{"6/1h"}, steps: []step{
			{at: 0, do: lease("a", 3, 1, 5*minute, 0), want: want{units: 3, remaining: 2, end: 5 * minute, reset: 35 * minute}},
			{at: 5 * minute, do: lease("b", 3, 3, 50*minute, 0), want: want{units: 3, end: 30 * minute, reset: 60 * minute}},
			// The next is free in 10 minutes; it may last for as long as what is left of the burst.
			{at: 5 * minute, do: lease("c", 2, 1, 5*minute, 10*minute-micro), want: want{
				denied: true, retry: 10 * minute, denyFor: 10 * minute, reset: 60 * minute,
			}},
			{at: 5 * minute, do: lease("d", 2, 1, 5*minute, 10*minute), want: want{
				units: 1, start: 10 * minute, end: 15 * minute, denied: true, retry: 20 * minute, denyFor: 20 * minute, reset: 70 * minute,
			}},
		}},
		{name: "what a lease gives back is as if it had not been granted", rates: []string{"6/1h"}, steps: []step{
			{at: 0, do: lease("a", 3, 1, 5*minute, 0), want: want{units: 3, remaining: 2, end: 5 * minute, reset: 35 * minute}},
			{at: minute, do: lease("b", 1, 1, 5*minute, 0), want: want{units: 1, remaining: 1, end: 5 * minute, reset: 44 * minute}},
			{at: 2 * minute, do: settle("a", 1, used(2*minute, 1), used(minute, 1))}, // with the last of them, after a minute
			{at: 2 * minute, do: peek(), want: want{remainingOfRate: []int64{3}, reset: 29 * minute}},
			{at: 2 * minute, do: settle("a", 3)},
			{at: 2 * minute, do: cancel("a")},
			{at: 2 * minute, do: peek(), want: want{remainingOfRate: []int64{3}, reset: 29 * minute}},
			{at: 2 * minute, do: settle("b", 0)}, // it is not known when: at its end
			{at: 2 * minute, do: peek(), want: want{remainingOfRate: []int64{3}, reset: 29 * minute}},
			{at: 2 * minute, do: lease("c", 1, 1, 5*minute, 0), want: want{units: 1, remaining: 2, end: 5 * minute, reset: 39 * minute}},
			{at: 3 * minute, do: cancel("c")},
			{at: 3 * minute, do: peek(), want: want{remainingOfRate: []int64{3}, reset: 28 * minute}},
		}},
		{name: "what is taken back does not count twice what flowed in since", rates: []string{"6/1h"}, steps: []step{
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, remaining: 5, reset: 10 * minute}},
			{at: 0, do: strict("b", 1, 1), want: want{units: 1, remaining: 4, reset: 20 * minute}},
			{at: 15 * minute, do: strict("c", 1, 1), want: want{units: 1, remaining: 4, reset: 15 * minute}},
			// Each alone is 5 minutes of what is missing, for without it the bucket was full for 5 minutes; and so are both.
			{at: 15 * minute, do: cancel("a")},
			{at: 15 * minute, do: peek(), want: want{remainingOfRate: []int64{5}, reset: 10 * minute}},
			{at: 15 * minute, do: cancel("b")},
			{at: 15 * minute, do: peek(), want: want{remainingOfRate: []int64{5}, reset: 10 * minute}},
			{at: 15 * minute, do: cancel("c")},
			{at: 15 * minute, do: peek(), want: want{remainingOfRate: []int64{6}}},
			{at: 30 * minute, do: strict("d", 7, 1), want: want{units: 6, denied: true, retry: 10 * minute, denyFor: 10 * minute, reset: 60 * minute}},
		}},
		{name: "all of a call is taken back, where some of it makes no difference any more", rates: []string{"6/1h"}, steps: []step{
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, remaining: 5, reset: 10 * minute}},
			{at: 30 * minute, do: strict("b", 1, 1), want: want{units: 1, remaining: 5, reset: 10 * minute}},
			{at: 30 * minute, do: strict("a", 1, 1), want: want{units: 1, remaining: 4, reset: 20 * minute}},
			{at: 30 * minute, do: cancel("a")},
			{at: 30 * minute, do: peek(), want: want{remainingOfRate: []int64{5}, reset: 10 * minute}},
		}},
		{name: "what is charged after the rate is another is taken back", rates: []string{"3600/1h"}, steps: []step{
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, remaining: 3599, reset: sec}},
			{at: 0, rates: []string{"7200/1h"}, do: strict("b", 1, 1), want: want{units: 1, remaining: 7197, reset: 1500 * time.Millisecond}},
			{at: 0, do: cancel("b")},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{7198}, reset: sec}},
		}},
		{name: "what is taken back after the rate is another stays charged", rates: []string{"6/1h"}, steps: []step{
			{at: 0, do: strict("a", 2, 1), want: want{units: 2, remaining: 4, reset: 20 * minute}},
			{at: 0, rates: []string{"12/1h"}, do: strict("b", 2, 1), want: want{units: 2, remaining: 6, reset: 30 * minute}},
			{at: 0, do: cancel("a")},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{6}, reset: 30 * minute}},
			{at: 0, rates: []string{"6/1h"}, do: cancel("b")}, // whatever rate the key is under by now
			{at: 0, rates: []string{"12/1h"}, do: peek(), want: want{remainingOfRate: []int64{8}, reset: 20 * minute}},
		}},
		{name: "all of a burst at once is a strict charge", rates: []string{"6/1h"}, steps: []step{
			{at: 0, do: lease("a", 6, 1, 5*minute, 0), want: want{units: 6, reset: 60 * minute}},
		}},
		{name: "a burst of more than the rate, and of less", rates: []string{"6/1h"}, burst: 10, steps: []step{
			{at: 0, do: strict("a", 11, 1), want: want{units: 10, denied: true, retry: 10 * minute, denyFor: 10 * minute, reset: 100 * minute}},
			{at: 50 * minute, do: strict("b", 9, 9), want: want{denied: true, retry: 40 * minute, denyFor: 40 * minute, remaining: 5, reset: 50 * minute}},
			{at: 50 * minute, burst: 2, do: strict("c", 1, 1), want: want{denied: true, retry: 40 * minute, denyFor: 40 * minute, reset: 50 * minute}},
			{at: 90 * minute, do: strict("d", 2, 1), want: want{units: 1, denied: true, retry: 10 * minute, denyFor: 10 * minute, reset: 20 * minute}},
			{at: 90 * minute, do: strict("e", 3, 3), want: want{denied: true, never: true, reset: 20 * minute}},
		}},
		{name: "a rate that no microsecond divides, and another one later", rates: []string{"7/1h"}, steps: []step{
			{at: 0, do: strict("a", 7, 1), want: want{units: 7, reset: 60 * minute}},
			{at: 0, do: strict("b", 1, 1), want: want{denied: true, retry: 514_285_715 * micro, denyFor: 514_285_715 * micro, reset: 60 * minute}},
			{at: 514_285_715 * micro, do: strict("c", 1, 1), want: want{units: 1, reset: 60*minute - micro + 1*micro}},
			{at: 514_285_715 * micro, do: strict("d", 1, 1), want: want{
				denied: true, retry: 514_285_714 * micro, denyFor: 514_285_714 * micro, reset: 60 * minute,
			}},
			{at: 514_285_715 * micro, rates: []string{"6/1h"}, do: peek(), want: want{remainingOfRate: []int64{0}, reset: 60 * minute}},
		}},
		{name: "records take out more than there is, and a reset fills", rates: []string{"6/1h"}, steps: []step{
			{at: 0, do: record("r", used(10*minute, 2), used(0, 7))},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{0}, reset: 80 * minute}}, // the older ones first
			{at: 0, do: reset()},
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, remaining: 5, reset: 10 * minute}},
		}},
		{name: "numbers that no double holds", rates: []string{"999999999999/8784h"}, steps: []step{
			{at: 0, do: strict("a", 999_999_999_999, 1), want: want{units: 999_999_999_999, reset: 8784 * time.Hour}},
			{at: sec, do: peek(), want: want{remainingOfRate: []int64{31623}, reset: 8784*time.Hour - sec}}, // 31623.15…
		}},
	}
}

// testOutlives: what is stored for a key is there for as long as any of it counts, and 10 s more, and not for ever; and
// nothing shortens its life.
func testOutlives(t *testing.T, h Harness) {
	t.Helper()
	if h.Lifetimes == nil || !h.needsClock(t) {
		return
	}
	k := h.key("outlives", "10/100s", "20/200s")
	var before []time.Duration
	check := func(what string) {
		t.Helper()
		got := h.Lifetimes(k)
		for i, state := range h.peek(t, k) {
			least := state.Reset + 10*sec - 2*sec // some time passes until it is looked at
			if len(before) > 0 {
				least = max(least, before[i]-2*sec)
			}
			if most := max(least, state.Reset+10*sec+k.Rates[i].Window) + 4*sec; got[i] < least || got[i] > most {
				t.Errorf("after %s what is stored for %v lives for %v, want %v to %v", what, k.Rates[i], got[i], least, most)
			}
		}
		before = got
	}
	h.reserve(t, authority.Reserve{Key: k, Call: "a", Want: 1, Min: 1})
	check("a strict charge")
	lease := h.reserve(t, authority.Reserve{Key: k, Call: "b", Want: 4, Min: 1, TTL: 50 * sec})
	check("a lease")
	h.reserve(t, authority.Reserve{Key: k, Call: "c", Want: 9, Min: 9})
	check("a denial")
	later := h.reserve(t, authority.Reserve{Key: k, Call: "d", Want: 9, Min: 9, TTL: 50 * sec, Horizon: 250 * sec})
	if later.StartIn == 0 {
		t.Fatalf("%+v does not start later", later)
	}
	check("a lease that starts later")
	h.settle(t, authority.Settle{Key: k, Lease: lease.Lease, Uses: []authority.Use{{Units: 4}}})
	check("a settle")
	h.cancel(t, authority.Cancel{Key: k, Call: "a"})
	check("a cancel")
	h.record(t, authority.Record{Key: k, Call: "e", Uses: []authority.Use{{Age: 90 * sec, Units: 1}}})
	check("a record")
	// What was the last to leave is given back: what is known of the clock, and of the names given, stays.
	h.cancel(t, authority.Cancel{Key: k, Call: "d"})
	check("a cancel of the lease that starts later")
	if err := h.Store.Reset(context.Background(), k); err != nil {
		t.Fatal(err)
	}
	check("a reset")
	// Nothing is left of what a short window held; what is stored anew has an end, too.
	k, before = h.key("outlives/short", "10/1s"), nil
	for _, call := range []string{"a", "b"} {
		h.reserve(t, authority.Reserve{Key: k, Call: call, Want: 1, Min: 1})
		check("a strict charge in a short window")
		h.Advance(2 * sec)
		before = nil
	}
}
