package policyfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

// tiers is what the policy says of plans: which identity names a request's, and which there are, nil where it does not say.
type tiers struct {
	said  bool
	by    uint32
	names []string
}

// readTiers reads the policy's plans.
func (d *decoder) readTiers(v value, identities map[string]uint32) {
	f, ok := d.fields(v, "a mapping such as {by: tier}", "by!", "names")
	if !ok {
		return
	}
	d.tiers.said = true
	if v, ok := f["by"]; ok {
		if by, known := d.identityOf(v, identities); known {
			d.tiers.by = by
			if id := &d.built.Identities[by]; id.Hash {
				d.fail(v, "%s is hashed, so that no request's plan can be told from it, want an identity with hash: false", quote(id.Name))
			}
		}
	}
	v, ok = f["names"]
	if !ok {
		return
	}
	list, _ := d.list(v, "a list of plans' names", 1, policy.MaxPlans)
	for _, v := range list {
		if name := d.name(v, "a plan's name"); slices.Contains(d.tiers.names, name) {
			d.fail(v, "%s is there twice", quote(name))
		} else {
			d.tiers.names = append(d.tiers.names, name)
		}
	}
}

// identityOf reads an identity's name.
func (d *decoder) identityOf(v value, identities map[string]uint32) (uint32, bool) {
	name, ok := d.text(v, "an identity's name")
	if !ok {
		return 0, false
	}
	index, known := identities[name]
	if !known {
		d.fail(v, "%s is no identity of this policy, %s", quote(name), suggest(name, sortedNames(identities)))
	}
	return index, known
}

