package policy

import (
	"slices"
	"strconv"
	"strings"

	"sluice/shared/limit"
)

// Rule is a limit as it holds for one key. Where it is not Unlimited it has at least one rate.
type Rule struct {
	Limit *Limit
	// Plan is the name of the key's plan; empty where it has none.
	Plan  string
	Rates []limit.Rate
	// Unlimited says that the limit does not bind the key.
	Unlimited bool
	// Shadow says that requests are decided, counted and charged, and never denied.
	Shadow bool
}

// Exception is what a plan or an override says otherwise than its limit. What it does not say stays as it is without it.
type Exception struct {
	// Name is a plan's name; of an override the key that it is for, as Bind makes it.
	Name string
	// Rates hold instead of the others; empty: as without it.
	Rates     []limit.Rate
	Unlimited bool
	// Shadow is the percentage of the keys that are in shadow, 0 to 100. 0: as without it, or with Enforce none.
	Shadow  uint32
	Enforce bool
}

// Rule gives what holds for a key, as Bind makes it: what its override says; what that leaves open as the plan of that name
// says; the rest as the limit says. A plan that is not known, or empty, says nothing.
func (l *Limit) Rule(plan, key string) Rule {
	r := Rule{Limit: l, Rates: l.Rates, Unlimited: l.Unlimited}
	shadow := l.Shadow
	if e := find(l.Plans, plan); e != nil {
		r.Plan = e.Name
		r.except(e)
		shadow = e.shadow(shadow)
	}
	if e := find(l.Overrides, key); e != nil {
		r.except(e)
		shadow = e.shadow(shadow)
	}
	r.Shadow = inShadow(key, shadow)
	return r
}

// Same says whether two rules are one and the same of one policy, so that what is known of a key under the one holds under
// the other.
func (r *Rule) Same(other *Rule) bool {
	return r.Limit == other.Limit && r.Plan == other.Plan && len(r.Rates) == len(other.Rates) &&
		(len(r.Rates) == 0 || &r.Rates[0] == &other.Rates[0])
}

func (r *Rule) except(e *Exception) {
	switch {
	case e.Unlimited:
		r.Rates, r.Unlimited = nil, true
	case len(e.Rates) > 0:
		r.Rates, r.Unlimited = e.Rates, false
	}
}

func (e *Exception) shadow(without uint32) uint32 {
	if e.Shadow > 0 || e.Enforce {
		return e.Shadow
	}
	return without
}

// find gives the exception of a name out of a sorted list; nil where there is none.
func find(list []Exception, name string) *Exception {
	i, found := slices.BinarySearchFunc(list, name, func(e Exception, name string) int { return strings.Compare(e.Name, name) })
	if !found {
		return nil
	}
	return &list[i]
}

// inShadow says whether a key is among so many percent of all keys. It is the same ones in every limit and in every worker,
// and those of a lower percentage are among those of a higher one.
func inShadow(key string, percent uint32) bool {
	if percent == 0 || percent >= 100 {
		return percent > 0
	}
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h ^= h >> 32 // its low bits alone know little of the last bytes
	h *= 0x9e3779b97f4a7c15
	return h>>32*100>>32 < uint64(percent)
}

// windows counts the different windows of everything that the limit says.
func (l *Limit) windows() int {
	return len(l.AllRates())
}

// AllRates gives a rate for every window in which keys of the limit may be counted: its own, those of its plans and those
// of its overrides.
func (l *Limit) AllRates() []limit.Rate {
	all := l.Rates
	add := func(list []Exception) {
		for i := range list {
			for _, rate := range list[i].Rates {
				if !slices.ContainsFunc(all, rate.SameWindow) {
					all = append(all[:len(all):len(all)], rate)
				}
			}
		}
	}
	add(l.Plans)
	add(l.Overrides)
	return all
}

// PlanOfOtherWindows gives the index of the first plan that is counted elsewhere than the limit's own rates or an earlier plan,
// because its rates have other windows; -1 for none.
func (l *Limit) PlanOfOtherWindows() int {
	rates := l.Rates
	for i := range l.Plans {
		other := l.Plans[i].Rates
		switch {
		case len(other) == 0: // it says nothing of rates
		case len(rates) == 0:
			rates = other
		case len(rates) != len(other) || slices.ContainsFunc(other, func(r limit.Rate) bool { return !slices.ContainsFunc(rates, r.SameWindow) }):
			return i
		}
	}
	return -1
}

func checkRules(l *Limit, identities int) *invalid {
	switch {
	case l.Unlimited && len(l.Rates) > 0:
		return &invalid{"unlimited", "is said of a limit with rates, want one of the two"}
	case l.Shadow > maxPercent:
		return &invalid{"shadow", badPercent(l.Shadow)}
	case len(l.Plans) > MaxPlans:
		return &invalid{"plans", tooMany(len(l.Plans), MaxPlans, "elements")}
	case len(l.Overrides) > MaxOverrides:
		return &invalid{"overrides", tooMany(len(l.Overrides), MaxOverrides, "elements")}
	case len(l.Plans) > 0 && int64(l.PlanBy) >= int64(identities), len(l.Plans) == 0 && l.PlanBy != 0:
		return &invalid{"plan_by", strconv.FormatUint(uint64(l.PlanBy), 10) + " chooses no plan by one of the " +
			strconv.Itoa(identities) + " identities"}
	}
	if !l.Unlimited {
		if e := checkRates(l.Algorithm, l.Rates); e != nil {
			return e
		}
	}
	for i := range l.Plans {
		if e := checkException(l, l.Plans, i, ValidName); e != nil {
			return e.in("plans", i)
		}
	}
	if l.MaxWait > 0 {
		if i := l.PlanOfOtherWindows(); i >= 0 {
			return &invalid{"plans[" + strconv.Itoa(i) + "].rates", "have other windows than those before, want the same ones in each " +
				"plan of a limit with max_wait: its requests wait in one line"}
		}
	}
	for i := range l.Overrides {
		if e := checkException(l, l.Overrides, i, ValidKey); e != nil {
			return e.in("overrides", i)
		}
	}
	if n := l.windows(); n > limit.MaxRates {
		return &invalid{"rates", "have " + strconv.Itoa(n) + " different windows, those of plans and overrides among them, want at most " +
			strconv.Itoa(limit.MaxRates)}
	}
	return nil
}

const maxPercent = 100

func badPercent(percent uint32) string {
	return "is " + strconv.FormatUint(uint64(percent), 10) + ", want 0 to " + strconv.Itoa(maxPercent) + " percent"
}

func checkException(l *Limit, list []Exception, i int, valid func(string) bool) *invalid {
	e := &list[i]
	switch {
	case !valid(e.Name) || e.Name == "":
		return &invalid{"name", strconv.Quote(clip(e.Name)) + " names no plan and no key"}
	case i > 0 && list[i-1].Name >= e.Name:
		return &invalid{"name", strconv.Quote(clip(e.Name)) + " does not come after the one before, want each once, in order"}
	case e.Unlimited && len(e.Rates) > 0:
		return &invalid{"unlimited", "is said together with rates, want one of the two"}
	case e.Shadow > maxPercent:
		return &invalid{"shadow", badPercent(e.Shadow)}
	case e.Enforce && e.Shadow > 0:
		return &invalid{"enforce", "is said together with shadow, want one of the two"}
	case len(e.Rates) == 0:
		return nil
	}
	if bad := checkRates(l.Algorithm, e.Rates); bad != nil {
		return bad
	}
	return checkCost(l, e.Rates)
}
