package policy

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/shared/limit"
)

func rates(units int64) []limit.Rate { return []limit.Rate{{Units: units, Window: time.Second}} }

func drawException(name string) func(*rapid.T) Exception {
	return func(t *rapid.T) Exception {
		e := Exception{Name: name}
		switch rapid.IntRange(0, 2).Draw(t, "what") {
		case 0:
			e.Unlimited = true
		case 1:
			e.Rates = rates(rapid.Int64Range(1, 9).Draw(t, "units"))
		}
		e.Enforce = rapid.Bool().Draw(t, "enforce")
		if !e.Enforce {
			e.Shadow = rapid.SampledFrom([]uint32{0, 100}).Draw(t, "shadow")
		}
		return e
	}
}

// What holds for a key is what its override says, else what its plan says, else what the limit says: each thing by itself.
func TestRuleIsTheMostSpecific(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limit{Rates: rates(100), Shadow: rapid.SampledFrom([]uint32{0, 100}).Draw(t, "own shadow")}
		if l.Unlimited = rapid.Bool().Draw(t, "unlimited"); l.Unlimited {
			l.Rates = nil
		}
		for _, name := range []string{"a", "b"} {
			if rapid.Bool().Draw(t, "plan") {
				l.Plans = append(l.Plans, rapid.Custom(drawException(name)).Draw(t, "plan "+name))
			}
			if rapid.Bool().Draw(t, "override") {
				l.Overrides = append(l.Overrides, rapid.Custom(drawException(name)).Draw(t, "override "+name))
			}
		}
		plan, key := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "by plan"), rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key")
		units, shadow, inPlan := int64(100), l.Shadow == 100, ""
		if l.Unlimited {
			units = -1
		}
		apply := func(list []Exception, name string) bool {
			for _, e := range list {
				if e.Name != name {
					continue
				}
				if e.Unlimited {
					units = -1
				} else if len(e.Rates) > 0 {
					units = e.Rates[0].Units
				}
				if e.Enforce {
					shadow = false
				} else if e.Shadow > 0 {
					shadow = true
				}
				return true
			}
			return false
		}
		if apply(l.Plans, plan) {
			inPlan = plan
		}
		apply(l.Overrides, key)
		got := l.Rule(plan, key)
		if got.Limit != &l || got.Plan != inPlan || got.Shadow != shadow || got.Unlimited != (units < 0) ||
			!got.Unlimited && got.Rates[0].Units != units {
			t.Fatalf("%q of plan %q: %+v, want plan %q, %d units, shadow %v", key, plan, got, inPlan, units, shadow)
		}
	})
}

func TestShadowIsAShareOfTheKeys(t *testing.T) {
	const keys = 10_000
	percents := []uint32{0, 1, 10, 50, 90, 99, 100}
	counts := make([]int, len(percents))
	for i := range keys {
		key := "tenant-" + strconv.Itoa(i)
		for j, percent := range percents {
			if inShadow(key, percent) {
				counts[j]++
			} else if j > 0 && inShadow(key, percents[j-1]) {
				t.Fatalf("%s is in shadow at %d %%, and not at %d %%", key, percents[j-1], percent)
			}
		}
	}
	for j, percent := range percents {
		// Five standard deviations at most.
		if want := keys * int(percent) / 100; counts[j] < want-250 || counts[j] > want+250 || percent%100 == 0 && counts[j] != want {
			t.Errorf("%d %%: %d of %d keys", percent, counts[j], keys)
		}
	}
}

func TestCost(t *testing.T) {
	header := Limit{Cost: 3, Measure: Measure{Header: "x-cost", Max: 50}}
	bytes := Limit{Measure: Measure{Bytes: 1000, Max: 50}}
	for _, c := range []struct {
		l    Limit
		r    request
		want int64
	}{
		{Limit{}, request{}, 1},
		{Limit{Cost: 7}, request{"x-cost": "9"}, 7},
		{header, request{}, 3},
		{header, request{"x-cost": ""}, 3},
		{header, request{"x-cost": "+5"}, 3},
		{header, request{"x-cost": "5.0"}, 3},
		{header, request{"x-cost": "5,6"}, 6},
		{header, request{"x-cost": "7, 6,x,"}, 7},
		{header, request{"x-cost": ",x"}, 3},
		{header, request{"x-cost": "99999999999999999999x"}, 3},
		{header, request{"x-cost": "0"}, 1},
		{header, request{"x-cost": "00050"}, 50},
		{header, request{"x-cost": "51"}, 50},
		{header, request{"x-cost": strings.Repeat("9", 1000)}, 50},
		{bytes, request{}, 1},
		{bytes, request{"content-length": "0"}, 1},
		{bytes, request{"content-length": "1000"}, 1},
		{bytes, request{"content-length": "1001"}, 2},
		{bytes, request{"content-length": "9223372036854775807"}, 50},
	} {
		b := binding{request: c.r}
		if got := b.cost(&c.l); got != c.want {
			t.Errorf("%+v of %v: %d, want %d", c.l.Measure, c.r, got, c.want)
		}
	}
}

