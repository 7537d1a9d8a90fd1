package memory

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/controlsvc/store"
	"sluice/shared/instant"
)

// A window of very many charges, in blocks, is what a plain list of them is.
func TestLogWindowIsAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const length = time.Second
		w := &logWindow{length: length}
		var list []charge // in no order
		now := instant.Instant(length.Microseconds())
		calls := 0
		add := func() {
			c := charge{score: now.Add(-time.Duration(rapid.IntRange(-1000, 1000).Draw(t, "age")) * time.Microsecond), units: rapid.Int64Range(1, 9).Draw(t, "units")}
			if rapid.Bool().Draw(t, "named") {
				calls++
				g := store.Grant{Kind: store.Strict, Call: "call-" + strconv.Itoa(calls%700), Minted: instant.Instant(calls), Units: c.units}
				if rapid.Bool().Draw(t, "lease") {
					g.Kind = store.Lease
				}
				c.grant, c.tail = g.Name(), tailOf(g.Call)
			}
			w.add(c, now)
			list = append(list, c)
		}
		pass := func(most time.Duration) {
			now = now.Add(time.Duration(rapid.Int64Range(0, most.Microseconds()).Draw(t, "passed")) * time.Microsecond)
			w.prune(now)
			list = slices.DeleteFunc(list, func(c charge) bool { return c.score <= now.Add(-length) })
		}
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			for range rapid.IntRange(0, 2*mostInBlock).Draw(t, "charges") {
				add()
				now++
			}
			for range rapid.IntRange(0, 40).Draw(t, "taken") {
				call := "call-" + strconv.Itoa(rapid.IntRange(0, 699).Draw(t, "call"))
				wanted := func(grant string) bool { return strings.HasPrefix(grant[2:], call+":") }
				taken := len(w.take(call, wanted))
				before := len(list)
				list = slices.DeleteFunc(list, func(c charge) bool { return c.grant != "" && wanted(c.grant) })
				if taken != before-len(list) {
					t.Fatalf("%d of %s were taken, want %d", taken, call, before-len(list))
				}
			}
			wantLikeList(t, w, list, now)
			pass(rapid.SampledFrom([]time.Duration{time.Millisecond, length / 2, 2 * length}).Draw(t, "at most"))
			wantLikeList(t, w, list, now)
		}
	})
}

func wantLikeList(t *rapid.T, w *logWindow, list []charge, now instant.Instant) {
	list = slices.SortedStableFunc(slices.Values(list), func(a, b charge) int { return int(a.score - b.score) })
	var want sums
	for _, c := range list {
		want = want.plus(c.sums())
	}
	if got := w.total(); got != want || w.size() != len(list) {
		t.Fatalf("%d charges of %+v, want %d of %+v", w.size(), got, len(list), want)
	}
	for i, b := range w.blocks {
		if len(b.charges) == 0 || len(b.charges) > mostInBlock {
			t.Fatalf("%d charges in block %d of %d", len(b.charges), i, len(w.blocks))
		}
	}
	if len(list) == 0 {
		if len(w.blocks) > 0 || w.emptyAt(now) != now {
			t.Fatal("nothing is left, and the window is not empty")
		}
		return
	}
	if got := w.emptyAt(now); got != list[len(list)-1].score.Add(w.length) {
		t.Fatalf("it is empty at %v", got)
	}
	edge := list[rapid.IntRange(0, len(list)-1).Draw(t, "at")].score
	for _, of := range []func(sums) int64{sums.ofAll, sums.ofCertain} {
		var upTo, sum int64
		units := rapid.Int64Range(0, of(want)).Draw(t, "units")
		var reached instant.Instant
		for _, c := range list {
			if c.score <= edge {
				upTo += c.units
			}
			if sum < units {
				reached = c.score
			}
			sum += of(c.sums())
		}
		if got := w.unitsUpTo(edge); got != upTo {
			t.Fatalf("%d units up to %v, want %d", got, edge, upTo)
		}
		if units > 0 && w.reaches(units, of) != reached {
			t.Fatalf("%d units are reached at %v, want %v", units, w.reaches(units, of), reached)
		}
	}
}
