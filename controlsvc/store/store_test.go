package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/limit"
)

// Every unit of a lease is spent, kept or given back, no age is older than it was reported, and there are few enough.
func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.Int64Range(1, 300).Draw(t, "units")
		unused := rapid.Int64Range(0, 300).Draw(t, "unused")
		uses := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) authority.Use {
			return authority.Use{
				Age:   time.Duration(rapid.Int64Range(0, 5_000_000).Draw(t, "age")),
				Units: rapid.Int64Range(0, 3).Draw(t, "spent"),
			}
		}), 0, 200).Draw(t, "uses")

		groups, kept := store.Divide(units, uses, unused)
		var said, spent int64
		for _, u := range uses {
			said += u.Units
		}
		for i, g := range groups {
			spent += g.Units
			if g.Units <= 0 || g.Age%time.Microsecond != 0 || i > 0 && g.Age <= groups[i-1].Age {
				t.Fatalf("group %d of %v", i, groups)
			}
		}
		back := units - spent - kept
		if spent != min(said, units) || kept < 0 || back != min(unused, units-spent) || len(groups) >= store.MaxGroups {
			t.Fatalf("of %d units, %d said to be spent and %d unused: %d spent in %d groups, %d kept, %d back",
				units, said, unused, spent, len(groups), kept, back)
		}
		// The oldest uses are cut; up to every age no fewer units are that young than were reported, cut or not.
		for _, age := range append(groups, uses...) {
			if younger(groups, age.Age) < min(younger(uses, age.Age), units) {
				t.Fatalf("%d of %v are at most %v old, of %v", younger(groups, age.Age), groups, age.Age, uses)
			}
		}
	})
}

func younger(uses []authority.Use, age time.Duration) int64 {
	var units int64
	for _, u := range uses {
		if u.Age <= age {
			units += u.Units
		}
	}
	return units
}

func FuzzParseGrant(f *testing.F) {
	for _, g := range []store.Grant{
		{Kind: store.Lease, Call: "a", Minted: 1, Units: 1},
		{Kind: store.Strict, Call: "00ff.3", Part: "0-1", Minted: 1_763_719_200_123_456, Units: limit.MaxUnits},
	} {
		name := g.Name()
		f.Add(name)
		if got, ok := store.ParseGrant(name); !ok || got != g {
			f.Errorf("%q was read as %+v, %v", name, got, ok)
		}
	}
	for _, wrong := range []string{
		"", ":", "::::", "s:a::1:1", "r:a::1:1", "l:a:1:1", "l:a::1:1:1", "l:a::1:0", "l:a::1:-1", "l:a::01:1", "l:a::1:+1", "l:a b::1:1",
		"l:::1:1", "l:a:b*:1:1", "lc:a::1:1", "l:a::1:99999999999999999999", "l:" + strings.Repeat("a", 65) + "::1:1",
	} {
		f.Add(wrong)
		if got, ok := store.ParseGrant(wrong); ok {
			f.Errorf("%q was read as %+v", wrong, got)
		}
	}
	f.Fuzz(func(t *testing.T, name string) {
		if g, ok := store.ParseGrant(name); ok && (g.Name() != name || g.Units < 1) {
			t.Errorf("%q was read as %+v", name, g)
		}
	})
}

func TestLeast(t *testing.T) {
	rates := []limit.Rate{
		{Units: limit.MaxUnits, Window: time.Hour},
		{Units: 10, Window: time.Second},
		{Units: 5, Window: time.Second},
		{Units: limit.MaxUnits - 1, Window: time.Minute},
	}
	windows := store.Windows(rates)
	if diff := cmp.Diff([]limit.Rate{rates[0], rates[2], rates[3]}, windows); diff != "" {
		t.Fatalf("windows (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		name string
		used [3]int64
		want authority.State
	}{
		{"nothing is used: the first", [3]int64{}, authority.State{Rate: rates[0], Remaining: limit.MaxUnits}},
		{"half of the smaller of two", [3]int64{0, 2, 0}, authority.State{Rate: rates[2], Remaining: 3, Reset: 1}},
		{"shares that differ in the twelfth place", [3]int64{1, 0, 1}, authority.State{Rate: rates[3], Remaining: limit.MaxUnits - 2, Reset: 2}},
		{"over the limit", [3]int64{limit.MaxUnits + 7, 4, 0}, authority.State{Rate: rates[0]}},
	} {
		standings := make([]store.Standing, len(windows))
		for i, used := range c.used {
			standings[i] = store.Standing{Used: used, Reset: time.Duration(i)}
		}
		if diff := cmp.Diff(c.want, store.Least(rates, windows, standings)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
