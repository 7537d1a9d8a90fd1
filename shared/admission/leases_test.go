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

func leased(units int64) *policy.Limit {
	return &policy.Limit{
		Name: "tenant", Rates: []limit.Rate{{Units: units, Window: time.Second}},
		Algorithm: limit.SlidingLog, Mode: limit.Lease, OnUnavailable: limit.Deny,
	}
}

func lease(units int64, startIn, endIn time.Duration) wire.AskResult {
	return wire.AskResult{
		Lease: "lease", Units: units, StartIn: startIn, EndIn: endIn, Limit: 100, Window: time.Second, Remaining: 50,
		Reset: time.Second,
	}
}

func TestALeaseIsSpentWithoutACall(t *testing.T) {
	k := admission.NewKey(leased(100).Rule("", ""))
	in := one(k)
	want(t, "before", admission.Step(0, in), admission.Ask, 0)
	a := admission.NewAnswer(0, 2*milli, in, []wire.AskResult{lease(3, 0, 100*time.Millisecond)})
	out := a.Next(admission.Patience{})
	want(t, "the paused one", out, admission.Admit, admission.FromStore)
	if out.Remaining != 52 {
		t.Errorf("remaining %d, want 50 at the store and 2 in hand", out.Remaining)
	}
	if s := a.Surplus(); len(s) != 0 {
		t.Errorf("surplus %v: a lease is kept for later requests", s)
	}
	want(t, "the second unit", admission.Step(3*milli, in), admission.Admit, admission.FromLease)
	want(t, "the third, at the last moment", admission.Step(99*milli+899, in), admission.Admit, admission.FromLease)
	want(t, "a fourth", admission.Step(99*milli+899, in), admission.Ask, 0)
	k.Tidy(99*milli + 899)
	retired := k.TakeRetired()
	if len(retired) != 1 || retired[0].ID != "lease" || retired[0].Unused != 0 || k.Leases() != 0 {
		t.Errorf("retired %+v, want the spent lease", retired)
	}
	if again := k.TakeRetired(); len(again) != 0 {
		t.Errorf("retired %+v a second time", again)
	}
}

// A lease that is over before its answer is there serves nobody, and denies nobody: its requests ask again.
func TestALeaseThatIsOverBeforeItsAnswer(t *testing.T) {
	for name, result := range map[string]wire.AskResult{
		"that started at once":  lease(3, 0, 100*time.Millisecond),
		"that starts too late":  lease(3, 30*time.Millisecond, 100*time.Millisecond),
		"and nothing else free": {Lease: "lease", Units: 3, EndIn: 100 * time.Millisecond, Denied: true, Denial: wire.Denial{RetryAfter: time.Second}},
	} {
		k := admission.NewKey(leased(100).Rule("", ""))
		a := admission.NewAnswer(0, 110*milli, one(k), []wire.AskResult{result})
		want(t, "a lease "+name, a.Next(admission.Patience{}), admission.Ask, 0)
		k.Tidy(110 * milli)
		if r := k.TakeRetired(); len(r) != 1 || r[0].Unused != 3 {
			t.Errorf("a lease %s: retired %+v, want three units unused", name, r)
		}
	}
}

func TestALeaseEndsWithTheStores(t *testing.T) {
	k := admission.NewKey(leased(100).Rule("", ""))
	admission.NewAnswer(0, 2*milli, one(k), []wire.AskResult{lease(3, 0, 100*time.Millisecond)})
	want(t, "within the margin of its end", admission.Step(99*milli+900, one(k)), admission.Ask, 0)
	k.Tidy(99*milli + 900)
	if r := k.TakeRetired(); len(r) != 1 || r[0].Unused != 3 {
		t.Errorf("retired %+v, want three units unused", r)
	}
}

func TestAScheduledLeaseDeniesUntilItStarts(t *testing.T) {
	k := admission.NewKey(leased(100).Rule("", ""))
	in := one(k)
	a := admission.NewAnswer(0, 0, in, []wire.AskResult{lease(5, 40*time.Millisecond, 100*time.Millisecond)})
	out := a.Next(admission.Patience{})
	want(t, "the paused one", out, admission.Deny, admission.FromLease)
	start := 40*milli + 41
	if out.RetryAfter != start.Sub(0) {
		t.Errorf("retry after %v, want %v, when the lease starts", out.RetryAfter, start.Sub(0))
	}
	out = admission.Step(start-1, in)
	want(t, "just before", out, admission.Deny, admission.FromLease)
	want(t, "at its start", admission.Step(start, in), admission.Admit, admission.FromLease)
}

func TestSeveralLeasesSpendTogetherOrNotAtAll(t *testing.T) {
	a, b := admission.NewKey(leased(100).Rule("", "")), admission.NewKey(leased(100).Rule("", ""))
	in := admission.Input{Demands: []admission.Demand{{Key: a, Cost: 1}, {Key: b, Cost: 2}}}
	admission.NewAnswer(0, 0, one(a), []wire.AskResult{lease(10, 0, time.Second)})
	want(t, "the second limit lacks", admission.Step(milli, in), admission.Ask, 0)
	if !in.Demands[1].Lacks(milli) || in.Demands[0].Lacks(milli) {
		t.Error("want the second demand alone to be asked for")
	}
	answer := admission.NewAnswer(milli, 2*milli, in, []wire.AskResult{{Problem: admission.NotAsked}, lease(3, 0, time.Second)})
	want(t, "the paused one", answer.Next(admission.Patience{}), admission.Admit, admission.FromStore)
	// One unit of b is left where two are needed: nothing of a may be spent.
	want(t, "the next one", answer.Next(admission.Patience{}), admission.Deny, admission.FromStore)
	for range 9 {
		want(t, "a alone", admission.Step(3*milli, one(a)), admission.Admit, admission.FromLease)
	}
	want(t, "a is spent: 10 less 1 less 9", admission.Step(3*milli, one(a)), admission.Ask, 0)
	want(t, "b still has one", admission.Step(3*milli, one(b)), admission.Admit, admission.FromLease)
}

