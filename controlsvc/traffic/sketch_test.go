package traffic

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// What a sketch says is never more wrong than its bound, against exact counts, and neither is the sum of several.
func TestSketchAgainstExactCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 12).Draw(t, "capacity")
		names := rapid.IntRange(1, 40).Draw(t, "names")
		total := newRanked()
		exactTotal := map[name]Counts{}
		all, known := int64(0), false
		for i := range rapid.IntRange(1, 4).Draw(t, "sketches") {
			s := newSketch(capacity)
			if rapid.Bool().Draw(t, "used before") {
				for j := range 3 * capacity {
					s.add(name{"old", fmt.Sprint(j)}, Counts{Denied: 3})
				}
				s.clear()
			}
			exact, sum := map[name]Counts{}, int64(0)
			for range rapid.IntRange(0, 200).Draw(t, "additions") {
				n := name{"limit", fmt.Sprint(rapid.IntRange(0, names-1).Draw(t, "name"))}
				c := Counts{
					Admitted: rapid.Int64Range(0, 9).Draw(t, "admitted"), Denied: rapid.Int64Range(0, 5).Draw(t, "denied"),
					ShadowDenied: rapid.Int64Range(0, 2).Draw(t, "shadow"),
				}
				s.add(n, c)
				sum += c.denials()
				for _, e := range []map[name]Counts{exact, exactTotal} {
					is := e[n]
					is.add(c)
					e[n] = is
				}
			}
			checkSketch(t, s, exact, sum)
			total.add(s)
			all += sum
			known = known || i > 0
		}
		for n, is := range exactTotal {
			at := total.names[n]
			if at == nil {
				if is.denials() > total.floor {
					t.Fatalf("the sum lacks %v, which has %d denials; at most %d can be missed", n, is.denials(), total.floor)
				}
				continue
			}
			checkBounds(t, n, at.counts, total.over(at), is, all/int64(capacity))
		}
		if total.floor > all/int64(capacity) {
			t.Fatalf("up to %d denials of a name are missed in the sum, of %d in %d", total.floor, all, capacity)
		}
	})
}

func checkSketch(t *rapid.T, s *sketch, exact map[name]Counts, sum int64) {
	bound := sum / int64(s.capacity)
	if len(s.least) > s.capacity || len(s.known) != len(s.least) {
		t.Fatalf("%d names, %d in the heap; room is for %d", len(s.known), len(s.least), s.capacity)
	}
	for n, is := range exact {
		at := s.known[n]
		switch {
		case at != nil:
			checkBounds(t, n, at.counts, at.over, is, bound)
			if at.most != at.counts.denials()+at.over {
				t.Fatalf("%v: most %d, over %d, counted %d", n, at.most, at.over, at.counts.denials())
			}
		case is.denials() > s.floor, is.denials() > bound:
			t.Fatalf("%v has %d denials and is not known; floor %d, bound %d", n, is.denials(), s.floor, bound)
		}
	}
}

func checkBounds(t *rapid.T, n name, counted Counts, over int64, exact Counts, bound int64) {
	low := counted.denials()
	if low > exact.denials() || low+over < exact.denials() || over > bound {
		t.Fatalf("%v: between %d and %d denials, of %d; the bound is %d", n, low, low+over, exact.denials(), bound)
	}
	if counted.Admitted > exact.Admitted || counted.Denied > exact.Denied || counted.ShadowDenied > exact.ShadowDenied {
		t.Fatalf("%v: counted %+v, of %+v", n, counted, exact)
	}
	if over == 0 && counted.Denied != exact.Denied {
		t.Fatalf("%v: counted %+v, exactly, of %+v", n, counted, exact)
	}
}
