package authority_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

var algorithms = []limit.Algorithm{
	limit.SlidingLog, limit.SlidingBuckets, limit.SlidingWindowCounter, limit.FixedWindow, limit.TokenBucket,
}

// jointPolicy has strict limits of an algorithm: "per" of a request for each client, and "all", and "some" of half as many, for
// requests of all clients.
func jointPolicy(algorithm limit.Algorithm, all int64) *policy.Policy {
	of := func(name string, units int64) policy.Limit {
		return policy.Limit{
			Name: name, Rates: []limit.Rate{{Units: 10 * units, Window: 2 * time.Hour}, {Units: units, Window: time.Hour}},
			Algorithm: algorithm, Mode: limit.Strict, OnUnavailable: limit.Deny,
		}
	}
	return &policy.Policy{Version: "v1", Domain: "shop", Limits: []policy.Limit{of("per", 1), of("all", all), of("some", all/2)}}
}

// jointWorld gives a world under jointPolicy.
func jointWorld(algorithm limit.Algorithm, all int64) *world {
	w := newWorld()
	w.policy = jointPolicy(algorithm, all)
	w.SetPolicy(w.policy)
	return w
}

// underEach runs a test in a jointWorld of each algorithm.
func underEach(t *testing.T, all int64, test func(t *testing.T, w *world)) {
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) { test(t, jointWorld(algorithm, all)) })
	}
}

// jointAsks asks for a request each of so many clients, under both limits.
func jointAsks(clients int) []wire.Ask {
	asks := make([]wire.Ask, 0, 2*clients)
	for i := range clients {
		group := uint32(i + 1)
		asks = append(asks, ask("per", strconv.Itoa(i), 1, 1, group), ask("all", "x", 1, 1, group))
	}
	return asks
}

// However many requests of a call one limit denies, another is charged nothing for them, also where the algorithm knows only
// some tens of charges by name.
func TestAHundredDeniedRequestsOfACallChargeNothing(t *testing.T) {
	const clients, room = 100, int64(1000)
	underEach(t, room, func(t *testing.T, w *world) {
		asks := jointAsks(clients)
		for i, result := range w.sync(t, w.request(asks...)).Results {
			if result.Units != 1 || result.Denied {
				t.Fatalf("ask %d of clients that have asked for nothing yet: %+v", i, result)
			}
		}
		backs := 0
		w.store.before = func(operation string) {
			if operation != "reserve" {
				backs++
			}
		}
		for range 3 {
			for i, result := range w.sync(t, w.request(asks...)).Results {
				if result.Units != 0 || !result.Denied || i%2 == 1 && result.Remaining != room-clients {
					t.Fatalf("ask %d of clients that have nothing left: %+v; want a denial, and what is left to all", i, result)
				}
			}
		}
		if w.policy.Limits[0].Algorithm != limit.SlidingLog && backs > 0 {
			t.Errorf("something was taken back %d times; want nothing charged that may be denied", backs)
		}
		equal(t, "left of what all share", w.left(t, "all", "x")[1], room-clients)
	})
}

// What a hundred requests of a call were charged before the last of their limits denied comes back under one name, and so whole.
func TestAHundredRequestsAreTakenBackAsOne(t *testing.T) {
	const clients, room = 100, int64(1000)
	underEach(t, room, func(t *testing.T, w *world) {
		w.sync(t, w.request(ask("all", "x", room, 1, 0)))
		var asks []wire.Ask
		for i := range clients {
			group := uint32(i + 1)
			asks = append(asks, ask("per", strconv.Itoa(i), 1, 1, group), ask("some", "y", 1, 1, group), ask("all", "x", 1, 1, group))
		}
		for range 3 {
			for i, result := range w.sync(t, w.request(asks...)).Results {
				if result.Units != 0 || !result.Denied {
					t.Fatalf("ask %d while there is nothing left for all: %+v; want a denial", i, result)
				}
			}
		}
		equal(t, "left of what some share", w.left(t, "some", "y")[1], room/2)
		equal(t, "left to a client", w.left(t, "per", "99")[1], int64(1))
	})
}

