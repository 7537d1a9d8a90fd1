package storetest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/controlsvc/authority"
)

// scenario is a story of one key, told step by step.
type scenario struct {
	name  string
	rates []string
	burst int64 // of each rate; 0: none
	// clocked stories depend on when they begin, which is Start.
	clocked bool
	steps   []step
}

// step is one operation at an instant since the scenario's start, and what it must give.
type step struct {
	at time.Duration
	do operation
	// want is what a reserve or a peek must give; the others give nothing but an error, which is never wanted.
	want want
	// rates, where there are any, replace the scenario's from here on: the policy has changed.
	rates []string
	// burst, where there is any, replaces the scenario's from here on.
	burst int64
}

// want is an answer. remaining and reset are the reported rate's; rate is its place among the rates.
type want struct {
	units           int64
	start, end      time.Duration
	denied, never   bool
	retry, denyFor  time.Duration
	remaining       int64
	reset           time.Duration
	rate            int
	remainingOfRate []int64 // of a peek, each rate's
}

// operation runs on the scenario's key. leases has those of the reserves before, by call; the second of a call is call#2.
type operation func(t *testing.T, h Harness, k authority.Key, leases map[string]string) *want

// strict reserves units to be spent at once.
func strict(call string, most, least int64) operation { return lease(call, most, least, 0, 0) }

// lease reserves units to be spent within ttl, from a start within horizon.
func lease(call string, most, least int64, ttl, horizon time.Duration) operation {
	return func(t *testing.T, h Harness, k authority.Key, leases map[string]string) *want {
		t.Helper()
		r := h.reserve(t, authority.Reserve{Key: k, Call: call, Want: most, Min: least, TTL: ttl, Horizon: horizon})
		if (r.Lease != "") != (r.Units > 0) {
			t.Errorf("lease %q of %d units", r.Lease, r.Units)
		}
		if r.Units > 0 {
			name := call
			for n := 2; leases[name] != ""; n++ {
				name = call + "#" + strconv.Itoa(n)
			}
			leases[name] = r.Lease
		}
		got := &want{
			units: r.Units, start: r.StartIn, end: r.EndIn, denied: r.Denied, never: r.Denial.Never,
			retry: r.Denial.RetryAfter, denyFor: r.Denial.DenyFor, remaining: r.State.Remaining, reset: r.State.Reset, rate: -1,
		}
		for i, rate := range k.Rates {
			if r.State.Rate == rate && got.rate < 0 {
				got.rate = i
			}
		}
		return got
	}
}

func used(age time.Duration, units int64) authority.Use { return authority.Use{Age: age, Units: units} }

// settle reports a lease.
func settle(call string, unused int64, uses ...authority.Use) operation {
	return func(t *testing.T, h Harness, k authority.Key, leases map[string]string) *want {
		t.Helper()
		h.settle(t, authority.Settle{Key: k, Lease: leases[call], Uses: uses, Unused: unused})
		return nil
	}
}

func cancel(call string) operation {
	return func(t *testing.T, h Harness, k authority.Key, _ map[string]string) *want {
		t.Helper()
		h.cancel(t, authority.Cancel{Key: k, Call: call})
		return nil
	}
}

// partly reserves strictly for a part of its call.
func partly(part, call string, most int64) operation {
	return func(t *testing.T, h Harness, k authority.Key, _ map[string]string) *want {
		t.Helper()
		if r := h.reserve(t, authority.Reserve{Key: k, Call: call, Part: part, Want: most, Min: 1}); r.Units != most {
			t.Errorf("part %q of call %q: %d units granted of %d", part, call, r.Units, most)
		}
		return nil
	}
}

// cancelPart cancels what one part of a call was granted.
func cancelPart(part, call string) operation {
	return func(t *testing.T, h Harness, k authority.Key, _ map[string]string) *want {
		t.Helper()
		h.cancel(t, authority.Cancel{Key: k, Call: call, Part: part})
		return nil
	}
}

func record(call string, uses ...authority.Use) operation {
	return func(t *testing.T, h Harness, k authority.Key, _ map[string]string) *want {
		t.Helper()
		h.record(t, authority.Record{Key: k, Call: call, Uses: uses})
		return nil
	}
}

func peek() operation {
	return func(t *testing.T, h Harness, k authority.Key, _ map[string]string) *want {
		t.Helper()
		got := &want{}
		for i, s := range h.peek(t, k) {
			if s.Rate != k.Rates[i] {
				t.Errorf("state of %v in the place of %v", s.Rate, k.Rates[i])
			}
			got.remainingOfRate = append(got.remainingOfRate, s.Remaining)
			got.reset = max(got.reset, s.Reset)
		}
		return got
	}
}

func reset() operation {
	return func(t *testing.T, h Harness, k authority.Key, _ map[string]string) *want {
		t.Helper()
		if err := h.Store.Reset(context.Background(), k); err != nil {
			t.Fatalf("reset: %v", err)
		}
		return nil
	}
}

// run plays the scenario. On a real clock it ends where time would have to pass.
func (s scenario) run(t *testing.T, h Harness) {
	t.Helper()
	if s.clocked && !h.needsClock(t) {
		return
	}
	k := h.keyWith(s.burst, s.name, s.rates...)
	leases := map[string]string{}
	var now time.Duration
	for i, step := range s.steps {
		if step.at != now {
			if !h.exact() {
				t.Logf("this store's clock is real: the last %d steps are left out", len(s.steps)-i)
				return
			}
			h.Advance(step.at - now)
			now = step.at
		}
		if step.rates != nil {
			k = h.keyWith(s.burst, s.name, step.rates...)
		}
		if step.burst != 0 {
			k = h.keyWith(step.burst, s.name, s.rates...)
		}
		got := step.do(t, h, k, leases)
		if got == nil {
			continue
		}
		wanted := step.want
		if !h.exact() {
			got.withoutDurations()
			wanted.withoutDurations()
		}
		if diff := cmp.Diff(wanted, *got, cmp.AllowUnexported(want{})); diff != "" {
			t.Fatalf("step %d, at %v (-want +got):\n%s", i, step.at, diff)
		}
	}
}

func (w *want) withoutDurations() {
	w.start, w.end, w.retry, w.denyFor, w.reset = 0, 0, 0, 0, 0
}
