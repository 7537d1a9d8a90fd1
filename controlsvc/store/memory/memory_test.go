package memory_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/controlsvc/store/storetest"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// clock is a clock that stands still until it is told.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.now.Store(storetest.Start.Microseconds())
	return c
}

func (c *clock) read() instant.Instant   { return instant.Instant(c.now.Load()) }
func (c *clock) advance(d time.Duration) { c.now.Add(d.Microseconds()) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		t.Helper()
		c := newClock()
		s := memory.New(c.read, 10_000)
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		return storetest.Harness{Store: s, Advance: c.advance, Entries: s.Entries}
	})
}

func reserveOne(t *testing.T, s *memory.Store, name string, units int64, ttl time.Duration) authority.Reserved {
	t.Helper()
	out := s.Reserve(t.Context(), []authority.Reserve{{
		Key:  authority.Key{Name: name, Algorithm: limit.SlidingLog, Rates: []limit.Rate{{Units: 100_000, Window: time.Minute}}},
		Call: "call", Want: units, Min: 1, TTL: ttl,
	}})
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	return out[0]
}

// A key beyond the bound takes the place of an expired one, else of the one whose use is longest ago.
func TestEviction(t *testing.T) {
	c := newClock()
	s := memory.New(c.read, 3)
	reserveOne(t, s, "short", 1, 0)
	c.advance(time.Second)
	reserveOne(t, s, "long", 1, time.Minute)
	c.advance(58 * time.Second)
	reserveOne(t, s, "middle", 1, 0)
	reserveOne(t, s, "short", 1, 0)
	c.advance(2 * time.Second) // all are alive: short once more, long by its lease
	reserveOne(t, s, "new", 1, 0)
	if s.Len() != 3 || s.Evicted() != 1 {
		t.Errorf("%d keys, %d evicted; want 3, 1", s.Len(), s.Evicted())
	}
	if got := reserveOne(t, s, "short", 1, 0).State.Remaining; got != 100_000-2 {
		t.Errorf("short, used later than long, has %d left", got)
	}
	c.advance(59 * time.Second) // the first charge of short and middle have gone
	reserveOne(t, s, "newest", 1, 0)
	if s.Evicted() != 1 {
		t.Errorf("%d were evicted though one had expired", s.Evicted())
	}
}

// What has expired goes by itself, with the operations that come.
func TestNothingStays(t *testing.T) {
	c := newClock()
	s := memory.New(c.read, 100_000)
	for i := range 50_000 {
		reserveOne(t, s, strconv.Itoa(i%10_000), 1, time.Second)
	}
	if s.Len() != 10_000 {
		t.Fatalf("%d keys of 10,000", s.Len())
	}
	c.advance(2 * time.Minute)
	for i := range 10_000 {
		reserveOne(t, s, strconv.Itoa(i), 1, time.Second)
		c.advance(10 * time.Millisecond)
	}
	if s.Len() > 6200 { // a minute's worth, and the lease's second
		t.Errorf("%d keys are still there", s.Len())
	}
	if s.Evicted() != 0 {
		t.Errorf("%d were evicted", s.Evicted())
	}
}

func BenchmarkReserve(b *testing.B) {
	for _, bench := range []struct {
		name  string
		units int64
		ttl   time.Duration
	}{{"strict of 1", 1, 0}, {"lease of 1", 1, 10 * time.Millisecond}, {"lease of 1000", 1000, 10 * time.Millisecond}} {
		b.Run(bench.name, func(b *testing.B) {
			c := newClock()
			s := memory.New(c.read, 1000)
			reserves := []authority.Reserve{{
				Key:  authority.Key{Name: "key", Algorithm: limit.SlidingLog, Rates: []limit.Rate{{Units: 100_000 * bench.units, Window: time.Second}}},
				Call: "call", Want: bench.units, Min: 1, TTL: bench.ttl,
			}}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.advance(10 * time.Microsecond) // 100,000 charges within the window
				reserves[0].Call = strconv.Itoa(i)
				s.Reserve(b.Context(), reserves)
			}
		})
	}
}

// Only what is charged takes a key's place: a new key of which nothing comes evicts none.
func TestNothingIsEvictedForNothing(t *testing.T) {
	for _, algorithm := range []limit.Algorithm{
		limit.SlidingLog, limit.SlidingBuckets, limit.SlidingWindowCounter, limit.FixedWindow, limit.TokenBucket,
	} {
		t.Run(algorithm.String(), func(t *testing.T) {
			c := newClock()
			s := memory.New(c.read, 3)
			key := func(name string, units int64) authority.Key {
				return authority.Key{Name: name, Algorithm: algorithm, Rates: []limit.Rate{{Units: units, Window: time.Minute}}}
			}
			for i := range 3 {
				s.Reserve(t.Context(), []authority.Reserve{{Key: key(strconv.Itoa(i), 5), Call: "call", Want: 1, Min: 1}})
			}
			s.Reserve(t.Context(), []authority.Reserve{
				{Key: key("more than it holds", 5), Call: "call", Want: 6, Min: 6},
				{Key: key("nobody's", 0), Call: "call", Want: 1, Min: 1},
			})
			s.Record(t.Context(), []authority.Record{
				{Key: key("nothing", 5), Call: "call"},
				{Key: key("long ago", 5), Call: "call", Uses: []authority.Use{{Age: 3 * time.Minute, Units: 1}}},
			})
			if s.Len() != 3 || s.Evicted() != 0 {
				t.Errorf("%d keys, %d evicted; want 3, 0", s.Len(), s.Evicted())
			}
			s.Reserve(t.Context(), []authority.Reserve{{Key: key("new", 5), Call: "call", Want: 1, Min: 1}})
			if s.Len() != 3 || s.Evicted() != 1 {
				t.Errorf("%d keys, %d evicted; want 3, 1", s.Len(), s.Evicted())
			}
		})
	}
}

// A charge is looked for among all of a key's that have a name.
func BenchmarkCancel(b *testing.B) {
	for _, charges := range []int{10, 1000, 100_000} {
		b.Run(strconv.Itoa(charges)+" charges", func(b *testing.B) {
			c := newClock()
			s := memory.New(c.read, 1000)
			k := authority.Key{Name: "key", Algorithm: limit.SlidingLog, Rates: []limit.Rate{{Units: 1 << 20, Window: time.Hour}}}
			charge := func(i int) {
				c.advance(10 * time.Microsecond)
				s.Reserve(b.Context(), []authority.Reserve{{Key: k, Call: strconv.Itoa(i), Want: 1, Min: 1}})
			}
			for i := range charges {
				charge(i)
			}
			for i := charges; b.Loop(); i++ {
				charge(i)
				s.Cancel(b.Context(), []authority.Cancel{{Key: k, Call: strconv.Itoa(i)}})
			}
		})
	}
}
