package admission_test

import (
	"testing"
	"time"

	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// planned is a limit with three plans, each with a window of its own.
func planned() *policy.Limit {
	exception := func(name string, window time.Duration) policy.Exception {
		return policy.Exception{Name: name, Rates: []limit.Rate{{Units: 10, Window: window}}}
	}
	return &policy.Limit{
		Name: "tenant", Rates: []limit.Rate{{Units: 10, Window: time.Second}}, Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Local,
		Plans: []policy.Exception{exception("a", time.Minute), exception("b", time.Hour), exception("c", 24*time.Hour)},
	}
}

// While the service is away each plan admits its share and no more, however often a key's plan changes.
func TestPlansThatTakeTurnsAlone(t *testing.T) {
	l := planned()
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
