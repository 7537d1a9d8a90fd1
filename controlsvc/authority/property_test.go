package authority_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/wire"
)

// spend is units that a worker admitted requests with, at an instant of the store's clock.
type spend struct {
	at    instant.Instant
	units int64
}

// counted is the naive count of every key: all that was ever spent.
type counted map[wire.KeyRef][]spend

// inWindow is Σ units spent within (end − window, end].
func (c counted) inWindow(key wire.KeyRef, end instant.Instant, window time.Duration) (sum int64) {
	for _, s := range c[key] {
		if s.at > end.Add(-window) && s.at <= end {
			sum += s.units
		}
	}
	return sum
}

// over gives a key and a window that hold more than their limit; "" where there is none. The fullest windows end at a
// spend.
func (c counted) over(limits map[string][]limit.Rate) string {
	for key, spends := range c {
		for _, rate := range limits[key.Limit] {
			for _, s := range spends {
				if sum := c.inWindow(key, s.at, rate.Window); sum > rate.Units {
					return fmt.Sprintf("%v holds %d within the %v up to %d; the limit is %v", key, sum, rate.Window, s.at-began, rate)
				}
			}
		}
	}
	return ""
}

// free is what a key has left by the naive count.
func (c counted) free(key wire.KeyRef, now instant.Instant, rates []limit.Rate) int64 {
	least := rates[0].Units
	for _, rate := range rates {
		least = min(least, rate.Units-c.inWindow(key, now, rate.Window))
	}
	return least
}

// drawAsks draws the asks of one call: some groups, each of the same requests under some of the limits.
func drawAsks(t *rapid.T, w *world, groups int) []wire.Ask {
	var asks []wire.Ask
	for g := range rapid.IntRange(1, groups).Draw(t, "groups") {
		requests := rapid.Int64Range(1, 6).Draw(t, "requests")
		for i, l := range w.policy.Limits {
			if !rapid.Bool().Draw(t, l.Name) && (i < len(w.policy.Limits)-1 || len(asks) > 0) {
				continue
			}
			key := rapid.SampledFrom([]string{"acme", "zenith"}).Draw(t, "key")
			asks = append(asks, ask(l.Name, key, requests, rapid.Int64Range(1, 3).Draw(t, "cost"), uint32(g+1)))
		}
	}
	return asks
}

func rates(w *world) map[string][]limit.Rate {
	all := make(map[string][]limit.Rate)
	for _, l := range w.policy.Limits {
		all[l.Name] = l.Rates
	}
	return all
}

// take counts what an answer admits, and checks that each group was served as one. It gives back what was granted to the groups
// that are gone, where all of that can be given back.
func take(
	t *rapid.T, w *world, spent counted, asks []wire.Ask, results []wire.AskResult, gone map[uint32]bool,
) (settles []wire.Settle) {
	served := map[uint32]int64{}
	for i, a := range asks {
		if results[i].Units > 0 && results[i].Lease == "" {
			delete(gone, a.Group)
		}
	}
	for i, a := range asks {
		if results[i].Problem != wire.NoProblem && results[i].Units > 0 {
			t.Fatalf("ask %d: a problem and %d units", i, results[i].Units)
		}
		k := results[i].Units / a.Min
		if results[i].Units != k*a.Min || k > int64(a.Waiting) {
			t.Fatalf("ask %d: %d units, for %d requests of %d", i, results[i].Units, a.Waiting, a.Min)
		}
		if before, found := served[a.Group]; found && before != k {
			t.Fatalf("group %d: %d requests have one limit's units, %d another's", a.Group, before, k)
		}
		served[a.Group] = k
		switch {
		case results[i].Units == 0:
		case !gone[a.Group]:
			spent[a.KeyRef] = append(spent[a.KeyRef], spend{w.now, results[i].Units})
		default:
			settles = append(settles, wire.Settle{KeyRef: a.KeyRef, Lease: results[i].Lease, Unused: results[i].Units})
		}
	}
	return settles
}

// Without faults, one group at a time: exactly as many requests are served as the naive count has room for.
func TestGroupIsServedAsFarAsEveryLimitGoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, spent := newWorld(), counted{}
		limits := rates(w)
		for range 150 {
			w.pass(time.Duration(rapid.IntRange(0, 40_000).Draw(t, "µs")) * time.Microsecond)
			asks := drawAsks(t, w, 1)
			want := int64(asks[0].Waiting)
			for _, a := range asks {
				want = min(want, max(0, spent.free(a.KeyRef, w.now, limits[a.Limit]))/a.Min)
			}
			results := w.sync(t, w.request(asks...)).Results
			take(t, w, spent, asks, results, nil)
			for i, a := range asks {
				if got := results[i].Units / a.Min; got != want {
					t.Fatalf("%d requests were served; want %d", got, want)
				}
				// Denials without an own ground stand for no time at all.
				denies := max(0, spent.free(a.KeyRef, w.now, limits[a.Limit])) < a.Min
				if d := results[i]; d.Denied && d.Denial.RetryAfter > 0 && !denies {
					t.Fatalf("ask %d was denied for %v, though there is room", i, d.Denial.RetryAfter)
				}
			}
			if over := spent.over(limits); over != "" {
				t.Fatal(over)
			}
		}
	})
}

