package oracle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/testharness/oracle"
)

const sec = time.Second

// limiter is what all oracles but the band are.
type limiter interface {
	Reserve(now time.Duration, call string, want, least int64, ttl, horizon time.Duration) oracle.Grant
	Settle(number int, uses []oracle.Use, unused int64)
	Cancel(call string)
	Record(uses []oracle.Use)
	Reset()
	Least(now time.Duration) oracle.State
}

// ask is a reserve and what it must give, computed by hand.
type ask struct {
	at           time.Duration
	want, least  int64
	ttl, horizon time.Duration
	give         oracle.Grant // but for Number
}

func (a ask) check(t *testing.T, l limiter, call string) int {
	t.Helper()
	got := l.Reserve(a.at, call, a.want, a.least, a.ttl, a.horizon)
	number := got.Number
	got.Number = 0
	if diff := cmp.Diff(a.give, got); diff != "" {
		t.Errorf("at %v, %d by %d (-want +got):\n%s", a.at, a.want, a.least, diff)
	}
	return number
}

func remains(t *testing.T, l limiter, at time.Duration, remaining int64, reset time.Duration) {
	t.Helper()
	if got := l.Least(at); got.Remaining != remaining || got.Reset != reset {
		t.Errorf("at %v %d remain, empty in %v; want %d, %v", at, got.Remaining, got.Reset, remaining, reset)
	}
}

// Ten in each 100 s.
func TestFixedWindow(t *testing.T) {
	l := oracle.NewFixedWindow(oracle.Rate{Units: 10, Window: 100 * sec})
	ask{at: 90 * sec, want: 10, least: 1, give: oracle.Grant{Units: 10, Start: 90 * sec, End: 90 * sec}}.check(t, l, "a")
	remains(t, l, 90*sec, 0, 10*sec)
	ask{at: 99 * sec, want: 1, least: 1, give: oracle.Grant{
		Start: 99 * sec, End: 99 * sec, Denied: true, RetryAt: 100 * sec, DenyUntil: 100 * sec,
	}}.check(t, l, "b")
	// Twice the limit across a boundary: the trade.
	lease := ask{at: 100 * sec, want: 8, least: 3, ttl: 5 * sec, give: oracle.Grant{Units: 6, Start: 100 * sec, End: 105 * sec}}.check(t, l, "c")
	remains(t, l, 110*sec, 4, 90*sec)
	l.Settle(lease, []oracle.Use{{At: 101 * sec, Units: 1}}, 4)
	l.Settle(lease, nil, 6)
	remains(t, l, 110*sec, 8, 90*sec) // one spent, one not told of
	// A lease ends with its window, the last microsecond before the next.
	ask{at: 199 * sec, want: 8, least: 1, ttl: 5 * sec, give: oracle.Grant{
		Units: 8, Start: 199 * sec, End: 200*sec - time.Microsecond,
	}}.check(t, l, "d")
	ask{at: 199 * sec, want: 1, least: 1, give: oracle.Grant{
		Start: 199 * sec, End: 199 * sec, Denied: true, RetryAt: 200 * sec, DenyUntil: 200 * sec,
	}}.check(t, l, "e")
	l.Cancel("d")
	remains(t, l, 199*sec, 8, sec)
	// Nineteen milliseconds are too few for a lease.
	ask{at: 200*sec - 19*time.Millisecond, want: 8, least: 1, ttl: 5 * sec, give: oracle.Grant{
		Units: 8, Start: 200*sec - 19*time.Millisecond, End: 200*sec - 19*time.Millisecond,
	}}.check(t, l, "f")
	// The next window may be granted ahead; what it holds then is not free twice.
	ask{at: 198 * sec, want: 20, least: 7, ttl: 5 * sec, horizon: 2 * sec, give: oracle.Grant{
		Units: 7, Start: 200 * sec, End: 205 * sec, Denied: true, RetryAt: 300 * sec, DenyUntil: 200 * sec,
	}}.check(t, l, "g")
	ask{at: 199 * sec, want: 3, least: 3, give: oracle.Grant{
		Start: 199 * sec, End: 199 * sec, Denied: true, RetryAt: 200 * sec, DenyUntil: 200 * sec,
	}}.check(t, l, "h")
	remains(t, l, 200*sec, 3, 100*sec)
	ask{at: 200 * sec, want: 11, least: 11, give: oracle.Grant{
		Start: 200 * sec, End: 200 * sec, Denied: true, Never: true, RetryAt: 200 * sec, DenyUntil: 200 * sec,
	}}.check(t, l, "i")
	l.Record([]oracle.Use{{At: 199 * sec, Units: 5}, {At: 201 * sec, Units: 5}})
	remains(t, l, 201*sec, 0, 99*sec)
	l.Reset()
	remains(t, l, 201*sec, 10, 0)
}

