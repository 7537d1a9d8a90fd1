package admission_test

import (
	"slices"
	"testing"
	"time"

	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// planned is a limit with three plans, each with a window of its own.
func planned(mode limit.Mode) *policy.Limit {
	exception := func(name string, window time.Duration) policy.Exception {
		return policy.Exception{Name: name, Rates: []limit.Rate{{Units: 10, Window: window}}}
	}
	return &policy.Limit{
		Name: "tenant", Rates: []limit.Rate{{Units: 10, Window: time.Second}}, Algorithm: limit.SlidingLog, Mode: mode, OnUnavailable: limit.Local,
		Plans: []policy.Exception{exception("a", time.Minute), exception("b", time.Hour), exception("c", 24*time.Hour)},
	}
}

// What was charged by a plan's rates is spent by requests of that plan alone, also where two plans take turns; a third has the
// first one's units given back.
func TestALeaseIsSpentUnderItsOwnPlan(t *testing.T) {
	l := planned(limit.Lease)
	k := admission.NewKey(l.Rule("a", ""))
	in := one(k)
	admission.NewAnswer(0, 2*milli, in, []wire.AskResult{lease(4, 0, time.Second)}).Next(admission.Patience{})
	want(t, "of the plan that it is for", admission.Step(3*milli, in), admission.Admit, admission.FromLease)
	k.SetRule(4*milli, l.Rule("b", ""))
	want(t, "of another plan", admission.Step(4*milli, in), admission.Ask, 0)
	k.SetRule(5*milli, l.Rule("a", ""))
	want(t, "of the first plan again", admission.Step(5*milli, in), admission.Admit, admission.FromLease)
	k.SetRule(6*milli, l.Rule("b", ""))
	if retired, held := k.TakeRetired(), k.Leases(); len(retired) != 0 || held != 1 {
		t.Errorf("%d leases in hand and %+v retired, want 1 and none", held, retired)
	}
	k.SetRule(7*milli, l.Rule("c", ""))
	if retired, held := k.TakeRetired(), k.Leases(); len(retired) != 1 || retired[0].Unused != 1 || held != 0 {
		t.Errorf("%d leases in hand and %+v retired, want none, and the lease with the unit that is left", held, retired)
	}
}

// Plans of the same rates share what they are granted, and so do those whose requests wait in one line.
func TestPlansThatShareTheirLeases(t *testing.T) {
	for name, change := range map[string]func(*policy.Limit){
		"same rates": func(l *policy.Limit) { l.Plans[1].Rates = slices.Clone(l.Plans[0].Rates) },
		"max_wait":   func(l *policy.Limit) { l.MaxWait = time.Second },
	} {
		l := planned(limit.Lease)
		change(l)
		k := admission.NewKey(l.Rule("a", ""))
		in := one(k)
		admission.NewAnswer(0, 2*milli, in, []wire.AskResult{lease(3, 0, time.Second)}).Next(admission.Patience{})
		k.SetRule(4*milli, l.Rule("b", ""))
		want(t, name, admission.Step(4*milli, in), admission.Admit, admission.FromLease)
		k.SetRule(5*milli, l.Rule("a", ""))
		want(t, name, admission.Step(5*milli, in), admission.Admit, admission.FromLease)
	}
}

// What one plan's requests are admitted leaves another's count as it is where the two have no window in common.
func TestPlansThatTakeTurnsByCount(t *testing.T) {
	l := planned(limit.Async)
	hear := func(k *admission.Key, at instant.Instant) {
		k.HoldCount(at, at, 0, &wire.AskResult{Limit: 10, Window: time.Minute, Remaining: 5})
	}
	for name, c := range map[string]struct {
		window time.Duration
		want   admission.Verdict
	}{"other windows": {time.Hour, admission.Admit}, "a common window": {time.Minute, admission.Deny}} {
		l.Plans[1].Rates = []limit.Rate{{Units: 100, Window: c.window}}
		k := admission.NewKey(l.Rule("a", ""))
		hear(k, 0)
		k.SetRule(milli, l.Rule("b", ""))
		hear(k, milli)
		for range 5 {
			want(t, name, admission.Step(2*milli, one(k)), admission.Admit, admission.FromCount)
		}
		k.SetRule(3*milli, l.Rule("a", ""))
		want(t, name, admission.Step(3*milli, one(k)), c.want, admission.FromCount)
	}
}

// While the service is away each plan admits its share and no more, however often a key's plan changes.
func TestPlansThatTakeTurnsAlone(t *testing.T) {
	l := planned(limit.Strict)
	k := admission.NewKey(l.Rule("a", ""))
	in := one(k)
	in.Away = true
	admitted := map[string]int{}
	for i := range 300 {
		plan := []string{"a", "b", "c"}[i%3]
		k.SetRule(instant.Instant(i), l.Rule(plan, ""))
		if admission.Step(instant.Instant(i), in).Verdict == admission.Admit {
			admitted[plan]++
		}
	}
	for plan, n := range admitted {
		if n != 10 {
			t.Errorf("%d admitted under plan %s, want 10", n, plan)
		}
	}
}
