package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/limit"
)

func (h Harness) inspect(t *testing.T, key authority.Key, units int64) authority.Inspection {
	t.Helper()
	out, err := h.Store.Inspect(context.Background(), key, units)
	if err != nil {
		t.Fatalf("inspect: %v", err)
	}
	if len(out.Rates) != len(key.Rates) {
		t.Fatalf("%d rates told of %d", len(out.Rates), len(key.Rates))
	}
	return out
}

// testInspect: it tells what was charged, which leases are out, and when units are free: to the microsecond what a reserve of
// them would be told.
func testInspect(t *testing.T, h Harness) {
	t.Helper()
	k := h.key("inspected", "10/100s", "100/1000s")
	if got := h.inspect(t, k, 1); got.Rates[0].Used != 0 || got.Rates[1].Remaining != 100 || got.Rates[0].FreeIn != 0 || len(got.Leases) != 0 {
		t.Errorf("of nothing: %+v", got)
	}
	h.reserve(t, authority.Reserve{Key: k, Call: "1f.1", Want: 3, Min: 3})
	lease := h.reserve(t, authority.Reserve{Key: k, Call: "2f.7", Want: 4, Min: 4, TTL: 40 * sec})
	gone := h.reserve(t, authority.Reserve{Key: k, Call: "2f.8", Want: 1, Min: 1, TTL: 20 * sec})
	h.settle(t, authority.Settle{Key: k, Lease: gone.Lease, Uses: []authority.Use{used(0, 1)}})
	got := h.inspect(t, k, 3)
	lasts := int64(0)
	if h.expected.flows {
		lasts = 6 // what would flow in while the leases last
	}
	if first := got.Rates[0]; first.Rate != k.Rates[0] || first.Used < 8 || first.Used > 8+lasts || first.Remaining != max(0, 10-first.Used) || first.Never {
		t.Errorf("of 8 charged of 10: %+v", first)
	}
	if !h.expected.flows {
		if len(got.Leases) != 1 || got.Leases[0].Lease != lease.Lease || got.Leases[0].Call != "2f.7" || got.Leases[0].Units != 4 {
			t.Fatalf("leases out: %+v; want %s", got.Leases, lease.Lease)
		}
		// Buckets round up; the windows of the others cut a lease short, which the reserve has said.
		if late := got.Leases[0].EndIn - lease.EndIn; h.exact() && (late < 0 || late > 100*sec/64 || got.Leases[0].Age < 0 || got.Leases[0].Age > 5*time.Microsecond) {
			t.Errorf("lease that ends in %v: %+v", lease.EndIn, got.Leases[0])
		}
	}
	if got := h.inspect(t, k, 11); !got.Rates[0].Never || got.Rates[1].Never {
		t.Errorf("11 of 10 and of 100: %+v", got.Rates)
	}
	h.sameAsReserve(t, k, 3)
	if h.exact() {
		h.Advance(30 * sec)
		h.sameAsReserve(t, k, 9)
		h.Advance(10*sec + 8*sec) // a bucket of the longer window
		if got := h.inspect(t, k, 1); len(got.Leases) != 0 {
			t.Errorf("leases that have ended: %+v", got.Leases)
		}
	}
	testManyLeases(t, h)
	for name, units := range map[string]int64{"none": 0, "too many": limit.MaxUnits + 1} {
		if _, err := h.Store.Inspect(context.Background(), k, units); err == nil || errors.Is(err, authority.ErrUnavailable) {
			t.Errorf("inspecting for %s: %v", name, err)
		}
	}
}

// sameAsReserve compares when units are free with what a strict reserve of them is told.
func (h Harness) sameAsReserve(t *testing.T, k authority.Key, units int64) {
	t.Helper()
	var latest time.Duration
	for _, r := range h.inspect(t, k, units).Rates {
		latest = max(latest, r.FreeIn)
	}
	reserved := h.reserve(t, authority.Reserve{Key: k, Call: "ff.1", Want: units, Min: units})
	if !reserved.Denied {
		t.Fatalf("%d units are free: the test tests nothing", units)
	}
	if diff := latest - reserved.Denial.RetryAfter; h.exact() && diff != 0 || diff > sec || diff < -sec {
		t.Errorf("%d units are free in %v, and a reserve is told in %v", units, latest, reserved.Denial.RetryAfter)
	}
}

// testManyLeases: no more are told than the bound.
func testManyLeases(t *testing.T, h Harness) {
	t.Helper()
	k := h.key("inspected/many", "1000000/100s")
	for i := range authority.MaxLeasesTold + 20 {
		h.reserve(t, authority.Reserve{Key: k, Call: fmt.Sprintf("%x.1", i), Want: 2, Min: 2, TTL: 10*sec + time.Duration(i)*time.Millisecond})
	}
	if got, want := len(h.inspect(t, k, 1).Leases), authority.MaxLeasesTold; got != want && !h.expected.flows {
		t.Errorf("%d leases are told, want %d", got, want)
	}
}
