package branch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/branch"
	"sluice/controlsvc/store/memory"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// rig is a branch of a memory store, both on one clock that stands still by itself.
type rig struct {
	*branch.Branch

	now   atomic.Int64
	store *counting
}

// counting counts what the store behind a branch executes, and may fail it.
type counting struct {
	authority.Store

	reserves, settles, cancels atomic.Int64
	failing                    atomic.Bool
	// during is called by the next reserve, once, before it is executed.
	during func()
	// lastSettle is the last settle.
	mu         sync.Mutex
	lastSettle authority.Settle
}

func (c *counting) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	c.reserves.Add(int64(len(operations)))
	if during := c.during; during != nil {
		c.during = nil
		during()
	}
	results := c.Store.Reserve(ctx, operations)
	if c.failing.Load() {
		for i := range results {
			results[i] = authority.Reserved{Err: authority.ErrUnavailable}
		}
	}
	return results
}

func (c *counting) Settle(ctx context.Context, operations []authority.Settle) []error {
	c.settles.Add(int64(len(operations)))
	c.mu.Lock()
	c.lastSettle = operations[len(operations)-1]
	c.mu.Unlock()
	return c.Store.Settle(ctx, operations)
}

func (c *counting) Cancel(ctx context.Context, operations []authority.Cancel) []error {
	c.cancels.Add(int64(len(operations)))
	return c.Store.Cancel(ctx, operations)
}

func newRig(hot int64) *rig {
	r := &rig{}
	r.now.Store(int64(time.Hour / time.Microsecond))
	read := func() instant.Instant { return instant.Instant(r.now.Load()) }
	r.store = &counting{Store: memory.New(read, 1000)}
	r.Branch = branch.New(branch.Config{
		Store: r.store, Now: read, Replica: 0xbee, HotAsks: hot, BatchShare: 10,
	})
	return r
}

func (r *rig) pass(d time.Duration) { r.now.Add(d.Microseconds()) }

func key(units int64) authority.Key {
	return authority.Key{Name: "shop/tenant/acme", Algorithm: limit.SlidingLog, Rates: []limit.Rate{{Units: units, Window: time.Second}}}
}

// lease asks for units for 200 ms as the n-th call.
func (r *rig) lease(units int64, k authority.Key, call string) authority.Reserved {
	return r.reserve(authority.Reserve{Key: k, Call: call, Want: units, Min: 1, TTL: 200 * time.Millisecond, Shared: true})
}

func (r *rig) strict(units int64, k authority.Key, call string) authority.Reserved {
	return r.reserve(authority.Reserve{Key: k, Call: call, Want: units, Min: 1, Shared: true})
}

func (r *rig) reserve(o authority.Reserve) authority.Reserved {
	return r.Reserve(context.Background(), []authority.Reserve{o})[0]
}

// warm makes the key hot, and gives the first sub-lease of 10 units. Each ask before it was granted 10 by the store.
func (r *rig) warm(t *testing.T, k authority.Key) authority.Reserved {
	t.Helper()
	for i := range 40 {
		if got := r.lease(10, k, fmt.Sprint("warm", i)); got.Units == 10 && strings.HasPrefix(got.Lease, "sub:") {
			return got
		}
		r.pass(10 * time.Millisecond)
	}
	t.Fatal("a key that is hot is granted no sub-lease")
	return authority.Reserved{}
}

// remaining is what the store says.
func (r *rig) remaining(t *testing.T, k authority.Key) int64 {
	t.Helper()
	states, err := r.store.Peek(context.Background(), k)
	if err != nil {
		t.Fatal(err)
	}
	return states[0].Remaining
}

