package policy

import (
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"sluice/shared/limit"
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
	}
	for i := range p.Identities {
		if e := checkIdentity(&p.Identities[i]); e != nil {
			return e.in("identities", i)
		}
	}
	names := make(map[string]struct{}, len(p.Limits))
	for i := range p.Limits {
		l := &p.Limits[i]
		if e := checkLimit(l, len(p.Identities)); e != nil {
			return e.in("limits", i)
		}
		if _, twice := names[l.Name]; twice {
			return (&invalid{"name", strconv.Quote(l.Name) + " names an earlier limit"}).in("limits", i)
		}
		names[l.Name] = struct{}{}
	}
	return nil
}

func (e *invalid) in(list string, i int) *invalid {
	e.where = list + "[" + strconv.Itoa(i) + "]." + e.where
	return e
}

func checkIdentity(id *Identity) *invalid {
	switch {
	case !ValidName(id.Name):
		return badName("name", id.Name)
	case id.Source == FromHeader && !ValidHeader(id.Header):
		return &invalid{"header", strconv.Quote(clip(id.Header)) + " is no header's name in lower case"}
	case id.Source == FromAddress && id.TrustedHops > MaxTrustedHops:
		return &invalid{"trusted_hops", tooMany(int(id.TrustedHops), MaxTrustedHops, "hops")}
	case id.Source != FromHeader && id.Source != FromAddress:
		return &invalid{"source", strconv.Itoa(int(id.Source)) + " is no source that is known here"}
	}
	return nil
}

func checkLimit(l *Limit, identities int) *invalid {
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
	for i, n := range l.Key {
		if int64(n) >= int64(identities) {
			return &invalid{"key[" + strconv.Itoa(i) + "]", strconv.FormatUint(uint64(n), 10) + " is no index into the " +
				strconv.Itoa(identities) + " identities"}
		}
	}
	if e := checkRates(l.Rates); e != nil {
		return e
	}
	if e := checkSpending(l); e != nil {
		return e
	}
	return checkMatch(&l.Match)
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
	case l.Cost <= 1:
		return nil // under 0 units too: that admits nothing, as it says
	}
	for _, r := range l.Rates {
		if l.Cost > r.Units {
			return &invalid{"cost", "is " + strconv.FormatInt(l.Cost, 10) + ", more than " + r.String() + " ever admits"}
		}
	}
	return nil
}

func checkRates(rates []limit.Rate) *invalid {
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
		}
		for _, earlier := range rates[:i] {
			if earlier.Window == r.Window {
				return &invalid{where, "has the window of an earlier rate, " + r.Window.String()}
			}
		}
	}
	return nil
}

func checkMatch(m *Match) *invalid {
	switch {
	case m.PathExact != "" && !ValidPath(m.PathExact):
		return &invalid{"match.path_exact", badPath(m.PathExact)}
	case m.PathPrefix != "" && !ValidPath(m.PathPrefix):
		return &invalid{"match.path_prefix", badPath(m.PathPrefix)}
	case len(m.Methods) > MaxMethods:
		return &invalid{"match.methods", tooMany(len(m.Methods), MaxMethods, "elements")}
	}
	for i, method := range m.Methods {
		if !ValidMethod(method) {
			return &invalid{"match.methods[" + strconv.Itoa(i) + "]", strconv.Quote(clip(method)) + " is no method's name"}
		}
	}
	return nil
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
