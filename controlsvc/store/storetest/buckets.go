package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
)

// bucketScenarios are the stories of sliding_buckets. A window of 128 s has buckets of a second; Start is 0.123456 s into
// one, which ends at 876544 µs.
func bucketScenarios() []scenario {
	const (
		end    = 876544 * micro // of the bucket that Start is in
		window = 128 * sec
	)
	return []scenario{
		{name: "a unit counts until its bucket's end and a window", rates: []string{"2/128s"}, steps: []step{
			{at: 0, do: strict("a", 1, 1), want: want{units: 1, remaining: 1, reset: window + end}},
			{at: end, do: strict("b", 1, 1), want: want{units: 1, reset: window}}, // the last instant of the bucket
			{at: end + micro, do: strict("c", 1, 1), want: want{denied: true, retry: window - micro, denyFor: window - micro, reset: window - micro}},
			{at: window + end - micro, do: strict("d", 1, 1), want: want{denied: true, retry: micro, denyFor: micro, reset: micro}},
			{at: window + end, do: strict("e", 2, 1), want: want{units: 2, reset: window}},
		}},
		{name: "a lease lies in the bucket of its end, its units in those of their instants", rates: []string{"10/128s"}, steps: []step{
			{at: 0, do: lease("a", 10, 1, 20*sec, 0), want: want{units: 10, end: 20 * sec, reset: window + 20*sec + end}},
			{at: 0, do: strict("b", 1, 1), want: want{denied: true, retry: window + 20*sec + end, denyFor: sec, reset: window + 20*sec + end}},
			{at: 10 * sec, do: settle("a", 2, used(9*sec, 3), used(4*sec, 4))}, // one of them is not reported
			{at: 10 * sec, do: peek(), want: want{remainingOfRate: []int64{2}, reset: window + 10*sec + end}},
			{at: 10 * sec, do: settle("a", 10)},
			{at: 10 * sec, do: cancel("a")},
			{at: window + sec + end - micro, do: peek(), want: want{remainingOfRate: []int64{2}, reset: 19*sec + micro}},
			{at: window + sec + end, do: peek(), want: want{remainingOfRate: []int64{5}, reset: 19 * sec}},
			{at: window + 6*sec + end, do: peek(), want: want{remainingOfRate: []int64{9}, reset: 14 * sec}},
			{at: window + 20*sec + end, do: peek(), want: want{remainingOfRate: []int64{10}}},
		}},
		{name: "what leases have is told apart from what is certain", rates: []string{"10/128s"}, steps: []step{
			{at: 0, do: lease("a", 4, 1, 100*micro, 0), want: want{units: 4, remaining: 6, end: 100 * micro, reset: window + end}},
			{at: 0, do: strict("b", 6, 1), want: want{units: 6, reset: window + end}}, // in the same bucket
			{at: 0, do: strict("c", 4, 4), want: want{denied: true, retry: window + end, denyFor: sec, reset: window + end}},
			{at: 0, do: strict("d", 5, 5), want: want{denied: true, retry: window + end, denyFor: window + end, reset: window + end}},
		}},
		{name: "what is certain leaves bucket by bucket", rates: []string{"10/128s"}, steps: []step{
			{at: 0, do: lease("a", 4, 1, 100*micro, 0), want: want{units: 4, remaining: 6, end: 100 * micro, reset: window + end}},
			{at: 2 * sec, do: strict("b", 3, 1), want: want{units: 3, remaining: 3, reset: window + end}},
			{at: 4 * sec, do: strict("c", 3, 1), want: want{units: 3, reset: window + end}},
			{at: 4 * sec, do: strict("d", 10, 10), want: want{denied: true, retry: window + end, denyFor: window + end, reset: window + end}},
			{at: 4 * sec, do: strict("e", 7, 7), want: want{denied: true, retry: window + end - 2*sec, denyFor: window + end - 2*sec, reset: window + end}},
		}},
		{name: "a scheduled lease starts when a bucket leaves", rates: []string{"10/128s"}, steps: []step{
			{at: 0, do: strict("a", 4, 1), want: want{units: 4, remaining: 6, reset: window + end}},
			{at: 2 * sec, do: strict("b", 6, 1), want: want{units: 6, reset: window + end}},
			{at: 126 * sec, do: lease("c", 9, 3, 20*sec, 5*sec), want: want{
				units: 3, start: 2*sec + end, end: 22*sec + end, denied: true, retry: 4*sec + end, denyFor: 2*sec + end, reset: window + 22*sec + end,
			}},
		}},
		{name: "a grant whose bucket has left is not taken back", rates: []string{"5/128s", "20/256s"}, steps: []step{
			{at: 0, do: lease("a", 5, 1, sec, 0), want: want{units: 5, end: sec, reset: window + sec + end}},
			{at: 140 * sec, do: strict("b", 5, 1), want: want{units: 5, reset: window + end}},
			{at: 140 * sec, do: settle("a", 2, used(139*sec, 3))},
			{at: 140 * sec, do: peek(), want: want{remainingOfRate: []int64{0, 12}, reset: 257*sec + end}},
		}},
	}
}