// A value that is written down has the form that the same value of a request has.
func TestFormIsWhatBindMakes(t *testing.T) {
	p := &Policy{
		HashKey: "0123456789abcdef",
		Identities: []Identity{
			{Name: "plain", Source: FromHeader, Header: "v"},
			{Name: "secret", Source: FromHeader, Header: "v", Hash: true},
			{Name: "small", Source: FromHeader, Header: "v", Lowercase: true},
			{Name: "short", Source: FromHeader, Header: "v", MaxLength: 5},
			{Name: "first", Source: FirstOf, FirstOf: []uint32{5, 1}},
			{Name: "none", Source: FromHeader, Header: "none"},
			{Name: "deep", Source: FirstOf, FirstOf: []uint32{5, 4}},
		},
	}
	for i := range p.Identities {
		p.Limits = append(p.Limits, Limit{Name: p.Identities[i].Name, Key: []uint32{uint32(i)}, Rates: rates(1)})
	}
	binder := NewBinder(p)
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 6), rapid.SliceOfN(rapid.Byte(), 100, 200)).Draw(t, "value"))
		keys := map[int]string{}
		for _, b := range binder.Bind(request{"v": text}, nil) {
			keys[b.Limit] = b.Key
		}
		for i := range p.Identities {
			written := text
			if p.Identities[i].Source == FirstOf {
				written = "secret=" + text
			}
			form, ok := p.Form(uint32(i), written)
			if key, has := keys[i]; has != (ok && i != 5) || has && key != form {
				t.Fatalf("%q as %s is %q, %v; the key %q, %v", text, p.Identities[i].Name, form, ok, key, has)
			}
			if ok && !p.IsForm(uint32(i), form) {
				t.Fatalf("%q as %s is %q, which is told to be no form", text, p.Identities[i].Name, form)
			}
		}
	})
	if form, ok := p.Form(4, "nobody=x"); ok {
		t.Errorf("an identity that is not in first_of gives %q", form)
	}
}

func TestADefaultMayNameAPlan(t *testing.T) {
	p := &Policy{
		Identities: []Identity{
			{Name: "tier", Source: FromHeader, Header: "tier", Default: "paid"}, {Name: "either", Source: FirstOf, FirstOf: []uint32{0}},
		},
		Limits: []Limit{
			{Name: "a", Rates: rates(1), Plans: []Exception{{Name: "paid", Rates: rates(2)}}},
			{Name: "b", Rates: rates(1), Plans: []Exception{{Name: "paid", Rates: rates(2)}}, PlanBy: 1},
		},
	}
	for value, want := range map[string]string{"paid": "paid", "#=paid": "", "gold": ""} {
		for _, b := range NewBinder(p).Bind(request{"tier": value}, nil) {
			if b.Rule.Plan != want {
				t.Errorf("tier %q: plan %q, want %q", value, b.Rule.Plan, want)
			}
		}
	}
	for _, b := range NewBinder(p).Bind(request{}, nil) {
		if b.Rule.Plan != "paid" {
			t.Errorf("no tier: plan %q of limit %d", b.Rule.Plan, b.Limit)
		}
	}
}

// What holds for a key, Bind says as Rule does, whichever way it takes for limits with or without exceptions.
func TestBindGivesTheRuleOfTheKey(t *testing.T) {
	one, two := []limit.Rate{{Units: 1, Window: time.Second}}, []limit.Rate{{Units: 2, Window: time.Second}}
	listed := []List{{Identity: 0, Values: []string{"b"}}}
	p := &Policy{
		Identities: []Identity{{Name: "v", Source: FromHeader, Header: "v"}, {Name: "tier", Source: FromHeader, Header: "tier"}},
		Limits: []Limit{
			{Name: "plain", Rates: one},
			{Name: "plans", Rates: one, PlanBy: 1, Plans: []Exception{{Name: "free", Rates: two}, {Name: "paid", Unlimited: true}}},
			{Name: "overrides", Rates: one, Overrides: []Exception{{Name: "a", Rates: two}, {Name: "c", Unlimited: true}}},
			{Name: "unlimited", Unlimited: true, Overrides: []Exception{{Name: "a", Rates: two}}},
			{Name: "nobody's", Unlimited: true},
			{Name: "some in shadow", Rates: one, Shadow: 50},
			{Name: "all in shadow", Rates: one, Shadow: 100},
			{Name: "measured", Rates: two, Measure: Measure{Header: "cost", Max: 9}},
			{Name: "allowed", Rates: one, Allow: listed},
		},
	}
	for i := range p.Limits {
		p.Limits[i].Key = []uint32{0}
	}
	c := NewBinder(p)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		for _, tier := range []string{"", "free", "paid", "x"} {
			var want, got []string
			for i := range p.Limits {
				l := &p.Limits[i]
				rule, cost := l.Rule(tier, key), 1
				switch {
				case l.Name == "allowed" && key == "b", rule.Unlimited:
					continue
				case l.Name == "measured":
					cost = 5
				}
				want = append(want, fmt.Sprint(l.Name, key, cost, rule.Plan, rule.Rates, rule.Shadow))
			}
			for _, b := range c.Bind(request{"v": key, "tier": tier, "cost": "5"}, nil) {
				if b.Listed == 0 {
					got = append(got, fmt.Sprint(b.Rule.Limit.Name, b.Key, b.Cost, b.Rule.Plan, b.Rule.Rates, b.Rule.Shadow))
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, tier %q (-want +got):\n%s", key, tier, diff)
			}
		}
	}
}
