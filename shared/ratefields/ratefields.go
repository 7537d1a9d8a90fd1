// Package ratefields writes what a client is told about its limits: header fields and the body of a denial.
//
// RateLimit-Policy and RateLimit follow draft-ietf-httpapi-ratelimit-headers (structured fields, RFC 9651); it is a draft,
// not an RFC. X-RateLimit-* are the older, widely read three. Every reset is in whole seconds from now, rounded up.
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

// Policy gives the value of RateLimit-Policy for the limits that bind a request: an item for each rate, named after its
// limit, and after its window too where the limit has several. A window of a part of a second is told as a whole one.
func Policy(limits []*policy.Limit) string {
	var space [128]byte
	field := space[:0]
	for _, l := range limits {
		for _, rate := range l.Rates {
			if len(field) > 0 {
				field = append(field, ", "...)
			}
			field = appendName(field, l, rate)
			field = append(field, ";q="...)
			field = strconv.AppendInt(field, rate.Units, 10)
			field = append(field, ";w="...)
			field = strconv.AppendInt(field, Seconds(rate.Window), 10)
		}
	}
	return string(field)
}

// Each gives the header fields about a decision, one call of add for each, in lower case. Where nothing is known of any
// limit there are none but Retry-After. The limits are the ones whose demands were decided, in their order.
func Each(limits []*policy.Limit, out admission.Output, add func(name, value string)) {
	if out.Verdict == admission.Deny && !out.Never {
		add("retry-after", strconv.FormatInt(RetryAfter(out), 10))
	}
	if out.Demand < 0 || out.Demand >= len(limits) || out.Rate.Window == 0 {
		return
	}
	add("ratelimit-policy", Policy(limits))

	var space [96]byte
	field := appendName(space[:0], limits[out.Demand], out.Rate)
	field = append(field, ";r="...)
	field = strconv.AppendInt(field, out.Remaining, 10)
	field = append(field, ";t="...)
	field = strconv.AppendInt(field, Seconds(out.Reset), 10)
	add("ratelimit", string(field))

	add("x-ratelimit-limit", strconv.FormatInt(out.Rate.Units, 10))
	add("x-ratelimit-remaining", strconv.FormatInt(out.Remaining, 10))
	add("x-ratelimit-reset", strconv.FormatInt(Seconds(out.Reset), 10))
}

// appendName writes a rate's name as a structured-field string; limits' names hold nothing that needs escaping.
func appendName(field []byte, l *policy.Limit, rate limit.Rate) []byte {
	field = append(field, '"')
	field = append(field, l.Name...)
	if len(l.Rates) > 1 {
		_, window := cutSlash(rate.String())
		field = append(field, '/')
		field = append(field, window...)
	}
	return append(field, '"')
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
func Body(limits []*policy.Limit, out admission.Output) string {
	name := ""
	if out.Demand >= 0 && out.Demand < len(limits) {
		name = limits[out.Demand].Name
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
