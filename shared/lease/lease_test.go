package lease_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/shared/instant"
	"sluice/shared/lease"
)

const milli = instant.Instant(1000)

func TestALeaseLivesOnce(t *testing.T) {
	// Sent at 10 ms, received at 14 ms; the store's start is 20 ms and its end 120 ms after its own now.
	l := lease.New("id", 10, 10*milli, 14*milli, 20*time.Millisecond, 120*time.Millisecond)
	from, until := 34*milli+21, 130*milli-121 // a thousandth and a microsecond inside
	for _, step := range []struct {
		at       instant.Instant
		ask, got int64
	}{
		{at: from - 1, ask: 1, got: 0},
		{at: from, ask: 3, got: 3},
		{at: until, ask: 2, got: 2},
		{at: until + 1, ask: 1, got: 0},
		{at: until, ask: 9, got: 5},
		{at: until, ask: 1, got: 0},
	} {
		if got := l.Spend(step.at, step.ask); got != step.got {
			t.Errorf("at %d µs: spent %d of %d, want %d", step.at, got, step.ask, step.got)
		}
	}
	if !l.Over(until) {
		t.Error("exhausted, and not over")
	}
}

func TestTooLateAnAnswerLeavesNothingToSpend(t *testing.T) {
	l := lease.New("id", 10, 0, 60*milli, 0, 50*time.Millisecond)
	if got := l.Spend(60*milli, 1); got != 0 || !l.Over(60*milli) {
		t.Errorf("spent %d of a lease that ended on the way", got)
	}
	if r := l.Retire(); r.Unused != 10 || len(r.Uses) != 0 {
		t.Errorf("retired as %+v, want all ten unused", r)
	}
}

func TestRetiredNothingIsSpentAnyMore(t *testing.T) {
	l := lease.New("id", 10, 0, 0, 0, time.Second)
	l.Spend(5*milli, 4)
	r := l.Retire()
	if r.ID != "id" || r.Unused != 6 || len(r.Uses) != 1 || r.Uses[0] != (lease.Use{At: 5 * milli, Units: 4}) {
		t.Errorf("retired as %+v", r)
	}
	if got := l.Spend(6*milli, 1); got != 0 {
		t.Error("spent after it was retired")
	}
	if again := l.Retire(); again.Unused != 0 || len(again.Uses) != 0 {
		t.Errorf("retired a second time as %+v", again)
	}
}

// TestInsideTheStoresLease holds the three rules on clocks against any drift within ρ and any delays: what is spent lies
// within [start, end] on the store's clock; a told age is never longer than the store's time since; no unit is lost.
func TestInsideTheStoresLease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ppm := rapid.Int64Range(-999, 999).Draw(t, "ppm")
		origin := instant.Instant(rapid.Int64Range(0, 1e12).Draw(t, "origin"))
		worker := func(store int64) instant.Instant { return origin + instant.Instant(store+store*ppm/1_000_000) }
		draw := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) }

		sent := draw("sent", 1e9)
		executed := sent + draw("there", 200_000)
		received := executed + draw("back", 200_000)
		startIn := draw("start_in", 5_000_000) * draw("scheduled", 1)
		endIn := startIn + draw("ttl", 5_000_000)
		units := rapid.Int64Range(1, 500).Draw(t, "units")
		l := lease.New("id", units, worker(sent), worker(received),
			time.Duration(startIn)*time.Microsecond, time.Duration(endIn)*time.Microsecond)

		at := received
		spent := map[int64]int64{} // store time → units
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			at += draw("pause", 100_000)
			if got := l.Spend(worker(at), draw("ask", 5)); got > 0 {
				spent[at] += got
				if at < executed+startIn || at > executed+endIn {
					t.Fatalf("spent at %d, outside the store's [%d, %d]", at, executed+startIn, executed+endIn)
				}
			}
		}
		checkReport(t, l.Retire(), spent, units, at+draw("until told", 1e7), worker)
	})
}

func checkReport(
	t *rapid.T, r lease.Retired, spent map[int64]int64, units, told int64, worker func(int64) instant.Instant,
) {
	if len(r.Uses) > lease.MaxUses {
		t.Fatalf("%d uses, want at most %d", len(r.Uses), lease.MaxUses)
	}
	total := r.Unused
	for _, use := range r.Uses {
		total += use.Units
	}
	if total != units {
		t.Fatalf("uses and unused add up to %d of %d", total, units)
	}
	// In the order of time, every prefix of what was spent is covered by what is told at its instant or later.
	for instantSpent := range spent {
		var truly, reported int64
		for at, n := range spent {
			if at >= instantSpent {
				truly += n
			}
		}
		for _, use := range r.Uses {
			if score := told - use.Age(worker(told)).Microseconds(); score >= instantSpent {
				reported += use.Units
			}
		}
		if reported < truly {
			t.Fatalf("%d units were spent at %d or later, told are %d", truly, instantSpent, reported)
		}
	}
}
