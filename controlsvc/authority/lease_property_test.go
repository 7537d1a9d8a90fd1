package authority_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// noting is a store that notes what every reserve was charged.
type noting struct {
	authority.Store

	now func() instant.Instant

	mu      sync.Mutex
	charged map[string]*holding // by lease
}

// holding is what somebody may spend under a grant's name: units, from an instant to another.
type holding struct {
	key        wire.KeyRef
	lease      string
	units      int64
	start, end instant.Instant
	uses       []spend
}

func (s *noting) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	results := s.Store.Reserve(ctx, operations)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range results {
		if r.Units > 0 {
			s.charged[r.Lease] = &holding{units: r.Units, start: s.now().Add(r.StartIn), end: s.now().Add(r.EndIn)}
		}
	}
	return results
}

// fleet is workers of one authority, which call it at once, and what they hold and have spent.
type fleet struct {
	t       *rapid.T
	now     instant.Instant
	store   *noting
	of      *authority.Authority
	policy  *policy.Policy
	chance  *rand.Rand
	held    [][]*holding
	settles [][]wire.Settle
	calls   uint64
	spent   counted
}

const fleetWorkers = 4

func newFleet(t *rapid.T) *fleet {
	f := &fleet{
		t: t, now: began, chance: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), spent: counted{},
		held: make([][]*holding, fleetWorkers), settles: make([][]wire.Settle, fleetWorkers),
	}
	now := func() instant.Instant { return f.now }
	of := func(name string, mode limit.Mode, rates ...limit.Rate) policy.Limit {
		return policy.Limit{Name: name, Rates: rates, Algorithm: limit.SlidingLog, Mode: mode, OnUnavailable: limit.Deny}
	}
	f.policy = &policy.Policy{Version: "v", Domain: "shop", Limits: []policy.Limit{
		of("hot", limit.Lease, limit.Rate{Units: 120, Window: 400 * time.Millisecond}),
		of("paced", limit.Lease, limit.Rate{Units: 30, Window: 200 * time.Millisecond}, limit.Rate{Units: 90, Window: time.Second}),
		of("exact", limit.Strict, limit.Rate{Units: 10, Window: 100 * time.Millisecond}),
	}}
	f.store = &noting{Store: memory.New(now, 1000), now: now, charged: map[string]*holding{}}
	var mu sync.Mutex
	drawn := uint64(0)
	random := func() uint64 { mu.Lock(); defer mu.Unlock(); drawn++; return drawn }
	f.of = authority.New(authority.Config{Store: f.store, Now: now, Random: random})
	f.of.SetPolicy(f.policy)
	return f
}

// request makes a worker's next call: groups of asks, some for requests that wait, some only for a lease, and what the worker
// has to report.
func (f *fleet) request(w int) *wire.SyncRequest {
	f.calls++
	r := &wire.SyncRequest{WorkerID: uint64(w + 1), CallID: f.calls, Settles: f.settles[w]}
	if f.chance.IntN(5) > 0 { // else they go out again
		f.settles[w] = nil
	}
	for g := range 1 + f.chance.IntN(3) {
		waiting, cost := int64(f.chance.IntN(6)), int64(1+f.chance.IntN(3))
		key := []string{"acme", "zenith"}[f.chance.IntN(2)]
		for _, l := range f.policy.Limits {
			if waiting == 0 && (l.Mode != limit.Lease || len(r.Asks) > 0 && r.Asks[len(r.Asks)-1].Group == uint32(g+1)) {
				continue // a lease alone is asked for one by one
			}
			if f.chance.IntN(2) == 0 {
				continue
			}
			a := ask(l.Name, key, waiting, cost, uint32(g+1))
			if l.Mode == limit.Lease {
				a.Want += cost * int64(f.chance.IntN(40))
			}
			if a.Want > 0 {
				r.Asks = append(r.Asks, a)
			}
		}
	}
	return r
}

