// Package ratefields writes what a client is told about its limits: header fields and the body of a denial.
//
// RateLimit-Policy and RateLimit follow draft-ietf-httpapi-ratelimit-headers (structured fields, RFC 9651); it is a draft,
// not an RFC. A reset is in whole seconds from the decision, rounded up.
//
// Each field of an answer is a call into the proxy, about a microsecond of every admitted request. So an answer has these
// two where the policy does not ask for the older three or X-RateLimit's, and what does not change from request to request
// is written once for a policy (Limit).
package ratefields

import (
	"strconv"
	"time"

	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// Limit is a rule with what is always told about it.
type Limit struct {
	policy.Rule
	// policy is its part of RateLimit-Policy: an item for each rate, named after the limit, and after its window too where
	// the rule has several. A window of a part of a second is told as a whole one.
	policy string
	// names are its rates', as structured-field strings.
	names    []string
	response *policy.Response
	styles   policy.FieldStyles
}

// New prepares what is told of a rule of the policy.
func New(p *policy.Policy, rule policy.Rule) *Limit {
	l := &Limit{Rule: rule, response: p.ResponseOf(rule.Limit), styles: p.FieldStyles}
	if l.styles == 0 {
		l.styles = policy.StandardFields
	}
	for i, rate := range rule.Rates {
		name := l.rateName(rate)
		l.names = append(l.names, name)
		if i > 0 {
			l.policy += ", "
		}
		l.policy += name + ";q=" + decimal(rate.Units) + ";w=" + decimal(Seconds(rate.Window))
	}
	return l
}

// Each gives the header fields about a decision, one call of add for each, in lower case: Retry-After and the response's
// own of a denial, and those of the policy's styles, where something is known of a limit. The limits are the ones whose
// demands were decided, in their order.
func Each(limits []*Limit, out admission.Output, add func(name, value string)) {
	if out.Verdict == admission.Deny {
		if !out.Never {
			add("retry-after", decimal(RetryAfter(out)))
		}
		for _, h := range responseTo(limits, out).Headers {
			add(h.Name, h.Value)
		}
	}
	if out.Demand < 0 || out.Demand >= len(limits) || out.Rate.Window == 0 {
		return
	}
	styles := limits[out.Demand].styles
	if styles&policy.StandardFields != 0 {
		field := limits[0].policy
		for _, l := range limits[1:] {
			field += ", " + l.policy
		}
		add("ratelimit-policy", field)
		var space [96]byte
		about := append(append(space[:0], limits[out.Demand].name(out.Rate)...), ";r="...)
		about = append(strconv.AppendInt(about, out.Remaining, 10), ";t="...)
		add("ratelimit", string(strconv.AppendInt(about, Seconds(out.Reset), 10)))
	}
	if styles&policy.LegacyFields != 0 {
		add("ratelimit-limit", decimal(out.Rate.Units))
		add("ratelimit-remaining", decimal(out.Remaining))
		add("ratelimit-reset", decimal(Seconds(out.Reset)))
	}
	if styles&policy.XFields != 0 {
		add("x-ratelimit-limit", decimal(out.Rate.Units))
		add("x-ratelimit-remaining", decimal(out.Remaining))
		add("x-ratelimit-reset", decimal(Seconds(out.Reset)))
	}
}

// name gives a rate's name. An answer may tell of a rate that the limit had before the policy changed.
func (l *Limit) name(rate limit.Rate) string {
	for i := range l.Rates {
		if l.Rates[i].Window == rate.Window {
			return l.names[i]
		}
	}
	return l.rateName(rate)
}

// rateName gives a rate's name as a structured-field string; limits' names hold nothing that needs escaping.
func (l *Limit) rateName(rate limit.Rate) string {
	if len(l.Rates) == 1 {
		return `"` + l.Limit.Name + `"`
	}
	_, window := cutSlash(rate.String())
	return `"` + l.Limit.Name + "/" + window + `"`
}

func cutSlash(rate string) (units, window string) {
	for i := range len(rate) {
		if rate[i] == '/' {
			return rate[:i], rate[i+1:]
		}
	}
	return rate, ""
}

// RetryAfter gives a denial's wait in whole seconds, rounded up, at least 1.
func RetryAfter(out admission.Output) int64 { return max(1, Seconds(out.RetryAfter)) }

// Seconds gives a duration in whole seconds, rounded up; 0 for a negative one.
func Seconds(d time.Duration) int64 {
	return max(0, int64((d+time.Second-1)/time.Second))
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
