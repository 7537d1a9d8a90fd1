package authority_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/controlsvc/authority"
	"sluice/shared/limit"
	"sluice/shared/wire"
)

// contextOf gives a test's context where it has one.
func contextOf(t any) context.Context {
	if has, ok := t.(interface{ Context() context.Context }); ok {
		return has.Context()
	}
	return context.Background()
}

// units gives what was granted, ask by ask.
func units(response *wire.SyncResponse) []int64 {
	all := make([]int64, 0, len(response.Results))
	for _, r := range response.Results {
		all = append(all, r.Units)
	}
	return all
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestStrictGrantAndDenial(t *testing.T) {
	w := newWorld()
	response := w.sync(t, w.request(ask("wide", "acme", 4, 2, 0)))
	want := wire.AskResult{Units: 8, Limit: 10, Window: 100 * time.Millisecond, Remaining: 2, Reset: 100 * time.Millisecond}
	got := response.Results[0]
	if got.Lease == "" {
		t.Error("the grant has no name")
	}
	got.Lease = ""
	equal(t, "grant", got, want)
	equal(t, "policy version", response.PolicyVersion, "v1")

	w.pass(30 * time.Millisecond)
	response = w.sync(t, w.request(ask("wide", "acme", 3, 1, 0)))
	got = response.Results[0]
	equal(t, "units of what is left", got.Units, int64(2))
	equal(t, "denial", got.Denial, wire.Denial{DenyFor: 70 * time.Millisecond, RetryAfter: 70 * time.Millisecond})
	w.pass(70 * time.Millisecond)
	equal(t, "units when the denial has ended", units(w.sync(t, w.request(ask("wide", "acme", 3, 1, 0)))), []int64{3})
	equal(t, "admitted", w.observed.admitted["wide"], int64(4+2+3))
	equal(t, "denied", w.observed.denied["wide"], int64(1))
}

// A lease that would be over before its answer is there is none: where the window ends so soon, requests that wait are served,
// and nothing is charged for those to come.
func TestALeaseThatWouldBeTooShort(t *testing.T) {
	for _, waiting := range []int64{0, 2} {
		w := newWorld()
		l := &w.policy.Limits[2]
		l.Algorithm, l.Mode, l.Rates = limit.FixedWindow, limit.Lease, []limit.Rate{{Units: 100, Window: time.Second}}
		w.SetPolicy(w.policy)
		w.pass(990 * time.Millisecond) // the world begins with a window
		a := ask("slow", "acme", waiting, 1, 0)
		a.Want, a.Min = 30, 1
		r := w.sync(t, w.request(a)).Results[0]
		if r.Units != waiting || r.EndIn != 0 || r.Problem != wire.NoProblem || r.Denied {
			t.Errorf("%d requests wait, of 30: %+v", waiting, r)
		}
		if left := w.left(t, "slow", "acme"); left[0] != 100-waiting {
			t.Errorf("%d requests wait, of 30: %d are left, want %d", waiting, left[0], 100-waiting)
		}
	}
}

func TestAsksThatCannotBeAskedOfTheStore(t *testing.T) {
	for name, test := range map[string]struct {
		asks []wire.Ask
		want []wire.Problem
	}{
		"a limit that the policy lacks": {[]wire.Ask{ask("gone", "k", 1, 1, 0)}, []wire.Problem{wire.UnknownLimit}},
		"the rest of a group goes on without it": {
			[]wire.Ask{ask("gone", "k", 1, 1, 3), ask("wide", "k", 1, 1, 3)}, []wire.Problem{wire.UnknownLimit, wire.NoProblem},
		},
		"no cost":             {[]wire.Ask{{KeyRef: wire.KeyRef{Limit: "wide", Key: "k"}, Want: 1, Waiting: 1}}, []wire.Problem{wire.InvalidAsk}},
		"less than one wants": {[]wire.Ask{{KeyRef: wire.KeyRef{Limit: "wide", Key: "k"}, Want: 1, Min: 2, Waiting: 1}}, []wire.Problem{wire.InvalidAsk}},
		"nobody waits":        {[]wire.Ask{{KeyRef: wire.KeyRef{Limit: "wide", Key: "k"}, Want: 1, Min: 1}}, []wire.Problem{wire.InvalidAsk}},
		"too many wait": {
			[]wire.Ask{{KeyRef: wire.KeyRef{Limit: "wide", Key: "k"}, Want: 1, Min: 1, Waiting: math.MaxUint32}}, []wire.Problem{wire.InvalidAsk},
		},
		"more than any limit": {[]wire.Ask{ask("wide", "k", 1, limit.MaxUnits+1, 0)}, []wire.Problem{wire.InvalidAsk}},
		"negative":            {[]wire.Ask{{KeyRef: wire.KeyRef{Limit: "wide", Key: "k"}, Want: -1, Min: -1, Waiting: 1}}, []wire.Problem{wire.InvalidAsk}},
		"a key of braces":     {[]wire.Ask{ask("wide", "a}b", 1, 1, 0)}, []wire.Problem{wire.InvalidAsk}},
		"a key without end":   {[]wire.Ask{ask("wide", strings.Repeat("k", 1<<16), 1, 1, 0)}, []wire.Problem{wire.InvalidAsk}},
		"a group with such an ask": {
			[]wire.Ask{ask("wide", "k", 1, 1, 1), ask("slow", "k", 1, 0, 1)}, []wire.Problem{wire.InvalidAsk, wire.InvalidAsk},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			response := w.sync(t, w.request(test.asks...))
			for i, r := range response.Results {
				if r.Problem != test.want[i] || r.Problem != wire.NoProblem && (r.Units != 0 || r.Denied) {
					t.Errorf("result %d: %+v; want problem %d and nothing else", i, r, test.want[i])
				}
			}
		})
	}
}