// testBounded: however many units are charged, spent and given back, a window has a bounded number of entries.
func testBounded(t *testing.T, h Harness) {
	t.Helper()
	if h.Entries == nil || !h.needsClock(t) {
		return
	}
	k := h.key("bounded", "1000000000/100s", "9000000000/1000s")
	var leases []string
	for i := range 3000 {
		h.Advance(50 * time.Millisecond)
		r := authority.Reserve{Key: k, Call: fmt.Sprintf("call-%d", i), Want: 1000, Min: 1}
		if i%3 == 0 {
			r.TTL = 10 * sec
			leases = append(leases, h.reserve(t, r).Lease)
		} else {
			h.reserve(t, r)
		}
		if len(leases) > 10 {
			h.settle(t, authority.Settle{Key: k, Lease: leases[0], Uses: []authority.Use{used(sec, 500)}, Unused: 500})
			leases = leases[1:]
		}
		// Leases of 10 s lie in up to 13 buckets ahead.
		for rate, got := range h.Entries(k) {
			if most := h.expected.bound + 13 + store.MostStrict + len(leases); got > most {
				t.Fatalf("%d entries of rate %d, want at most %d", got, rate, most)
			}
		}
	}
}

// testCrashedWorkers: the names of leases that nobody settles go with their buckets.
func testCrashedWorkers(t *testing.T, h Harness) {
	t.Helper()
	if h.Entries == nil || !h.needsClock(t) {
		return
	}
	k := h.key("crashed", "1000000000/100s")
	for i := range 300 {
		h.reserve(t, authority.Reserve{Key: k, Call: fmt.Sprintf("call-%d", i), Want: 1000, Min: 1, TTL: sec})
		h.Advance(sec)
	}
	if got, most := h.Entries(k)[0], h.expected.bound+102; got > most {
		t.Errorf("%d entries of leases that end within a window, want at most %d", got, most)
	}
}

// testBucketsComeAgain: where the clock steps back into a bucket that has left, what was charged there then is gone, and what
// is charged there now counts no shorter than a window.
func testBucketsComeAgain(t *testing.T, h Harness) {
	t.Helper()
	if !h.needsClock(t) {
		return
	}
	k := h.key("again", "10/128s")
	take := func(call string, units int64, ttl time.Duration) string {
		t.Helper()
		return h.reserve(t, authority.Reserve{Key: k, Call: call, Want: units, Min: units, TTL: ttl}).Lease
	}
	remains := func(what string, want int64) {
		t.Helper()
		if got := h.peek(t, k)[0].Remaining; got != want {
			t.Errorf("%d remain after %s, want %d", got, what, want)
		}
	}
	take("a", 3, 0)
	b := take("b", 2, 0)
	take("later", 1, 100*sec)
	h.Advance(130 * sec)
	take("c", 1, 0)
	remains("what has left", 8)
	h.Advance(-130 * sec)
	take("d", 5, 0)
	remains("a charge in a bucket that had left", 3)
	take("e", 2, 0)
	h.cancel(t, authority.Cancel{Key: k, Call: "e"})
	remains("taking back another", 3)
	h.cancel(t, authority.Cancel{Key: k, Call: "a"})
	h.settle(t, authority.Settle{Key: k, Lease: b, Unused: 2})
	remains("taking back what is gone", 3)
	h.Advance(127 * sec)
	remains("most of a window", 3)
	h.Advance(13 * sec)
	remains("a window", 8)
	h.Advance(150 * sec)
	remains("another window", 10)
}

// testLeasesComeBack: however many leases are out, each can be given back, once, and whose they are is known.
func testLeasesComeBack(t *testing.T, h Harness) {
	t.Helper()
	if !h.needsClock(t) {
		return
	}
	const leases = 130
	k := h.key("many", "1000000/1h")
	names := make([]string, leases)
	for i := range names {
		names[i] = h.reserve(t, authority.Reserve{Key: k, Call: fmt.Sprintf("%x.%d", i%7, i), Want: 2, Min: 2, TTL: 40 * sec}).Lease
	}
	got, err := h.Store.Inspect(t.Context(), k, 1)
	if err != nil || len(got.Leases) != min(leases, authority.MaxLeasesTold) {
		t.Errorf("%d leases are told of, %v; want %d", len(got.Leases), err, min(leases, authority.MaxLeasesTold))
	}
	want := int64(1000000 - 2*leases)
	for i := range names {
		n := i * 37 % leases // in no order
		for range 2 {
			if n%2 == 0 {
				h.settle(t, authority.Settle{Key: k, Lease: names[n], Unused: 2})
			} else {
				h.cancel(t, authority.Cancel{Key: k, Call: fmt.Sprintf("%x.%d", n%7, n)})
			}
		}
		want += 2
		if got := h.peek(t, k)[0].Remaining; got != want {
			t.Fatalf("%d remain after lease %d came back, want %d", got, n, want)
		}
	}
}

// testForgotten: of very many strict charges the oldest cannot be taken back any more, the youngest can, and each once.
func testForgotten(t *testing.T, h Harness) {
	t.Helper()
	k := h.key("forgotten", "1000000/8000h")
	most := store.MostStrict
	if h.expected.known > 0 {
		most = 2 * h.expected.known
	}
	charges := 3*most - 1
	leases := make([]string, charges)
	for i := range leases {
		leases[i] = h.reserve(t, authority.Reserve{Key: k, Call: fmt.Sprintf("call-%d", i), Want: 2, Min: 2}).Lease
	}
	want := 1000000 - 2*int64(charges)
	for i := charges - 1; i >= charges-most/2; i-- {
		for range 2 {
			h.cancel(t, authority.Cancel{Key: k, Call: fmt.Sprintf("call-%d", i)})
			h.settle(t, authority.Settle{Key: k, Lease: leases[i], Unused: 2})
		}
		want += 2
		if got := h.peek(t, k)[0].Remaining; got != want {
			t.Fatalf("%d remain after the cancel of call %d, want %d", got, i, want)
		}
	}
	wantNoErrors(t, h.Store.Cancel(context.Background(), []authority.Cancel{{Key: k, Call: "call-0"}}))
	if got := h.peek(t, k)[0].Remaining; got != want {
		t.Errorf("%d remain after a cancel of what is forgotten, want %d", got, want)
	}
}
