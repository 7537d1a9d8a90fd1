package policy

import (
	"strconv"
	"strings"
)

// Match is what a request has to be for a limit to bind it; an empty field matches everything.
//
// Paths are compared byte by byte, without the query, as the proxy shows them: it is the proxy that decodes, resolves
// dots and merges slashes (Envoy's normalize_path and merge_slashes), before anything matches.
type Match struct {
	PathExact string
	// PathPrefix matches whole segments, as Kubernetes' Gateway API and Envoy's path_separated_prefix have it: /v1/reports
	// matches /v1/reports, /v1/reports/ and /v1/reports/7, but not /v1/reportsX. A slash at its end changes nothing.
	PathPrefix string
	// PathTemplate matches as checkTemplate has it: /v1/reports/{id}, /files/{path=**}.
	PathTemplate string
	// PathRegex matches whole paths; its syntax is that of Go's regexp (RE2's), its cost linear in the path.
	PathRegex string
	// Host is a host's name in lower case without a port, or *.NAME for all names that end in .NAME; not NAME itself.
	Host string
	// Methods are compared case by case, as HTTP does (RFC 9110, 9.1).
	Methods []string
	// Headers and Query all have to match. Of a header with several fields, or a list of values between commas, one has to,
	// and so of a query parameter that stands several times.
	Headers, Query []FieldMatch
	// Not must not match, as a whole. It has no Not of its own.
	Not *Match
}

// Route gives the pattern that the path is matched by, as it is written; empty for none.
func (m *Match) Route() string {
	switch {
	case m.PathTemplate != "":
		return m.PathTemplate
	case m.PathPrefix != "":
		return m.PathPrefix
	case m.PathExact != "":
		return m.PathExact
	}
	return m.PathRegex
}

// FieldKind says what of a field is compared. Numbers are those of the wire.
type FieldKind uint8

// The kinds of a FieldMatch.
const (
	FieldPresent FieldKind = 1
	FieldExact   FieldKind = 2
	FieldPrefix  FieldKind = 3
	FieldRegex   FieldKind = 4
)

// FieldMatch is what a header or a query parameter has to be.
type FieldMatch struct {
	// Name is a header's in lower case, or a query parameter's.
	Name string
	Kind FieldKind
	// Value is what is compared, as Kind has it; empty with FieldPresent.
	Value string
}

// matcher is a Match that is ready to be asked.
type matcher struct {
	*Match
	// hasPath says that it says something of the path.
	hasPath        bool
	path           *pattern
	headers, query []*pattern
	not            *matcher
}

// newMatcher makes what m says ready. Equal patterns share one, by patterns.
func newMatcher(m *Match, patterns map[string]*pattern) *matcher {
	c := &matcher{Match: m, headers: fieldPatterns(m.Headers, patterns), query: fieldPatterns(m.Query, patterns)}
	c.hasPath = m.PathExact != "" || m.PathPrefix != "" || m.PathTemplate != "" || m.PathRegex != ""
	if m.PathRegex != "" {
		c.path = newPattern(m.PathRegex, patterns)
	}
	if m.Not != nil {
		c.not = newMatcher(m.Not, patterns)
	}
	return c
}

func fieldPatterns(fields []FieldMatch, patterns map[string]*pattern) []*pattern {
	if len(fields) == 0 {
		return nil
	}
	list := make([]*pattern, len(fields))
	for i, f := range fields {
		if f.Kind == FieldRegex {
			list[i] = newPattern(f.Value, patterns)
		}
	}
	return list
}

// matches says whether the request is what m says. Where something is too long to be compared with a pattern, tooLong is
// what comes of it: true for the match of a limit and false within Not, so that nobody leaves a limit by writing more.
func (b *binding) matches(m *matcher, tooLong bool) bool {
	return (len(m.Methods) == 0 || b.matchesMethod(m.Methods)) && (m.Host == "" || matchesHost(m.Host, b.readHost())) &&
		(!m.hasPath || b.matchesPath(m, tooLong)) && (len(m.headers) == 0 || b.matchesHeaders(m, tooLong)) &&
		(len(m.query) == 0 || b.matchesQuery(m, tooLong)) && (m.not == nil || !b.matches(m.not, false))
}

func (b *binding) matchesPath(m *matcher, tooLong bool) bool {
	if !m.hasPath {
		return true
	}
	return b.readPath() && (m.PathExact == "" || b.path == m.PathExact) &&
		(m.PathPrefix == "" || hasPathPrefix(b.path, m.PathPrefix)) &&
		(m.PathTemplate == "" || matchesTemplate(b.path, m.PathTemplate)) &&
		(m.path == nil || m.path.matches(b.path, tooLong))
}

func (b *binding) matchesMethod(methods []string) bool {
	if len(methods) == 0 {
		return true
	}
	b.readMethod()
	if !b.hasMethod {
		return false
	}
	for _, m := range methods {
		if m == b.method {
			return true
		}
	}
	return false
}

func (b *binding) matchesHeaders(m *matcher, tooLong bool) bool {
	for i := range m.Headers {
		f := &m.Headers[i]
		value, fields := b.request.Header(f.Name)
		if fields == 0 || !matchesElement(f, m.headers[i], value, tooLong) {
			return false
		}
	}
	return true
}

func (b *binding) matchesQuery(m *matcher, tooLong bool) bool {
	for i := range m.Query {
		f := &m.Query[i]
		if !matchesParameter(f, m.query[i], b.readQuery(), tooLong) {
			return false
		}
	}
	return true
}

