package oracle_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/testharness/oracle"
)

const milli = time.Millisecond

// Ten units a second, twenty at once.
func TestTokenBucket(t *testing.T) {
	l := oracle.NewTokenBucket(20, oracle.Rate{Units: 10, Window: sec})
	remains(t, l, 0, 20, 0)
	ask{at: 0, want: 20, least: 1, give: oracle.Grant{Units: 20}}.check(t, l, "a")
	remains(t, l, 0, 0, 2*sec)
	ask{at: 0, want: 1, least: 1, give: oracle.Grant{Denied: true, RetryAt: 100 * milli, DenyUntil: 100 * milli}}.check(t, l, "b")
	remains(t, l, 99*milli, 0, 1901*milli)
	remains(t, l, 100*milli, 1, 1900*milli)
	ask{at: 350 * milli, want: 5, least: 2, give: oracle.Grant{
		Units: 2, Start: 350 * milli, End: 350 * milli, Denied: true, RetryAt: 400 * milli, DenyUntil: 400 * milli,
	}}.check(t, l, "c")
	// What is granted from its start to its end counts as taken out at the end.
	lease := ask{at: 10 * sec, want: 15, least: 1, ttl: 400 * milli, give: oracle.Grant{Units: 15, Start: 10 * sec, End: 10*sec + 400*milli}}.check(t, l, "d")
	remains(t, l, 10*sec, 1, 1900*milli)
	// Of what was spent the last counts, and the rest was never there; but once.
	l.Settle(lease, []oracle.Use{{At: 10*sec + 100*milli, Units: 4}, {At: 10 * sec, Units: 1}}, 10)
	l.Settle(lease, nil, 15)
	l.Cancel("d")
	remains(t, l, 10*sec, 14, 600*milli)
	// Two are taken back after the bucket was full for a moment without either; only what the second would have found
	// missing comes back.
	ask{at: 12 * sec, want: 1, least: 1, give: oracle.Grant{Units: 1, Start: 12 * sec, End: 12 * sec}}.check(t, l, "d1")
	ask{at: 12 * sec, want: 1, least: 1, give: oracle.Grant{Units: 1, Start: 12 * sec, End: 12 * sec}}.check(t, l, "d2")
	ask{at: 12*sec + 150*milli, want: 1, least: 1, give: oracle.Grant{Units: 1, Start: 12*sec + 150*milli, End: 12*sec + 150*milli}}.check(t, l, "d3")
	remains(t, l, 12*sec+150*milli, 18, 150*milli)
	l.Cancel("d1")
	remains(t, l, 12*sec+150*milli, 19, 100*milli)
	l.Cancel("d2")
	remains(t, l, 12*sec+150*milli, 19, 100*milli)
	// Units come before time: of twenty at once only those that end with the start would be within the burst.
	ask{at: 20 * sec, want: 20, least: 1, ttl: sec, give: oracle.Grant{Units: 20, Start: 20 * sec, End: 20 * sec}}.check(t, l, "e")
	ask{at: 30 * sec, want: 19, least: 1, ttl: sec, give: oracle.Grant{Units: 19, Start: 30 * sec, End: 30*sec + 100*milli}}.check(t, l, "f")
	// full is 32; of 3 from 30.3 on, spent by 30.5, it will be 32.3.
	ask{at: 30 * sec, want: 3, least: 3, ttl: 200 * milli, horizon: 300 * milli, give: oracle.Grant{
		Units: 3, Start: 30*sec + 300*milli, End: 30*sec + 500*milli,
	}}.check(t, l, "g")
	ask{at: 30*sec + 300*milli, want: 1, least: 1, give: oracle.Grant{
		Start: 30*sec + 300*milli, End: 30*sec + 300*milli, Denied: true, RetryAt: 30*sec + 400*milli, DenyUntil: 30*sec + 400*milli,
	}}.check(t, l, "h")
	ask{at: 31 * sec, want: 21, least: 21, give: oracle.Grant{
		Start: 31 * sec, End: 31 * sec, Denied: true, Never: true, RetryAt: 31 * sec, DenyUntil: 31 * sec,
	}}.check(t, l, "i")
	// All twenty from 32.3 on: full is that, and what is left to flow in no time; it lasts for 20 ms all the same.
	ask{at: 31 * sec, want: 20, least: 20, ttl: 200 * milli, horizon: 2 * sec, give: oracle.Grant{
		Units: 20, Start: 32*sec + 300*milli, End: 32*sec + 320*milli,
	}}.check(t, l, "j")
	l.Reset()
	l.Record([]oracle.Use{{At: 31 * sec, Units: 113}})
	remains(t, l, 32*sec, 0, 10*sec+300*milli)
	l.Reset()
	remains(t, l, 32*sec, 20, 0)
}

// Ten a second: what is missing after each admission, rounded up, is at most what must have been there.
func TestMostMissing(t *testing.T) {
	rate := oracle.Rate{Units: 10, Window: sec}
	at := func(at time.Duration, units int64) oracle.Interval {
		return oracle.Interval{Left: at, Answered: at, Units: units}
	}
	for _, one := range []struct {
		want int64
		all  []oracle.Interval
	}{
		{0, nil},
		{3, []oracle.Interval{at(0, 3), at(200*milli, 1)}},
		{4, []oracle.Interval{at(0, 3), at(199*milli, 2)}}, // 1.01 and 2
		{5, []oracle.Interval{at(0, 3), at(9*sec, 2), at(9*sec, 3)}},
	} {
		if got := oracle.MostMissing(one.all, rate); got != one.want {
			t.Errorf("%d missing after %v, want %d", got, one.all, one.want)
		}
	}
}

