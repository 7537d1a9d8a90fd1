package control

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/filter/host/fake"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// twin is what keys should hold: names by last use, the latest at the end.
type twin []string

func (w twin) without(name string) twin {
	var kept twin
	for _, have := range w {
		if have != name {
			kept = append(kept, have)
		}
	}
	return kept
}

// limits gives a policy of some of the limits a, b and c, with so many units each.
func limits(t *rapid.T, version int) *policy.Policy {
	p := &policy.Policy{Version: strconv.Itoa(version)}
	for _, name := range []string{"a", "b", "c"} {
		if version == 0 || rapid.Bool().Draw(t, name) {
			p.Limits = append(p.Limits, policy.Limit{
				Name: name, Algorithm: limit.SlidingLog,
				Rates: []limit.Rate{{Units: int64(version) + 1, Window: time.Second}},
			})
		}
	}
	return p
}

// Whatever is used, forgotten and taken over, the table and the list hold the same, the keys used last, and once the sweep
// is through every key is under its limit of the policy in force.
func TestKeysAgainstANaiveTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const most = 5
		client := New(fake.New(1), Config{}, nil)
		k := NewKeys(client, most)
		p := limits(rt, 0)
		k.SetPolicy(p)
		var want twin
		for version := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "action") {
			case 0:
				p = limits(rt, version+1)
				k.SetPolicy(p)
				var kept twin
				for _, name := range want {
					for i := range p.Limits {
						if p.Limits[i].Name == name[:1] {
							kept = append(kept, name)
						}
					}
				}
				want = kept
			case 1:
				k.tick(0, 1)
			default:
				if len(p.Limits) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(p.Limits)-1).Draw(rt, "limit")
				text := strconv.Itoa(rapid.IntRange(0, 3).Draw(rt, "key"))
				rule := p.Limits[i].Rule("", text)
				got := k.Get(0, &policy.Bound{Limit: i, Key: text, Rule: &rule}).Key
				if got.Ref.Limit != p.Limits[i].Name || got.Ref.Key != text || got.Admission.Limit() != &p.Limits[i] {
					rt.Fatalf("key %s/%s of %v", got.Ref.Limit, got.Ref.Key, got.Admission.Limit())
				}
				name := p.Limits[i].Name + text
				want = append(want.without(name), name)
			}
			checkKeys(rt, k, most)
		}
		for range most {
			k.tick(0, 1)
		}
		var got twin
		for e := k.oldest; e != nil; e = e.newer {
			if e.table.limit == nil || e.Key.Admission.Limit() != e.table.limit {
				rt.Fatalf("%s/%s is under a limit of another policy", e.Key.Ref.Limit, e.Key.Ref.Key)
			}
			got = append(got, e.Key.Ref.Limit+e.Key.Ref.Key)
		}
		// What was evicted in favour of a key whose limit has gone since is not there either: a suffix of the twin's.
		if len(got) > len(want) {
			rt.Fatalf("holds %v, want the latest of %v", got, want)
		}
		for i := range got {
			if got[i] != want[len(want)-len(got)+i] {
				rt.Fatalf("holds %v, want the latest of %v", got, want)
			}
		}
	})
}

func checkKeys(t *rapid.T, k *Keys, most int) {
	n := 0
	var newer *Entry
	for e := k.newest; e != nil; e = e.older {
		if e.newer != newer || e.table.byKey[e.bound] != e {
			t.Fatalf("entry %s: broken links", e.bound)
		}
		newer = e
		n++
	}
	if k.oldest != newer || n != k.n || n > most {
		t.Fatalf("%d in the list, n = %d, want at most %d", n, k.n, most)
	}
	for _, in := range k.tables {
		n -= len(in.byKey)
	}
	if n < 0 {
		t.Fatal("an entry in a table and not in the list")
	}
}
