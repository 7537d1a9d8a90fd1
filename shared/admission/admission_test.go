package admission_test

import (
	"testing"
	"time"

	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

const (
	second = instant.Instant(1_000_000)
	milli  = instant.Instant(1_000)
)

func tenPerSecond() *policy.Limit {
	return &policy.Limit{
		Name: "tenant", Rates: []limit.Rate{{Units: 10, Window: time.Second}},
		Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Local,
	}
}

func one(k *admission.Key) admission.Input {
	return admission.Input{Demands: []admission.Demand{{Key: k, Cost: 1}}}
}

// granted is the store's answer to one request that it admits, with so many left.
func granted(units, remaining int64) wire.AskResult {
	return wire.AskResult{
		Lease: "lease", Units: units, Limit: 10, Window: time.Second, Remaining: remaining, Reset: time.Second,
	}
}

func denied(denyFor, retryAfter time.Duration) wire.AskResult {
	return wire.AskResult{
		Limit: 10, Window: time.Second, Reset: time.Second,
		Denied: true, Denial: wire.Denial{DenyFor: denyFor, RetryAfter: retryAfter},
	}
}

func answer(sent, received instant.Instant, in admission.Input, results ...wire.AskResult) admission.Output {
	return admission.NewAnswer(sent, received, in, results).Next(admission.Patience{})
}

func want(t *testing.T, what string, got admission.Output, verdict admission.Verdict, source admission.Source) {
	t.Helper()
	if got.Verdict != verdict || got.Source != source {
		t.Fatalf("%s: verdict %d from %q, want %d from %q", what, got.Verdict, got.Source, verdict, source)
	}
}

func TestNothingIsKnownAtFirst(t *testing.T) {
	want(t, "no limit", admission.Step(0, admission.Input{}), admission.Admit, admission.FromPolicy)
	want(t, "a new key", admission.Step(0, one(admission.NewKey(tenPerSecond().Rule("", "")))), admission.Ask, 0)
}

func TestStandingDenialEndsWithTheStores(t *testing.T) {
	k := admission.NewKey(tenPerSecond().Rule("", ""))
	// The store executed somewhere between 100 ms and 140 ms, and denies for 500 ms.
	out := answer(100*milli, 140*milli, one(k), denied(500*time.Millisecond, 500*time.Millisecond))
	want(t, "the store's denial", out, admission.Deny, admission.FromStore)
	if out.RetryAfter != 500*time.Millisecond {
		t.Errorf("RetryAfter %v, want the store's 500 ms", out.RetryAfter)
	}
	for _, step := range []struct {
		at      instant.Instant
		verdict admission.Verdict
		retry   time.Duration
	}{
		{at: 141 * milli, verdict: admission.Deny, retry: 499 * time.Millisecond}, // until 640 ms: counted from the receipt
		{at: 599*milli + 498, verdict: admission.Deny, retry: 40502 * time.Microsecond},
		{at: 599*milli + 499, verdict: admission.Ask}, // from the sending, less 1/1000 for a fast clock
		{at: 640 * milli, verdict: admission.Ask},
	} {
		out := admission.Step(step.at, one(k))
		if out.Verdict != step.verdict || out.RetryAfter != step.retry {
			t.Errorf("at %d: verdict %d, retry after %v, want %d, %v", step.at, out.Verdict, out.RetryAfter, step.verdict, step.retry)
		}
	}
}

func TestADenialBindsOnlyWhatCostsAsMuch(t *testing.T) {
	l := tenPerSecond()
	l.Rates[0].Units = 100
	k := admission.NewKey(l.Rule("", ""))
	five := admission.Input{Demands: []admission.Demand{{Key: k, Cost: 5}}}
	answer(0, 0, five, denied(time.Second/2, time.Second/2))
	want(t, "as dear", admission.Step(milli, five), admission.Deny, admission.FromDenial)
	want(t, "cheaper", admission.Step(milli, one(k)), admission.Ask, 0)
	answer(milli, milli, one(k), granted(1, 3))
	want(t, "as dear, after a cheaper one passed", admission.Step(2*milli, five), admission.Deny, admission.FromDenial)
	answer(2*milli, 2*milli, five, granted(5, 0))
	want(t, "as dear, after one as dear passed", admission.Step(3*milli, five), admission.Ask, 0)
}

func TestEveryLocalDenialIsAskedAgainWithinFiveSeconds(t *testing.T) {
	l := tenPerSecond()
	l.Rates[0].Window = time.Hour
	k := admission.NewKey(l.Rule("", ""))
	answer(0, 0, one(k), denied(time.Hour, time.Hour))
	want(t, "before 5 s", admission.Step(5*second-1, one(k)), admission.Deny, admission.FromDenial)
	want(t, "at 5 s", admission.Step(5*second, one(k)), admission.Ask, 0)

	full := admission.NewKey(l.Rule("", ""))
	a := admission.NewAnswer(0, 0, one(full), []wire.AskResult{granted(10, 0)})
	for range 10 {
		want(t, "one of ten", a.Next(admission.Patience{}), admission.Admit, admission.FromStore)
	}
	want(t, "full, before 5 s", admission.Step(5*second-1, one(full)), admission.Deny, admission.FromLog)
	want(t, "full, at 5 s", admission.Step(5*second, one(full)), admission.Ask, 0)
}

func TestOwnLogDenies(t *testing.T) {
	k := admission.NewKey(tenPerSecond().Rule("", ""))
	a := admission.NewAnswer(100*milli, 130*milli, one(k), []wire.AskResult{granted(10, 0)})
	for i := range 10 {
		out := a.Next(admission.Patience{})
		want(t, "a granted one", out, admission.Admit, admission.FromStore)
		if left := int64(9 - i); out.Remaining != left {
			t.Errorf("remaining %d after %d, want %d", out.Remaining, i+1, left)
		}
	}
	want(t, "one more than granted", a.Next(admission.Patience{}), admission.Deny, admission.FromStore)
	want(t, "while its own ten fill the window", admission.Step(1099*milli-2, one(k)), admission.Deny, admission.FromLog)
	want(t, "when they may have left it", admission.Step(1099*milli-1, one(k)), admission.Ask, 0)
}

// What the worker spent denies nothing any more once the store has room that it could not have if it knew of that: the key was
// reset. That holds from the first answer that shows it, in whatever mode.
func TestALogThatTheStoreHasForgotten(t *testing.T) {
	minutely := func(mode limit.Mode, before, after int64) *admission.Key {
		l := tenPerSecond()
		l.Mode, l.Rates = mode, []limit.Rate{{Units: 100, Window: time.Hour}, {Units: 10, Window: time.Minute}}
		k := admission.NewKey(l.Rule("", ""))
		told := granted(10, 0)
		told.Window, told.Reset = time.Minute, time.Minute
		if mode == limit.Async {
			for range 10 {
				want(t, "by the count", admission.Step(0, one(k)), admission.Admit, admission.FromCount)
			}
			k.TakeFallback()
			told.Units = 0
			k.HoldCount(0, 0, 0, &told)
		} else {
			a := admission.NewAnswer(0, 0, one(k), []wire.AskResult{told})
			for range 10 {
				want(t, "a granted one", a.Next(admission.Patience{}), admission.Admit, admission.FromStore)
			}
		}
		want(t, "one more", admission.Step(milli, one(k)), admission.Deny, admission.FromLog)
		told.Units, told.Remaining = before, after
		told.Denied, told.Denial = before+after == 0, wire.Denial{DenyFor: time.Microsecond, RetryAfter: time.Microsecond}
		if mode == limit.Async {
			told.Units = 0
			k.HoldCount(6*second, 6*second, before, &told)
		} else if out := answer(6*second, 6*second, one(k), told); before > 0 && out.Remaining != before+after-1 {
			t.Errorf("%v: %d left after the first; want %d", mode, out.Remaining, before+after-1)
		}
		return k
	}
	for _, mode := range []limit.Mode{limit.Strict, limit.Lease} {
		want(t, mode.String()+", a unit granted", admission.Step(6*second, one(minutely(mode, 1, 9))), admission.Ask, 0)
		want(t, mode.String()+", nothing granted", admission.Step(6*second+milli, one(minutely(mode, 0, 0))), admission.Deny, admission.FromLog)
	}
	want(t, "async, ten left", admission.Step(6*second, one(minutely(limit.Async, 0, 10))), admission.Admit, admission.FromCount)
	want(t, "async, all left of what the store has not been told", admission.Step(6*second, one(minutely(limit.Async, 10, 10))),
		admission.Deny, admission.FromLog)
}

// Nor does it go where the answer shows nothing of that: more than the limit may pass within a window, or the store has not been told
// of all that was admitted while it was away. What on_unavailable admits afterwards is what was left before.
func TestALogIsKept(t *testing.T) {
	hourly := func(algorithm limit.Algorithm) (*admission.Key, admission.Input) {
		l := tenPerSecond()
		l.Algorithm, l.Rates = algorithm, []limit.Rate{{Units: 10, Window: time.Hour}}
		k := admission.NewKey(l.Rule("", ""))
		away := one(k)
		away.Away, away.Workers = true, 1
		return k, away
	}
	admitted := func(at instant.Instant, away admission.Input) (n int) {
		for range 20 {
			if admission.Step(at, away).Verdict == admission.Admit {
				n++
			}
		}
		return n
	}
	for _, algorithm := range []limit.Algorithm{limit.SlidingWindowCounter, limit.FixedWindow, limit.TokenBucket} {
		k, away := hourly(algorithm)
		answer(0, 0, costing(k, 10), granted(10, 0))
		want(t, "one more", answer(second, second, one(k), granted(1, 9)), admission.Admit, admission.FromStore)
		if n := admitted(2*second, away); n != 0 {
			t.Errorf("%v: %d more than the limit were admitted without the store", algorithm, n)
		}
	}
	for _, handedOut := range []bool{false, true} {
		k, away := hourly(limit.SlidingLog)
		if n := admitted(0, away); n != 10 {
			t.Fatalf("%d admitted without the store, want 10", n)
		}
		if handedOut {
			k.Untold = k.TakeFallback()
		}
		want(t, "one more", answer(second, second, one(k), granted(1, 9)), admission.Admit, admission.FromStore)
		if n := admitted(2*second, away); n != 0 {
			t.Errorf("%d more were admitted without the store, which had not been told of the first (handed out: %v)", n, handedOut)
		}
	}
}

// Under an algorithm that gives units back before their window is over the own log denies nothing: of fixed windows, twice
// the limit passes around a boundary, and a token bucket fills all the time. What the store denies stands as ever.
func TestOwnLogDeniesNothingThatMayComeBack(t *testing.T) {
	for _, algorithm := range []limit.Algorithm{limit.SlidingWindowCounter, limit.FixedWindow, limit.TokenBucket} {
		l := tenPerSecond()
		l.Algorithm = algorithm
		k := admission.NewKey(l.Rule("", ""))
		a := admission.NewAnswer(0, milli, one(k), []wire.AskResult{granted(10, 0)})
		for range 10 {
			want(t, algorithm.String()+": one of ten", a.Next(admission.Patience{}), admission.Admit, admission.FromStore)
		}
		want(t, algorithm.String()+": the next one", admission.Step(2*milli, one(k)), admission.Ask, 0)
		want(t, algorithm.String()+": denied", answer(2*milli, 3*milli, one(k), denied(50*time.Millisecond, 50*time.Millisecond)),
			admission.Deny, admission.FromStore)
		want(t, algorithm.String()+": while that stands", admission.Step(51*milli, one(k)), admission.Deny, admission.FromDenial)
		want(t, algorithm.String()+": after it", admission.Step(53*milli, one(k)), admission.Ask, 0)
		b := admission.NewAnswer(53*milli, 54*milli, one(k), []wire.AskResult{granted(10, 0)})
		for range 10 { // twenty within a window
			want(t, algorithm.String()+": one of the next ten", b.Next(admission.Patience{}), admission.Admit, admission.FromStore)
		}
	}
}

// A token bucket holds its burst, not the units of its rate.
func TestWhatCostsMoreThanTheBurst(t *testing.T) {
	l := tenPerSecond()
	l.Algorithm, l.Rates[0].Burst = limit.TokenBucket, 20
	k := admission.NewKey(l.Rule("", ""))
	for cost, verdict := range map[int64]admission.Verdict{11: admission.Ask, 20: admission.Ask, 21: admission.Deny} {
		if out := admission.Step(0, admission.Input{Demands: []admission.Demand{{Key: k, Cost: cost}}}); out.Verdict != verdict {
			t.Errorf("cost %d with a burst of 20: verdict %d, want %d", cost, out.Verdict, verdict)
		}
	}
}

func TestWhatCostsMoreThanTheLimit(t *testing.T) {
	k := admission.NewKey(tenPerSecond().Rule("", ""))
	out := admission.Step(0, admission.Input{Demands: []admission.Demand{{Key: k, Cost: 11}}})
	want(t, "cost 11 under 10/s", out, admission.Deny, admission.FromPolicy)
	if !out.Never || out.RetryAfter != 0 || out.Remaining != 10 {
		t.Errorf("%+v, want never, no wait, 10 remaining", out)
	}
}

func TestSeveralLimitsAreAllOrNothing(t *testing.T) {
	a, b := admission.NewKey(tenPerSecond().Rule("", "")), admission.NewKey(tenPerSecond().Rule("", ""))
	in := admission.Input{Demands: []admission.Demand{{Key: a, Cost: 1}, {Key: b, Cost: 2}}}
	// Two requests asked; the store had units for one of them, and the second limit denies the other.
	partial := granted(2, 1)
	partial.Denied, partial.Denial = true, wire.Denial{DenyFor: time.Second / 2, RetryAfter: time.Second / 2}
	answer := admission.NewAnswer(0, 0, in, []wire.AskResult{granted(1, 9), partial})
	first := answer.Next(admission.Patience{})
	want(t, "the first", first, admission.Admit, admission.FromStore)
	if first.Demand != 1 || first.Remaining != 1 {
		t.Errorf("reports demand %d with %d left, want the scarcer: 1 with 1", first.Demand, first.Remaining)
	}
	second := answer.Next(admission.Patience{})
	want(t, "the second", second, admission.Deny, admission.FromStore)
	if second.Demand != 1 || second.RetryAfter != 500*time.Millisecond {
		t.Errorf("reports demand %d after %v, want the one that denies: 1 after 500 ms", second.Demand, second.RetryAfter)
	}
	if surplus := answer.Surplus(); len(surplus) != 0 {
		t.Errorf("surplus %v, want none", surplus)
	}

	// One limit denies outright, the other was rolled back: denied, by the one that denies, and nothing is spent.
	out := admission.NewAnswer(0, 0, in, []wire.AskResult{{}, denied(time.Second, time.Second)}).Next(admission.Patience{})
	want(t, "denied outright", out, admission.Deny, admission.FromStore)
	if out.Demand != 1 {
		t.Errorf("reports demand %d, want the one that denies", out.Demand)
	}
}

func TestGarbageNeverAdmits(t *testing.T) {
	deny := tenPerSecond()
	deny.OnUnavailable = limit.Deny
	for name, results := range map[string][]wire.AskResult{
		"neither units nor denial":         {{}, {}},
		"a denial, and no units elsewhere": {{Units: 5, Denied: true}, {}},
		"fewer units than the cost":        {{Units: 1, Lease: "x"}, {Units: 1, Lease: "y"}},
		"negative units":                   {{Units: 1}, {Units: -5}},
		"an ask the service calls invalid": {{Units: 1}, {Problem: wire.InvalidAsk}},
	} {
		in := admission.Input{Demands: []admission.Demand{
			{Key: admission.NewKey(deny.Rule("", "")), Cost: 1}, {Key: admission.NewKey(deny.Rule("", "")), Cost: 2},
		}}
		if out := admission.NewAnswer(0, 0, in, results).Next(admission.Patience{}); out.Verdict != admission.Deny {
			t.Errorf("%s: verdict %d, want a denial", name, out.Verdict)
		}
	}
}

func TestSurplusIsGivenBackAndEndsTheDenial(t *testing.T) {
	k := admission.NewKey(tenPerSecond().Rule("", ""))
	last := granted(2, 0)
	last.Denied, last.Denial = true, wire.Denial{DenyFor: time.Second / 2, RetryAfter: time.Second / 2}
	a := admission.NewAnswer(0, 0, one(k), []wire.AskResult{last})
	want(t, "the one that stayed", a.Next(admission.Patience{}), admission.Admit, admission.FromStore)
	surplus := a.Surplus() // the second client has left
	if len(surplus) != 1 || surplus[0] != (admission.Surplus{Demand: 0, Lease: "lease", Unused: 1}) {
		t.Fatalf("surplus %v, want one unit of the lease", surplus)
	}
	if again := a.Surplus(); len(again) != 0 {
		t.Errorf("surplus %v a second time, want none", again)
	}
	want(t, "the next one", admission.Step(milli, one(k)), admission.Ask, 0)
}

func TestWhileTheServiceIsAway(t *testing.T) {
	for _, c := range []struct {
		choice        limit.Unavailable
		workers, rank uint32
		admitted      int // how many of 20 are admitted at once
	}{
		{choice: limit.Local, admitted: 10},
		{choice: limit.Local, workers: 4, rank: 1, admitted: 3},
		{choice: limit.Local, workers: 4, rank: 2, admitted: 2},
		{choice: limit.Local, workers: 64, rank: 63, admitted: 0},
		{choice: limit.Allow, workers: 4, admitted: 20},
		{choice: limit.Deny, workers: 4, admitted: 0},
	} {
		l := tenPerSecond()
		l.OnUnavailable = c.choice
		in := one(admission.NewKey(l.Rule("", "")))
		in.Away, in.Workers, in.Rank = true, c.workers, c.rank
		admitted := 0
		for i := range 20 {
			out := admission.Step(instant.Instant(i), in)
			if out.Source != admission.FromFallback {
				t.Fatalf("%v: source %q, want a fallback", c.choice, out.Source)
			}
			if out.Verdict == admission.Admit {
				admitted++
			}
			if out.Unavailable != (c.choice == limit.Deny) || out.Unavailable && out.Remaining != 0 {
				t.Errorf("%v: unavailable is %v, %d left", c.choice, out.Unavailable, out.Remaining)
			}
		}
		if admitted != c.admitted {
			t.Errorf("%v, worker %d of %d: %d of 20 admitted, want %d", c.choice, c.rank, c.workers, admitted, c.admitted)
		}
	}
}

func TestAStoresProblemIsAFallbackForItsLimitAlone(t *testing.T) {
	allow := tenPerSecond()
	allow.OnUnavailable = limit.Allow
	in := admission.Input{Demands: []admission.Demand{
		{Key: admission.NewKey(tenPerSecond().Rule("", "")), Cost: 1}, {Key: admission.NewKey(allow.Rule("", "")), Cost: 1},
	}}
	problem := wire.AskResult{Problem: wire.StoreProblem}
	want(t, "the other limit grants",
		answer(0, 0, in, granted(1, 9), problem), admission.Admit, admission.FromFallback)
	want(t, "the other limit denies",
		answer(0, 0, in, denied(time.Second, time.Second), problem), admission.Deny, admission.FromStore)
	want(t, "a limit that the service does not know",
		answer(0, 0, in, granted(1, 9), wire.AskResult{Problem: wire.UnknownLimit}), admission.Admit, admission.FromStore)
}

func TestSharesAddUp(t *testing.T) {
	for _, units := range []int64{0, 1, 7, 100, 1_000_003} {
		for _, workers := range []uint32{1, 2, 3, 64, 1000} {
			sum := int64(0)
			for rank := range workers {
				sum += admission.Share(units, workers, rank)
			}
			if sum != units {
				t.Errorf("the shares of %d among %d add up to %d", units, workers, sum)
			}
		}
	}
}

func TestAChangedLimitKeepsItsCounts(t *testing.T) {
	k := admission.NewKey(tenPerSecond().Rule("", ""))
	a := admission.NewAnswer(0, 0, one(k), []wire.AskResult{granted(10, 0)})
	for range 10 {
		a.Next(admission.Patience{})
	}
	raised := tenPerSecond()
	raised.Rates = []limit.Rate{{Units: 20, Window: time.Second}}
	k.SetRule(0, raised.Rule("", ""))
	want(t, "just raised", admission.Step(milli, one(k)), admission.Ask, 0)
	answer(milli, milli, one(k), granted(1, 9))
	lowered := tenPerSecond()
	lowered.Rates = []limit.Rate{{Units: 5, Window: time.Second}, {Units: 100, Window: time.Minute}}
	k.SetRule(0, lowered.Rule("", ""))
	in := one(k)
	in.Away = true
	want(t, "lowered below what was spent", admission.Step(2*milli, in), admission.Deny, admission.FromFallback)
}

func BenchmarkStepStandingDenial(b *testing.B) {
	k := admission.NewKey(tenPerSecond().Rule("", ""))
	in := one(k)
	answer(0, 0, in, denied(4*time.Second, 4*time.Second))
	b.ReportAllocs()
	for b.Loop() {
		if admission.Step(milli, in).Verdict != admission.Deny {
			b.Fatal("not denied")
		}
	}
}

func BenchmarkStepOwnLog(b *testing.B) {
	l := tenPerSecond()
	l.Rates[0].Units = 1000
	k := admission.NewKey(l.Rule("", ""))
	in := one(k)
	a := admission.NewAnswer(0, 0, in, []wire.AskResult{granted(1000, 0)})
	for range 1000 {
		a.Next(admission.Patience{})
	}
	b.ReportAllocs()
	for b.Loop() {
		if admission.Step(milli, in).Verdict != admission.Deny {
			b.Fatal("not denied")
		}
	}
}

// What a worker's own log denies it denies for as long as the rate does that denies for the longest, and tells of the one with the
// smallest share left, as the store does.
func TestALoggedDenialTellsTheLongestWait(t *testing.T) {
	l := tenPerSecond()
	l.Rates = append(l.Rates, limit.Rate{Units: 12, Window: time.Minute})
	k := admission.NewKey(l.Rule("", ""))
	want(t, "ten", answer(0, 0, costing(k, 10), granted(10, 0)), admission.Admit, admission.FromStore)
	out := admission.Step(100*milli, costing(k, 3))
	want(t, "three", out, admission.Deny, admission.FromLog)
	if out.Rate != l.Rates[0] || out.RetryAfter != 59900*time.Millisecond || out.Remaining != 0 {
		t.Errorf("%v, retry after %v, %d left; want 10/s, 59.9s, 0", out.Rate, out.RetryAfter, out.Remaining)
	}
	out = admission.Step(100*milli, costing(k, 2))
	want(t, "two", out, admission.Deny, admission.FromLog)
	if out.Rate != l.Rates[0] || out.RetryAfter != 900*time.Millisecond {
		t.Errorf("%v, retry after %v; want 10/s, 900ms", out.Rate, out.RetryAfter)
	}
	answer(second, second, costing(k, 2), granted(2, 8))
	out = admission.Step(second, one(k))
	want(t, "one more than a minute has", out, admission.Deny, admission.FromLog)
	if out.Rate != l.Rates[1] || out.RetryAfter != 59*time.Second {
		t.Errorf("%v, retry after %v; want 12/m, 59s", out.Rate, out.RetryAfter)
	}
}

// Units that are counted in buckets come back with their bucket: as the store said, or a bucket later at the latest.
func TestALoggedDenialOfBuckets(t *testing.T) {
	const day, width = 24 * time.Hour, 675 * time.Second
	l := tenPerSecond()
	l.Rates, l.Algorithm = []limit.Rate{{Units: 10, Window: day}}, limit.SlidingBuckets
	told := func(units, remaining int64, reset time.Duration) wire.AskResult {
		r := granted(units, remaining)
		r.Window, r.Reset = day, reset
		return r
	}
	check := func(out admission.Output, retry, reset time.Duration) {
		t.Helper()
		want(t, "one more", out, admission.Deny, admission.FromLog)
		if out.RetryAfter != retry || out.Reset != reset {
			t.Errorf("retry after %v, empty in %v; want %v, %v", out.RetryAfter, out.Reset, retry, reset)
		}
	}
	k := admission.NewKey(l.Rule("", ""))
	answer(0, 0, costing(k, 10), told(10, 0, day+78*time.Second))
	check(admission.Step(second, one(k)), day+77*time.Second, day+77*time.Second)

	k = admission.NewKey(l.Rule("", ""))
	answer(0, 0, costing(k, 9), told(9, 1, day+78*time.Second))
	hour := instant.Instant(0).Add(time.Hour)
	answer(hour, hour, one(k), told(1, 0, day+50*time.Second))
	check(admission.Step(hour, one(k)), day-time.Hour+width, day+50*time.Second)

	l.Rates = []limit.Rate{{Units: 10, Window: time.Second}, {Units: 12, Window: day}} // of which the store tells of one
	k = admission.NewKey(l.Rule("", ""))
	answer(0, 0, costing(k, 10), granted(10, 0))
	check(admission.Step(0, costing(k, 3)), day+width, time.Second)
}

// Nor does a denial tell of more than the store has left.
func TestALoggedDenialTellsWhatTheStoreHasLeft(t *testing.T) {
	k := admission.NewKey(tenPerSecond().Rule("", ""))
	answer(0, 0, one(k), granted(1, 1)) // others spent eight
	out := admission.Step(milli, costing(k, 10))
	want(t, "ten", out, admission.Deny, admission.FromLog)
	if out.Remaining != 1 {
		t.Errorf("%d left, want 1", out.Remaining)
	}
	out = admission.Step(milli, costing(k, 11))
	want(t, "eleven", out, admission.Deny, admission.FromPolicy)
	if out.Remaining != 1 {
		t.Errorf("%d left, want 1", out.Remaining)
	}
	if out = admission.Step(3*second, costing(k, 11)); out.Remaining != 10 {
		t.Errorf("%d left when everything has left the window, want 10", out.Remaining)
	}
}

// What is admitted without the store leaves a window later, the first time too.
func TestTheFirstAnswerTellsItsReset(t *testing.T) {
	async := tenPerSecond()
	async.Mode = limit.Async
	for name, l := range map[string]*policy.Limit{"fallback": tenPerSecond(), "async": async} {
		in := one(admission.NewKey(l.Rule("", "")))
		in.Away = l.Mode != limit.Async
		for _, now := range []instant.Instant{0, milli} {
			if out := admission.Step(now, in); out.Verdict != admission.Admit || out.Reset != time.Second {
				t.Errorf("%s at %d: %v, empty in %v; want an admission, and a second", name, now, out.Verdict, out.Reset)
			}
		}
	}
	k := admission.NewKey(async.Rule("", ""))
	admission.Step(0, one(k))
	result := granted(0, 9)
	result.Lease = ""
	k.HoldCount(0, 0, 0, &result)
	if out := admission.Step(500*milli, one(k)); out.Verdict != admission.Admit || out.Reset != time.Second {
		t.Errorf("half a second after a count: %v, empty in %v; want an admission, and a second", out.Verdict, out.Reset)
	}
}

// costing is a request of that cost.
func costing(k *admission.Key, cost int64) admission.Input {
	return admission.Input{Demands: []admission.Demand{{Key: k, Cost: cost}}}
}