// matchesParameter compares every parameter of a name: what the client has put before the value that is looked for does not
// hide it.
func matchesParameter(f *FieldMatch, p *pattern, query string, tooLong bool) bool {
	for range maxElements {
		value, rest, ok := cutParameter(query, f.Name)
		if !ok {
			return false
		}
		if matchesField(f, p, value, tooLong) {
			return true
		}
		query = rest
	}
	return tooLong
}

// maxElements bounds how many values of a header or a query parameter are looked at one by one.
const maxElements = 32

// matchesElement compares a header's value, whole and then what stands between commas: what the client has put beside the
// value that is looked for does not hide it.
func matchesElement(f *FieldMatch, p *pattern, value string, tooLong bool) bool {
	if matchesField(f, p, value, tooLong) {
		return true
	}
	commas := strings.Count(value, ",")
	if commas >= maxElements {
		return tooLong
	}
	for rest, more := value, commas > 0; more; {
		var element string
		element, rest, more = strings.Cut(rest, ",")
		if matchesField(f, p, strings.Trim(element, " \t"), tooLong) {
			return true
		}
	}
	return false
}

func matchesField(f *FieldMatch, p *pattern, value string, tooLong bool) bool {
	switch f.Kind {
	case FieldExact:
		return value == f.Value
	case FieldPrefix:
		return strings.HasPrefix(value, f.Value)
	case FieldRegex:
		return p.matches(value, tooLong)
	default:
		return true
	}
}

// matchesHost compares a host's name as canonicalHost gives it.
func matchesHost(want, host string) bool {
	if strings.HasPrefix(want, "*.") {
		return len(host) >= len(want) && strings.HasSuffix(host, want[1:])
	}
	return host == want
}

// hasPathPrefix says whether path begins with all segments of prefix.
func hasPathPrefix(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return strings.HasPrefix(path, prefix) && (len(path) == len(prefix) || path[len(prefix)] == '/')
}

// checker counts over a whole policy what is bounded over a whole policy.
type checker struct {
	patterns map[string]bool
}

func (c *checker) match(m *Match, where string) *invalid {
	switch {
	case m.PathExact != "" && !ValidPath(m.PathExact):
		return &invalid{where + ".path_exact", badPath(m.PathExact)}
	case m.PathPrefix != "" && !ValidPath(m.PathPrefix):
		return &invalid{where + ".path_prefix", badPath(m.PathPrefix)}
	case m.PathTemplate != "" && CheckTemplate(m.PathTemplate) != "":
		return &invalid{where + ".path_template", CheckTemplate(m.PathTemplate)}
	case m.Host != "" && !ValidHost(m.Host):
		return &invalid{where + ".host", strconv.Quote(clip(m.Host)) + " is no host's name, want one in lower case without a port, or *. before one"}
	case len(m.Methods) > MaxMethods:
		return &invalid{where + ".methods", tooMany(len(m.Methods), MaxMethods, "elements")}
	}
	for i, method := range m.Methods {
		if !ValidMethod(method) {
			return &invalid{where + ".methods[" + strconv.Itoa(i) + "]", strconv.Quote(clip(method)) + " is no method's name"}
		}
	}
	if m.PathRegex != "" {
		if problem := c.pattern(m.PathRegex); problem != "" {
			return &invalid{where + ".path_regex", problem}
		}
	}
	if e := c.fields(m.Headers, where+".headers", ValidHeader); e != nil {
		return e
	}
	if e := c.fields(m.Query, where+".query", ValidParameter); e != nil {
		return e
	}
	if m.Not == nil {
		return nil
	}
	if m.Not.Not != nil {
		return &invalid{where + ".not.not", "is a second negation, want one at most"}
	}
	if m.Not.empty() {
		return &invalid{where + ".not", "matches everything, so that nothing is left"}
	}
	return c.match(m.Not, where+".not")
}

// empty says whether m matches everything.
func (m *Match) empty() bool {
	return m.PathExact == "" && m.PathPrefix == "" && m.PathTemplate == "" && m.PathRegex == "" && m.Host == "" &&
		len(m.Methods) == 0 && len(m.Headers) == 0 && len(m.Query) == 0 && m.Not == nil
}

func (c *checker) fields(fields []FieldMatch, where string, valid func(string) bool) *invalid {
	if len(fields) > MaxFieldMatches {
		return &invalid{where, tooMany(len(fields), MaxFieldMatches, "elements")}
	}
	for i, f := range fields {
		at := where + "[" + strconv.Itoa(i) + "]"
		switch {
		case !valid(f.Name):
			return &invalid{at + ".name", strconv.Quote(clip(f.Name)) + " is no name for it"}
		case f.Kind < FieldPresent || f.Kind > FieldRegex:
			return &invalid{at + ".kind", strconv.Itoa(int(f.Kind)) + " is not known here"}
		case len(f.Value) > MaxFieldValue:
			return &invalid{at + ".value", tooMany(len(f.Value), MaxFieldValue, "bytes")}
		case f.Kind == FieldPresent && f.Value != "":
			return &invalid{at + ".value", "stands where only the name is compared"}
		case f.Kind == FieldRegex:
			if problem := c.pattern(f.Value); problem != "" {
				return &invalid{at + ".value", problem}
			}
		}
	}
	return nil
}