func TestALeaseSpentMeanwhileIsAskedForAgain(t *testing.T) {
	a, b := admission.NewKey(leased(100).Rule("", "")), admission.NewKey(leased(100).Rule("", ""))
	in := admission.Input{Demands: []admission.Demand{{Key: a, Cost: 1}, {Key: b, Cost: 1}}}
	admission.NewAnswer(0, 0, one(a), []wire.AskResult{lease(1, 0, time.Second)})
	want(t, "paused for b", admission.Step(0, in), admission.Ask, 0)
	want(t, "a's last unit goes elsewhere", admission.Step(milli, one(a)), admission.Admit, admission.FromLease)
	answer := admission.NewAnswer(0, 2*milli, in, []wire.AskResult{{Problem: admission.NotAsked}, granted(1, 0)})
	if out := answer.Next(admission.Patience{}); out.Verdict != admission.Ask {
		t.Fatalf("verdict %d, want to ask anew", out.Verdict)
	}
	if s := answer.Surplus(); len(s) != 1 || s[0].Unused != 1 {
		t.Errorf("surplus %v, want b's unit given back", s)
	}
}

func TestLeasesInHandAreSpentWhileTheServiceIsAway(t *testing.T) {
	k := admission.NewKey(leased(100).Rule("", ""))
	in := one(k)
	admission.NewAnswer(0, 0, in, []wire.AskResult{lease(2, 0, time.Second)})
	in.Away = true
	want(t, "first", admission.Step(milli, in), admission.Admit, admission.FromLease)
	want(t, "second", admission.Step(milli, in), admission.Admit, admission.FromLease)
	want(t, "third", admission.Step(milli, in), admission.Deny, admission.FromFallback)
}

func TestAhead(t *testing.T) {
	const round = time.Millisecond
	k := admission.NewKey(leased(10_000).Rule("", ""))
	in := one(k)
	if got := k.Ahead(0, round); got != 0 {
		t.Errorf("%d ahead of any demand, want none", got)
	}
	admission.NewAnswer(0, 0, in, []wire.AskResult{lease(1000, 0, 200*time.Millisecond)})
	now := instant.Instant(0)
	for ; k.Ahead(now, round) == 0; now += milli { // 2 units a millisecond
		want(t, "from the lease", admission.Step(now, in), admission.Admit, admission.FromLease)
		want(t, "from the lease", admission.Step(now, in), admission.Admit, admission.FromLease)
		if now > 300*milli {
			t.Fatal("never asked ahead")
		}
	}
	// It ends at 200 ms less the margin: asked for 40 ms before, for 200 ms of demand.
	if now < 158*milli || now > 161*milli {
		t.Errorf("asked ahead at %d µs, want about 40 ms before the end", now)
	}
	if got := k.Ahead(now, round); got < 350 || got > 450 {
		t.Errorf("%d ahead, want what the next lease's life will need: about 400", got)
	}
	admission.NewAnswer(now, now, in, []wire.AskResult{lease(400, 10*time.Millisecond, 200*time.Millisecond)})
	if got := k.Ahead(now, round); got != 0 {
		t.Errorf("%d ahead, with the next lease in hand", got)
	}
	// That one starts later, so units are scarce: of the one after it half as much is wanted as its life would need.
	for ; k.Ahead(now, round) == 0; now += milli {
		want(t, "from the lease", admission.Step(now, in), admission.Admit, admission.FromLease)
		want(t, "from the lease", admission.Step(now, in), admission.Admit, admission.FromLease)
		if now > 500*milli {
			t.Fatal("never asked ahead again")
		}
	}
	if got := k.Ahead(now, round); !k.Scarce() || got < 175 || got > 225 {
		t.Errorf("%d ahead where units are scarce, want about 200", got)
	}
}

func TestLeasesAreBoundedAndGivenBack(t *testing.T) {
	k := admission.NewKey(leased(100).Rule("", ""))
	for range 3 * admission.MaxLeases {
		admission.NewAnswer(0, 0, one(k), []wire.AskResult{lease(5, 0, time.Second)})
	}
	if k.Leases() != admission.MaxLeases {
		t.Errorf("%d leases held, want at most %d", k.Leases(), admission.MaxLeases)
	}
	admission.Step(0, one(k))
	if k.Idle(milli) || !k.Idle(3*second) {
		t.Error("want the key idle some time after its last request, and not before")
	}
	k.GiveBack()
	var units int64
	retired := k.TakeRetired()
	for _, r := range retired {
		units += r.Unused
		for _, use := range r.Uses {
			units += use.Units
		}
	}
	if len(retired) != 3*admission.MaxLeases || units != 3*admission.MaxLeases*5 {
		t.Errorf("%d leases with %d units came back, want all", len(retired), units)
	}
}

func BenchmarkStepLease(b *testing.B) {
	k := admission.NewKey(leased(limit.MaxUnits).Rule("", ""))
	in := one(k)
	admission.NewAnswer(0, 0, in, []wire.AskResult{lease(limit.MaxUnits, 0, time.Second)})
	now := instant.Instant(0)
	b.ReportAllocs()
	for b.Loop() {
		now = (now + 1) % 900_000
		if admission.Step(now, in).Verdict != admission.Admit {
			b.Fatal("not admitted")
		}
	}
}
