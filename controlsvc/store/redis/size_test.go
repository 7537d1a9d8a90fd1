package redis

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/storetest"
	"sluice/shared/limit"
)

// sizing fills a key for some windows.
type sizing struct {
	name  string
	units int64
	// charges are made in a window; with a ttl they are leases, of which one in lost is never settled, where it is not 0.
	charges int
	ttl     time.Duration
	lost    int
	// each is how many bytes a lease may take up that may still be settled.
	each int64
}

// What a key of sliding_buckets takes up in Redis does not depend on its limit: at most 4 kB, its strict charges included, and 64
// B for each lease that may still be settled; more where they are of many digits or hundreds of them are lost.
func TestBucketsSize(t *testing.T) {
	s := open(t, startServer(t).URL())
	for _, c := range []sizing{
		{name: "strict", units: 100, charges: 100},
		{name: "strict", units: 10_000, charges: 1000},
		{name: "strict", units: 1_000_000, charges: 1000},
		{name: "leases", units: 1_000_000, charges: 1000, ttl: time.Second, each: 64},
		{name: "leases", units: limit.MaxUnits, charges: 1000, ttl: time.Second, each: 80},
		{name: "leases, some of them lost", units: 1_000_000, charges: 1000, ttl: time.Second, lost: 5, each: 88},
	} {
		t.Run(fmt.Sprintf("%s of %d", c.name, c.units), func(t *testing.T) {
			empty(t, s)
			c.fill(t, s, s.withClock(t))
		})
	}
}

// fill charges for two windows, and looks at the key's size now and then.
func (c sizing) fill(t *testing.T, s *Store, h storetest.Harness) {
	t.Helper()
	const window = 10 * time.Second
	k := authority.Key{
		Name: "shop/tenant/1234567890", Algorithm: limit.SlidingBuckets, Rates: []limit.Rate{{Units: c.units, Window: window}},
	}
	var leases []string
	var largest, live int64
	for i := range 2 * c.charges {
		h.Advance(window / time.Duration(c.charges))
		r := authority.Reserve{
			Key: k, Call: fmt.Sprintf("%016x.%d", 0xfedcba9876543210+uint64(i%50), 10_000+i), // as long as the authority's
			Part: strconv.FormatUint(uint64(uint32(i*2_654_435_761))|1<<31, 36) + "." + strconv.Itoa(i%10),
			Want: c.units / int64(c.charges), Min: 1, TTL: c.ttl,
		}
		got := reserve(t, h.Store, r)
		if c.ttl > 0 && got.Units > 0 && (c.lost == 0 || i%c.lost > 0) {
			leases = append(leases, got.Lease)
		}
		if len(leases) > c.charges/20 {
			settle := authority.Settle{Key: k, Lease: leases[0], Uses: []authority.Use{{Age: c.ttl / 3, Units: got.Units / 2}}, Unused: got.Units / 4}
			if errs := h.Store.Settle(t.Context(), []authority.Settle{settle}); errs[0] != nil {
				t.Fatal(errs[0])
			}
			leases = leases[1:]
		}
		if i%50 != 0 {
			continue
		}
		var size int64
		keys := s.keysOf(k)
		for _, name := range keys {
			used, err := s.client.MemoryUsage(t.Context(), name).Result()
			if err == nil { // there may be no grants
				size += used
			}
		}
		held, err := s.client.HKeys(t.Context(), keys[1]).Result()
		if err != nil {
			t.Fatal(err)
		}
		names := int64(0)
		for _, name := range held {
			if strings.HasPrefix(name, "l:") {
				names++
			}
		}
		if most := 4096 + c.each*names; size > most {
			t.Errorf("%d B with %d leases out, want at most %d", size, names, most)
		}
		if size > largest {
			largest, live = size, names
		}
	}
	t.Logf("%d B at most, with %d leases out", largest, live)
}
