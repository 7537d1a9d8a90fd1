package traffic

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/wire"
)

// A timeline loses nothing of what is as young as it is long, wherever the time goes, and keeps nothing that is older.
func TestTimelineAgainstExactCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newTimeline()
		now := instant.Instant(rapid.Int64Range(1_700_000_000_000_000, 1_700_000_100_000_000).Draw(t, "start"))
		exact := map[int64]int64{} // admitted, by second
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += instant.Instant(rapid.OneOf(
				rapid.Int64Range(0, 3_000_000), rapid.Int64Range(0, 400_000_000), rapid.SampledFrom([]int64{299e6, 300e6, 301e6, 599e6, 600e6}),
			).Draw(t, "passes"))
			n := rapid.Int64Range(0, 1000).Draw(t, "admitted")
			l.add(now, now, Counts{Admitted: n, Denied: 1}, 1)
			exact[int64(now)/microsPerSecond] += n
		}
		for _, r := range []*ring[cell]{&l.seconds, &l.minutes} {
			newest := r.number(now)
			want := map[int64]int64{}
			for second, n := range exact {
				if second/r.step > newest-int64(len(r.slots)) && n > 0 {
					want[second/r.step*r.step] += n
				}
			}
			r.each(0, func(second int64, c *cell) {
				if int64(c[0]) != want[second] {
					t.Fatalf("step %d at %d: %d admitted, want %d", r.step, second, c[0], want[second])
				}
				delete(want, second)
			})
			if len(want) > 0 {
				t.Fatalf("step %d: lost %v", r.step, want)
			}
		}
	})
}

// What happened over a while is spread over it, and all of it is counted.
func TestTimelineSpreads(t *testing.T) {
	const start = instant.Instant(1_700_000_000_000_000)
	for _, step := range []struct{ seconds, admitted, wantSteps, wantFirst int64 }{
		{0, 10, 1, 10}, {1, 10, 2, 5}, {9, 10, 10, 1}, {9, 5, 5, 0}, {299, 600, 300, 2}, {100_000, 601, 300, 2}, {0, 1 << 31, 1, 1 << 31},
	} {
		l := newTimeline()
		now := start + instant.Instant(step.seconds*microsPerSecond)
		l.add(start, now, Counts{Admitted: step.admitted}, 0)
		var sum, steps, first int64
		l.seconds.each(0, func(second int64, c *cell) {
			sum += int64(c[0])
			if c[0] > 0 {
				steps++
			}
			if second == max(int64(start), int64(now)-299*microsPerSecond)/microsPerSecond {
				first = int64(c[0])
			}
		})
		if sum != step.admitted || steps != step.wantSteps || first != step.wantFirst {
			t.Errorf("%d over %d s: %d in %d seconds, %d in the first", step.admitted, step.seconds, sum, steps, first)
		}
	}
	l := newTimeline()
	for range 3 {
		l.add(start, start, Counts{Admitted: 1 << 31}, 0)
	}
	if got := l.seconds.at(start, empty)[0]; got != 1<<32-1 {
		t.Errorf("%d; want the most that there is room for", got)
	}
}

// A reading of the clock before the last one is counted where it belongs, and clears nothing.
func TestRingWhenTheClockStepsBack(t *testing.T) {
	r := newRing[cell](1, 5)
	at := func(second int64) *cell { return r.at(instant.Instant(second*microsPerSecond), empty) }
	at(100)[0] = 1
	at(103)[0] = 2
	at(101)[0] = 3
	at(7)[0] += 4 // counted in the oldest
	var got []uint32
	r.each(0, func(_ int64, c *cell) { got = append(got, c[0]) })
	if len(got) != 5 || got[0] != 4 || got[1] != 1 || got[2] != 3 || got[4] != 2 {
		t.Errorf("%v", got)
	}
}

func TestBuckets(t *testing.T) {
	last := -1
	for micros := int64(0); micros < 70_000_000; micros += max(1, micros/64) {
		b := bucketOf(micros)
		if b < last || b > last+1 || b >= histogramBuckets {
			t.Fatalf("%d µs: bucket %d after %d", micros, b, last)
		}
		last = b
		if off := bucketMiddle(b) - micros; micros < 1<<26 && (off > micros/8+1 || -off > micros/8+1) {
			t.Fatalf("%d µs: bucket %d, middle %d", micros, b, bucketMiddle(b))
		}
	}
	if bucketOf(-1) != 0 || bucketOf(1<<62) != histogramBuckets-1 {
		t.Error("a duration without a bucket")
	}
}

// A worker that was cut off for minutes tells of a hundred limits at once.
func BenchmarkLateReport(b *testing.B) {
	var limits []string
	var report wire.Report
	for i := range 100 {
		limits = append(limits, fmt.Sprint("limit-", i))
		for _, result := range []wire.Result{wire.Admitted, wire.Denied} {
			report.Tallies = append(report.Tallies, wire.Tally{
				Limit: limits[i], Route: "/v1", Result: result, Source: uint8(admission.FromFallback), Count: 1000,
			})
		}
	}
	for _, span := range []time.Duration{200 * time.Millisecond, 5 * time.Minute} {
		b.Run(span.String(), func(b *testing.B) {
			c := &clock{now: start}
			tr := newTraffic(c, 1, limits...)
			report.Span = span
			for b.Loop() {
				c.pass(time.Millisecond)
				tr.Reported(1, &report)
			}
		})
	}
}
