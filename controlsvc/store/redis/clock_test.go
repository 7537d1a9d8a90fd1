package redis

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/testharness/oracle"
	"sluice/testharness/pace"
)

// The script as it is shipped, on Redis' own clock, judged by what its clients see: no window is ever over, nearly all that
// there was is granted, and who comes when retry-after says is not denied.
func TestRealTime(t *testing.T) {
	s := open(t, startServer(t).URL())
	pace.Try(t, func(p *pace.Trial) { realTime(p, s) })
}

func realTime(p *pace.Trial, s *Store) {
	p.Helper()
	t := p.T
	const clients, most, lasts = 8, 50, 1500 * time.Millisecond
	k := testKey(p.Name, "50/100ms")
	window := k.Rates[0].Window
	start := time.Now()
	var mu sync.Mutex
	var admitted []oracle.Interval
	var units int64
	early := 0
	var wait sync.WaitGroup
	for client := range clients {
		wait.Go(func() {
			timer := time.NewTimer(0)
			for i := 0; time.Since(start) < lasts; i++ {
				left := time.Since(start)
				out := s.Reserve(t.Context(), []authority.Reserve{{Key: k, Call: fmt.Sprintf("%d-%d", client, i), Want: 1, Min: 1}})[0]
				answered := time.Since(start)
				switch {
				case out.Err != nil:
					t.Error(out.Err)
					return
				case out.Units == 1:
					mu.Lock()
					admitted = append(admitted, oracle.Interval{Left: left, Answered: answered, Units: 1})
					units++
					mu.Unlock()
				case out.Denial.RetryAfter <= 0 || out.Denial.RetryAfter > window || out.Denial.DenyFor != out.Denial.RetryAfter:
					mu.Lock()
					early++
					mu.Unlock()
				default:
					timer.Reset(out.Denial.RetryAfter)
					<-timer.C
				}
			}
		})
	}
	wait.Wait()
	if worst := oracle.WorstWindow(admitted, window); worst > most {
		t.Errorf("%d were admitted within one window of %d", worst, most)
	}
	if early > 0 {
		t.Errorf("%d denials had no sensible retry-after", early)
	}
	if possible := int64(most * (lasts / window)); units < possible*8/10 {
		p.Shortf("%d were admitted of %d", units, possible)
	}
}

// What nobody charges any more disappears by itself.
func TestKeysDisappear(t *testing.T) {
	t.Parallel()
	s := open(t, startServer(t).URL())
	k := testKey("short", "10/1ms", "10/20ms")
	lease := reserve(t, s, authority.Reserve{Key: k, Call: "a", Want: 4, Min: 1, TTL: 5 * time.Millisecond})
	if errs := s.Settle(t.Context(), []authority.Settle{{Key: k, Lease: lease.Lease, Uses: []authority.Use{{Units: 4}}}}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	if _, err := s.Connected(t.Context(), "shop", 1, 5*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	count := func() int64 {
		n, err := s.client.DBSize(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if count() == 0 {
		t.Fatal("nothing was stored")
	}
	waitFor(t, "the keys to expire", func() bool { return count() == 0 })
}

// Charges that come after all have been given back expire too, though what was given back would have lived for longer.
func TestNothingStays(t *testing.T) {
	s := open(t, startServer(t).URL())
	k := testKey("given back", "10/1m")
	lease := reserve(t, s, authority.Reserve{Key: k, Call: "a", Want: 4, Min: 1, TTL: 10 * time.Second})
	if errs := s.Settle(t.Context(), []authority.Settle{{Key: k, Lease: lease.Lease, Unused: 4}}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	reserve(t, s, authority.Reserve{Key: k, Call: "b", Want: 1, Min: 1})
	for _, name := range s.keysOf(k) {
		if life, err := s.client.PTTL(t.Context(), name).Result(); err != nil || life <= k.Rates[0].Window {
			t.Errorf("%s lives for %v, %v", name, life, err)
		}
	}
}

func BenchmarkReserve(b *testing.B) {
	s := open(b, startServer(b).URL())
	for _, bench := range []struct {
		name   string
		units  int64
		ttl    time.Duration
		charge int // reserves in one pipeline
	}{
		{"strict of 1", 1, 0, 1},
		{"lease of 1", 1, 10 * time.Millisecond, 1},
		{"lease of 1000", 1000, 10 * time.Millisecond, 1},
		{"strict of 1, 100 at once", 1, 0, 100},
		{"denied", 0, 0, 1},
	} {
		b.Run(bench.name, func(b *testing.B) {
			k := testKey("bench/"+bench.name, "1000000000/1s")
			want := bench.units
			if bench.units == 0 {
				k.Rates[0].Units, want = 1, 1
			}
			reserves := make([]authority.Reserve, bench.charge)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for j := range reserves {
					reserves[j] = authority.Reserve{Key: k, Call: fmt.Sprintf("%d-%d", i, j), Want: want, Min: 1, TTL: bench.ttl}
				}
				for _, out := range s.Reserve(b.Context(), reserves) {
					if out.Err != nil {
						b.Fatal(out.Err)
					}
				}
			}
		})
	}
}
