package policy

import (
	"strings"

	"sluice/shared/limit"
)

// A call of Envoy's own rate limit filter may bring a rate that holds for it instead of its limit's. What it counts is apart
// from what the limit counts, and from what calls with other rates count.

// WithRate gives the limit as it holds for a call that brings a rate of its own.
func (l *Limit) WithRate(rate limit.Rate) *Limit {
	own := *l
	own.Rates, own.Unlimited = []limit.Rate{rate}, false
	if own.Algorithm.NeverOver() {
		own.Algorithm = limit.Auto(own.Rates)
	}
	return &own
}

// NameWithRate names a limit of WithRate's to the service. It is no name that a limit of a policy can have.
func (l *Limit) NameWithRate() string { return l.Name + "=" + l.Rates[0].String() }

// CutRate takes a name of NameWithRate's apart; false where it is none.
func CutRate(name string) (of string, rate limit.Rate, ok bool) {
	of, text, found := strings.Cut(name, "=")
	if !found {
		return "", limit.Rate{}, false
	}
	rate, err := limit.ParseRate(text)
	return of, rate, err == nil
}