// Of two rates the one that is free last says when.
func TestFixedWindowsOfTwoRates(t *testing.T) {
	l := oracle.NewFixedWindow(oracle.Rate{Units: 2, Window: 10 * sec}, oracle.Rate{Units: 5, Window: 15 * sec})
	ask{at: 10 * sec, want: 2, least: 2, give: oracle.Grant{Units: 2, Start: 10 * sec, End: 10 * sec}}.check(t, l, "a")
	// 30 begins a window of both; a lease ends with the one that ends first.
	ask{at: 25 * sec, want: 2, least: 2, ttl: 20 * sec, give: oracle.Grant{
		Units: 2, Start: 25 * sec, End: 30*sec - time.Microsecond,
	}}.check(t, l, "b")
	l.Record([]oracle.Use{{At: 29 * sec, Units: 3}, {At: 32 * sec, Units: 1}})
	// The second is free from 30 on, but then the first is not before 40.
	ask{at: 29 * sec, want: 2, least: 2, give: oracle.Grant{
		Start: 29 * sec, End: 29 * sec, Denied: true, RetryAt: 40 * sec, DenyUntil: 40 * sec,
	}}.check(t, l, "c")
}

// Ten in 100 s; what the window before held counts by its overlap.
func TestSlidingWindowCounter(t *testing.T) {
	l := oracle.NewSlidingWindowCounter(oracle.Rate{Units: 10, Window: 100 * sec})
	ask{at: 90 * sec, want: 8, least: 1, give: oracle.Grant{Units: 8, Start: 90 * sec, End: 90 * sec}}.check(t, l, "a")
	remains(t, l, 90*sec, 2, 110*sec)
	remains(t, l, 100*sec, 2, 100*sec) // the whole of it
	remains(t, l, 150*sec, 6, 50*sec)  // half of it
	remains(t, l, 110*sec, 2, 90*sec)  // 7.2, rounded up
	remains(t, l, 112*sec+500*time.Millisecond, 3, 87*sec+500*time.Millisecond)
	// Five fit when at most five of the eight count, which is from 100 + 3/8 of the window.
	ask{at: 110 * sec, want: 5, least: 5, give: oracle.Grant{
		Start: 110 * sec, End: 110 * sec, Denied: true, RetryAt: 137*sec + 500*time.Millisecond, DenyUntil: 137*sec + 500*time.Millisecond,
	}}.check(t, l, "b")
	lease := ask{at: 150 * sec, want: 6, least: 1, ttl: 10 * sec, give: oracle.Grant{Units: 6, Start: 150 * sec, End: 160 * sec}}.check(t, l, "c")
	// Of six from the window before nine fit no sooner than 200 + 5/6 of the window; without the lease when one of the eight is left.
	ask{at: 150 * sec, want: 9, least: 9, give: oracle.Grant{
		Start: 150 * sec, End: 150 * sec, Denied: true, RetryAt: 283_333_334 * time.Microsecond, DenyUntil: 187*sec + 500*time.Millisecond,
	}}.check(t, l, "d")
	// A lease of the window before still comes back.
	remains(t, l, 250*sec, 7, 50*sec)
	l.Settle(lease, nil, 6)
	remains(t, l, 250*sec, 10, 0)
	remains(t, l, 160*sec, 6, 40*sec) // 3.2 of the eight
	// A scheduled lease starts when it is free, here at once with its window.
	l.Record([]oracle.Use{{At: 210 * sec, Units: 4}, {At: 290 * sec, Units: 6}})
	ask{at: 295 * sec, want: 5, least: 2, ttl: 10 * sec, horizon: 25 * sec, give: oracle.Grant{
		Units: 2, Start: 320 * sec, End: 330 * sec, Denied: true, RetryAt: 340 * sec, DenyUntil: 320 * sec,
	}}.check(t, l, "e")
}