// With faults between the service and the store, lost answers, repeats and calls given up: no window is ever over, and when
// all that was owed is paid, what is charged is what was spent.
func TestNoWindowIsOverUnderFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { runFaults(t, false) })
}

// The same where operations may also arrive after their caller has given them up. That may cost capacity.
func TestNoWindowIsOverUnderLateOperations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { runFaults(t, true) })
}

func runFaults(t *rapid.T, tardy bool) {
	w, spent := newWorld(), counted{}
	limits := rates(w)
	exact := !tardy
	loses := rapid.Bool().Draw(t, "calls whose answers or settles cost capacity")
	faults := []fault{refused, lost}
	if tardy {
		faults = append(faults, late)
	}
	rough := rapid.IntRange(0, 40).Draw(t, "percent of faults")
	// Not drawn one by one: they would be most of what is drawn, and a failing run has to stay small.
	chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "faults"), 0))
	faulty := func(string) fault {
		if chance.IntN(100) >= rough {
			return fine
		}
		return faults[chance.IntN(len(faults))]
	}
	var abandoned []wire.Abandoned
	var settles []wire.Settle
	for range 150 {
		w.store.next = faulty
		w.pass(time.Duration(rapid.IntRange(0, 40_000).Draw(t, "µs")) * time.Microsecond)
		request := w.request(drawAsks(t, w, 3)...)
		request.Abandoned, request.Settles = abandoned, settles
		rolledBack := w.observed.rolledBack
		response := w.sync(t, request)
		partial := w.observed.rolledBack > rolledBack // what was settled in part is not cancelled later
		for _, at := range slices.Backward(response.Settled) {
			settles = slices.Delete(slices.Clone(settles), int(at), int(at)+1)
		}
		for _, at := range slices.Backward(response.Abandoned) {
			abandoned = slices.Delete(slices.Clone(abandoned), int(at), int(at)+1)
		}
		repeated := response
		if loses && rapid.IntRange(0, 9).Draw(t, "repeated") == 0 {
			// The call arrives twice; one answer of the two, whichever, reaches the worker.
			exact = false
			repeated = w.sync(t, request)
		}
		gone := map[uint32]bool{uint32(rapid.IntRange(1, 6).Draw(t, "gone")): true, uint32(rapid.IntRange(1, 6).Draw(t, "gone")): true}
		takes := func(results []wire.AskResult) {
			settles = append(slices.Clone(settles), take(t, w, spent, request.Asks, results, gone)...)
		}
		answer := rapid.IntRange(0, 9).Draw(t, "answer")
		if !loses && partial {
			answer = 9
		}
		switch answer {
		case 0, 1: // lost, and the worker gives the call up; it had better not be settled in part
			exact = exact && !partial
			keys := make([]wire.KeyRef, 0, len(request.Asks))
			for _, a := range request.Asks {
				keys = append(keys, a.KeyRef)
			}
			if len(abandoned) < wire.MaxAbandoned {
				abandoned = append(slices.Clone(abandoned), wire.Abandoned{CallID: request.CallID, Keys: keys})
			} else {
				exact = false
			}
		case 2, 3, 4, 5:
			takes(response.Results)
		default:
			takes(repeated.Results)
		}
		if rapid.IntRange(0, 4).Draw(t, "repays") == 0 {
			_ = w.Repay(context.Background())
			w.store.arrive()
		}
		if over := spent.over(limits); over != "" {
			t.Fatal(over)
		}
	}
	settleUp(t, w, abandoned, settles)
	for key := range spent {
		states, err := w.store.Peek(context.Background(), w.key(key.Limit, key.Key))
		if err != nil {
			t.Fatal(err)
		}
		for i, rate := range limits[key.Limit] {
			free := rate.Units - spent.inWindow(key, w.now, rate.Window)
			if left := states[i].Remaining; left > free || exact && left != free {
				t.Fatalf("%v, %v: %d left; by the naive count %d (exactly: %v)", key, rate, left, free, exact)
			}
		}
	}
}

// settleUp pays what is owed on both sides, without faults.
func settleUp(t *rapid.T, w *world, abandoned []wire.Abandoned, settles []wire.Settle) {
	w.store.next = nil
	request := w.request()
	request.Abandoned, request.Settles = abandoned, settles
	if r := w.sync(t, request); len(r.Abandoned) != len(abandoned) || len(r.Settled) != len(settles) {
		t.Fatalf("%d of %d abandoned calls, %d of %d settles acknowledged", len(r.Abandoned), len(abandoned), len(r.Settled), len(settles))
	}
	if err := w.Repay(context.Background()); err != nil || w.Owed() != 0 || w.observed.leaked != 0 {
		t.Fatalf("%d charges owed, %d leaked: %v", w.Owed(), w.observed.leaked, err)
	}
	w.store.arrive()
}