// Groups of a call that share a key are served in their order, each told what is left after it, and what is too much for one of
// their other keys goes to the next.
func TestWhatGroupsShareGoesToThoseWhoCanUseIt(t *testing.T) {
	underEach(t, 3, func(t *testing.T, w *world) {
		w.sync(t, w.request(ask("per", "0", 1, 1, 0), ask("per", "2", 1, 1, 0)))
		response := w.sync(t, w.request(jointAsks(6)...))
		equal(t, "units", units(response), []int64{0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0})
		for i, remaining := range map[int]int64{3: 2, 7: 1, 9: 0, 11: 0} {
			if got := response.Results[i].Remaining; got != remaining {
				t.Errorf("ask %d is told that %d are left; want %d", i, got, remaining)
			}
		}
		equal(t, "denied by what all share", w.observed.denied, map[string]int64{"per": 2, "all": 1})
		equal(t, "left of what all share", w.left(t, "all", "x")[1], int64(0))
		equal(t, "left to the one who was denied by it", w.left(t, "per", "5")[1], int64(1))
	})
}

// A group that another of the call left nothing of what they share is served once that one has been denied by something else.
func TestWhatADeniedGroupHadGoesToAnother(t *testing.T) {
	underEach(t, 4, func(t *testing.T, w *world) {
		w.sync(t, w.request(ask("all", "full", 4, 1, 0)))
		response := w.sync(t, w.request(
			ask("some", "x", 2, 1, 1), ask("all", "full", 2, 1, 1),
			ask("some", "x", 2, 1, 2), ask("all", "y", 2, 1, 2),
		))
		equal(t, "units", units(response), []int64{0, 0, 2, 2})
		equal(t, "left of what they share", w.left(t, "some", "x")[1], int64(0))
	})
}

// Where the store does not say how a key stands that was not asked, for another has denied, the denial holds and nothing is known
// of this key; and what an attempt before was granted of it stays granted.
func TestAKeyThatCannotBeLookedAt(t *testing.T) {
	w := jointWorld(limit.FixedWindow, 6)
	w.store.Store = blind{w.store.Store}
	w.sync(t, w.request(ask("some", "x", 3, 1, 0)))
	response := w.sync(t, w.request(ask("some", "x", 1, 1, 1), ask("all", "y", 1, 1, 1)))
	if r := response.Results[0]; !r.Denied || r.Problem != wire.NoProblem || r.Denial.RetryAfter == 0 {
		t.Errorf("the limit that denies: %+v", r)
	}
	if r := response.Results[1]; r != (wire.AskResult{}) {
		t.Errorf("the limit that was not asked: %+v; want nothing known of it", r)
	}
	w.sync(t, w.request(ask("all", "full", 6, 1, 0)))
	w.store.next = func(operation string) fault {
		if operation == "settle" {
			return refused // what is taken back is so too late for the second attempt
		}
		return fine
	}
	response = w.sync(t, w.request(
		ask("some", "z", 2, 1, 1), ask("all", "full", 2, 1, 1), // takes 2 of 3, until they are taken back
		ask("some", "z", 2, 1, 2), ask("all", "y", 2, 1, 2), // one of them in the first attempt
	))
	equal(t, "units", units(response), []int64{0, 0, 1, 1})
	if r := response.Results[3]; !r.Denied || r.Problem != wire.NoProblem || r.Denial.DenyFor != 0 {
		t.Errorf("the limit that was asked in the first attempt only: %+v; want a denial that does not stand", r)
	}
}

// What requests were granted strictly, and once more in a second attempt since units came back, is told whole: no lease takes its place.
func TestAStrictChargeIsFollowedByAnother(t *testing.T) {
	w := newWorld()
	w.policy.Limits[0].Mode, w.policy.Limits[0].Rates = limit.Lease, []limit.Rate{{Units: 100, Window: 10 * time.Second}}
	w.SetPolicy(w.policy)
	w.sync(t, w.request(ask("slow", "full", 7, 1, 0)))
	response := w.sync(t, w.request(
		ask("slow", "full", 95, 1, 1), ask("wide", "x", 95, 1, 1), // takes 95 of 100, until they are taken back
		ask("wide", "x", 10, 1, 0), // half of it in the first attempt
	))
	equal(t, "units", units(response), []int64{0, 0, 10})
	equal(t, "left", w.left(t, "wide", "x"), []int64{90})
}

