package control

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// Groups whose hashes collide are told apart, wait in order, and leave nothing behind.
func TestGroupsOfOneHash(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := &policy.Limit{Name: "l", Rates: []limit.Rate{{Units: 1, Window: time.Second}}}
		var all []*Key
		for range 4 {
			all = append(all, &Key{Admission: admission.NewKey(l.Rule("", "")), serial: 7}) // one serial: every hash is the same
		}
		q := groups{byHash: map[uint64]*group{}}
		waiting := map[*Key]*group{}
		var order []*group
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			k := all[rapid.IntRange(0, 3).Draw(rt, "key")]
			if g := waiting[k]; g != nil && rapid.Bool().Draw(rt, "remove") {
				q.remove(g)
				q.release(g)
				delete(waiting, k)
				for i := range order {
					if order[i] == g {
						order = append(order[:i], order[i+1:]...)
						break
					}
				}
			} else {
				got := q.find([]*Key{k}, []admission.Demand{{Key: k.Admission, Cost: 1}})
				if g != nil && got != g {
					rt.Fatal("a second group of the same key")
				}
				if g == nil {
					waiting[k] = got
					order = append(order, got)
				}
			}
			i := 0
			for g := q.first; g != nil; g = g.after {
				if i >= len(order) || g != order[i] {
					rt.Fatal("out of order")
				}
				i++
			}
			if i != len(order) || q.n != i {
				rt.Fatalf("%d wait, n = %d, want %d", i, q.n, len(order))
			}
			for _, k := range all {
				if (k.waiting == 1) != (waiting[k] != nil) || k.InUse() != (waiting[k] != nil) {
					rt.Fatalf("a key has waiting = %d, groups = %d", k.waiting, k.groups)
				}
			}
		}
		if len(order) == 0 && len(q.byHash) != 0 {
			rt.Fatal("something is left behind")
		}
	})
}
