package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/replica"
	"sluice/controlsvc/store/memory"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/testharness/oracle"
)

// watched is a store that counts what it is asked, and stands still when it is told to.
type watched struct {
	authority.Store

	reserves, settles atomic.Int64
	stuck             atomic.Bool
	takes             atomic.Int64 // nanoseconds for each Reserve
}

func (w *watched) Settle(ctx context.Context, operations []authority.Settle) []error {
	w.settles.Add(1)
	return w.Store.Settle(ctx, operations)
}

func (w *watched) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	w.reserves.Add(1)
	if !w.stuck.Load() {
		pass(time.Duration(w.takes.Load()))
		return w.Store.Reserve(ctx, operations)
	}
	<-ctx.Done()
	all := make([]authority.Reserved, len(operations))
	for i := range all {
		all[i].Err = errors.Join(authority.ErrUnavailable, ctx.Err())
	}
	return all
}

// world is a replica in a bubble of time.
type world struct {
	t         *testing.T
	store     *watched
	authority *authority.Authority
	replica   *replica.Replica
	began     time.Time
	turns     atomic.Int64 // how often the replica has looked after its workers
}

// inWorld runs a test in a bubble, with a policy of one limit for each of the given texts.
func inWorld(t *testing.T, policy string, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		w := &world{t: t, began: time.Now()}
		now := func() instant.Instant {
			return instant.Instant(1_764_000_000_000_000 + time.Since(w.began).Microseconds())
		}
		w.store = &watched{Store: memory.New(now, 1000)}
		w.authority = authority.New(authority.Config{Store: w.store, Now: now, Random: rand.Uint64})
		w.adopt(policy)
		w.replica = replica.New(replica.Config{
			Authority: w.authority, Now: now, Random: rand.Uint64, Logger: slog.New(slog.DiscardHandler), Workers: 2, Timeout: 50 * time.Millisecond,
			Left: time.Until,
		})
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		var running sync.WaitGroup
		running.Go(func() {
			w.replica.Run(ctx, func(d time.Duration) <-chan time.Time {
				w.turns.Add(1)
				return time.After(d)
			})
		})
		test(w)
		cancel()
		running.Wait()
		w.replica.Stop()
	})
}

func (w *world) adopt(limits string) {
	p, err := policyfile.Parse("policy.yaml", []byte("domain: shop\nlimits:\n"+limits))
	if err != nil {
		w.t.Fatal(err)
	}
	w.authority.SetPolicy(p)
}

func (w *world) decide(ctx context.Context, demands ...replica.Demand) (admission.Output, error) {
	var d replica.Decision
	err := w.replica.Decide(ctx, w.authority.Policy(), demands, &d)
	return d.Output, err
}

func (w *world) want(verdict admission.Verdict, source admission.Source, demands ...replica.Demand) {
	w.t.Helper()
	out, err := w.decide(w.t.Context(), demands...)
	if err != nil || out.Verdict != verdict || out.Source != source {
		w.t.Errorf("%v from %v, %v; want %v from %v", out.Verdict, out.Source, err, verdict, source)
	}
}

func of(key string) replica.Demand { return replica.Demand{Key: key, Cost: 1} }

// A hot key costs hardly any calls of the store, and no window holds more than its limit.
func TestAHotKeyIsLeased(t *testing.T) {
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [1000/s], mode: lease, algorithm: sliding_log}", func(w *world) {
		var admitted []oracle.Interval
		for range 10_000 { // five seconds, at twice the limit
			pass(500 * time.Microsecond)
			out, err := w.decide(w.t.Context(), of("hot"))
			if err != nil {
				w.t.Fatal(err)
			}
			if out.Verdict == admission.Admit {
				at := time.Since(w.began)
				admitted = append(admitted, oracle.Interval{Left: at, Answered: at, Units: 1})
			}
		}
		if worst := oracle.WorstWindow(admitted, time.Second); worst > 1000 {
			t.Errorf("%d in the worst window, want at most 1000", worst)
		}
		if n := len(admitted); n < 4900 {
			t.Errorf("%d admitted of the 5000 that are possible", n)
		}
		if calls := w.store.reserves.Load(); calls > 1000 {
			t.Errorf("%d reserves for 10,000 requests", calls)
		}
	})
}