func sortedNames(identities map[string]uint32) []string {
	names := make([]string, 0, len(identities))
	for name := range identities {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// unlimited is what stands for rates where there are none.
const unlimited = "unlimited"

func isUnlimited(v value) bool {
	text, ok := v.node.(*ast.StringNode)
	return ok && text.Value == unlimited
}

// rules reads for whom a limit is another one: its rates, plans, overrides, shadow and lists.
func (d *decoder) rules(l *policy.Limit, f map[string]value, identities map[string]uint32) {
	if v, ok := f["rates"]; ok {
		if l.Unlimited = isUnlimited(v); !l.Unlimited {
			l.Rates = d.rates(v)
		}
	}
	if v, ok := f["shadow"]; ok {
		l.Shadow, _ = d.shadow(v)
	}
	if v, ok := f["plans"]; ok {
		l.Plans = d.plans(v)
		if l.PlanBy = d.tiers.by; len(l.Plans) == 0 {
			l.PlanBy = 0
		}
	}
	if v, ok := f["overrides"]; ok {
		l.Overrides = d.overrides(v, l)
	}
	if v, ok := f["allow"]; ok {
		l.Allow = d.lists(v, identities)
	}
	if v, ok := f["block"]; ok {
		l.Block = d.lists(v, identities)
	}
	if n := len(l.AllRates()); n > limit.MaxRates {
		d.fail(f["rates"], "have %d different windows, those of plans and overrides among them, want at most %d", n, limit.MaxRates)
	}
	if l.Unlimited && len(l.Plans)+len(l.Overrides)+len(l.Block)+len(l.Descriptor) == 0 {
		d.fail(f["rates"], "are unlimited for everybody, want plans or overrides that are not")
	}
}

// plans reads a limit's plans, a mapping.
func (d *decoder) plans(v value) []policy.Exception {
	entries, ok := d.entries(v, "a mapping of plans to what holds for them")
	if !ok {
		return nil
	}
	if !d.tiers.said {
		d.fail(v, "needs the policy to say which identity names a request's plan: plans: {by: IDENTITY} beside limits")
	}
	if len(entries) > policy.MaxPlans {
		d.fail(v, "has %d plans, want at most %d", len(entries), policy.MaxPlans)
		return nil
	}
	plans := make([]policy.Exception, 0, len(entries))
	for _, e := range entries {
		switch known := d.tiers.names; {
		case !policy.ValidName(e.name):
			d.failAt(e.key, e.value.path, "%s is no name, want 1 to %d of a-z 0-9 . _ -", quote(e.name), policy.MaxNameLength)
		case known != nil && !slices.Contains(known, e.name):
			d.failAt(e.key, e.value.path, "%s is no plan of this policy, %s", quote(e.name), suggest(e.name, known))
		}
		if e.value.node == nil {
			continue
		}
		x := policy.Exception{Name: e.name}
		if x.Unlimited = isUnlimited(e.value); !x.Unlimited {
			const want = `what holds for a plan: "unlimited", or a mapping with rates or shadow`
			if f, ok := d.fields(e.value, want, "rates", "burst", "shadow"); ok {
				d.exception(&x, e.value, f)
			}
		}
		plans = append(plans, x)
	}
	slices.SortFunc(plans, byName)
	return plans
}

func byName(a, b policy.Exception) int { return strings.Compare(a.Name, b.Name) }

// overrides reads a limit's overrides, a list.
func (d *decoder) overrides(v value, l *policy.Limit) []policy.Exception {
	list, ok := d.list(v, "a list of what holds for single keys", 0, policy.MaxOverrides)
	if !ok {
		return nil
	}
	overrides := make([]policy.Exception, 0, len(list))
	lines := make(map[string]int, len(list))
	for _, v := range list {
		f, ok := d.fields(v, "what holds for a key, with key, and rates or shadow", "key!", "rates", "burst", "shadow")
		key, is := f["key"]
		if !ok || !is {
			continue
		}
		x := policy.Exception{}
		if x.Name, ok = d.keyOf(key, l); !ok {
			continue
		}
		if line, twice := lines[x.Name]; twice {
			d.fail(key, "is the key of an earlier override, on line %d", line)
			continue
		}
		lines[x.Name] = position(key.node).Position.Line
		d.exception(&x, v, f)
		overrides = append(overrides, x)
	}
	slices.SortFunc(overrides, byName)
	return overrides
}

// keyOf reads a key, a list of identities' values, in the form that Bind gives it.
func (d *decoder) keyOf(v value, l *policy.Limit) (string, bool) {
	list, ok := d.list(v, "a list of the values of the limit's key, such as [acme]", 0, policy.MaxKeyParts)
	if !ok {
		return "", false
	}
	switch {
	case len(l.Key) == 0:
		d.fail(v, "names one key of a limit that counts all requests together")
		return "", false
	case len(list) != len(l.Key):
		d.fail(v, "has %d values, want %d, one for each identity of the limit's key", len(list), len(l.Key))
		return "", false
	}
	parts := make([]string, 0, len(list))
	for i, v := range list {
		part, ok := d.valueOf(l.Key[i], v)
		if !ok {
			return "", false
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "/"), true
}

// valueOf reads a value of an identity, in the form in which it stands in a key.
func (d *decoder) valueOf(identity uint32, v value) (string, bool) {
	text, ok := d.text(v, "an identity's value")
	if !ok {
		return "", false
	}
	form, ok := d.built.Form(identity, text)
	if !ok {
		id := &d.built.Identities[identity]
		d.fail(v, "%s is no value of %s, %s", quote(text), quote(id.Name), wantOf(id))
	}
	return form, ok
}

// wantOf says which values an identity has.
func wantOf(id *policy.Identity) string {
	switch id.Source {
	case policy.FirstOf:
		return "want one such as NAME=VALUE with the name of an identity in its first_of"
	case policy.FromAddress:
		if len(id.Networks) > 0 {
			return "want the name of one of its networks"
		}
		return "want an address such as 192.0.2.1; ranges are under cidrs"
	case policy.FromPathTemplate:
		return "want one of its templates"
	case policy.FromConstant:
		return "want the constant"
	default:
		return fmt.Sprintf("want at most %d bytes, its max_length", id.MaxLength)
	}
}

// exception reads what a plan or an override says.
func (d *decoder) exception(x *policy.Exception, v value, f map[string]value) {
	rates, hasRates := f["rates"]
	shadow, hasShadow := f["shadow"]
	if !hasRates && !hasShadow {
		d.fail(v, "says nothing, want rates or shadow")
	}
	if hasRates {
		if x.Unlimited = isUnlimited(rates); !x.Unlimited {
			x.Rates = d.rates(rates)
		}
	}
	if burst, ok := f["burst"]; ok {
		x.Rates = d.burst(burst, x.Rates)
		d.bursts = append(d.bursts, burst)
	}
	if hasShadow {
		percent, ok := d.shadow(shadow)
		x.Shadow, x.Enforce = percent, ok && percent == 0
	}
}

// shadow reads the percentage of the keys that are in shadow.
func (d *decoder) shadow(v value) (uint32, bool) {
	if all, ok := v.node.(*ast.BoolNode); ok {
		if all.Value {
			return 100, true
		}
		return 0, true
	}
	f, ok := d.fields(v, "true, false or a mapping such as {percent: 90}", "percent!")
	if !ok {
		return 0, false
	}
	percent, ok := f["percent"]
	if !ok {
		return 0, false
	}
	n, ok := d.number(percent, 0, 100)
	return uint32(n), ok
}

// truth reads true or false.
func (d *decoder) truth(v value, want string) bool {
	b, ok := v.node.(*ast.BoolNode)
	if !ok {
		d.fail(v, "is %s, want true or false: %s", describe(v.node), want)
		return false
	}
	return b.Value
}

// cost reads what a request spends: a number, or where it is read from.
func (d *decoder) cost(l *policy.Limit, v value) {
	if _, ok := v.node.(*ast.IntegerNode); ok {
		l.Cost = d.units(v)
		return
	}
	f, ok := d.fields(v, "a whole number, or a mapping such as {header: x-cost} or {request_bytes: 1024}",
		"header", "request_bytes", "default", "max")
	if !ok {
		return
	}
	header, byHeader := f["header"]
	bytes, byBytes := f["request_bytes"]
	if byHeader == byBytes {
		d.fail(v, "has to have one of header and request_bytes")
		return
	}
	l.Measure.Max = policy.MaxCost
	if byHeader {
		l.Measure.Header = d.header(header)
	} else {
		n, _ := d.number(bytes, 1, policy.MaxUnitBytes)
		l.Measure.Bytes = int64(n)
	}
	if v, ok := f["default"]; ok {
		l.Cost = d.units(v)
	}
	if v, ok := f["max"]; ok {
		n, _ := d.number(v, 1, policy.MaxCost)
		if l.Measure.Max = int64(n); n > 0 && l.Cost > l.Measure.Max {
			d.fail(v, "is %d, less than the default of %d", n, l.Cost)
		}
	}
}

// units reads a cost. A policy that says 1 and one that says nothing are the same.
func (d *decoder) units(v value) int64 {
	n, ok := d.number(v, 1, policy.MaxCost)
	if !ok || n == 1 {
		return 0
	}
	return int64(n)
}

// checkCost looks whether a request of the usual cost can be admitted at all, whatever holds for its key.
func (d *decoder) checkCost(v value, l *policy.Limit) {
	for _, rate := range everyRate(l) {
		if l.Cost > rate.Most() {
			d.fail(v, "is %d, more than %s ever admits", l.Cost, rate)
			return
		}
	}
}

// everyRate gives all rates that hold for some key of a limit.
func everyRate(l *policy.Limit) []limit.Rate {
	rates := slices.Clone(l.Rates)
	for _, list := range [][]policy.Exception{l.Plans, l.Overrides} {
		for i := range list {
			rates = append(rates, list[i].Rates...)
		}
	}
	return rates
}