// Asks of one group for one key make no sense.
func TestAGroupWithOneKeyTwice(t *testing.T) {
	w := newWorld()
	response := w.sync(t, w.request(ask("slow", "x", 1, 1, 1), ask("slow", "x", 1, 1, 1), ask("slow", "x", 1, 1, 2), ask("wide", "x", 1, 1, 2)))
	equal(t, "units", units(response), []int64{0, 0, 1, 1})
	for i, r := range response.Results[:2] {
		equal(t, "the problem of ask "+strconv.Itoa(i), r.Problem, wire.InvalidAsk)
	}
	equal(t, "left", w.left(t, "slow", "x"), []int64{6})
}

// A key that was not asked is looked at within the rates of each plan that it was meant for.
func TestAKeyIsLookedAtInEachPlan(t *testing.T) {
	w := newWorld()
	w.policy = jointPolicy(limit.FixedWindow, 20)
	all := &w.policy.Limits[1]
	all.Plans = []policy.Exception{{Name: "gold", Rates: []limit.Rate{{Units: 5000, Window: time.Hour}}}}
	w.SetPolicy(w.policy)
	w.sync(t, w.request(ask("per", "full", 1, 1, 0)))
	gold := ask("all", "x", 1, 1, 2)
	gold.Plan = "gold"
	results := w.sync(t, w.request(ask("per", "full", 1, 1, 1), ask("all", "x", 1, 1, 1), ask("per", "full", 1, 1, 2), gold)).Results
	equal(t, "limits told", []int64{results[1].Limit, results[3].Limit}, []int64{200, 5000})
}

// blind is a store that does not tell how keys stand.
type blind struct{ authority.Store }

func (blind) Peek(context.Context, authority.Key) ([]authority.State, error) { return nil, errInjected }

// What two groups give back of the charge that was made for both comes back for both.
func TestGroupsGiveBackEachItsPartOfACharge(t *testing.T) {
	w := jointWorld(limit.SlidingLog, 10)
	granted := w.sync(t, w.request(jointAsks(3)...)).Results
	next := w.request()
	for _, i := range []int{1, 5} {
		next.Settles = append(next.Settles, wire.Settle{KeyRef: wire.KeyRef{Limit: "all", Key: "x"}, Lease: granted[i].Lease, Unused: 1})
	}
	equal(t, "settled", w.sync(t, next).Settled, []uint32{0, 1})
	equal(t, "left of what all share", w.left(t, "all", "x")[1], int64(9))

	w.store.next = func(string) fault { return refused }
	equal(t, "settled while the store fails", w.sync(t, next).Settled, []uint32{})
}

// What comes back of a charge that serves two groups is not also what one of them was granted besides, when it was asked again.
func TestAGroupGivesBackNoMoreThanItsPartOfACharge(t *testing.T) {
	w := newWorld()
	w.policy = jointPolicy(limit.SlidingLog, 10)
	w.policy.Limits[0].Rates = []limit.Rate{{Units: 5, Window: time.Hour}}
	w.SetPolicy(w.policy)
	w.sync(t, w.request(ask("per", "empty", 5, 1, 0)))
	response := w.sync(t, w.request(
		ask("per", "empty", 4, 1, 1), ask("all", "x", 4, 2, 1), // takes 8 of 10, until they are taken back
		ask("per", "a", 1, 1, 2), ask("all", "x", 1, 1, 2),
		ask("per", "b", 2, 1, 3), ask("all", "x", 2, 1, 3), // one of them in the first attempt
	))
	equal(t, "units", units(response), []int64{0, 0, 1, 1, 2, 2})
	next := w.request()
	if r := response.Results[5]; r.Lease != "" { // its worker has no use for either
		next.Settles = []wire.Settle{{KeyRef: wire.KeyRef{Limit: "all", Key: "x"}, Lease: r.Lease, Unused: r.Units}}
	}
	w.sync(t, next)
	equal(t, "left where nothing can be given back", w.left(t, "all", "x")[1], int64(7))
}

// Requests of one key that cost different numbers of units are granted what there is, each in units of its own.
func TestGroupsOfDifferentCostsAreGrantedEachByItsOwn(t *testing.T) {
	underEach(t, 3, func(t *testing.T, w *world) {
		response := w.sync(t, w.request(
			ask("per", "0", 1, 1, 1), ask("all", "x", 1, 2, 1), ask("per", "1", 1, 1, 2), ask("all", "x", 1, 1, 2),
		))
		equal(t, "units", units(response), []int64{1, 2, 1, 1})
	})
}
