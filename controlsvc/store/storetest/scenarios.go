package storetest

import "time"

const (
	sec   = time.Second
	micro = time.Microsecond
)

// scenarios are the stories. In each, a window is long in comparison with what happens within one instant.
func scenarios() []scenario {
	return append(append(append(grants(), leases()...), reports()...), policies()...)
}

// grants: how much, and when the next.
func grants() []scenario {
	return []scenario{
		{name: "units are spent one by one, and come back a window later to the microsecond", rates: []string{"2/100s"}, steps: []step{
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, remaining: 1, reset: 100 * sec}},
			{at: 10 * sec, do: strict("b", 1, 1), want: want{units: 1, remaining: 0, reset: 100 * sec}},
			{at: 10 * sec, do: strict("c", 1, 1), want: want{denied: true, retry: 90 * sec, denyFor: 90 * sec, reset: 100 * sec}},
			{at: 100*sec - micro, do: strict("d", 1, 1), want: want{denied: true, retry: micro, denyFor: micro, reset: 10*sec + micro}},
			{at: 100 * sec, do: strict("e", 1, 1), want: want{units: 1, remaining: 0, reset: 100 * sec}},
			{at: 110*sec - micro, do: strict("f", 1, 1), want: want{denied: true, retry: micro, denyFor: micro, reset: 90*sec + micro}},
			{at: 110 * sec, do: strict("g", 1, 1), want: want{units: 1, remaining: 0, reset: 100 * sec}},
		}},
		{name: "a partial grant says when the next could be had", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: strict("a", 4, 1), want: want{units: 4, remaining: 6, reset: 100 * sec}},
			{at: 10 * sec, do: strict("b", 8, 1), want: want{units: 6, denied: true, retry: 90 * sec, denyFor: 90 * sec, reset: 100 * sec}},
			{at: 10 * sec, do: strict("c", 5, 5), want: want{denied: true, retry: 100 * sec, denyFor: 100 * sec, reset: 100 * sec}},
		}},
		{name: "grants are whole multiples of min", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: strict("a", 11, 4), want: want{units: 8, remaining: 2, reset: 100 * sec}},
			{at: 0, do: strict("b", 12, 3), want: want{denied: true, retry: 100 * sec, denyFor: 100 * sec, remaining: 2, reset: 100 * sec}},
			{at: 0, do: strict("c", 3, 2), want: want{units: 2, reset: 100 * sec}},
			{at: 0, do: strict("d", 2, 1), want: want{denied: true, retry: 100 * sec, denyFor: 100 * sec, reset: 100 * sec}},
		}},
		{name: "more than the limit holds is never to be had", rates: []string{"10/100s", "0/200s"}, steps: []step{
			{at: 0, do: strict("a", 1, 1), want: want{denied: true, never: true, rate: 1}},
			{at: 0, rates: []string{"10/100s"}, do: strict("b", 11, 11), want: want{denied: true, never: true, remaining: 10}},
			{at: 0, do: strict("c", 30, 10), want: want{units: 10, denied: true, retry: 100 * sec, denyFor: 100 * sec, reset: 100 * sec}},
		}},
		{name: "several rates grant together or not at all", rates: []string{"4/10s", "6/100s"}, steps: []step{
			{at: 0, do: strict("a", 9, 1), want: want{units: 4, denied: true, retry: 10 * sec, denyFor: 10 * sec, reset: 10 * sec}},
			{at: 5 * sec, do: strict("b", 1, 1), want: want{denied: true, retry: 5 * sec, denyFor: 5 * sec, reset: 5 * sec}},
			{at: 10 * sec, do: strict("c", 3, 3), want: want{denied: true, retry: 90 * sec, denyFor: 90 * sec, remaining: 2, reset: 90 * sec, rate: 1}},
			{at: 10 * sec, do: peek(), want: want{remainingOfRate: []int64{4, 2}, reset: 90 * sec}},
			{at: 10 * sec, do: strict("d", 3, 1), want: want{units: 2, denied: true, retry: 90 * sec, denyFor: 90 * sec, reset: 100 * sec, rate: 1}},
			{at: 100 * sec, do: peek(), want: want{remainingOfRate: []int64{4, 4}, reset: 10 * sec}},
		}},
		{name: "of two rates within one window the smaller holds", rates: []string{"5/100s", "3/100s"}, steps: []step{
			{at: 0, do: strict("a", 2, 1), want: want{units: 2, remaining: 1, reset: 100 * sec, rate: 1}},
			{at: 0, do: strict("b", 2, 1), want: want{units: 1, denied: true, retry: 100 * sec, denyFor: 100 * sec, reset: 100 * sec, rate: 1}},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{2, 0}, reset: 100 * sec}},
		}},
		{name: "denied requests cost nothing", rates: []string{"1/100s"}, steps: []step{
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, reset: 100 * sec}},
			{at: 40 * sec, do: strict("b", 1, 1), want: want{denied: true, retry: 60 * sec, denyFor: 60 * sec, reset: 60 * sec}},
			{at: 99 * sec, do: strict("c", 1, 1), want: want{denied: true, retry: sec, denyFor: sec, reset: sec}},
			{at: 100 * sec, do: peek(), want: want{remainingOfRate: []int64{1}}},
			{at: 100 * sec, do: strict("d", 1, 1), want: want{units: 1, reset: 100 * sec}},
		}},
	}
}

