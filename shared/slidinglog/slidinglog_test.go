package slidinglog_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/shared/instant"
	"sluice/shared/slidinglog"
)

const window = time.Second

// twin is the obvious log: every unit's instant, counted one by one.
type twin []instant.Instant

func (t twin) count(now instant.Instant, w time.Duration) (n int64) {
	for _, at := range t {
		if at > now.Add(-w) {
			n++
		}
	}
	return n
}

func TestSteps(t *testing.T) {
	log := slidinglog.New(window)
	for _, step := range []struct {
		at, add     int64 // µs, units
		atMost      int64
		fallsToZero time.Duration
	}{
		{at: 0, add: 0, atMost: 0, fallsToZero: 0},
		{at: 10, add: 3, atMost: 3, fallsToZero: window},
		{at: 500_000, add: 2, atMost: 5, fallsToZero: window},
		{at: 1_000_009, add: 0, atMost: 5, fallsToZero: 499_991 * time.Microsecond},
		{at: 1_000_010, add: 0, atMost: 2, fallsToZero: 499_990 * time.Microsecond}, // (s − W, s] is open on the left
		{at: 1_499_999, add: 0, atMost: 2, fallsToZero: time.Microsecond},
		{at: 1_500_000, add: 0, atMost: 0, fallsToZero: 0},
	} {
		now := instant.Instant(step.at)
		log.Add(now, step.add)
		if got := log.AtMost(now); got != step.atMost {
			t.Errorf("at %d µs: AtMost = %d, want %d", step.at, got, step.atMost)
		}
		if got := log.AtLeast(now, 0); got != step.atMost {
			t.Errorf("at %d µs: AtLeast = %d, want %d", step.at, got, step.atMost)
		}
		if got := log.FallsTo(0, now, 0); got != step.fallsToZero {
			t.Errorf("at %d µs: FallsTo(0) = %v, want %v", step.at, got, step.fallsToZero)
		}
	}
}

// TestAgainstTwin holds the two counts against the obvious log: exact while few instants are in the window, and never on
// the wrong side when spans have been merged.
func TestAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := slidinglog.New(window)
		var all twin
		now := instant.Instant(rapid.Int64Range(0, 1e6).Draw(t, "origin"))
		step := rapid.SampledFrom([]int64{10, 2_000, 300_000}).Draw(t, "step")
		for range rapid.IntRange(1, 1500).Draw(t, "steps") {
			now += instant.Instant(rapid.Int64Range(0, step).Draw(t, "pause"))
			at := now - instant.Instant(rapid.SampledFrom([]int64{0, 0, 0, 5, 400}).Draw(t, "lag"))
			for range rapid.IntRange(0, 2).Draw(t, "units") {
				log.Add(at, 1)
				all = append(all, at)
			}
			margin := rapid.SampledFrom([]time.Duration{0, time.Millisecond}).Draw(t, "margin")
			checkCounts(t, &log, all, now, margin)
		}
	})
}

func checkCounts(t *rapid.T, log *slidinglog.Log, all twin, now instant.Instant, margin time.Duration) {
	atMost, atLeast := log.AtMost(now), log.AtLeast(now, margin)
	wantMost, wantLeast := all.count(now, window), all.count(now, window-margin)
	if atMost < wantMost || atLeast > wantLeast {
		t.Fatalf("at %d: AtMost %d, AtLeast %d; truly %d and %d", now, atMost, atLeast, wantMost, wantLeast)
	}
	if len(all) <= slidinglog.MaxEntries && (atMost != wantMost || atLeast != wantLeast) {
		t.Fatalf("at %d: AtMost %d, AtLeast %d; few enough to be exact: %d and %d", now, atMost, atLeast, wantMost, wantLeast)
	}
	target := wantLeast / 2
	if in := log.FallsTo(target, now, margin); in > 0 {
		if early := log.AtLeast(now, margin); early <= target {
			t.Fatalf("FallsTo(%d) = %v, yet AtLeast is %d already", target, in, early)
		}
		if got := all.count(now.Add(in), window-margin); len(all) <= slidinglog.MaxEntries && got > target {
			t.Fatalf("FallsTo(%d) = %v, yet %d are left then", target, in, got)
		}
	}
}

func TestMemoryFollowsUse(t *testing.T) {
	log := slidinglog.New(window)
	now := instant.Instant(0)
	allocations := testing.AllocsPerRun(300_000, func() {
		now += 7
		log.Add(now, 1)
	})
	if allocations > 0.01 {
		t.Errorf("%.2f allocations for each Add of a steady stream, want none", allocations)
	}
	if got, most := log.AtMost(now), int64(window/(7*time.Microsecond))+1; got < most-1 || got > most+most/64 {
		t.Errorf("AtMost = %d over a window that held %d", got, most)
	}
}

func BenchmarkAdd(b *testing.B) {
	log := slidinglog.New(window)
	now := instant.Instant(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 11
		log.Add(now, 1)
		_ = log.AtLeast(now, time.Millisecond)
	}
}