// A key that was reset has its whole limit again once the denials have ended that workers give of their own accord: those after
// the first too, though the worker remembers what it has spent.
func TestAKeyIsReset(t *testing.T) {
	for _, how := range []string{
		"mode: strict", "mode: strict, algorithm: sliding_buckets", "mode: strict, algorithm: fixed_window",
		"mode: strict, algorithm: token_bucket", "mode: lease", "mode: async",
	} {
		inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [10/h], "+how+"}", func(w *world) {
			admitted := func(calls int) (n int) {
				for range calls {
					out, err := w.decide(w.t.Context(), of("hot"))
					if err != nil {
						w.t.Fatal(err)
					}
					if out.Verdict == admission.Admit {
						n++
					}
					pass(100 * time.Millisecond)
				}
				return n
			}
			if n := admitted(20); n != 10 {
				t.Errorf("%s: %d of 20 admitted under 10/h", how, n)
			}
			p := w.authority.Policy()
			key := authority.Key{Name: policy.StoreName(p.Domain, "all", "hot"), Algorithm: p.Limits[0].Algorithm, Rates: p.Limits[0].Rates}
			if err := w.store.Reset(w.t.Context(), key); err != nil {
				w.t.Fatal(err)
			}
			pass(admission.ReaskAfter)
			if n := admitted(30); n != 10 {
				t.Errorf("%s: %d of 30 admitted after the key was reset; want 10", how, n)
			}
		})
	}
}

// Who only looks is told what is left to be admitted, which the units of leases in hand are.
func TestWhoLooksSeesWhatIsHeld(t *testing.T) {
	const units, spent = 1000, 100
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [1000/m]}", func(w *world) {
		for range spent {
			if out, err := w.decide(w.t.Context(), of("x")); err != nil || out.Verdict != admission.Admit {
				t.Fatalf("%v, %v", out.Verdict, err)
			}
			pass(10 * time.Millisecond)
		}
		name := policy.StoreName("shop", "all", "x")
		rates := []limit.Rate{{Units: units, Window: time.Minute}}
		states, err := w.store.Peek(w.t.Context(), authority.Key{Name: name, Algorithm: limit.SlidingLog, Rates: rates})
		if err != nil {
			t.Fatal(err)
		}
		var d replica.Decision
		if err := w.replica.Decide(w.t.Context(), w.authority.Policy(), []replica.Demand{{Key: "x"}}, &d); err != nil {
			t.Fatal(err)
		}
		if got := d.Standings[0].Remaining; got != units-spent || states[0].Remaining >= got {
			t.Errorf("%d remain, and %d as the store has it; want %d, and less", got, states[0].Remaining, units-spent)
		}
	})
}

// What a worker has admitted in mode async and not told of yet is not left to who looks.
func TestWhoLooksSeesWhatIsCountedLater(t *testing.T) {
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [10/m], mode: async}", func(w *world) {
		look := replica.Demand{Key: "x"}
		for left := int64(10); left > 0; left-- {
			out, err := w.decide(w.t.Context(), look)
			if err != nil || out.Remaining > left { // or less, while the store is being told
				t.Errorf("%d left, %v; want at most %d", out.Remaining, err, left)
			}
			w.want(admission.Admit, admission.FromCount, of("x"))
		}
		w.want(admission.Deny, admission.FromStore, look)
		pass(time.Second) // the store has been told
		w.want(admission.Deny, admission.FromStore, look)
	})
}

