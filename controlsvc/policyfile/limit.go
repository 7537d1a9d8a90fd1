package policyfile

import (
	"slices"
	"strings"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

// limits reads the list; identities has their indices by name.
func (d *decoder) limits(v value, identities map[string]uint32) []policy.Limit {
	list, ok := d.list(v, "a list of limits", 0, policy.MaxLimits)
	if !ok {
		return nil
	}
	names := sortedNames(identities)
	limits := make([]policy.Limit, 0, len(list))
	lines, paths := make(map[string]int), make(map[string]int)
	var replaces []replacement
	for _, v := range list {
		key := "key!"
		if has(v, "descriptor") {
			key = "key"
		}
		f, ok := d.fields(v, "a limit with name, key and rates",
			"name!", "match", key, "descriptor", "rates!", "algorithm", "burst", "mode", "on_unavailable", "max_wait", "cost", "response",
			"plans", "overrides", "shadow", "allow", "block", "replaces")
		if !ok {
			continue
		}
		l := policy.Limit{Mode: limit.Lease, OnUnavailable: limit.Local}
		if v, ok := f["name"]; ok {
			l.Name = d.name(v, "the limit's name")
			if line, twice := lines[l.Name]; twice {
				d.fail(v, "%s is the name of an earlier limit, on line %d", quote(l.Name), line)
			} else {
				lines[l.Name] = position(v.node).Position.Line
			}
		}
		if v, ok := f["descriptor"]; ok {
			l.Descriptor = d.descriptor(v, f, paths)
		} else {
			d.binding(&l, f, identities, names)
		}
		if v, ok := f["replaces"]; ok {
			replaces = append(replaces, replacement{len(limits), v})
		}
		d.rules(&l, f, identities)
		d.behaviour(&l, f)
		d.spending(&l, f)
		if len(l.Descriptor) > 0 && l.Measure != (policy.Measure{}) {
			d.fail(f["cost"], "is read from a request, and a descriptor is none, want a number")
		}
		if v, ok := f["response"]; ok {
			l.Response = d.limitResponse(v)
		}
		limits = append(limits, l)
	}
	d.replaces(limits, replaces)
	return limits
}

// binding reads which requests a limit binds, and by which key it counts them.
func (d *decoder) binding(l *policy.Limit, f map[string]value, identities map[string]uint32, names []string) {
	if v, ok := f["match"]; ok {
		l.Match = d.match(v)
	}
	if v, ok := f["key"]; ok {
		l.Key = d.key(v, identities, names)
	}
}

func (d *decoder) key(v value, identities map[string]uint32, names []string) []uint32 {
	list, ok := d.list(v, "a list of identities' names; [] counts all requests together", 0, policy.MaxKeyParts)
	if !ok {
		return nil
	}
	key := make([]uint32, 0, len(list))
	for _, v := range list {
		name, ok := d.text(v, "an identity's name")
		if !ok {
			continue
		}
		index, known := identities[name]
		switch {
		case !known:
			d.fail(v, "%s is no identity of this policy, %s", quote(name), suggest(name, names))
		case slices.Contains(key, index):
			d.fail(v, "%s is in the key already", quote(name))
		default:
			key = append(key, index)
		}
	}
	return key
}

// rates reads the list; of two rates that hold at once, the one over the longer window has to allow more, or the other
// could never be reached.
func (d *decoder) rates(v value) []limit.Rate {
	list, ok := d.list(v, `a list of rates such as ["10/s", "600/m"]`, 1, limit.MaxRates)
	if !ok {
		return nil
	}
	rates := make([]limit.Rate, 0, len(list))
	for _, v := range list {
		text, ok := d.text(v, `a rate such as "10/s"`)
		if !ok {
			continue
		}
		rate, err := limit.ParseRate(text)
		if err != nil {
			d.fail(v, "%v", err)
			continue
		}
		for _, other := range rates {
			short, long := rate, other
			if short.Window > long.Window {
				short, long = long, short
			}
			switch {
			case short.Window == long.Window:
				d.fail(v, "%s has the window of %s, want one rate for each window", rate, other)
			case long.Units <= short.Units:
				d.fail(v, "%s can never be reached under %s, want more units in the longer window", short, long)
			default:
				continue
			}
			break
		}
		rates = append(rates, rate)
	}
	return rates
}

// behaviour reads how a limit counts, and what it does when nobody answers.
func (d *decoder) behaviour(l *policy.Limit, f map[string]value) {
	l.Algorithm = limit.Auto(everyRate(l))
	if v, ok := f["algorithm"]; ok {
		text := d.word(v, "an algorithm", limit.SlidingLog.String(), limit.SlidingBuckets.String(), "auto",
			limit.SlidingWindowCounter.String(), limit.FixedWindow.String(), limit.TokenBucket.String())
		if algorithm, ok := limit.ParseAlgorithm(text); ok {
			l.Algorithm = algorithm
		}
	}
	if v, ok := f["burst"]; ok {
		l.Rates = d.burst(v, l.Rates)
		d.bursts = append(d.bursts, v)
	}
	for _, v := range d.bursts {
		if l.Algorithm != limit.TokenBucket {
			d.fail(v, "is what a bucket holds, want it under algorithm %s only, not %s", limit.TokenBucket, l.Algorithm)
		}
	}
	d.bursts = nil
	if v, ok := f["mode"]; ok {
		if text := d.word(v, "a mode", "lease", "strict", "async"); text != "" {
			l.Mode, _ = limit.ParseMode(text)
		}
	}
	if v, ok := f["on_unavailable"]; ok {
		if text := d.word(v, "what to do while the service is away", "local", "allow", "deny"); text != "" {
			l.OnUnavailable, _ = limit.ParseUnavailable(text)
		}
	}
}

// spending reads what a request spends, and for how long it may be held back.
func (d *decoder) spending(l *policy.Limit, f map[string]value) {
	if v, ok := f["max_wait"]; ok {
		l.MaxWait = d.duration(v, policy.MaxMaxWait)
		if l.MaxWait > 0 && l.Mode != limit.Lease {
			d.fail(v, "holds requests back until units that are leased may be spent, want it in mode lease only, not in %s", l.Mode)
		}
		if i := l.PlanOfOtherWindows(); l.MaxWait > 0 && i >= 0 {
			d.fail(f["plans"], "has other windows for %s, want those of the other rates under max_wait: requests of all plans wait in one line",
				quote(l.Plans[i].Name))
		}
	}
	v, ok := f["cost"]
	if !ok {
		return
	}
	d.cost(l, v)
	d.checkCost(v, l)
}

// burst reads what a token bucket of the rates that are said beside it holds. Of several rates it would not be clear whose
// it is.
func (d *decoder) burst(v value, rates []limit.Rate) []limit.Rate {
	n, ok := d.number(v, 1, limit.MaxUnits)
	switch {
	case !ok:
		return rates
	case len(rates) != 1:
		d.fail(v, "is of %d rates, want one", len(rates))
		return rates
	case int64(n) == rates[0].Units:
		return rates // a policy that says so and one that says nothing are the same
	}
	rate := rates[0]
	if rate.Burst = int64(n); !rate.ValidBurst() {
		d.fail(v, "is %d, want at most what flows in at %s within %s", n, rate, limit.MaxWindow)
		return rates
	}
	return []limit.Rate{rate}
}

// word reads one of a few words; empty after an error.
func (d *decoder) word(v value, want string, words ...string) string {
	text, ok := d.text(v, want+": "+strings.Join(words, ", "))
	switch {
	case !ok:
		return ""
	case slices.Contains(words, text):
		return text
	default:
		d.fail(v, "%s is not %s, %s", quote(text), want, suggest(text, words))
	}
	return ""
}
