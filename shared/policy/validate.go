package policy

import (
	"errors"
	"strconv"
	"unicode/utf8"
)

// ErrInvalid is what every error of Validate wraps.
var ErrInvalid = errors.New("not a valid policy")

// invalid says where a policy is wrong, and what was expected.
type invalid struct{ where, problem string }

func (e *invalid) Error() string { return e.where + ": " + e.problem }
func (e *invalid) Unwrap() error { return ErrInvalid }

// Validate says whether a policy may be decided by: indices and numbers are in range, names are as they should be. Bind is
// only for policies that pass. It gives the first thing that is wrong; errors wrap ErrInvalid.
func Validate(p *Policy) error {
	if e := check(p); e != nil {
		return e
	}
	return nil
}

func check(p *Policy) *invalid {
	switch {
	case len(p.Version) > MaxNameLength:
		return &invalid{"version", tooMany(len(p.Version), MaxNameLength, "bytes")}
	case !ValidName(p.Domain):
		return badName("domain", p.Domain)
	case len(p.Identities) > MaxIdentities:
		return &invalid{"identities", tooMany(len(p.Identities), MaxIdentities, "elements")}
	case len(p.Limits) > MaxLimits:
		return &invalid{"limits", tooMany(len(p.Limits), MaxLimits, "elements")}
	case len(p.Responses) > MaxResponses:
		return &invalid{"responses", tooMany(len(p.Responses), MaxResponses, "elements")}
	}
	if e := checkFieldStyles(p.FieldStyles); e != nil {
		return e
	}
	for i := range p.Responses {
		if e := checkResponse(&p.Responses[i]); e != nil {
			return e.in("responses", i)
		}
	}
	if e := checkIdentities(p); e != nil {
		return e
	}
	if e := checkLists("allow", p.Allow, len(p.Identities)); e != nil {
		return e
	}
	if e := checkLists("block", p.Block, len(p.Identities)); e != nil {
		return e
	}
	return checkLimits(p)
}

func checkIdentities(p *Policy) *invalid {
	if e := checkHashKey(p.HashKey); e != nil {
		return e
	}
	for i := range p.Identities {
		if e := checkIdentity(&p.Identities[i], p); e != nil {
			return e.in("identities", i)
		}
	}
	if i := Cycle(p.Identities); i >= 0 {
		return (&invalid{"first_of", "is read from itself"}).in("identities", i)
	}
	return nil
}

func checkLimits(p *Policy) *invalid {
	matches := checker{patterns: make(map[string]bool)}
	names := make(map[string]struct{}, len(p.Limits))
	for i := range p.Limits {
		l := &p.Limits[i]
		if e := checkLimit(l, p); e != nil {
			return e.in("limits", i)
		}
		if l.Response > 0 && int64(l.Response) >= int64(len(p.Responses)) {
			return (&invalid{"response", strconv.FormatUint(uint64(l.Response), 10) + " is no index into the " +
				strconv.Itoa(len(p.Responses)) + " responses"}).in("limits", i)
		}
		if e := matches.match(&l.Match, "match"); e != nil {
			return e.in("limits", i)
		}
		if _, twice := names[l.Name]; twice {
			return (&invalid{"name", strconv.Quote(l.Name) + " names an earlier limit"}).in("limits", i)
		}
		names[l.Name] = struct{}{}
		if e := checkReplaces(p.Limits, i); e != nil {
			return e.in("limits", i)
		}
	}
	return nil
}

func (e *invalid) in(list string, i int) *invalid {
	e.where = list + "[" + strconv.Itoa(i) + "]." + e.where
	return e
}

// ValidName says whether text may name a domain, an identity or a limit: 1 to MaxNameLength of a-z 0-9 . _ - only.
func ValidName(text string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return text != "" && len(text) <= MaxNameLength
}

// ValidHeader says whether text may name a header: 1 to MaxNameLength token characters (RFC 9110, 5.6.2) without capital
// letters, or :authority, :method, :path or :scheme.
func ValidHeader(text string) bool {
	switch text {
	case ":authority", ":method", ":path", ":scheme":
		return true
	}
	for i := range len(text) {
		if c := text[i]; !isToken(c) || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return text != "" && len(text) <= MaxNameLength
}

// ValidMethod says whether text may be a request's method: 1 to MaxMethodLength token characters.
func ValidMethod(text string) bool {
	for i := range len(text) {
		if !isToken(text[i]) {
			return false
		}
	}
	return text != "" && len(text) <= MaxMethodLength
}

// ValidPath says whether text may be a path to match: a slash and up to MaxPathLength bytes of UTF-8 in all, without
// white space, control characters, query or fragment.
func ValidPath(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c == 0x7f || c == '?' || c == '#' {
			return false
		}
	}
	return text != "" && text[0] == '/' && len(text) <= MaxPathLength && utf8.ValidString(text)
}

// isToken says whether a byte is a token character of RFC 9110, 5.6.2.
func isToken(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return false
}

func badName(where, name string) *invalid {
	return &invalid{where, strconv.Quote(clip(name)) + " is no name, want 1 to " + strconv.Itoa(MaxNameLength) + " of a-z 0-9 . _ -"}
}

func badPath(path string) string {
	return strconv.Quote(clip(path)) + " is no path, want a slash first, at most " + strconv.Itoa(MaxPathLength) +
		" bytes, no query and no white space"
}

func tooMany(have, most int, of string) string {
	return "has " + strconv.Itoa(have) + " " + of + ", want at most " + strconv.Itoa(most)
}

// clip keeps errors short.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
