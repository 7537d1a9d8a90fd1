package policy

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds on responses.
const (
	MaxResponses       = 256
	MaxBodyLength      = 4096 // bytes of a template
	MaxResponseHeaders = 16
	// MaxHeaderValue bounds an extra header's value, in bytes.
	MaxHeaderValue = 1024
	// MaxRetryAfterJitter bounds what is added to Retry-After.
	MaxRetryAfterJitter = time.Hour
)

// Response is what a client is told that a limit denies; its zero value is the default.
type Response struct {
	// Status is the HTTP status, 400 to 599; 0 stands for 429.
	Status uint32
	// Body is a template, up to MaxBodyLength bytes of UTF-8: {{name}} stands for one of Variables. Empty: the default, JSON.
	Body string
	// JSON says that Body is JSON, and values are escaped for it; else it is plain text.
	JSON bool
	// Headers are sent besides Retry-After and what FieldStyles says.
	Headers []Field
	// RetryAfterJitter is the most that is added to each Retry-After, drawn anew every time, so that clients that were denied
	// together do not come back together. 0 adds nothing.
	RetryAfterJitter time.Duration
}

// Field is a header field: its name in lower case, and its value.
type Field struct{ Name, Value string }

// Variables are what a body's template may name.
//
//	message      what happened, in a sentence
//	limit        the limit's name
//	rate         the rate that denies, as the policy writes it: 100/24h; empty where it is not known
//	remaining    units that are left under it, a number
//	reset        seconds until it is unused again, a number
//	retry_after  seconds until a request may pass, a number; null where no wait helps
var Variables = []string{"message", "limit", "rate", "remaining", "reset", "retry_after"}

// FieldStyles says, bit by bit, which header fields tell a client of its limits, on every answer. 0 stands for
// StandardFields.
type FieldStyles uint8

// The styles of header fields.
const (
	// StandardFields are RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers).
	StandardFields FieldStyles = 1 << iota
	// LegacyFields are RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, of the draft's early versions.
	LegacyFields
	// XFields are X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	XFields
	// NoFields is no style: nothing but Retry-After is sent. It stands alone.
	NoFields
)

// CutVariable splits a template at its first {{name}}: what is before it, the name, and what is after it. ok is false where
// there is none, and before is all of it.
func CutVariable(template string) (before, name, after string, ok bool) {
	before, rest, found := strings.Cut(template, "{{")
	if !found {
		return template, "", "", false
	}
	name, after, closed := strings.Cut(rest, "}}")
	if !closed {
		return template, "", "", false
	}
	return before, strings.Trim(name, " "), after, true
}

// UnknownVariable gives the first name in a template that is none of Variables.
func UnknownVariable(template string) (name string, found bool) {
	for {
		_, name, after, ok := CutVariable(template)
		if !ok {
			return "", false
		}
		if !isVariable(name) {
			return name, true
		}
		template = after
	}
}

func isVariable(name string) bool {
	for _, v := range Variables {
		if v == name {
			return true
		}
	}
	return false
}

// ValidHeaderValue says whether text may be a field's value: up to MaxHeaderValue bytes of printable ASCII, blanks within.
func ValidHeaderValue(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return len(text) <= MaxHeaderValue && strings.Trim(text, " ") == text
}

// reserved are fields that the filter or the proxy writes itself.
var reserved = []string{
	"connection", "content-length", "content-type", "date", "grpc-message", "grpc-status", "keep-alive", "retry-after", "server", "te",
	"trailer", "transfer-encoding", "upgrade",
	"ratelimit", "ratelimit-policy", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset",
	"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
}

// ReservedHeader says whether a response may not set the field, for somebody else does.
func ReservedHeader(name string) bool {
	for _, r := range reserved {
		if r == name {
			return true
		}
	}
	return strings.HasPrefix(name, ":")
}

func checkResponse(r *Response) *invalid {
	switch {
	case r.Status != 0 && (r.Status < 400 || r.Status > 599):
		return &invalid{"status", "is " + strconv.FormatUint(uint64(r.Status), 10) + ", want 400 to 599"}
	case len(r.Body) > MaxBodyLength:
		return &invalid{"body", tooMany(len(r.Body), MaxBodyLength, "bytes")}
	case !utf8.ValidString(r.Body):
		return &invalid{"body", "is not UTF-8"}
	case len(r.Headers) > MaxResponseHeaders:
		return &invalid{"headers", tooMany(len(r.Headers), MaxResponseHeaders, "elements")}
	case r.RetryAfterJitter < 0 || r.RetryAfterJitter > MaxRetryAfterJitter:
		return &invalid{"retry_after_jitter", "is " + r.RetryAfterJitter.String() + ", want 0 to " + MaxRetryAfterJitter.String()}
	}
	if name, found := UnknownVariable(r.Body); found {
		return &invalid{"body", strconv.Quote(clip(name)) + " is no variable, want one of " + strings.Join(Variables, ", ")}
	}
	for i, h := range r.Headers {
		if !ValidHeader(h.Name) || ReservedHeader(h.Name) || !ValidHeaderValue(h.Value) {
			return (&invalid{"name", strconv.Quote(clip(h.Name)) + " is no header that a response may set, or its value none"}).in("headers", i)
		}
	}
	return nil
}

func checkFieldStyles(styles FieldStyles) *invalid {
	if styles&NoFields != 0 && styles != NoFields || styles >= NoFields<<1 {
		return &invalid{"field_styles", strconv.Itoa(int(styles)) + " is no combination of styles"}
	}
	return nil
}