// together has some workers call at once.
func (f *fleet) together() {
	var requests []*wire.SyncRequest
	for w := range fleetWorkers {
		if f.chance.IntN(4) > 0 {
			requests = append(requests, f.request(w))
		}
	}
	responses := make([]*wire.SyncResponse, len(requests))
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() {
			response, err := f.of.Sync(context.Background(), r)
			if err != nil {
				panic(err)
			}
			responses[i] = response
		})
	}
	all.Wait()
	for i, r := range requests {
		f.take(int(r.WorkerID)-1, r.Asks, responses[i].Results)
	}
}

// take takes over what a worker was told, which must be within what was charged under the name.
func (f *fleet) take(w int, asks []wire.Ask, results []wire.AskResult) {
	for i, r := range results {
		if r.Units == 0 {
			continue
		}
		told := &holding{
			key: asks[i].KeyRef, lease: r.Lease, units: r.Units, start: f.now.Add(r.StartIn), end: f.now.Add(r.EndIn),
		}
		if r.EndIn == 0 { // of this instant, for requests that wait; some of them may have left
			told.spend(f, min(r.Units, asks[i].Min*int64(f.chance.IntN(int(asks[i].Waiting)+1))))
			if told.units > 0 && r.Lease != "" {
				f.settles[w] = append(f.settles[w], wire.Settle{KeyRef: told.key, Lease: r.Lease, Unused: told.units})
			}
			continue
		}
		charged := f.store.charged[r.Lease]
		if charged == nil || told.units > charged.units || told.start < charged.start || told.end > charged.end {
			f.t.Fatalf("told of %+v, charged %+v", told, charged)
		}
		charged.units -= told.units // nobody is told of them again
		f.held[w] = append(f.held[w], told)
	}
}

// spend spends units of a holding now.
func (h *holding) spend(f *fleet, units int64) {
	if units > 0 {
		h.units -= units
		h.uses = append(h.uses, spend{f.now, units})
		f.spent[h.key] = append(f.spent[h.key], spend{f.now, units})
	}
}

// use has every worker spend of what it holds, and settle what is over, or is of no use.
func (f *fleet) use() {
	for w, held := range f.held {
		var kept []*holding
		for _, h := range held {
			if f.now >= h.start && f.now <= h.end && h.units > 0 && f.chance.IntN(3) > 0 {
				h.spend(f, 1+f.chance.Int64N(h.units))
			}
			if f.now <= h.end && h.units > 0 && f.chance.IntN(10) > 0 {
				kept = append(kept, h)
				continue
			}
			if f.chance.IntN(10) == 0 {
				continue // its report is lost with it
			}
			s := wire.Settle{KeyRef: h.key, Lease: h.lease, Unused: h.units}
			for _, u := range h.uses {
				s.Uses = append(s.Uses, wire.Use{Age: f.now.Sub(u.at), Units: u.units})
			}
			f.settles[w] = append(f.settles[w], s)
		}
		f.held[w] = kept
	}
}

// TestLeasesAreWithinTheirCharges: workers that call at once, for leases and strict charges of several limits, are never told
// that they may spend more under a lease than was charged for it, nor at another time; and when they spend all that they are
// told, no window is over its limit.
func TestLeasesAreWithinTheirCharges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		limits := map[string][]limit.Rate{}
		for _, l := range f.policy.Limits {
			limits[l.Name] = l.Rates
		}
		for range 80 {
			f.together()
			for range 1 + f.chance.IntN(3) {
				pause := time.Duration(f.chance.IntN(15_000)) * time.Microsecond
				f.now = f.now.Add(pause)
				f.age(pause)
				f.use()
			}
			if over := f.spent.over(limits); over != "" {
				t.Fatal(over)
			}
		}
		if len(f.spent) == 0 {
			t.Fatal("nothing was spent")
		}
	})
}

// age makes what waits to be reported older.
func (f *fleet) age(d time.Duration) {
	for _, settles := range f.settles {
		for _, s := range settles {
			for i := range s.Uses {
				s.Uses[i].Age += d
			}
		}
	}
}
