package policy

import (
	"strconv"
	"time"

	"sluice/shared/limit"
)

// Limit is one rule of the policy.
type Limit struct {
	Name  string
	Match Match
	// Key holds indices into Policy.Identities; a request that lacks one of them is not under this limit. Without any, all
	// requests share one count.
	Key []uint32
	// Rates hold all at once; there is at least one, each with another window, unless the limit is Unlimited.
	Rates []limit.Rate
	// Unlimited says that the limit binds only those that a plan or an override gives rates to.
	Unlimited bool
	// Shadow is the percentage of the keys that are in shadow, 0 to 100: decided and counted, never denied.
	Shadow uint32
	// Plans and Overrides are what holds otherwise for some keys, sorted by their names: see Rule. PlanBy is the index of the
	// identity whose value names a request's plan; 0 where there are no plans.
	Plans     []Exception
	PlanBy    uint32
	Overrides []Exception
	// Allow and Block hold for the requests that match, whether they have the key's identities or not: a request on one of
	// Block is denied, one of Allow is not under this limit.
	Allow, Block  []List
	Algorithm     limit.Algorithm
	Mode          limit.Mode
	OnUnavailable limit.Unavailable
	// MaxWait is for how long a request may be held back until a unit that is granted already may be spent: 0 to
	// MaxMaxWait, in whole microseconds. 0: not at all, which is all that modes other than Lease may say.
	MaxWait time.Duration
	// Cost is what one request spends where Measure does not say: 1 to MaxCost units, and not more than the smallest rate
	// holds. 0 stands for 1.
	Cost int64
	// Measure reads the cost of the request.
	Measure Measure
	// Descriptor, where it is not empty, is what a descriptor of Envoy's own rate limit filter has to be, entry by entry; the
	// limit then binds no request of the filter's, and its keys are made of the entries without a fixed value.
	Descriptor []DescriptorEntry
	// Replaces holds indices into Policy.Limits: those that a request is not under where it is under this one, of two with a
	// Descriptor.
	Replaces []uint32
	// Response is an index into Policy.Responses.
	Response uint32
}

// KeyParts is how many values a key of the limit is made of.
func (l *Limit) KeyParts() int {
	parts := len(l.Key)
	for i := range l.Descriptor {
		if l.Descriptor[i].Counted() {
			parts++
		}
	}
	return parts
}

// RequestCost gives what one request spends, in units, as far as that does not depend on the request.
func (l *Limit) RequestCost() int64 { return max(1, l.Cost) }

func checkLimit(l *Limit, p *Policy) *invalid {
	switch {
	case !ValidName(l.Name):
		return badName("name", l.Name)
	case len(l.Key) > MaxKeyParts:
		return &invalid{"key", tooMany(len(l.Key), MaxKeyParts, "elements")}
	case l.Algorithm < limit.SlidingLog || l.Algorithm > limit.TokenBucket:
		return &invalid{"algorithm", l.Algorithm.String() + " is not known here"}
	case l.Mode < limit.Strict || l.Mode > limit.Async:
		return &invalid{"mode", l.Mode.String() + " is not known here"}
	case l.OnUnavailable < limit.Local || l.OnUnavailable > limit.Deny:
		return &invalid{"on_unavailable", l.OnUnavailable.String() + " is not known here"}
	}
	identities := len(p.Identities)
	for i, n := range l.Key {
		if int64(n) >= int64(identities) {
			return &invalid{"key[" + strconv.Itoa(i) + "]", strconv.FormatUint(uint64(n), 10) + " is no index into the " +
				strconv.Itoa(identities) + " identities"}
		}
	}
	if e := checkSpending(l); e != nil {
		return e
	}
	if e := checkRules(l, identities); e != nil {
		return e
	}
	if e := checkLists("allow", l.Allow, identities); e != nil {
		return e
	}
	if e := checkLists("block", l.Block, identities); e != nil {
		return e
	}
	return checkDescriptor(l, p.HashKey != "")
}

// checkSpending looks at what a request spends, and for how long it may be held back.
func checkSpending(l *Limit) *invalid {
	switch {
	case l.MaxWait < 0 || l.MaxWait > MaxMaxWait || l.MaxWait%time.Microsecond != 0:
		return &invalid{"max_wait", "is " + l.MaxWait.String() + ", want 0 to " + MaxMaxWait.String() + " in whole microseconds"}
	case l.MaxWait > 0 && l.Mode != limit.Lease:
		return &invalid{"max_wait", "needs mode lease, not " + l.Mode.String()}
	case l.Cost < 0 || l.Cost > MaxCost:
		return &invalid{"cost", "is " + strconv.FormatInt(l.Cost, 10) + ", want 0 to " + strconv.Itoa(MaxCost)}
	}
	if e := checkMeasure(&l.Measure); e != nil {
		return e
	}
	return checkCost(l, l.Rates)
}

// checkCost looks whether a request can be admitted within the rates at all.
func checkCost(l *Limit, rates []limit.Rate) *invalid {
	if l.Cost <= 1 {
		return nil // under 0 units too: that admits nothing, as it says
	}
	for _, r := range rates {
		if l.Cost > r.Most() {
			return &invalid{"cost", "is " + strconv.FormatInt(l.Cost, 10) + ", more than " + r.String() + " ever admits"}
		}
	}
	return nil
}

func checkRates(algorithm limit.Algorithm, rates []limit.Rate) *invalid {
	if len(rates) == 0 || len(rates) > limit.MaxRates {
		return &invalid{"rates", "has " + strconv.Itoa(len(rates)) + " elements, want 1 to " + strconv.Itoa(limit.MaxRates)}
	}
	for i, r := range rates {
		where := "rates[" + strconv.Itoa(i) + "]"
		switch {
		case r.Units < 0 || r.Units > limit.MaxUnits:
			return &invalid{where, "has " + strconv.FormatInt(r.Units, 10) + " units, want 0 to " + strconv.FormatInt(limit.MaxUnits, 10)}
		case r.Window < limit.MinWindow || r.Window > limit.MaxWindow || r.Window%time.Microsecond != 0:
			return &invalid{where, "has a window of " + r.Window.String() + ", want " + limit.MinWindow.String() + " to " +
				limit.MaxWindow.String() + " in whole microseconds"}
		case r.Burst != 0 && algorithm != limit.TokenBucket:
			return &invalid{where, "has a burst, which only " + limit.TokenBucket.String() + " has"}
		case !r.ValidBurst():
			return &invalid{where, "has a burst of " + strconv.FormatInt(r.Burst, 10) + ", want 0 to " +
				strconv.FormatInt(limit.MaxUnits, 10) + ", and at most what flows in within " + limit.MaxWindow.String()}
		}
		for _, earlier := range rates[:i] {
			if earlier.Window == r.Window {
				return &invalid{where, "has the window of an earlier rate, " + r.Window.String()}
			}
		}
	}
	return nil
}