func TestCallsThatMakeNoSense(t *testing.T) {
	for name, request := range map[string]*wire.SyncRequest{
		"no worker":      {CallID: 1},
		"no call":        {WorkerID: 1},
		"too many asks":  {WorkerID: 1, CallID: 1, Asks: make([]wire.Ask, wire.MaxAsks+1)},
		"too many calls": {WorkerID: 1, CallID: 1, Abandoned: make([]wire.Abandoned, wire.MaxAbandoned+1)},
		"too many keys":  {WorkerID: 1, CallID: 1, Abandoned: []wire.Abandoned{{Keys: make([]wire.KeyRef, wire.MaxKeysPerCall+1)}}},
	} {
		w := newWorld()
		if _, err := w.Sync(t.Context(), request); !errors.Is(err, authority.ErrInvalid) {
			t.Errorf("%s: error %v; want ErrInvalid", name, err)
		}
	}
	if _, err := authority.New(authority.Config{}).Sync(t.Context(), &wire.SyncRequest{WorkerID: 1, CallID: 1}); !errors.Is(err, authority.ErrNoPolicy) {
		t.Errorf("before a policy: error %v; want ErrNoPolicy", err)
	}
}

// A request that one limit denies is charged to none, also where some of its fellows are admitted.
func TestGroupIsAllOrNothing(t *testing.T) {
	w := newWorld()
	w.sync(t, w.request(ask("slow", "acme", 5, 1, 0))) // 2 left
	response := w.sync(t, w.request(ask("wide", "acme", 4, 2, 9), ask("slow", "acme", 4, 1, 9)))
	equal(t, "units", units(response), []int64{4, 2})
	equal(t, "left of the limit that did not deny", w.left(t, "wide", "acme"), []int64{6})
	equal(t, "left of the limit that denied", w.left(t, "slow", "acme"), []int64{0})
	if r := response.Results[0]; !r.Denied || r.Denial != (wire.Denial{}) || r.Remaining != 6 {
		t.Errorf("the limit that did not deny: %+v; want fewer than wanted, no standing denial, 6 remaining", r)
	}
	if r := response.Results[1]; !r.Denied || r.Denial.RetryAfter != time.Second {
		t.Errorf("the limit that denied: %+v; want a denial for 1s", r)
	}
	response = w.sync(t, w.request(ask("wide", "acme", 3, 1, 9), ask("slow", "acme", 3, 1, 9)))
	equal(t, "units once one limit is full", units(response), []int64{0, 0})
	equal(t, "left then", w.left(t, "wide", "acme"), []int64{6})
	equal(t, "grants taken back", w.observed.rolledBack, 2)
	equal(t, "denied, by the limit that denied", w.observed.denied, map[string]int64{"wide": 0, "slow": 2 + 3})
}

