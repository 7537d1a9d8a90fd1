package authority_test

import (
	"testing"
	"time"

	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// tiered gives a world whose limit "wide" has plans and overrides.
func tiered() *world {
	w := newWorld()
	l := &w.policy.Limits[0]
	l.Plans = []policy.Exception{
		{Name: "burst", Rates: []limit.Rate{{Units: 3, Window: 20 * time.Millisecond}}},
		{Name: "internal", Unlimited: true},
		{Name: "paid", Rates: []limit.Rate{{Units: 20, Window: 100 * time.Millisecond}}},
	}
	l.Overrides = []policy.Exception{{Name: "big", Rates: []limit.Rate{{Units: 50, Window: 100 * time.Millisecond}}}}
	w.SetPolicy(w.policy)
	return w
}

func inPlan(plan, key string, requests int64) wire.Ask {
	a := ask("wide", key, requests, 1, 0)
	a.Plan = plan
	return a
}

func TestAnAskIsGrantedByItsPlanAndItsKeysOverride(t *testing.T) {
	w := tiered()
	response := w.sync(t, w.request(
		inPlan("", "a", 99), inPlan("paid", "b", 99), inPlan("nobody's", "c", 99), inPlan("burst", "d", 99),
		inPlan("", "big", 99), inPlan("paid", "big", 99), inPlan("internal", "e", 99),
	))
	equal(t, "units", units(response), []int64{10, 20, 10, 3, 50, 0, 0})
	equal(t, "the problem of a key that is not limited", response.Results[6].Problem, wire.UnknownLimit)
	equal(t, "the limit that is told", response.Results[1].Limit, int64(20))
}

func TestACountGoesAlongFromPlanToPlan(t *testing.T) {
	w := tiered()
	equal(t, "paid", units(w.sync(t, w.request(inPlan("paid", "a", 15)))), []int64{15})
	equal(t, "then free, over that limit", units(w.sync(t, w.request(inPlan("", "a", 1)))), []int64{0})
	equal(t, "then paid again", units(w.sync(t, w.request(inPlan("paid", "a", 99)))), []int64{5})
	equal(t, "another window is another count", units(w.sync(t, w.request(inPlan("burst", "a", 99)))), []int64{3})
}

// Settles and cancels name no plan: they reach the windows of all. A record reaches those of its plan.
func TestReportsReachTheWindowsOfEveryPlan(t *testing.T) {
	left := func(w *world, plan string) int64 {
		t.Helper()
		a := inPlan(plan, "a", 1)
		a.Want, a.Waiting = 0, 0
		return w.sync(t, w.request(a)).Results[0].Remaining
	}
	w := tiered()
	granted := w.sync(t, w.request(inPlan("burst", "a", 3)))
	equal(t, "left in the plan's window", left(w, "burst"), int64(0))
	report := w.request()
	report.Settles = []wire.Settle{{KeyRef: wire.KeyRef{Limit: "wide", Key: "a"}, Lease: granted.Results[0].Lease, Unused: 2}}
	w.sync(t, report)
	equal(t, "left after a settle", left(w, "burst"), int64(2))

	request := w.request(inPlan("burst", "a", 2))
	w.sync(t, request)
	report = w.request()
	report.Abandoned = []wire.Abandoned{{CallID: request.CallID, Keys: []wire.KeyRef{{Limit: "wide", Key: "a"}}}}
	w.sync(t, report)
	equal(t, "left after a cancel", left(w, "burst"), int64(2))

	report = w.request()
	report.Records = []wire.Record{{KeyRef: wire.KeyRef{Limit: "wide", Key: "a"}, Uses: []wire.Use{{Units: 2}}, ID: 1, Plan: "burst"}}
	w.sync(t, report)
	equal(t, "left after a record", left(w, "burst"), int64(0))
	equal(t, "left in the other window", left(w, ""), int64(10))
}

// Requests of one key that are in different plans are charged apart, each within its own rates.
func TestGroupsInDifferentPlansAreGrantedEachByItsOwn(t *testing.T) {
	w := tiered()
	in := func(plan string, group uint32) wire.Ask {
		a := inPlan(plan, "a", 10)
		a.Group = group
		return a
	}
	response := w.sync(t, w.request(
		in("paid", 1), ask("slow", "b", 10, 1, 1), in("burst", 2), ask("slow", "c", 10, 1, 2), in("paid", 3), ask("slow", "d", 10, 1, 3),
	))
	equal(t, "units", units(response), []int64{7, 7, 3, 3, 7, 7})
}