// A replica that nobody asks does next to nothing, before the first request and after the last; one that comes has its
// deadline kept all the same.
func TestIdle(t *testing.T) {
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [10/m], mode: strict}", func(w *world) {
		w.store.stuck.Store(true)
		for range 2 {
			pass(20 * time.Second) // of which it is idle for the latter half at least
			before := w.turns.Load()
			pass(time.Minute)
			if turns := w.turns.Load() - before; turns > 150 {
				t.Errorf("%d turns in an idle minute", turns)
			}
			began := time.Now()
			w.want(admission.Admit, admission.FromFallback, of("x"))
			if took := time.Since(began); took > 60*time.Millisecond {
				t.Errorf("a request after an idle minute took %v", took)
			}
		}
	})
}

// While the store stands still on_unavailable decides, in time; then at once; and the store is asked again afterwards.
func TestAStoreThatStandsStill(t *testing.T) {
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [10/m], mode: strict}", func(w *world) {
		w.want(admission.Admit, admission.FromStore, of("x"))
		w.store.stuck.Store(true)
		for n := range 5 {
			began := time.Now()
			w.want(admission.Admit, admission.FromFallback, of("x"))
			if took := time.Since(began); took > 60*time.Millisecond || n > 3 && took > 0 {
				t.Errorf("request %d took %v", n, took)
			}
		}
		w.store.stuck.Store(false)
		pass(5 * time.Second)
		// What was admitted meanwhile has been told: 6 of 10 are spent.
		for range 4 {
			w.want(admission.Admit, admission.FromStore, of("x"))
		}
		if out, err := w.decide(w.t.Context(), of("x")); err != nil || out.Verdict != admission.Deny {
			t.Errorf("%v, %v; want a denial, for the fallback's requests count", out.Verdict, err)
		}
	})
}

// While the store is away the workers of all replicas together admit no more than the limit: each goes by its share, of as many
// as were connected. A key is one worker's at each replica, so that it has less than that.
func TestReplicasShareALimitWhileTheStoreIsAway(t *testing.T) {
	const units, keys = 20, 64
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [20/m], mode: strict}", func(w *world) {
		now := func() instant.Instant {
			return instant.Instant(1_764_000_000_000_000 + time.Since(w.began).Microseconds())
		}
		other := replica.New(replica.Config{
			Authority: w.authority, Now: now, Random: rand.Uint64, Logger: slog.New(slog.DiscardHandler), Workers: 2, Timeout: 50 * time.Millisecond,
		})
		ctx, cancel := context.WithCancel(w.t.Context())
		var running sync.WaitGroup
		running.Go(func() { other.Run(ctx, time.After) })
		defer func() {
			cancel()
			running.Wait()
			other.Stop()
		}()
		admitted := func(r *replica.Replica, key string) bool {
			var d replica.Decision
			if err := r.Decide(w.t.Context(), w.authority.Policy(), []replica.Demand{of(key)}, &d); err != nil {
				w.t.Error(err)
			}
			return d.Verdict == admission.Admit
		}
		both := []*replica.Replica{w.replica, other}
		for k := range keys { // so that every worker has one
			for _, r := range both {
				admitted(r, fmt.Sprint("known", k))
			}
		}
		pass(3 * time.Second)
		w.store.stuck.Store(true)
		count := 0
		for range 2 * units {
			for _, r := range both {
				if admitted(r, "x") {
					count++
				}
			}
		}
		// Four workers: a share is a quarter.
		if count != 2*units/4 {
			t.Errorf("%d admitted; want the shares of two workers, of %d between four", count, units)
		}
	})
}