func TestRatesOfOneLimitAreAllOrNothing(t *testing.T) {
	w := newWorld()
	for range 4 {
		w.sync(t, w.request(ask("narrow", "acme", 5, 1, 0)))
		w.pass(50 * time.Millisecond)
	}
	response := w.sync(t, w.request(ask("narrow", "acme", 1, 1, 0)))
	equal(t, "units when the wider window is full", units(response), []int64{0})
	equal(t, "left of both", w.left(t, "narrow", "acme"), []int64{5, 0})
}

// Whatever is lost between the reserve and its rollback, in the end nothing is charged for requests that were not admitted.
func TestNothingStaysChargedWhenTheStoreFailsBetween(t *testing.T) {
	for name, test := range map[string]struct {
		faults   map[string][]fault // by operation, in turn; then fine
		want     []int64
		problems []wire.Problem
	}{
		"the rollback is refused":             {map[string][]fault{"cancel": {refused}}, []int64{0, 0}, []wire.Problem{0, 0}},
		"the rollback's answer is lost":       {map[string][]fault{"cancel": {lost}}, []int64{0, 0}, []wire.Problem{0, 0}},
		"the rollback comes late, and twice":  {map[string][]fault{"cancel": {late, late}}, []int64{0, 0}, []wire.Problem{0, 0}},
		"one reserve is refused":              {map[string][]fault{"reserve": {refused}}, []int64{0, 0}, []wire.Problem{wire.StoreProblem, wire.StoreProblem}},
		"one reserve's answer is lost":        {map[string][]fault{"reserve": {fine, lost}}, []int64{0, 0}, []wire.Problem{wire.StoreProblem, 0}},
		"both answers are lost":               {map[string][]fault{"reserve": {lost, lost}}, []int64{0, 0}, []wire.Problem{wire.StoreProblem, wire.StoreProblem}},
		"the same, and the rollback, twice":   {map[string][]fault{"reserve": {lost, lost}, "cancel": {refused, lost, refused, refused}}, []int64{0, 0}, []wire.Problem{wire.StoreProblem, wire.StoreProblem}},
		"a reserve is lost, its cancel is so": {map[string][]fault{"reserve": {fine, lost}, "cancel": {lost}}, []int64{0, 0}, []wire.Problem{wire.StoreProblem, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.sync(t, w.request(ask("slow", "acme", 7, 1, 0)))
			w.store.next = func(operation string) fault {
				all := test.faults[operation]
				if len(all) == 0 {
					return fine
				}
				test.faults[operation] = all[1:]
				return all[0]
			}
			// In the canonical order slow comes first: it denies.
			response := w.sync(t, w.request(ask("wide", "acme", 2, 1, 1), ask("slow", "acme", 2, 1, 1)))
			equal(t, "units", units(response), test.want)
			problems := []wire.Problem{response.Results[0].Problem, response.Results[1].Problem}
			if !slices.Equal(problems, test.problems) {
				t.Errorf("problems %v; want %v", problems, test.problems)
			}
			for range 5 {
				_ = w.Repay(t.Context()) // the store may fail again
			}
			w.store.arrive()
			equal(t, "charges that are still owed", w.Owed(), 0)
			equal(t, "left of the limit that did not deny", w.left(t, "wide", "acme"), []int64{10})
			equal(t, "left of the limit that denied", w.left(t, "slow", "acme"), []int64{0})
		})
	}
}

