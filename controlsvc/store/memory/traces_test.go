package memory_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/shared/limit"
	"sluice/testharness/oracle"
)

// trace is requests at instants of a clock, for windows of one key.
type trace struct {
	rate     limit.Rate
	requests []request
}

type request struct {
	at   time.Duration
	cost int64
}

// drawTrace gives some windows' worth of requests: a steady stream or bursts, from half of what the limit admits to five
// times as much.
func drawTrace(r *rand.Rand) trace {
	t := trace{rate: limit.Rate{
		Units:  int64(1 + r.IntN([]int{10, 60, 60, 400}[r.IntN(4)])),
		Window: []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, time.Minute}[r.IntN(4)],
	}}
	const windows = 3
	load := []float64{0.5, 0.9, 1, 1.5, 5}[r.IntN(5)]
	burst := []int{1, 1, 1, 1 + r.IntN(int(t.rate.Units))}[r.IntN(4)]
	dear := r.IntN(4) == 0
	mean := float64(t.rate.Window) / (load * float64(t.rate.Units)) * float64(burst)
	for at := time.Duration(0); at < windows*t.rate.Window; {
		at += time.Duration(-math.Log(1-r.Float64()) * mean).Truncate(time.Microsecond)
		for range burst {
			cost := int64(1)
			if dear {
				cost = min(t.rate.Units, int64(1+r.IntN(3)))
			}
			t.requests = append(t.requests, request{at, cost})
		}
	}
	return t
}

// play gives the units that an algorithm admits of a trace, and the most of them within one window.
func (tr trace) play(t *testing.T, s *memory.Store, c *clock, algorithm limit.Algorithm, name string) (admitted, worst int64) {
	t.Helper()
	k := authority.Key{Name: name, Algorithm: algorithm, Rates: []limit.Rate{tr.rate}}
	var all []oracle.Interval
	var now time.Duration
	for i, r := range tr.requests {
		c.advance(r.at - now)
		now = r.at
		out := s.Reserve(t.Context(), []authority.Reserve{{Key: k, Call: strconv.Itoa(i), Want: r.cost, Min: r.cost}})[0]
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		if out.Units > 0 {
			admitted += out.Units
			all = append(all, oracle.Interval{Left: now, Answered: now, Units: out.Units})
		}
	}
	return admitted, oracle.WorstWindow(all, tr.rate.Window)
}

// sliding_buckets is never over, and admits nearly all that the exact log does.
func TestBucketsAdmitNearlyAsMuch(t *testing.T) {
	traces := 1000
	if os.Getenv("SLUICE_LONG") != "" {
		traces = 10_000
	}
	r := rand.New(rand.NewPCG(1, 2))
	var exact, admitted int64
	for i := range traces {
		tr := drawTrace(r)
		c := newClock()
		c.advance(time.Duration(r.Int64N(int64(tr.rate.Window))))
		s := memory.New(c.read, 10)
		units, worst := tr.play(t, s, c, limit.SlidingBuckets, fmt.Sprint(i))
		if worst > tr.rate.Units {
			t.Fatalf("trace %d: %d units within a window of %v", i, worst, tr.rate)
		}
		admitted += units
		units, worst = tr.play(t, s, c, limit.SlidingLog, fmt.Sprint(i, "log"))
		if worst > tr.rate.Units {
			t.Fatalf("trace %d: the log admits %d units within a window of %v", i, worst, tr.rate)
		}
		exact += units
	}
	share := float64(admitted) / float64(exact)
	t.Logf("%d traces: the log admits %d units, buckets %d, which is %.4f of that", traces, exact, admitted, share)
	if share < 0.98 {
		t.Errorf("%.4f of what the log admits, want at least 0.98", share)
	}
}