// leases: units to be spent later.
func leases() []scenario {
	return []scenario{
		{name: "a lease counts until a window after its end", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: lease("a", 10, 1, 20*sec, 0), want: want{units: 10, end: 20 * sec, reset: 120 * sec}},
			{at: 100 * sec, do: strict("b", 1, 1), want: want{denied: true, retry: 20 * sec, denyFor: sec, reset: 20 * sec}},
			{at: 120*sec - micro, do: strict("c", 1, 1), want: want{denied: true, retry: micro, denyFor: micro, reset: micro}},
			{at: 120 * sec, do: strict("d", 1, 1), want: want{units: 1, remaining: 9, reset: 100 * sec}},
		}},
		{name: "a scheduled lease starts when its units are free", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: strict("a", 4, 1), want: want{units: 4, remaining: 6, reset: 100 * sec}},
			{at: 2 * sec, do: strict("b", 6, 1), want: want{units: 6, reset: 100 * sec}},
			{at: 95 * sec, do: lease("c", 9, 1, 20*sec, 5*sec-micro), want: want{denied: true, retry: 5 * sec, denyFor: 5 * sec, reset: 7 * sec}},
			{at: 95 * sec, do: lease("d", 9, 3, 20*sec, 5*sec), want: want{
				units: 3, start: 5 * sec, end: 25 * sec, denied: true, retry: 7 * sec, denyFor: 5 * sec, reset: 125 * sec,
			}},
			// One is left of the four; the next six are free at 102.
			{at: 95 * sec, do: lease("e", 9, 2, 20*sec, 10*sec), want: want{
				units: 6, start: 7 * sec, end: 27 * sec, denied: true, retry: 125 * sec, denyFor: 5 * sec, reset: 127 * sec,
			}},
			{at: 100*sec - micro, do: strict("f", 1, 1), want: want{denied: true, retry: 2*sec + micro, denyFor: sec, reset: 122*sec + micro}},
			{at: 102 * sec, do: strict("g", 2, 1), want: want{units: 1, denied: true, retry: 100 * sec, denyFor: sec, reset: 120 * sec}},
		}},
		{name: "a scheduled lease is free in all rates", rates: []string{"2/10s", "3/100s"}, steps: []step{
			{at: 0, do: strict("a", 2, 1), want: want{units: 2, reset: 10 * sec}},
			{at: 9 * sec, do: lease("b", 2, 1, sec, 20*sec), want: want{
				units: 1, start: sec, end: 2 * sec, denied: true, retry: 91 * sec, denyFor: sec, reset: 12 * sec,
			}},
			{at: 9 * sec, do: lease("c", 1, 1, sec, 90*sec), want: want{
				denied: true, retry: 91 * sec, denyFor: sec, reset: 12 * sec,
			}},
			{at: 9 * sec, do: lease("d", 1, 1, sec, 91*sec), want: want{
				units: 1, start: 91 * sec, end: 92 * sec, reset: 102 * sec,
			}},
		}},
		{name: "a horizon without a ttl schedules nothing", rates: []string{"1/100s"}, steps: []step{
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, reset: 100 * sec}},
			{at: 99 * sec, do: lease("b", 1, 1, 0, 10*sec), want: want{denied: true, retry: sec, denyFor: sec, reset: sec}},
		}},
		{name: "leases of others may come back before they are all spent", rates: []string{"10/1h"}, steps: []step{
			{at: 0, do: strict("a", 3, 1), want: want{units: 3, remaining: 7, reset: time.Hour}},
			{at: 10 * sec, do: lease("b", 7, 1, 10*sec, 0), want: want{units: 7, end: 10 * sec, reset: time.Hour + 10*sec}},
			{at: 20 * sec, do: strict("c", 1, 1), want: want{denied: true, retry: time.Hour - 20*sec, denyFor: sec, reset: time.Hour}},
			{at: 20 * sec, do: strict("d", 8, 8), want: want{denied: true, retry: time.Hour, denyFor: time.Hour - 20*sec, reset: time.Hour}},
			{at: 20 * sec, do: settle("b", 0, used(10*sec, 7))},
			{at: 20 * sec, do: strict("e", 8, 8), want: want{denied: true, retry: time.Hour - 10*sec, denyFor: time.Hour - 10*sec, reset: time.Hour - 10*sec}},
		}},
		{name: "a short window is asked again after 20 ms", rates: []string{"1/100ms"}, steps: []step{
			{at: 0, do: lease("a", 1, 1, 10*time.Millisecond, 0), want: want{
				units: 1, end: 10 * time.Millisecond, reset: 110 * time.Millisecond,
			}},
			{at: 0, do: strict("b", 1, 1), want: want{
				denied: true, retry: 110 * time.Millisecond, denyFor: 20 * time.Millisecond, reset: 110 * time.Millisecond,
			}},
		}},
	}
}