func TestSurplusOfAGroupIsOwedWhileTheStoreFails(t *testing.T) {
	w := newWorld()
	w.sync(t, w.request(ask("slow", "acme", 5, 1, 0)))
	w.store.next = func(operation string) fault {
		if operation == "settle" {
			return refused
		}
		return fine
	}
	response := w.sync(t, w.request(ask("wide", "acme", 4, 2, 9), ask("slow", "acme", 4, 1, 9)))
	equal(t, "units", units(response), []int64{4, 2})
	equal(t, "left while owed", w.left(t, "wide", "acme"), []int64{2})
	w.store.next = nil
	if err := w.Repay(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "left when paid", w.left(t, "wide", "acme"), []int64{6})
}

// The group was granted a key on which somebody else is then denied; when the group's other key denies it, the other one is
// asked for again and admitted.
func TestDenialByAGroupThatIsRolledBackIsAskedAgain(t *testing.T) {
	w := newWorld()
	w.sync(t, w.request(ask("slow", "acme", 7, 1, 0)))
	response := w.sync(t, w.request(
		ask("slow", "acme", 10, 1, 1), ask("wide", "acme", 10, 1, 1), // slow denies what takes all of wide
		ask("wide", "acme", 3, 1, 0),
	))
	equal(t, "units", units(response), []int64{0, 0, 3})
	if r := response.Results[2]; r.Denied || r.Remaining != 7 {
		t.Errorf("the one asked again: %+v; want no denial, 7 remaining", r)
	}
	equal(t, "left", w.left(t, "wide", "acme"), []int64{7})
}

// The same between two calls: the second is denied while the first one's rollback is under way, and waits for it.
func TestDenialByAnotherCallsRollbackIsAskedAgain(t *testing.T) {
	w := newWorld()
	w.sync(t, w.request(ask("slow", "acme", 7, 1, 0)))
	rollback, release, denied := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var reserves atomic.Int64
	w.store.before = func(operation string) {
		if operation == "settle" {
			close(rollback)
			<-release
		}
	}
	w.store.after = func(operation string) {
		if operation == "reserve" && reserves.Add(1) == 2 {
			close(denied)
		}
	}
	first, second := w.request(ask("slow", "acme", 10, 1, 1), ask("wide", "acme", 10, 1, 1)), w.request(ask("wide", "acme", 3, 1, 0))
	var both sync.WaitGroup
	both.Go(func() { equal(t, "units of the first", units(w.sync(t, first)), []int64{0, 0}) })
	<-rollback
	both.Go(func() { equal(t, "units of the second", units(w.sync(t, second)), []int64{3}) })
	<-denied
	close(release)
	both.Wait()
}

func TestAbandonedCallIsCancelledWhole(t *testing.T) {
	w := newWorld()
	w.calls = 9
	call := w.request(ask("wide", "acme", 3, 1, 0), ask("wide", "acme", 1, 2, 0), ask("slow", "acme", 3, 1, 7), ask("wide", "acme", 3, 1, 7))
	equal(t, "units", units(w.sync(t, call)), []int64{3, 2, 3, 3}) // call 10, whose answer never comes
	other := &wire.SyncRequest{WorkerID: 0xabc, CallID: 1, Asks: []wire.Ask{ask("wide", "acme", 1, 1, 0)}}
	equal(t, "units of call 1", units(w.sync(t, other)), []int64{1})

	keys := []wire.KeyRef{{Limit: "wide", Key: "acme"}, {Limit: "slow", Key: "acme"}}
	next := w.request()
	next.Abandoned = []wire.Abandoned{{CallID: 77, Keys: keys}, {CallID: 10, Keys: append(keys, wire.KeyRef{Limit: "gone", Key: "acme"})}}
	equal(t, "acknowledged", w.sync(t, next).Abandoned, []uint32{0, 1})
	equal(t, "left, with call 1's unit charged", w.left(t, "wide", "acme"), []int64{9})
	equal(t, "left of the other key", w.left(t, "slow", "acme"), []int64{7})

	next = w.request()
	next.Abandoned = []wire.Abandoned{{CallID: 1, Keys: keys}}
	w.store.next = func(string) fault { return refused }
	equal(t, "acknowledged while the store fails", w.sync(t, next).Abandoned, []uint32{})
}

