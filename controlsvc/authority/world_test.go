package authority_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// began is when every world begins: a Redis' clock reads something like it.
const began = instant.Instant(1_764_000_000_000_000)

// world is an authority over a memory store with a clock that the test moves, and faults that it chooses.
type world struct {
	*authority.Authority

	now      instant.Instant
	store    *faulty
	policy   *policy.Policy
	observed observed
	calls    uint64
}

// observed is what the authority said that it did.
type observed struct {
	mu                           sync.Mutex
	admitted, denied, unanswered map[string]int64
	rolledBack, leaked           int
	reports                      []wire.Report
	called                       []authority.Call
}

func (o *observed) Decided(limit string, admitted, denied, unanswered int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.admitted[limit] += admitted
	o.denied[limit] += denied
	o.unanswered[limit] += unanswered
}
func (o *observed) RolledBack(n int)                                    { o.rolledBack += n }
func (o *observed) Leaked(n int)                                        { o.leaked += n }
func (o *observed) Leased(uint64, string, string, int64, time.Duration) {}
func (o *observed) Settled(string, string, int64)                       {}

func (o *observed) Called(call authority.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.called = append(o.called, call)
}

func (o *observed) Reported(_ uint64, report *wire.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reports = append(o.reports, *report)
}

func testPolicy() *policy.Policy {
	of := func(name string, rates ...limit.Rate) policy.Limit {
		return policy.Limit{Name: name, Rates: rates, Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Deny}
	}
	return &policy.Policy{
		Version: "v1", Domain: "shop",
		Limits: []policy.Limit{
			of("wide", limit.Rate{Units: 10, Window: 100 * time.Millisecond}),
			of("narrow", limit.Rate{Units: 5, Window: 50 * time.Millisecond}, limit.Rate{Units: 20, Window: 400 * time.Millisecond}),
			of("slow", limit.Rate{Units: 7, Window: time.Second}),
		},
	}
}

func newWorld() *world {
	w := &world{now: began, policy: testPolicy()}
	w.observed.admitted, w.observed.denied, w.observed.unanswered = map[string]int64{}, map[string]int64{}, map[string]int64{}
	now := func() instant.Instant { return w.now }
	w.store = &faulty{Store: memory.New(now, 1000)}
	drawn := uint64(0)
	random := func() uint64 { drawn++; return drawn }
	w.Authority = authority.New(authority.Config{Store: w.store, Now: now, Random: random, Observer: &w.observed})
	w.SetPolicy(w.policy)
	return w
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

// request gives the worker's next call.
func (w *world) request(asks ...wire.Ask) *wire.SyncRequest {
	w.calls++
	return &wire.SyncRequest{WorkerID: 0xabc, CallID: w.calls, Asks: asks}
}

// sync makes a call that makes sense.
func (w *world) sync(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, request *wire.SyncRequest,
) *wire.SyncResponse {
	t.Helper()
	response, err := w.Sync(contextOf(t), request)
	if err != nil {
		t.Fatalf("Sync: %v", err)
	}
	if len(response.Results) != len(request.Asks) {
		t.Fatalf("%d results for %d asks", len(response.Results), len(request.Asks))
	}
	return response
}

// key gives a limit's key as the store knows it.
func (w *world) key(name, of string) authority.Key {
	for _, l := range w.policy.Limits {
		if l.Name == name {
			return authority.Key{Name: policy.StoreName(w.policy.Domain, name, of), Algorithm: l.Algorithm, Rates: l.Rates}
		}
	}
	panic(fmt.Sprintf("the test's policy has no limit %q", name))
}

// left gives what each rate of a key has left, by the store beneath the faults.
func (w *world) left(t *testing.T, name, of string) []int64 {
	t.Helper()
	states, err := w.store.Peek(t.Context(), w.key(name, of))
	if err != nil {
		t.Fatalf("Peek: %v", err)
	}
	all := make([]int64, 0, len(states))
	for _, s := range states {
		all = append(all, s.Remaining)
	}
	return all
}

// ask asks for so many requests of a key, of a cost each.
func ask(name, key string, requests, cost int64, group uint32) wire.Ask {
	return wire.Ask{
		KeyRef: wire.KeyRef{Limit: name, Key: key}, Want: requests * cost, Min: cost, Waiting: uint32(requests), Group: group,
	}
}