// A rate that does not divide the window into whole microseconds loses nothing: three a second stay three a second.
func TestTokenBucketOfThirds(t *testing.T) {
	l := oracle.NewTokenBucket(2, oracle.Rate{Units: 3, Window: sec})
	if grant := l.Reserve(0, "a", 2, 1, 0, 0); grant.Units != 2 {
		t.Fatalf("%+v", grant)
	}
	at := time.Duration(0)
	for i := range 3000 {
		ask := l.Reserve(at, "a", 2, 1, 0, 0)
		if !ask.Denied || ask.Units > 1 || i > 0 && ask.Units != 1 {
			t.Fatalf("%d, at %v: %+v", i, at, ask)
		}
		at = ask.RetryAt
	}
	// The first found nothing; the others one each, a third of a second apart.
	if want := 1000 * sec; at != want {
		t.Errorf("2999 later the next is due at %v, want %v", at, want)
	}
}

// Sixteen in 160 s, each counted for at most ten seconds too long.
func TestBand(t *testing.T) {
	b := oracle.NewBand(16, oracle.Rate{Units: 16, Window: 160 * sec})
	lease := b.Granted("a", 10, 20*sec)
	b.Granted("b", 4, 30*sec)
	b.Record([]oracle.Use{{At: 40 * sec, Units: 1}})
	units := func(what string, got oracle.Between[int64], least, most int64) {
		t.Helper()
		if got.Least != least || got.Most != most {
			t.Errorf("%s: %+v, want %d to %d", what, got, least, most)
		}
	}
	units("at first", b.Free(60*sec, 9, 1), 1, 1)
	units("when the ten may have left", b.Free(180*sec, 20, 1), 1, 11)
	units("in threes", b.Free(180*sec, 20, 3), 0, 9)
	units("when they must have left", b.Free(190*sec, 20, 1), 11, 15)
	units("remaining", b.Remaining(180*sec, 0), 1, 11)
	if at, ok := b.FirstFree(60*sec, 12); !ok || at.Least != 190*sec || at.Most != 200*sec || !at.Holds(200*sec) || at.Holds(201*sec) {
		t.Errorf("twelve fit at %+v, %v", at, ok)
	}
	if _, ok := b.FirstFree(60*sec, 17); ok {
		t.Error("seventeen of sixteen")
	}
	b.Settle(lease, []oracle.Use{{At: 10 * sec, Units: 3}}, 7)
	units("after a settle", b.Free(60*sec, 9, 1), 8, 8)
	b.Cancel("b")
	units("after a cancel", b.Free(60*sec, 20, 1), 12, 12)
	if in := b.ResetIn(60*sec, 0); in.Least != 140*sec || in.Most != 150*sec {
		t.Errorf("empty in %+v", in)
	}
	b.Reset()
	units("after a reset", b.Free(60*sec, 20, 1), 16, 16)
}

// What the limiter with buckets says is within the band that is allowed: never more than exact, and 1/128 of a window late at
// most.
func TestBucketsAreWithinTheBand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := oracle.Rate{Units: rapid.Int64Range(1, 12).Draw(t, "L"), Window: 128 * milli}
		buckets, band := oracle.NewBuckets(128, rate), oracle.NewBand(128, rate)
		numbers := map[int]int{} // the band's, by the limiter's
		now := 1000 * sec
		for range 40 {
			now += time.Duration(rapid.IntRange(0, 20_000).Draw(t, "µs")) * time.Microsecond
			if len(numbers) > 0 && rapid.IntRange(0, 3).Draw(t, "settle") == 0 {
				number := rapid.SampledFrom(slices.Sorted(maps.Keys(numbers))).Draw(t, "grant")
				uses := []oracle.Use{{At: now, Units: rapid.Int64Range(0, 4).Draw(t, "used")}}
				unused := rapid.Int64Range(0, 4).Draw(t, "unused")
				buckets.Settle(number, uses, unused)
				band.Settle(numbers[number], uses, unused)
				delete(numbers, number)
				continue
			}
			want, least := rapid.Int64Range(3, 12).Draw(t, "want"), rapid.Int64Range(1, 3).Draw(t, "least")
			free := band.Free(now, want, least)
			grant := buckets.Reserve(now, "a", want, least, time.Duration(rapid.IntRange(0, 9).Draw(t, "ttl"))*milli, 0)
			if !free.Holds(grant.Units) {
				t.Fatalf("at %v: %d units of %d by %d, allowed %+v", now, grant.Units, want, least, free)
			}
			if grant.Units > 0 {
				numbers[grant.Number] = band.Granted("a", grant.Units, grant.End)
			}
			if at, ok := band.FirstFree(now, least); grant.Denied && !grant.Never && (!ok || !at.Holds(grant.RetryAt)) {
				t.Fatalf("at %v: %d are free at %v, allowed %+v", now, least, grant.RetryAt, at)
			}
			state := buckets.States(now)[0]
			if left, in := band.Remaining(now, 0), band.ResetIn(now, 0); !left.Holds(state.Remaining) || !in.Holds(state.Reset) {
				t.Fatalf("at %v: %+v, allowed %+v, %+v", now, state, left, in)
			}
		}
	})
}