// What a worker has to ask while a call is under way goes into the next one together. A call that is not answered holds up nobody
// for long.
func TestCallsGather(t *testing.T) {
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [10/m], mode: strict}", func(w *world) {
		w.store.takes.Store(int64(3 * time.Millisecond))
		ask := func(key int, within time.Duration) {
			began := time.Now()
			w.want(admission.Admit, admission.FromStore, of(strconv.Itoa(key)))
			if took := time.Since(began); took > within {
				w.t.Errorf("key %d took %v, want at most %v", key, took, within)
			}
		}
		const callers = 40
		var asking sync.WaitGroup
		for key := range callers {
			asking.Go(func() { ask(key, 6*time.Millisecond) })
		}
		asking.Wait()
		if calls := w.store.reserves.Load(); calls > 4 {
			t.Errorf("%d calls of the store for %d callers, want 2 of each of 2 workers", calls, callers)
		}

		w.store.stuck.Store(true)
		for n := range 8 { // some of each worker
			asking.Go(func() { _, _ = w.decide(w.t.Context(), of("stuck"+strconv.Itoa(n))) })
		}
		synctest.Wait()
		w.store.stuck.Store(false)
		for key := range callers {
			asking.Go(func() { ask(key, 20*time.Millisecond) })
		}
		asking.Wait()
	})
}

// A caller that has gone leaves nothing behind that others lack.
func TestACallerLeaves(t *testing.T) {
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [1/m], mode: strict}", func(w *world) {
		w.store.stuck.Store(true)
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := w.decide(ctx, of("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want a deadline exceeded", err)
		}
		w.store.stuck.Store(false)
		pass(5 * time.Second)
		w.want(admission.Admit, admission.FromStore, of("x"))
	})
}

// Demands of a policy that has gone are refused; keys of limits that stay keep their counts.
func TestThePolicyChanges(t *testing.T) {
	const one = "  - {name: all, descriptor: [{key: a}], rates: [2/m], mode: strict}\n"
	inWorld(t, one, func(w *world) {
		old := w.authority.Policy()
		w.want(admission.Admit, admission.FromStore, of("x"))
		w.adopt("  - {name: other, descriptor: [{key: b}], rates: [2/m], mode: strict}\n" + one)
		second := replica.Demand{Limit: 1, Key: "x", Cost: 1}
		w.want(admission.Admit, admission.FromStore, second)
		if err := w.replica.Decide(w.t.Context(), old, []replica.Demand{of("x")}, new(replica.Decision)); !errors.Is(err, replica.ErrPolicyChanged) {
			t.Errorf("%v, want %v", err, replica.ErrPolicyChanged)
		}
		if out, _ := w.decide(w.t.Context(), second); out.Verdict != admission.Deny {
			t.Errorf("%v, want a denial: both are spent", out.Verdict)
		}
	})
}

// Under max_wait a request is held until its unit is free.
func TestARequestIsHeld(t *testing.T) {
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [1/s], mode: lease, max_wait: 2s}", func(w *world) {
		began := time.Now()
		for range 2 {
			if out, err := w.decide(w.t.Context(), of("x")); err != nil || out.Verdict != admission.Admit {
				t.Errorf("%v, %v", out.Verdict, err)
			}
		}
		if took := time.Since(began); took < time.Second || took > 1200*time.Millisecond {
			t.Errorf("the second was admitted after %v, want a second", took)
		}
	})
}

// A request that cannot be held until its unit is free, for its caller would not hear of it, is denied at once with its wait, and
// charged nothing: the unit is there for whoever comes then. Nobody waits beyond the caller's deadline, nor ends with an error.
func TestNobodyIsHeldTooLong(t *testing.T) {
	for _, algorithm := range []string{"sliding_log", "sliding_buckets", "token_bucket"} {
		inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [1/4s], mode: lease, max_wait: 5s, algorithm: "+algorithm+"}", func(w *world) {
			within := func(patience time.Duration) (out admission.Output, took time.Duration) {
				w.t.Helper()
				ctx, cancel := context.WithTimeout(w.t.Context(), patience)
				defer cancel()
				began := time.Now()
				out, err := w.decide(ctx, of("x"))
				if err != nil {
					w.t.Errorf("%s, with a deadline in %v: %v", algorithm, patience, err)
				}
				return out, time.Since(began)
			}
			w.want(admission.Admit, admission.FromStore, of("x"))
			for n := range 20 {
				out, took := within(5 * time.Millisecond << (n % 9)) // up to 1.28 s
				if left := 4*time.Second - time.Since(w.began); out.Verdict != admission.Deny || took != 0 || out.RetryAfter < left || out.RetryAfter > left+time.Second/10 {
					w.t.Errorf("%s: %v after %v, retry after %v; want a denial at once, of %v", algorithm, out.Verdict, took, out.RetryAfter, left)
				}
				pass(20 * time.Millisecond)
			}
			if out, took := within(5 * time.Second); out.Verdict != admission.Admit || took < 3*time.Second || took > 4*time.Second {
				w.t.Errorf("%s: %v after %v; want it held until the unit is free", algorithm, out.Verdict, took)
			}
		})
	}
}