// reports: settles, cancels, records, resets, in any order.
func reports() []scenario {
	return []scenario{
		{name: "a settle counts once, whole", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: lease("a", 10, 1, 20*sec, 0), want: want{units: 10, end: 20 * sec, reset: 120 * sec}},
			{at: 10 * sec, do: settle("a", 3, used(8*sec, 2), used(4*sec, 4))},
			{at: 10 * sec, do: peek(), want: want{remainingOfRate: []int64{3}, reset: 110 * sec}}, // one of ten was not reported
			{at: 10 * sec, do: settle("a", 10)},
			{at: 10 * sec, do: settle("a", 3, used(8*sec, 2), used(4*sec, 4))},
			{at: 10 * sec, do: peek(), want: want{remainingOfRate: []int64{3}, reset: 110 * sec}},
			{at: 102*sec - micro, do: peek(), want: want{remainingOfRate: []int64{3}, reset: 18*sec + micro}},
			{at: 102 * sec, do: peek(), want: want{remainingOfRate: []int64{5}, reset: 18 * sec}},
			{at: 106 * sec, do: peek(), want: want{remainingOfRate: []int64{9}, reset: 14 * sec}},
			{at: 120 * sec, do: peek(), want: want{remainingOfRate: []int64{10}}},
		}},
		{name: "scores only fall", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: lease("a", 5, 1, 20*sec, 0), want: want{units: 5, remaining: 5, end: 20 * sec, reset: 120 * sec}},
			{at: 50 * sec, do: settle("a", 0, used(0, 5))}, // it cannot have been spent after 20
			{at: 120*sec - micro, do: peek(), want: want{remainingOfRate: []int64{5}, reset: micro}},
			{at: 120 * sec, do: peek(), want: want{remainingOfRate: []int64{10}}},
		}},
		{name: "a report of more than the lease is cut down", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: lease("a", 4, 1, 20*sec, 0), want: want{units: 4, remaining: 6, end: 20 * sec, reset: 120 * sec}},
			{at: 10 * sec, do: settle("a", 9, used(10*sec, 1), used(5*sec, 2))},
			{at: 10 * sec, do: peek(), want: want{remainingOfRate: []int64{7}, reset: 95 * sec}},
			{at: 10 * sec, do: lease("b", 4, 1, 20*sec, 0), want: want{units: 4, remaining: 3, end: 20 * sec, reset: 120 * sec}},
			{at: 20 * sec, do: settle("b", 1, used(10*sec, 9), used(5*sec, 3))},
			{at: 20 * sec, do: peek(), want: want{remainingOfRate: []int64{3}, reset: 95 * sec}},
			{at: 110 * sec, do: peek(), want: want{remainingOfRate: []int64{7}, reset: 5 * sec}},
		}},
		{name: "what was kept of a lease stands beside strict charges that come and go", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: lease("a", 4, 1, 20*sec, 0), want: want{units: 4, end: 20 * sec, remaining: 6, reset: 120 * sec}},
			{at: 0, do: settle("a", 0, used(0, 1))},
			{at: 0, do: strict("b", 2, 1), want: want{units: 2, remaining: 4, reset: 120 * sec}},
			{at: 50 * sec, do: strict("c", 1, 1), want: want{units: 1, remaining: 3, reset: 100 * sec}},
			{at: 100 * sec, do: strict("d", 1, 1), want: want{units: 1, remaining: 5, reset: 100 * sec}},
			{at: 120 * sec, do: strict("e", 1, 1), want: want{units: 1, remaining: 7, reset: 100 * sec}},
		}},
		{name: "a lease that has left the window is settled for nothing", rates: []string{"5/10s", "10/100s"}, steps: []step{
			{at: 0, do: lease("a", 5, 1, 5*sec, 0), want: want{units: 5, end: 5 * sec, reset: 15 * sec}},
			{at: 20 * sec, do: strict("b", 5, 1), want: want{units: 5, reset: 10 * sec}},
			{at: 20 * sec, do: settle("a", 2, used(18*sec, 3))}, // out of the short window, within the long one
			{at: 20 * sec, do: peek(), want: want{remainingOfRate: []int64{0, 2}, reset: 100 * sec}},
			{at: 130 * sec, do: settle("a", 5)},
			{at: 130 * sec, do: peek(), want: want{remainingOfRate: []int64{5, 10}}},
		}},
		{name: "a strict charge may be given back in part, at once", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: strict("a", 10, 1), want: want{units: 10, reset: 100 * sec}},
			{at: 0, do: settle("a", 4, used(0, 6))},
			{at: 0, do: strict("b", 4, 4), want: want{units: 4, reset: 100 * sec}},
			{at: 0, do: settle("a", 10)},
			{at: 0, do: strict("c", 1, 1), want: want{denied: true, retry: 100 * sec, denyFor: 100 * sec, reset: 100 * sec}},
		}},
		{name: "a cancel takes back what its call was granted, and nothing else", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: cancel("a")}, // it overtook its reserve, which costs the units
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, remaining: 9, reset: 100 * sec}},
			{at: 0, do: lease("b", 2, 1, 5*sec, 0), want: want{units: 2, remaining: 7, end: 5 * sec, reset: 105 * sec}},
			{at: 0, do: strict("b.", 3, 1), want: want{units: 3, remaining: 4, reset: 105 * sec}},
			{at: 0, do: cancel("b")},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{6}, reset: 100 * sec}},
			{at: 0, do: cancel("b")},
			{at: 0, do: settle("b", 2)},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{6}, reset: 100 * sec}},
			{at: 0, do: cancel("b.")},
			{at: 0, do: cancel("a")},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{10}}},
		}},
		{name: "a reserve that is executed again is a grant of its own", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: lease("a", 4, 1, 5*sec, 0), want: want{units: 4, remaining: 6, end: 5 * sec, reset: 105 * sec}},
			{at: 0, do: lease("a", 4, 1, 5*sec, 0), want: want{units: 4, remaining: 2, end: 5 * sec, reset: 105 * sec}},
			{at: 0, do: settle("a", 4)},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{6}, reset: 105 * sec}},
			{at: 0, do: lease("a", 4, 1, 5*sec, 0), want: want{units: 4, remaining: 2, end: 5 * sec, reset: 105 * sec}},
			{at: 0, do: settle("a", 4)}, // the first of the three, which is settled
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{2}, reset: 105 * sec}},
			{at: 0, do: cancel("a")},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{10}}},
		}},
		{name: "a cancel with a part leaves the call's other parts", rates: []string{"20/100s"}, steps: []step{
			{at: 0, do: partly("1", "a", 1)},
			{at: 0, do: partly("10", "a", 2)},
			{at: 0, do: partly("", "a", 4)},
			{at: 0, do: partly("1", "a1", 8)},
			{at: 0, do: cancelPart("2", "a")},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{5}, reset: 100 * sec}},
			{at: 0, do: cancelPart("1", "a")},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{6}, reset: 100 * sec}},
			{at: 0, do: cancel("a")},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{12}, reset: 100 * sec}},
		}},
		{name: "a cancel does not touch what is settled", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: lease("a", 4, 1, 5*sec, 0), want: want{units: 4, remaining: 6, end: 5 * sec, reset: 105 * sec}},
			{at: sec, do: settle("a", 1, used(sec, 2))},
			{at: sec, do: cancel("a")},
			{at: sec, do: peek(), want: want{remainingOfRate: []int64{7}, reset: 104 * sec}},
		}},
		{name: "a record may pass the limit", rates: []string{"3/10s", "10/100s"}, steps: []step{
			{at: 50 * sec, do: record("a", used(2*sec, 5), used(20*sec, 4))},
			{at: 50 * sec, do: peek(), want: want{remainingOfRate: []int64{0, 1}, reset: 98 * sec}},
			{at: 50 * sec, do: strict("b", 1, 1), want: want{denied: true, retry: 8 * sec, denyFor: 8 * sec, reset: 8 * sec}},
			{at: 50 * sec, do: record("a", used(2*sec, 5))}, // repeated, it costs again
			{at: 58 * sec, do: strict("c", 1, 1), want: want{denied: true, retry: 90 * sec, denyFor: 90 * sec, reset: 90 * sec, rate: 1}},
			{at: 58 * sec, do: cancel("a")}, // what was admitted cannot be taken back
			{at: 130 * sec, do: strict("d", 1, 1), want: want{denied: true, retry: 18 * sec, denyFor: 18 * sec, reset: 18 * sec, rate: 1}},
			{at: 148 * sec, do: strict("e", 1, 1), want: want{units: 1, remaining: 2, reset: 10 * sec}},
		}},
		{name: "a reset forgets every charge", rates: []string{"3/10s", "10/100s"}, steps: []step{
			{at: 0, do: lease("a", 3, 1, 5*sec, 0), want: want{units: 3, end: 5 * sec, reset: 15 * sec}},
			{at: 0, do: reset()},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{3, 10}}},
			{at: 0, do: lease("b", 2, 1, 5*sec, 0), want: want{units: 2, remaining: 1, end: 5 * sec, reset: 15 * sec}},
			{at: 0, do: settle("a", 3)},
			{at: 0, do: cancel("a")},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{1, 8}, reset: 105 * sec}},
			{at: 0, do: reset()},
			{at: 0, do: reset()},
			{at: 0, do: peek(), want: want{remainingOfRate: []int64{3, 10}}},
		}},
	}
}

