package sim_test

import (
	"testing"
	"time"

	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/testharness/sim"
)

// TestHeldPoints holds what max_wait is for: under twice the load hardly a unit is lost, no request is held for longer than
// it may be, and equal workers get equal parts.
func TestHeldPoints(t *testing.T) {
	t.Parallel()
	const tick = 20 * time.Millisecond
	for _, p := range []struct {
		name           string
		units          int64
		window, wait   time.Duration
		workers        int
		load           float64
		calls, atLeast float64
		// bucket is a token bucket's burst; 0: a sliding log.
		bucket int64
		// second is the mode of a limit of ten times the units, without max_wait, that binds the requests too; 0: there is none.
		second limit.Mode
	}{
		{name: "10/s, 4 workers, 2×, 500ms", units: 10, window: time.Second, wait: 500 * time.Millisecond, workers: 4, load: 2, calls: 1, atLeast: 0.97},
		{name: "10/s, 4 workers, 2×, 1s", units: 10, window: time.Second, wait: time.Second, workers: 4, load: 2, calls: 1, atLeast: 0.95},
		{name: "1/100ms, 4 workers, 2×, 1s", units: 1, window: 100 * time.Millisecond, wait: time.Second, workers: 4, load: 2, calls: 1.4, atLeast: 0.85},
		{name: "1000/s, 4 workers, 2×, 500ms", units: 1000, window: time.Second, wait: 500 * time.Millisecond, workers: 4, load: 2, calls: 0.3, atLeast: 0.97},
		{name: "1000/s, 4 workers, 1×, 100ms", units: 1000, window: time.Second, wait: 100 * time.Millisecond, workers: 4, load: 1, calls: 0.6, atLeast: 0.95},
		{name: "1000/s, 4 workers, 0.5×, 500ms", units: 1000, window: time.Second, wait: 500 * time.Millisecond, workers: 4, load: 0.5, calls: 0.04, atLeast: 0.99},
		{name: "10/s, 4 workers, 2×, 500ms, and a strict limit", units: 10, window: time.Second, wait: 500 * time.Millisecond, workers: 4, load: 2, calls: 1.5, atLeast: 0.93, second: limit.Strict},
		{name: "10/s, 4 workers, 2×, 500ms, and a leased limit", units: 10, window: time.Second, wait: 500 * time.Millisecond, workers: 4, load: 2, calls: 1.3, atLeast: 0.97, second: limit.Lease},
		{name: "a leaky bucket of 10/s, 4 workers, 2×, 1s", units: 10, window: time.Second, wait: time.Second, workers: 4, load: 2, calls: 1.4, atLeast: 0.85, bucket: 1},
		{name: "a bucket of 2, 10/s, 4 workers, 2×, 1s", units: 10, window: time.Second, wait: time.Second, workers: 4, load: 2, calls: 1.4, atLeast: 0.97, bucket: 2},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := hotKey(p.units, p.workers, p.load)
			s.Duration = 20 * time.Second
			s.Limits[0].Rates[0].Window, s.Limits[0].MaxWait = p.window, p.wait
			if p.bucket > 0 {
				s.Limits[0].Algorithm, s.Limits[0].Rates[0].Burst = limit.TokenBucket, p.bucket
			}
			if p.second > 0 {
				s.Limits = append(s.Limits, policy.Limit{
					Name: "all", Key: []uint32{1}, Rates: []limit.Rate{{Units: 10 * p.units, Window: p.window}},
					Algorithm: limit.SlidingLog, Mode: p.second, OnUnavailable: limit.Deny,
				})
			}
			result := sim.Run(s)
			f := result.Figures
			t.Logf("%d requests: %.4f calls per request, %.4f of what was possible admitted, longest wait %v, by worker %v, worst window %.3f",
				f.Requests, f.CallsPerRequest(), f.AdmittedShare(), f.Longest, f.ByWorker, f.Worst)
			if len(result.Violations) > 0 {
				t.Fatal(result.Violations)
			}
			if f.CallsPerRequest() > p.calls || f.AdmittedShare() < p.atLeast || f.Longest > p.wait+tick {
				t.Errorf("want at most %g calls and a wait of %v, at least %g admitted", p.calls, p.wait, p.atLeast)
			}
			for _, n := range f.ByWorker {
				if part := float64(n) / float64(f.Admitted) * float64(p.workers); part < 0.6 || part > 1.4 {
					t.Errorf("a worker has %.2f of an equal part, want 0.6 to 1.4", part)
				}
			}
		})
	}
}
