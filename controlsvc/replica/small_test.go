package replica_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/replica"
	"sluice/controlsvc/store/memory"
	"sluice/shared/admission"
	"sluice/shared/instant"
)

// beside gives another replica of the same store, which knows nothing of what is asked at the first.
func (w *world) beside() (other *replica.Replica, stop func()) {
	now := func() instant.Instant {
		return instant.Instant(1_764_000_000_000_000 + time.Since(w.began).Microseconds())
	}
	a := authority.New(authority.Config{Store: w.store, Now: now, Random: rand.Uint64})
	a.SetPolicy(w.authority.Policy())
	other = replica.New(replica.Config{
		Authority: a, Now: now, Random: rand.Uint64, Logger: slog.New(slog.DiscardHandler), Workers: 2, Timeout: 50 * time.Millisecond,
		MaxHeld: 2,
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { other.Run(ctx, time.After) })
	return other, func() {
		cancel()
		running.Wait()
		other.Stop()
	}
}

// A limit of a few units is never leased ahead of need: whichever replica is asked, and in whichever order, all of its units
// are admitted, each for one operation of the store.
func TestAFewUnitsAreAllAdmitted(t *testing.T) {
	for _, rate := range []string{"5/h", "19/h", "5/m", "10/s"} {
		for _, order := range []string{"ab", "abbbb", "aabb", "b"} {
			for _, gap := range []time.Duration{0, 5 * time.Millisecond, 40 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s %s %v", rate, order, gap), func(t *testing.T) {
					inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: ["+rate+"]}", func(w *world) {
						other, stop := w.beside()
						defer stop()
						most := w.authority.Policy().Limits[0].Rates[0].Units
						for i := range most {
							r := w.replica
							if order[int(i)%len(order)] == 'b' {
								r = other
							}
							var d replica.Decision
							if err := r.Decide(w.t.Context(), w.authority.Policy(), []replica.Demand{of("x")}, &d); err != nil || d.Verdict != admission.Admit {
								t.Errorf("request %d of %d: %v, %v", i+1, most, d.Verdict, err)
								return
							}
							pass(gap)
						}
						out, err := w.decide(w.t.Context(), of("x"))
						if window := w.authority.Policy().Limits[0].Rates[0].Window; err != nil || out.Verdict != admission.Deny || out.RetryAfter > window {
							t.Errorf("one more: %v, %v, retry after %v; want a denial for a window at most", out.Verdict, err, out.RetryAfter)
						}
						pass(2 * time.Second)
						if n := w.store.reserves.Load() + w.store.settles.Load(); n > most+2 {
							t.Errorf("%d operations for %d requests", n, most+1)
						}
					})
				})
			}
		}
	}
}

// Nor does it matter which worker of a replica a request belongs to for the sake of another limit.
func TestAFewUnitsOfAllWorkers(t *testing.T) {
	const limits = "  - {name: ip, descriptor: [{key: ip}], rates: [100/m]}\n  - {name: all, descriptor: [{key: all}], rates: [5/h]}"
	inWorld(t, limits, func(w *world) {
		for i := range 8 {
			out, err := w.decide(w.t.Context(), of(fmt.Sprint("ip", i)), replica.Demand{Limit: 1, Key: "all", Cost: 1})
			if want := i < 5; err != nil || (out.Verdict == admission.Admit) != want {
				t.Errorf("request %d: %v, %v; want admitted: %v", i+1, out.Verdict, err, want)
			}
		}
	})
}

// A request is no sign of another one: the first of a key that nobody has asked for lately is charged by itself.
func TestAFirstRequestIsChargedByItself(t *testing.T) {
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [100/h]}", func(w *world) {
		w.want(admission.Admit, admission.FromStore, of("x"))
		pass(3 * time.Second)
		w.want(admission.Admit, admission.FromStore, of("x"))
		pass(3 * time.Second)
		if n := w.store.reserves.Load() + w.store.settles.Load(); n != 2 {
			t.Errorf("%d operations for two requests", n)
		}
	})
}

