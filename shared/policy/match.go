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
	// Methods are compared case by case, as HTTP does (RFC 9110, 9.1).
	Methods []string
}

func (b *binding) matches(m *Match) bool {
	return b.matchesMethod(m.Methods) && (m.PathExact == "" || b.readPath() && b.path == m.PathExact) &&
		(m.PathPrefix == "" || b.readPath() && hasPathPrefix(b.path, m.PathPrefix))
}

func (b *binding) matchesMethod(methods []string) bool {
	if len(methods) == 0 {
		return true
	}
	if !b.methodRead {
		var fields int
		b.method, fields = b.request.Header(":method")
		b.hasMethod = fields > 0
		b.methodRead = true
	}
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

// hasPathPrefix says whether path begins with all segments of prefix.
func hasPathPrefix(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return strings.HasPrefix(path, prefix) && (len(path) == len(prefix) || path[len(prefix)] == '/')
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