func TestSettlesAndRecords(t *testing.T) {
	w := newWorld()
	wide := wire.KeyRef{Limit: "wide", Key: "acme"}
	granted := w.sync(t, w.request(ask("wide", "acme", 5, 1, 0))).Results[0]
	next := w.request()
	next.Settles = []wire.Settle{
		{KeyRef: wide, Lease: granted.Lease, Unused: 2},
		{KeyRef: wire.KeyRef{Limit: "gone", Key: "acme"}, Lease: "l", Unused: 2},
		{KeyRef: wide, Lease: granted.Lease, Unused: -1},
	}
	next.Records = []wire.Record{
		{KeyRef: wide, ID: 1, Uses: []wire.Use{{Age: 10 * time.Millisecond, Units: 12}}},
		{KeyRef: wide, ID: 2, Uses: []wire.Use{{Age: -1, Units: 1}}},
	}
	response := w.sync(t, next)
	equal(t, "settled, and what makes no sense dealt with", response.Settled, []uint32{0, 1, 2})
	equal(t, "recorded, likewise", response.Recorded, []uint32{0, 1})
	equal(t, "left: over the limit", w.left(t, "wide", "acme"), []int64{0})
	w.pass(90 * time.Millisecond) // the record was 10 ms old; 3 units of the grant are left
	equal(t, "left once the record has gone", w.left(t, "wide", "acme"), []int64{7})

	w.store.next = func(string) fault { return refused }
	next.CallID++
	response = w.sync(t, next)
	equal(t, "settled while the store fails", response.Settled, []uint32{1, 2})
	equal(t, "recorded while the store fails", response.Recorded, []uint32{1})
}

func TestShareIsAskedForOnceASecond(t *testing.T) {
	w := newWorld()
	asked := &counting{Store: w.store.Store}
	w.store.Store = asked
	active := func(worker uint64) [2]uint32 {
		r := w.request()
		r.WorkerID, r.Active = worker, true
		response := w.sync(t, r)
		return [2]uint32{response.Workers, response.Rank}
	}
	equal(t, "not active", w.sync(t, w.request()).Workers, uint32(0))
	equal(t, "asked for one that is not active", asked.n, 0)
	equal(t, "alone", active(1), [2]uint32{1, 0})
	equal(t, "the second one's", active(2)[0], uint32(2))
	equal(t, "the first one's, within the second", active(1), [2]uint32{1, 0})
	equal(t, "asked", asked.n, 2)
	w.pass(time.Second)
	first, second := active(1), active(2)
	if first[0] != 2 || second[0] != 2 || first[1] == second[1] {
		t.Errorf("shares after a second: %v and %v; want two of 2 with different ranks", first, second)
	}
	equal(t, "asked by then", asked.n, 4)
	w.pass(authority.DefaultWorkerTTL + time.Millisecond)
	equal(t, "alone again when the other has gone", active(1), [2]uint32{1, 0})
}

// counting counts how often a share is asked for.
type counting struct {
	authority.Store

	n int
}

func (c *counting) Connected(ctx context.Context, domain string, worker uint64, ttl time.Duration) (authority.Share, error) {
	c.n++
	return c.Store.Connected(ctx, domain, worker, ttl)
}