// TestAHotKeyCostsACallALease: sub-leases are given out of one lease, without a call, and end with it.
func TestAHotKeyCostsACallALease(t *testing.T) {
	r, k := newRig(4), key(1000)
	first := r.warm(t, k)
	before := r.store.reserves.Load()
	r.pass(150 * time.Millisecond)
	second := r.lease(10, k, "a")
	if r.store.reserves.Load() != before {
		t.Errorf("a second sub-lease cost a call")
	}
	// The lease lasts for 300 ms, less the drift, and ends for the second as for the first.
	if most := 150 * time.Millisecond; second.Units != 10 || second.EndIn > most || second.EndIn < most*99/100 || first.EndIn != 200*time.Millisecond {
		t.Errorf("got %+v and then %+v; want 10 units each, for 200 ms and for a little less than 150 ms", first, second)
	}
	r.pass(200 * time.Millisecond)
	third := r.lease(10, k, "b")
	if third.EndIn < 100*time.Millisecond || r.store.reserves.Load() == before {
		t.Errorf("of a lease that is over, %+v was given", third)
	}
}

// TestALeaseIsSettledOnce: when its sub-leases are, with their ages and the time that the reports were held.
func TestALeaseIsSettledOnce(t *testing.T) {
	r, k, ctx := newRig(4), key(1000), context.Background()
	first := r.warm(t, k)
	second := r.lease(5, k, "a")
	third := r.strict(3, k, "b")
	if third.Units != 3 || third.EndIn != 0 {
		t.Fatalf("paused requests are granted %+v", third)
	}
	r.pass(100 * time.Millisecond)
	report := authority.Settle{Key: k, Lease: first.Lease, Uses: []authority.Use{{Age: 40 * time.Millisecond, Units: 6}}, Unused: 4}
	for range 3 { // the last two do nothing
		if err := r.Settle(ctx, []authority.Settle{report})[0]; err != nil {
			t.Fatal(err)
		}
	}
	before := r.store.settles.Load()
	r.pass(250 * time.Millisecond) // the lease is over, and second is out
	r.Tick(ctx)
	if r.store.settles.Load() != before {
		t.Fatal("a lease was settled before its sub-leases")
	}
	report = authority.Settle{Key: k, Lease: second.Lease, Uses: []authority.Use{{Age: 200 * time.Millisecond, Units: 5}}}
	if err := r.Settle(ctx, []authority.Settle{report})[0]; err != nil {
		t.Fatal(err)
	}
	r.Tick(ctx)
	r.Tick(ctx)
	if got := r.store.settles.Load() - before; got != 1 {
		t.Fatalf("the lease was settled %d times", got)
	}
	told := r.store.lastSettle
	var units int64
	for _, u := range told.Uses {
		units += u.Units
		if u.Age > 350*time.Millisecond {
			t.Errorf("told of %d units spent %v ago, when the lease did not exist", u.Units, u.Age)
		}
	}
	// 6 units 290 ms ago, 5 units 200 ms ago, 3 units 350 ms ago; each a little later.
	oldest := slices.MaxFunc(told.Uses, func(a, b authority.Use) int { return int(a.Age - b.Age) })
	if units != 14 || oldest.Units != 3 || oldest.Age < 345*time.Millisecond {
		t.Errorf("told %+v; want 14 units spent, 3 of them 350 ms ago", told)
	}
}

// TestWhatAWorkerLeavesIsGivenAgain: units given back, and those of a call that was given up, are there for others at once.
func TestWhatAWorkerLeavesIsGivenAgain(t *testing.T) {
	r, k, ctx := newRig(4), key(1000), context.Background()
	first := r.warm(t, k)
	left := r.lease(1, k, "x").State.Remaining
	r.Settle(ctx, []authority.Settle{{Key: k, Lease: first.Lease, Unused: 10}})
	if got := r.lease(1, k, "y").State.Remaining; got != left+9 {
		t.Errorf("%d remain after 10 were given back and 1 taken, %d before", got, left)
	}
	r.Cancel(ctx, []authority.Cancel{{Key: k, Call: "x"}, {Key: k, Call: "y"}})
	if got := r.lease(1, k, "z").State.Remaining; got != left+10 {
		t.Errorf("%d remain after both calls were given up and 1 taken, %d before", got, left)
	}
}