// No more are held at once than may be; who comes beyond is denied at once, with its wait.
func TestAsManyAreHeldAsMayBe(t *testing.T) {
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [1/s], max_wait: 5s}", func(w *world) {
		other, stop := w.beside() // two at once: one of each of two workers
		defer stop()
		var admitted, denied atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				began := time.Now()
				var d replica.Decision
				switch err := other.Decide(w.t.Context(), w.authority.Policy(), []replica.Demand{of("x")}, &d); {
				case err != nil:
					w.t.Error(err)
				case d.Verdict == admission.Admit:
					admitted.Add(1)
				case time.Since(began) == 0 && d.RetryAfter > 0:
					denied.Add(1)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if a, d := admitted.Load(), denied.Load(); a != 2 || d != 2 {
			w.t.Errorf("%d admitted, %d denied at once; want one on the spot, one held, and two denied", a, d)
		}
	})
}

// Many callers of a shaped limit with a deadline each are admitted at its rate or denied, and none ends with an error.
func TestCallersOfAShapedLimit(t *testing.T) {
	const callers, lasting = 4, 3 * time.Second
	for _, deadline := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [1/100ms], max_wait: 500ms}", func(w *world) {
			var admitted atomic.Int64
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for time.Since(w.began) < lasting {
						ctx, cancel := w.t.Context(), context.CancelFunc(func() {})
						if deadline > 0 {
							ctx, cancel = context.WithTimeout(ctx, deadline)
						}
						out, err := w.decide(ctx, of("x"))
						cancel()
						switch {
						case err != nil:
							w.t.Errorf("with a deadline of %v: %v", deadline, err)
						case out.Verdict == admission.Admit:
							admitted.Add(1)
						default:
							pass(max(time.Millisecond, out.RetryAfter))
						}
					}
				})
			}
			all.Wait()
			// What is waited for longer than it is free is left unused: with ends of leases that is 2 or 3 of 30.
			if n := admitted.Load(); n < 26 || n > 30+callers+1 {
				w.t.Errorf("with a deadline of %v: %d admitted, want about 30", deadline, n)
			}
		})
	}
}

// A replica that stops gives back what it holds.
func TestStopGivesBack(t *testing.T) {
	var store authority.Store
	var a *authority.Authority
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [1000/m], mode: lease}", func(w *world) {
		for range 3 {
			for range 20 {
				if _, err := w.decide(w.t.Context(), of("x")); err != nil {
					t.Error(err)
				}
			}
			pass(20 * time.Millisecond)
		}
		store, a = w.store, w.authority
		w.replica.Stop()
		l := a.Policy().Limits[0]
		states, err := store.Peek(w.t.Context(), authority.Key{Name: "shop/all/x", Algorithm: l.Algorithm, Rates: l.Rates})
		if err != nil || states[0].Remaining != 1000-60 {
			t.Errorf("%v, %v; want 940 left", states, err)
		}
	})
}

// pass lets the bubble's time pass.
func pass(d time.Duration) { <-time.After(d) }
