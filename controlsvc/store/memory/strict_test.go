package memory_test

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/shared/limit"
)

// TestStrictDecidesAsTheStore: of any trace, Strict says of every request what a strict reserve is told: admitted or not, and
// when it would be.
func TestStrictDecidesAsTheStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		algorithms := []limit.Algorithm{
			limit.SlidingLog, limit.SlidingBuckets, limit.SlidingWindowCounter, limit.FixedWindow, limit.TokenBucket,
		}
		a := rapid.SampledFrom(algorithms).Draw(t, "algorithm")
		var rates [2][]limit.Rate
		for i := range rates { // as with two plans
			for n := range rapid.IntRange(1, 3).Draw(t, "rates") {
				r := limit.Rate{
					Units:  rapid.Int64Range(0, 12).Draw(t, "units"),
					Window: time.Duration(3*rapid.IntRange(1, 20).Draw(t, "window")+n) * rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second}).Draw(t, "unit"),
				}
				if a == limit.TokenBucket && r.Units > 0 {
					r.Burst = rapid.Int64Range(0, 5).Draw(t, "burst")
				}
				rates[i] = append(rates[i], r)
			}
		}
		c := newClock()
		s, strict := memory.New(c.read, 10), memory.NewStrict(a)
		step := rapid.SampledFrom([]int{1, 50_000, 3_000_000}).Draw(t, "step")
		for i := range rapid.IntRange(1, 120).Draw(t, "requests") {
			c.advance(time.Duration(rapid.IntRange(0, step).Draw(t, "pause")) * time.Microsecond)
			cost := rapid.SampledFrom([]int64{1, 1, 1, 2, 5}).Draw(t, "cost")
			r := rates[rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "plan")]
			key := authority.Key{Name: "k", Algorithm: a, Rates: r}
			want := s.Reserve(t.Context(), []authority.Reserve{{Key: key, Call: strconv.Itoa(i), Want: cost, Min: cost}})[0]
			if want.Err != nil {
				t.Fatal(want.Err)
			}
			if strict.EmptyAt(c.read()) <= c.read() {
				strict = memory.NewStrict(a) // nothing of it counts, so that it may be forgotten
			}
			wait, never := strict.Wait(r, cost, c.read())
			if wait != want.Denial.RetryAfter || never != want.Denial.Never {
				t.Fatalf("request %d of %d units: wait %v, never %v; the store says %+v", i, cost, wait, never, want)
			}
			if wait == 0 && !never {
				if err := strict.Charge(r, cost, c.read(), 0); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// TestStrictHolds: units that are charged for later count until a window after that, and what would exceed the limit waits
// behind them.
func TestStrictHolds(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.SlidingLog, limit.TokenBucket} {
		t.Run(a.String(), func(t *testing.T) {
			strict := memory.NewStrict(a)
			rates := []limit.Rate{{Units: 1, Window: time.Second}}
			c := newClock()
			for i := range 5 {
				wait, never := strict.Wait(rates, 1, c.read())
				if want := time.Duration(i) * time.Second; wait != want || never {
					t.Fatalf("request %d waits %v; want %v", i, wait, want)
				}
				if err := strict.Charge(rates, 1, c.read(), wait); err != nil {
					t.Fatal(err)
				}
			}
			c.advance(4999 * time.Millisecond)
			if wait, _ := strict.Wait(rates, 1, c.read()); wait != time.Millisecond {
				t.Errorf("a second after the last, less a millisecond: wait %v", wait)
			}
		})
	}
}

// TestStrictInOrder: a charge that is made after one for later counts until before it.
func TestStrictInOrder(t *testing.T) {
	strict := memory.NewStrict(limit.SlidingLog)
	rates := []limit.Rate{{Units: 3, Window: time.Second}}
	c := newClock()
	for _, in := range []time.Duration{500 * time.Millisecond, 0, 200 * time.Millisecond} {
		if err := strict.Charge(rates, 1, c.read(), in); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []time.Duration{time.Second, 1200 * time.Millisecond, 1500 * time.Millisecond} {
		if wait, never := strict.Wait(rates, int64(i+1), c.read()); wait != want || never {
			t.Errorf("%d units: wait %v; want %v", i+1, wait, want)
		}
	}
}