// A lease of this replica's own is told with what workers hold of it; that is what is out, and not what is over or settled.
func TestInspectTellsSubLeases(t *testing.T) {
	r, k, ctx := newRig(4), key(1000), context.Background()
	first := r.warm(t, k)
	r.pass(10 * time.Millisecond)
	second := r.reserve(authority.Reserve{Key: k, Call: "a.1", Want: 5, Min: 1, TTL: 100 * time.Millisecond, Shared: true})
	r.strict(3, k, "b") // spent at once
	own := func() (of authority.LiveLease) {
		t.Helper()
		told, err := r.Inspect(ctx, k, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range told.Leases {
			if id, replica := l.Holder(); replica {
				if id != 0xbee || of.Lease != "" {
					t.Errorf("a replica's: %+v", l)
				}
				of = l
			} else if l.Parts != nil {
				t.Errorf("a worker's has parts: %+v", l)
			}
		}
		return of
	}
	lease := own()
	want := []authority.LiveLease{
		{Lease: first.Lease, Call: lease.Parts[0].Call, Units: 10, Age: 10 * time.Millisecond, EndIn: lease.Parts[0].EndIn},
		{Lease: second.Lease, Call: "a.1", Units: 5, EndIn: lease.Parts[1].EndIn},
	}
	if diff := cmp.Diff(want, lease.Parts); diff != "" || lease.Units < 15 {
		t.Errorf("of %d units (-want +got):\n%s", lease.Units, diff)
	}
	for i, most := range []time.Duration{190 * time.Millisecond, 100 * time.Millisecond} {
		if end := lease.Parts[i].EndIn; end < most || end > most*101/100 {
			t.Errorf("part %d ends in %v; want %v and the drift", i, end, most)
		}
	}
	r.pass(150 * time.Millisecond)
	if parts := own().Parts; len(parts) != 1 || parts[0].Lease != first.Lease {
		t.Errorf("once one is over: %+v", parts)
	}
	if err := r.Settle(ctx, []authority.Settle{{Key: k, Lease: first.Lease, Unused: 10}})[0]; err != nil {
		t.Fatal(err)
	}
	if parts := own().Parts; len(parts) != 0 {
		t.Errorf("once the other is settled: %+v", parts)
	}
}

// TestALookSeesWhatNobodyWasGiven: units of a lease count as spent where a worker has them, and not before.
func TestALookSeesWhatNobodyWasGiven(t *testing.T) {
	r, k := newRig(4), key(1000)
	given := r.warm(t, k).Units
	states, err := r.Peek(context.Background(), k)
	if err != nil {
		t.Fatal(err)
	}
	asks := r.store.reserves.Load() // each of them but the last was granted 10, for 200 ms and more
	if want := 1000 - 10*(asks-1) - given; states[0].Remaining != want || r.remaining(t, k) >= want {
		t.Errorf("%d remain, and %d as the store has it; want %d, and less", states[0].Remaining, r.remaining(t, k), want)
	}
}

// TestForeignSubLeases: the report of another replica's sub-lease is acknowledged, and costs nothing.
func TestForeignSubLeases(t *testing.T) {
	r, k := newRig(4), key(1000)
	r.warm(t, k)
	before := r.store.settles.Load()
	if err := r.Settle(context.Background(), []authority.Settle{{Key: k, Lease: "sub:ffff:1", Unused: 1000}})[0]; err != nil {
		t.Error(err)
	}
	if r.store.settles.Load() != before {
		t.Error("the store was told")
	}
}

// TestColdKeysGoToTheStore: so do those whose limits want the store's own word, and other rates of a hot key.
func TestColdKeysGoToTheStore(t *testing.T) {
	r, k := newRig(1000), key(1000)
	for i := range 20 {
		if got := r.lease(10, k, fmt.Sprint(i)); !strings.HasPrefix(got.Lease, "l:") {
			t.Fatalf("granted %+v", got)
		}
	}
	r = newRig(4)
	r.warm(t, k)
	alone := authority.Reserve{Key: k, Call: "s", Want: 1, Min: 1}
	if got := r.reserve(alone); !strings.HasPrefix(got.Lease, "c:") {
		t.Errorf("a limit that is not shared is granted %+v", got)
	}
	if got := r.lease(1, key(500), "other"); strings.HasPrefix(got.Lease, "sub:") {
		t.Errorf("another plan's units are granted as %+v", got)
	}
}

// What is denied by settled and strict units alone stands until they have left, also where the branch says so itself.
func TestARememberedDenialStandsAsTheStores(t *testing.T) {
	r := newRig(4)
	k := key(100)
	k.Rates[0].Window = time.Minute
	r.strict(100, k, "all")
	for i := range 200 {
		r.pass(10 * time.Millisecond)
		before := r.store.reserves.Load()
		got := r.lease(10, k, fmt.Sprint("c", i))
		if !got.Denied || got.Units != 0 || got.Denial.RetryAfter-got.Denial.DenyFor > 200*time.Millisecond {
			t.Fatalf("ask %d: %+v; want a denial that stands until units are free", i, got)
		}
		if r.store.reserves.Load() == before {
			return
		}
	}
	t.Error("the store is asked each time")
}

// TestAStoreThatFails: a lease whose answer is lost is cancelled, under a name of its own.
func TestAStoreThatFails(t *testing.T) {
	r, k, ctx := newRig(4), key(1000), context.Background()
	r.warm(t, k)
	r.store.failing.Store(true)
	for i := 0; r.strict(10, k, fmt.Sprint("lost", i)).Err == nil; i++ { // until nothing is left of the lease
		if i == 100 {
			t.Fatal("no lease was bought")
		}
	}
	r.store.failing.Store(false)
	before, held := r.store.cancels.Load(), r.remaining(t, k)
	r.Tick(ctx)
	if r.store.cancels.Load() != before+1 || r.remaining(t, k) <= held {
		t.Errorf("%d cancels, %d remain; before %d remained", r.store.cancels.Load()-before, r.remaining(t, k), held)
	}
}

// TestADenialOfOnePlanIsNotAnothers: nor where the other plan's ask comes while the store answers.
func TestADenialOfOnePlanIsNotAnothers(t *testing.T) {
	r, free, paid := newRig(4), key(1), key(9)
	if got := r.strict(1, free, "a"); got.Units != 1 {
		t.Fatalf("the first is granted %+v", got)
	}
	r.store.during = func() {
		if got := r.strict(1, paid, "b"); got.Units != 1 {
			t.Errorf("the second, which pays, is granted %+v", got)
		}
	}
	if got := r.strict(1, free, "c"); got.Units != 0 {
		t.Fatalf("the third is granted %+v", got)
	}
	if got := r.strict(1, paid, "d"); got.Units != 1 {
		t.Errorf("the fourth, which pays, is granted %+v", got)
	}
}

// waiter is the context of a caller that is about to wait for what somebody else buys.
type waiter struct {
	context.Context

	waits func()
}

func (w waiter) Done() <-chan struct{} {
	w.waits()
	return w.Context.Done()
}

// TestWhoWaitsIsServedByItsOwnPlan: where another plan has taken the key over meanwhile, its leases are not for who waited.
func TestWhoWaitsIsServedByItsOwnPlan(t *testing.T) {
	r, free, paid, ctx := newRig(4), key(20), key(1000), context.Background()
	for i := range 10 {
		r.strict(1, free, fmt.Sprint("warm", i))
	}
	r.pass(250 * time.Millisecond)
	r.strict(1, free, "warm")
	r.pass(240 * time.Millisecond) // the leases that they were served by are over
	r.Tick(ctx)
	rest := authority.Reserve{Key: free, Call: "rest", Want: r.remaining(t, free), Min: 1}
	if got := r.store.Store.Reserve(ctx, []authority.Reserve{rest})[0]; got.Units != rest.Want {
		t.Fatalf("the rest of the limit, %d, is granted as %+v", rest.Want, got)
	}
	before, taken := r.store.reserves.Load(), false
	waits := waiter{ctx, func() {
		if taken || r.store.reserves.Load() == before {
			return
		}
		taken = true
		if got := r.strict(1, paid, "pays"); !strings.HasPrefix(got.Lease, "sub:") {
			t.Errorf("who pays is granted %+v", got)
		}
	}}
	ask := func(call string) authority.Reserve {
		return authority.Reserve{Key: free, Call: call, Want: 1, Min: 1, Shared: true}
	}
	for i, got := range r.Reserve(waits, []authority.Reserve{ask("buys"), ask("waits")}) {
		if got.Err != nil || got.Units != 0 {
			t.Errorf("ask %d of a limit that is used up is granted %+v", i, got)
		}
	}
	if !taken {
		t.Error("nobody has waited")
	}
}

// TestAResetIsFelt at the replica that it came to, at once: a denial is forgotten, and so are the units of leases.
func TestAResetIsFelt(t *testing.T) {
	r, k, ctx := newRig(4), key(40), context.Background()
	for i := 0; ; i++ {
		before := r.store.reserves.Load()
		if got := r.strict(1, k, fmt.Sprint("before", i)); got.Units == 0 && r.store.reserves.Load() == before {
			break // it is known to be used up
		}
		if i == 100 {
			t.Fatal("a key that is used up is not known to be")
		}
	}
	if err := r.Reset(ctx, k); err != nil {
		t.Fatal(err)
	}
	if got := r.strict(1, k, "after"); got.Units != 1 {
		t.Errorf("who asks after a reset is granted %+v", got)
	}

	r, k = newRig(4), key(1000)
	r.warm(t, k)
	if err := r.Reset(ctx, k); err != nil {
		t.Fatal(err)
	}
	before := r.store.reserves.Load()
	if got := r.lease(1, k, "after"); got.Units != 1 || r.store.reserves.Load() == before {
		t.Errorf("of a lease whose charge is forgotten %+v was given", got)
	}
}

// TestStop: what nobody was given comes back at once, what workers hold does not.
func TestStop(t *testing.T) {
	r, k := newRig(4), key(1000)
	r.warm(t, k)
	held := r.remaining(t, k)
	r.Stop(context.Background())
	asks := r.store.reserves.Load() // one of them bought the lease that the last 10 units are of
	if got := r.remaining(t, k); got != 1000-10*asks || got <= held {
		t.Errorf("%d remain after %d asks for 10, %d before", got, asks, held)
	}
}

// TestManyAtOnce has many workers ask for one key at once: no window holds more than the limit, and the store is asked less
// often than they ask.
func TestManyAtOnce(t *testing.T) {
	const workers, rounds, units = 32, 50, 500
	r, k, ctx := newRig(4), key(units), context.Background()
	var admitted, asked atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range rounds {
				call := fmt.Sprintf("%d.%d", w, i)
				asked.Add(1)
				switch got := r.strict(1, k, call); {
				case got.Err != nil:
					t.Error(got.Err)
				case got.Units > 0 && i%7 == 0:
					r.Cancel(ctx, []authority.Cancel{{Key: k, Call: call}})
				default:
					admitted.Add(got.Units)
				}
				if i%10 == 0 {
					r.Tick(ctx)
				}
			}
		})
	}
	all.Wait()
	// The clock has stood still.
	if got := admitted.Load(); got > units || got < units*9/10 {
		t.Errorf("%d of %d admitted in one window", got, units)
	}
	if calls := r.store.reserves.Load(); calls > asked.Load()/2 {
		t.Errorf("%d reserves of the store for %d asks", calls, asked.Load())
	}
}