// policies: limits that change while there are charges.
func policies() []scenario {
	return []scenario{
		{name: "a limit that is lowered, and raised again", rates: []string{"10/100s"}, steps: []step{
			{at: 0, do: strict("a", 8, 1), want: want{units: 8, remaining: 2, reset: 100 * sec}},
			{at: 10 * sec, do: strict("b", 1, 1), want: want{units: 1, remaining: 1, reset: 100 * sec}},
			{at: 20 * sec, rates: []string{"1/100s"}, do: strict("c", 1, 1), want: want{
				denied: true, retry: 90 * sec, denyFor: 90 * sec, reset: 90 * sec,
			}},
			{at: 20 * sec, rates: []string{"12/100s"}, do: strict("d", 9, 1), want: want{
				units: 3, denied: true, retry: 80 * sec, denyFor: 80 * sec, reset: 100 * sec,
			}},
		}},
		{name: "another window is another count", rates: []string{"1/100s"}, steps: []step{
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, reset: 100 * sec}},
			{at: 0, rates: []string{"1/200s"}, do: strict("b", 1, 1), want: want{units: 1, reset: 200 * sec}},
			{at: 0, rates: []string{"1/200s", "2/100s"}, do: peek(), want: want{remainingOfRate: []int64{0, 1}, reset: 200 * sec}},
		}},
		{name: "the largest units and windows", rates: []string{"1000000000000/366d"}, steps: []step{
			{at: 0, do: strict("a", 999_999_999_999, 1), want: want{units: 999_999_999_999, remaining: 1, reset: 366 * 24 * time.Hour}},
			{at: sec, do: lease("b", 2, 2, 300*24*time.Hour, 0), want: want{
				denied: true, retry: 366*24*time.Hour - sec, denyFor: 366*24*time.Hour - sec, remaining: 1, reset: 366*24*time.Hour - sec,
			}},
			{at: sec, do: lease("c", 1, 1, 300*24*time.Hour, 0), want: want{
				units: 1, end: 300 * 24 * time.Hour, reset: 666 * 24 * time.Hour,
			}},
		}},
		{name: "the smallest units and windows", rates: []string{"1/1ms"}, steps: []step{
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, reset: time.Millisecond}},
			{at: 999 * micro, do: strict("b", 1, 1), want: want{denied: true, retry: micro, denyFor: micro, reset: micro}},
			{at: time.Millisecond, do: strict("c", 1, 1), want: want{units: 1, reset: time.Millisecond}},
		}},
	}
}