// What is denied by units that another one holds may pass as soon as they come back: who is denied is told to come again, and
// not when the lease would have left the window.
func TestADenialByLeasesThatMayComeBack(t *testing.T) {
	inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: [100/h]}", func(w *world) {
		other, stop := w.beside()
		defer stop()
		for range 40 {
			if out, err := w.decide(w.t.Context(), of("x")); err != nil || out.Verdict != admission.Admit {
				t.Errorf("%v, %v", out.Verdict, err)
			}
		}
		at := func() replica.Decision {
			var d replica.Decision
			if err := other.Decide(w.t.Context(), w.authority.Policy(), []replica.Demand{of("x")}, &d); err != nil {
				t.Error(err)
			}
			return d
		}
		admitted := 40
		d := at()
		for ; d.Verdict == admission.Admit; d = at() {
			admitted++
		}
		if admitted == 100 {
			t.Error("want some of the units leased at the other one")
		}
		if d.RetryAfter <= 0 || d.RetryAfter > time.Second {
			t.Errorf("after %d: retry after %v, though units may come back", admitted, d.RetryAfter)
		}
		if again := at(); again.Source != admission.FromDenial || again.RetryAfter <= 0 || again.RetryAfter > d.RetryAfter {
			t.Errorf("%v from %v, retry after %v; want as before", again.Verdict, again.Source, again.RetryAfter)
		}
		for time.Since(w.began) < 10*time.Second && d.RetryAfter <= time.Second {
			pass(d.RetryAfter)
			for d = at(); d.Verdict == admission.Admit; d = at() {
				admitted++
			}
		}
		if admitted != 100 {
			t.Errorf("%d admitted, want all", admitted)
		}
		if d.RetryAfter < 59*time.Minute {
			t.Errorf("retry after %v, and nothing can come back", d.RetryAfter)
		}
	})
}

// A token bucket is full at first: of its burst leases cost one unit in 20 at most, and none where it is small, though they may
// last until one in 10 had flowed in: they are spent and settled before that. The last units may wait for those that make a batch
// with them.
func TestABucketGivesItsBurst(t *testing.T) {
	for _, c := range []struct {
		rate  string
		burst int64
	}{{"10/s", 10}, {"10/s", 20}, {"20/s", 31}, {"20/s", 40}, {"100/s", 100}, {"100/m", 100}, {"1000/h", 200}, {"1000/s", 1000}} {
		for _, gap := range []time.Duration{0, 100 * time.Microsecond, time.Millisecond} {
			t.Run(fmt.Sprintf("%s burst %d every %v", c.rate, c.burst, gap), func(t *testing.T) {
				limits := fmt.Sprintf("  - {name: all, descriptor: [{key: a}], rates: [%s], burst: %d, algorithm: token_bucket}", c.rate, c.burst)
				inWorld(t, limits, func(w *world) {
					admitted := int64(0)
					for range c.burst {
						out, err := w.decide(w.t.Context(), of("x"))
						if err != nil {
							t.Error(err)
						}
						if out.Verdict == admission.Admit {
							admitted++
						}
						pass(gap)
					}
					least := c.burst
					if c.burst >= 40 {
						least -= c.burst / 20
					}
					if units := w.authority.Policy().Limits[0].Rates[0].Units; units >= 20 {
						batch := max(1+units/30, 2)
						least -= batch - 1
					}
					if admitted < least {
						t.Errorf("%d admitted, want %d", admitted, least)
					}
				})
			})
		}
	}
}

// In a memory that is full each new key takes the place of another one, and nothing else does.
func TestAFullMemoryStaysFull(t *testing.T) {
	const most, keys = 1000, 3000 // most is the world's
	for _, rate := range []string{"5/h", "100/h", "1000/m"} {
		inWorld(t, "  - {name: all, descriptor: [{key: a}], rates: ["+rate+"]}", func(w *world) {
			for i := range keys {
				w.want(admission.Admit, admission.FromStore, of(fmt.Sprint("x", i)))
				pass(20 * time.Microsecond)
			}
			pass(5 * time.Second)
			m, _ := w.store.Store.(*memory.Store)
			if m.Len() != most || m.Evicted() != keys-most {
				t.Errorf("%s: %d keys, %d evicted; want %d and %d", rate, m.Len(), m.Evicted(), most, keys-most)
			}
		})
	}
}

// What a replica says of what it knows itself is what another one is told by the store.
func TestReplicasTellTheSame(t *testing.T) {
	for limits, costs := range map[string][]int64{
		"rates: [10/24h], algorithm: sliding_buckets":     {10, 1, 3},
		"rates: [2000/24h], mode: strict":                 {2000, 1},
		"rates: ['10/s', '12/m'], mode: strict":           {10, 3, 2},
		"rates: ['10/s', '12/m'], algorithm: sliding_log": {10, 3, 2},
	} {
		inWorld(t, "  - {name: all, descriptor: [{key: a}], "+limits+"}", func(w *world) {
			pass(1234567 * time.Microsecond)
			other, stop := w.beside()
			defer stop()
			for i, cost := range costs {
				var told [2]replica.Decision
				for n, r := range []*replica.Replica{w.replica, other} {
					if n == 1 && i == 0 {
						continue // that one admits
					}
					if err := r.Decide(w.t.Context(), w.authority.Policy(), []replica.Demand{{Key: "x", Cost: cost}}, &told[n]); err != nil {
						w.t.Error(err)
					}
				}
				a, b := told[0].Output, told[1].Output
				if i > 0 && (a.Verdict != b.Verdict || a.Rate != b.Rate || a.Remaining != b.Remaining || a.Reset != b.Reset || a.RetryAfter != b.RetryAfter) {
					w.t.Errorf("%s, cost %d: %+v and %+v", limits, cost, a, b)
				}
			}
		})
	}
}
