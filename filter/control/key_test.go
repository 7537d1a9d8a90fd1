package control

import (
	"testing"
	"time"

	"sluice/filter/host/fake"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// A key that was asked for in one plan, and found in another one under the next policy when the answer came, takes the answer in
// under the plan that it was asked for.
func TestAnAnswerIsOfThePlanThatWasAskedFor(t *testing.T) {
	tenants := func(paid policy.Exception) *policy.Limit {
		paid.Name = "paid"
		return &policy.Limit{
			Name: "tenant", Rates: []limit.Rate{{Units: 10, Window: time.Second}}, Algorithm: limit.SlidingLog, Mode: limit.Lease,
			Plans: []policy.Exception{paid},
		}
	}
	before := tenants(policy.Exception{Rates: []limit.Rate{{Units: 1000, Window: time.Minute}}})
	asked := before.Rule("paid", "acme")
	for name, c := range map[string]struct {
		next    policy.Exception
		limited bool
		plan    string
	}{
		"of other rates": {policy.Exception{Rates: []limit.Rate{{Units: 2000, Window: time.Minute}}}, true, "paid"},
		"unlimited":      {policy.Exception{Unlimited: true}, false, ""},
	} {
		k := New(fake.New(1), Config{}, nil).NewKey(wire.KeyRef{Limit: "tenant", Key: "acme"}, asked)
		after := tenants(c.next)
		k.Admission.SetRule(1, after.Rule("", "acme"))
		if limited := k.follow(2, &asked); limited != c.limited || k.plan() != c.plan || k.Admission.Limit() != after {
			t.Errorf("%s: limited %v in plan %q, want %v in %q of the limit in force", name, limited, k.plan(), c.limited, c.plan)
		}
	}
}
