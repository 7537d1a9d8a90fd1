package redis

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/storetest"
	"sluice/shared/limit"
)

// sizing fills a key for two windows of 10 s.
type sizing struct {
	name  string
	units int64
	// charges are made in a window; with a ttl they are leases. Of so many as lost all but one are never settled; 0: none is
	// lost. The others are settled when more are out than pending.
	charges int
	ttl     time.Duration
	lost    int
	pending int
	// burst has all charges of a window made at its beginning.
	burst bool
	// strict is made besides each lease: of one unit.
	strict bool
}

// What a key of sliding_buckets takes up in Redis does not depend on its limit: at most 4 kB, its strict charges included, and 64
// B for each lease that may still be settled, however many there are.
func TestBucketsSize(t *testing.T) {
	s := open(t, startServer(t).URL())
	const most = limit.MaxUnits
	cases := []sizing{
		{name: "leases that are settled", units: 1_000_000, charges: 200, ttl: time.Second, pending: 15},
		{name: "leases that are settled", units: most, charges: 200, ttl: time.Second, pending: 15},
		{name: "long leases", units: most, charges: 300, ttl: 5 * time.Second, pending: 200},
		{name: "long leases, and strict charges", units: most, charges: 300, ttl: 5 * time.Second, pending: 10, strict: true},
		{name: "half of the leases lost", units: most, charges: 400, ttl: 5 * time.Second, pending: 20, lost: 2, strict: true},
		{name: "most leases lost", units: most, charges: 500, ttl: time.Second, pending: 20, lost: 10},
		{name: "most leases lost in a burst", units: most, charges: 500, ttl: time.Second, pending: 20, lost: 10, burst: true},
	}
	for _, units := range []int64{1, 100, 10_000, 1_000_000, 1_000_000_000, most} {
		cases = append(cases, sizing{name: "strict", units: units, charges: int(min(units, 500))})
	}
	for _, lost := range []int{1, 10, 128, 129, 500} {
		cases = append(cases, sizing{name: fmt.Sprintf("%d leases lost", lost), units: most, charges: lost, ttl: time.Second, lost: 2 * lost, strict: true})
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s of %d", c.name, c.units), func(t *testing.T) {
			empty(t, s)
			c.fill(t, s, s.withClock(t))
		})
	}
}

// out is a lease that may still be settled, by this test's own account.
type out struct {
	name  string
	units int64
	until time.Duration
}

// fill charges for two windows, and looks at the key's size now and then.
func (c sizing) fill(t *testing.T, s *Store, h storetest.Harness) {
	t.Helper()
	const window, looks, perCharge = 10 * time.Second, 40, 2
	k := authority.Key{
		Name: "shop/tenant/1234567890", Algorithm: limit.SlidingBuckets, Rates: []limit.Rate{{Units: c.units, Window: window}},
	}
	var leases, lost []out
	var now time.Duration
	var fullest, largest int64
	live, most := 0, 0
	for i := range 2 * c.charges {
		step := window / time.Duration(c.charges)
		if c.burst {
			step = window / 1000
		}
		h.Advance(step)
		now += step
		r := authority.Reserve{
			Key: k, Call: authority.ReplicaCall(0xfedcba9876543210+uint64(i%50), 1_000_000_000+uint64(i)), // no name is longer
			Part: strconv.FormatUint(uint64(uint32(i*2_654_435_761))|1<<31, 36) + "." + strconv.Itoa(100+i%10),
			Want: max(c.units/int64(c.charges)/perCharge, 1), Min: 1, TTL: c.ttl,
		}
		reserves := []authority.Reserve{r}
		if c.strict {
			r.TTL, r.Want = 0, 1
			reserves = append(reserves, r)
		}
		got := h.Store.Reserve(t.Context(), reserves)[0]
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		if one := (out{got.Lease, got.Units, now + got.EndIn + window + window/100}); c.ttl > 0 && got.Units > 0 {
			if c.lost > 0 && i%c.lost > 0 {
				lost = append(lost, one)
			} else {
				leases = append(leases, one)
			}
		}
		if len(leases) > c.pending {
			settle := authority.Settle{Key: k, Lease: leases[0].name, Uses: []authority.Use{{Age: c.ttl / 3, Units: leases[0].units / 2}}, Unused: 1}
			if errs := h.Store.Settle(t.Context(), []authority.Settle{settle}); errs[0] != nil {
				t.Fatal(errs[0])
			}
			leases = leases[1:]
		}
		gone := func(o out) bool { return o.until <= now }
		leases, lost = slices.DeleteFunc(leases, gone), slices.DeleteFunc(lost, gone)
		if i%max(c.charges/looks, 1) > 0 {
			continue
		}
		size := s.bytes(t, k)
		n := len(leases) + len(lost)
		most = max(most, n)
		if base := size - 64*int64(n); base > fullest {
			fullest, largest, live = base, size, n
		}
	}
	if fullest > 4096 {
		t.Errorf("%d B with %d leases out, want at most %d", largest, live, 4096+64*live)
	}
	if c.lost > c.charges && most < c.charges {
		t.Errorf("at most %d leases were out at once, want %d", most, c.charges)
	}
	t.Logf("%d B with %d leases out: %d B and 64 for each; at most %d were out", largest, live, fullest, most)
}

// bytes gives what a key takes up in Redis.
func (s *Store) bytes(t *testing.T, k authority.Key) (sum int64) {
	t.Helper()
	for _, name := range s.keysOf(k) {
		used, err := s.client.MemoryUsage(t.Context(), name, 0).Result() // of all fields, not of some
		if err == nil {                                                  // a key may have no grants
			sum += used
		}
	}
	return sum
}
