// Package ratefields writes what a client is told about its limits: header fields and the body of a denial.
//
// RateLimit-Policy and RateLimit follow draft-ietf-httpapi-ratelimit-headers (structured fields, RFC 9651); it is a draft,
// not an RFC. A reset is in whole seconds from the decision, rounded up.
//
// Each field of an answer is a call into the proxy, about a microsecond of every admitted request. So an answer has these
// two, and what does not change from request to request is written once for a policy (Limit).
package ratefields

import (
	"strconv"
	"time"

	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// Status codes of denials.
const (
	StatusTooManyRequests    = 429
	StatusServiceUnavailable = 503
	// GRPCResourceExhausted and GRPCUnavailable are the same denials to a gRPC client.
	GRPCResourceExhausted = 8
	GRPCUnavailable       = 14
)

// Status gives a denial's HTTP and gRPC status: over a limit, or undecided while the service is away.
func Status(out admission.Output) (http, grpc int) {
	if out.Unavailable {
		return StatusServiceUnavailable, GRPCUnavailable
	}
	return StatusTooManyRequests, GRPCResourceExhausted
}

// Limit is a rule with what is always told about it.
type Limit struct {
	policy.Rule
	// policy is its part of RateLimit-Policy: an item for each rate, named after the limit, and after its window too where
	// the rule has several. A window of a part of a second is told as a whole one.
	policy string
	// names are its rates', as structured-field strings.
	names []string
}

// New prepares what is told of a rule.
func New(rule policy.Rule) *Limit {
	l := &Limit{Rule: rule}
	for i, rate := range rule.Rates {
		name := l.rateName(rate)
		l.names = append(l.names, name)
		if i > 0 {
			l.policy += ", "
		}
		l.policy += name + ";q=" + strconv.FormatInt(rate.Units, 10) + ";w=" + strconv.FormatInt(Seconds(rate.Window), 10)
	}
	return l
}

// Each gives the header fields about a decision, one call of add for each, in lower case. Where nothing is known of any
// limit there are none but Retry-After. The limits are the ones whose demands were decided, in their order.
func Each(limits []*Limit, out admission.Output, add func(name, value string)) {
	if out.Verdict == admission.Deny && !out.Never {
		add("retry-after", strconv.FormatInt(RetryAfter(out), 10))
	}
	if out.Demand < 0 || out.Demand >= len(limits) || out.Rate.Window == 0 {
		return
	}
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

// Body gives the body of a denial, in JSON: error, message, limit, retry_after (seconds; null where no wait helps).
func Body(limits []*Limit, out admission.Output) string {
	name := ""
	if out.Demand >= 0 && out.Demand < len(limits) {
		name = limits[out.Demand].Limit.Name
	}
	code, retry := "rate_limited", "null"
	wait := RetryAfter(out)
	var message string
	switch {
	case out.Unavailable:
		code = "rate_limit_unavailable"
		message = "The rate limit could not be checked. Retry in " + strconv.FormatInt(wait, 10) + " s."
	case out.Never:
		message = "The request costs more than its limit of " + out.Rate.String() + " holds."
	default:
		message = "Over the limit of " + out.Rate.String() + ". Retry in " + strconv.FormatInt(wait, 10) + " s."
	}
	if !out.Never {
		retry = strconv.FormatInt(wait, 10)
	}
	return `{"error":"` + code + `","message":"` + message + `","limit":"` + name + `","retry_after":` + retry + "}\n"
}

// RetryAfter gives a denial's wait in whole seconds, rounded up, at least 1.
func RetryAfter(out admission.Output) int64 { return max(1, Seconds(out.RetryAfter)) }

// Seconds gives a duration in whole seconds, rounded up; 0 for a negative one.
func Seconds(d time.Duration) int64 {
	return max(0, int64((d+time.Second-1)/time.Second))
}
