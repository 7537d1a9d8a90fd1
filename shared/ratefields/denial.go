package ratefields

import (
	"time"

	"sluice/shared/admission"
	"sluice/shared/policy"
)

// Status codes of denials.
const (
	StatusTooManyRequests    = 429
	StatusServiceUnavailable = 503
	StatusForbidden          = 403
	// GRPCResourceExhausted, GRPCUnavailable and GRPCPermissionDenied are the same denials to a gRPC client.
	GRPCResourceExhausted = 8
	GRPCUnavailable       = 14
	GRPCPermissionDenied  = 7
)

// responseTo gives what the limit that denies says of its denials.
func responseTo(limits []*Limit, out admission.Output) *policy.Response {
	if out.Demand < 0 || out.Demand >= len(limits) {
		return &policy.Response{}
	}
	return limits[out.Demand].response
}

// Status gives a denial's HTTP and gRPC status: over a limit, blocked, or undecided while the service is away.
func Status(limits []*Limit, out admission.Output) (http, grpc int) {
	switch {
	case out.Unavailable:
		return StatusServiceUnavailable, GRPCUnavailable
	case out.Source == admission.FromBlock:
		return StatusForbidden, GRPCPermissionDenied
	}
	if status := responseTo(limits, out).Status; status != 0 {
		return int(status), GRPCResourceExhausted
	}
	return StatusTooManyRequests, GRPCResourceExhausted
}

// Jitter gives what to add to a denial's RetryAfter: some of the most that the limit says, by a random number of 64 bits.
func Jitter(limits []*Limit, out admission.Output, random func() uint64) time.Duration {
	most := responseTo(limits, out).RetryAfterJitter
	if most == 0 {
		return 0
	}
	return time.Duration(random() % uint64(most+1))
}

// Message says in a sentence what a denial is about. It is plain ASCII, without quotes.
func Message(out admission.Output) string {
	switch {
	case out.Unavailable:
		return "The rate limit could not be checked. Retry in " + decimal(RetryAfter(out)) + " s."
	case out.Source == admission.FromBlock:
		return "The request is blocked."
	case out.Never:
		return "The request costs more than its limit of " + out.Rate.String() + " holds."
	}
	return "Over the limit of " + out.Rate.String() + ". Retry in " + decimal(RetryAfter(out)) + " s."
}

// defaultBody is what a denial says where the policy does not: retry_after is null where no wait helps.
const (
	defaultBody     = `{"error":"rate_limited","message":"{{message}}","limit":"{{limit}}","retry_after":{{retry_after}}}` + "\n"
	blockedBody     = `{"error":"blocked","message":"{{message}}","limit":"{{limit}}","retry_after":{{retry_after}}}` + "\n"
	unavailableBody = `{"error":"rate_limit_unavailable","message":"{{message}}","limit":"{{limit}}","retry_after":{{retry_after}}}` + "\n"
)

// Body gives the body of a denial, and its type.
func Body(limits []*Limit, out admission.Output) (text, contentType string) {
	r := responseTo(limits, out)
	template, isJSON := r.Body, r.JSON
	if template == "" {
		template, isJSON = defaultBody, true
		switch {
		case out.Unavailable:
			template = unavailableBody
		case out.Source == admission.FromBlock:
			template = blockedBody
		}
	}
	contentType = "text/plain; charset=utf-8"
	if isJSON {
		contentType = "application/json"
	}
	var space [512]byte
	body := space[:0]
	for {
		before, name, after, found := policy.CutVariable(template)
		body = append(body, before...)
		if !found {
			return string(body), contentType
		}
		body = append(body, variable(name, limits, out)...)
		template = after
	}
}

// variable gives what one of policy.Variables stands for. All are made of ASCII without quotes, backslashes and control
// characters, for limits' names and rates hold none: nothing of them needs escaping, in JSON as in text.
func variable(name string, limits []*Limit, out admission.Output) string {
	switch name {
	case "message":
		return Message(out)
	case "limit":
		if out.Demand >= 0 && out.Demand < len(limits) {
			return limits[out.Demand].Limit.Name
		}
	case "rate":
		if out.Rate.Window != 0 {
			return out.Rate.String()
		}
	case "remaining":
		return decimal(out.Remaining)
	case "reset":
		return decimal(Seconds(out.Reset))
	case "retry_after":
		if out.Never {
			return "null"
		}
		return decimal(RetryAfter(out))
	}
	return ""
}
