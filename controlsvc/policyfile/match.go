package policyfile

import (
	"slices"
	"strings"

	"sluice/shared/policy"
)

// matchFields are what a match may say, but for its negation.
var matchFields = []string{"host", "path", "methods", "headers", "query"}

func (d *decoder) match(v value) policy.Match {
	m, f := d.conditions(v, "a mapping with host, path, methods, headers, query or not", append(slices.Clone(matchFields), "not")...)
	if v, ok := f["not"]; ok {
		before := len(d.errors)
		not, f := d.conditions(v, "a mapping with host, path, methods, headers or query", matchFields...)
		if len(f) == 0 && len(d.errors) == before {
			d.fail(v, "matches everything, so that nothing is left")
		}
		m.Not = &not
	}
	return m
}

func (d *decoder) conditions(v value, want string, known ...string) (policy.Match, map[string]value) {
	var m policy.Match
	f, _ := d.fields(v, want, known...)
	if v, ok := f["host"]; ok {
		m.Host = d.host(v)
	}
	if v, ok := f["path"]; ok {
		d.pathCondition(&m, v)
	}
	if v, ok := f["methods"]; ok {
		m.Methods = d.methods(v)
	}
	if v, ok := f["headers"]; ok {
		m.Headers = d.fieldMatches(v, d.header)
	}
	if v, ok := f["query"]; ok {
		m.Query = d.fieldMatches(v, func(v value) string { return d.shortText(v, "a query parameter's name", policy.MaxNameLength) })
	}
	return m, f
}

// host reads a host's name, and gives it in lower case.
func (d *decoder) host(v value) string {
	text, ok := d.text(v, `a host's name such as api.example.com or "*.example.com"`)
	lower := strings.ToLower(text)
	if ok && !policy.ValidHost(lower) {
		d.fail(v, `%s is no host's name, want one without a port, such as api.example.com, or "*.example.com" for all below that`, quote(text))
	}
	return lower
}

func (d *decoder) pathCondition(m *policy.Match, v value) {
	const want = "a mapping such as {prefix: /v1} or {exact: /login}"
	before := len(d.errors)
	f, ok := d.fields(v, want, "exact", "prefix", "template", "regex")
	if ok && len(f) != 1 && len(d.errors) == before {
		d.fail(v, "has %d conditions, want one: exact, prefix, template or regex", len(f))
	}
	if v, ok := f["exact"]; ok {
		m.PathExact = d.path(v)
	}
	if v, ok := f["prefix"]; ok {
		m.PathPrefix = d.path(v)
		if len(m.PathPrefix) > 1 {
			m.PathPrefix = strings.TrimSuffix(m.PathPrefix, "/")
		}
	}
	if v, ok := f["template"]; ok {
		m.PathTemplate = d.template(v)
	}
	if v, ok := f["regex"]; ok {
		m.PathRegex = d.pattern(v)
	}
}

func (d *decoder) path(v value) string {
	text, ok := d.text(v, "a path such as /v1/reports")
	if ok && !policy.ValidPath(text) {
		d.fail(v, "%s is no path, want a slash first, at most %d bytes, no query and no white space", quote(text), policy.MaxPathLength)
	}
	return text
}

func (d *decoder) template(v value) string {
	text, ok := d.text(v, "a path template such as /v1/reports/{id}")
	if !ok {
		return text
	}
	if problem := policy.CheckTemplate(text); problem != "" {
		d.fail(v, "%s", problem)
	}
	return text
}

// pattern reads a regular expression.
func (d *decoder) pattern(v value) string {
	text, ok := d.text(v, "a regular expression for the whole of it")
	if !ok {
		return text
	}
	if problem := policy.CheckPattern(text); problem != "" {
		d.fail(v, "%s", problem)
	}
	return text
}

// fieldMatches reads a list of what headers or query parameters have to be; name reads the name of one.
func (d *decoder) fieldMatches(v value, name func(value) string) []policy.FieldMatch {
	list, _ := d.list(v, "a list such as [{name: x-plan, exact: free}]", 1, policy.MaxFieldMatches)
	var all []policy.FieldMatch
	for _, v := range list {
		const want = "a mapping with a name and present, exact, prefix or regex"
		before := len(d.errors)
		f, ok := d.fields(v, want, "name!", "present", "exact", "prefix", "regex")
		if !ok {
			continue
		}
		if len(f) != 2 && len(d.errors) == before {
			d.fail(v, "has %d conditions, want one: present, exact, prefix or regex", len(f)-1)
		}
		var m policy.FieldMatch
		if v, ok := f["name"]; ok {
			m.Name = name(v)
		}
		if v, ok := f["present"]; ok {
			if m.Kind = policy.FieldPresent; !d.flag(v) && len(d.errors) == before {
				d.fail(v, "is false, want true here, or the whole in not")
			}
		}
		if v, ok := f["exact"]; ok {
			m.Kind, m.Value = policy.FieldExact, d.fieldValue(v)
		}
		if v, ok := f["prefix"]; ok {
			m.Kind, m.Value = policy.FieldPrefix, d.fieldValue(v)
		}
		if v, ok := f["regex"]; ok {
			m.Kind, m.Value = policy.FieldRegex, d.pattern(v)
		}
		all = append(all, m)
	}
	return all
}

func (d *decoder) fieldValue(v value) string {
	text, ok := d.text(v, "the value that is looked for")
	if ok && len(text) > policy.MaxFieldValue {
		d.fail(v, "has %d bytes, want at most %d", len(text), policy.MaxFieldValue)
	}
	return text
}

// standardMethods are those of RFC 9110 and RFC 5789; others are accepted as they are.
var standardMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"}

func (d *decoder) methods(v value) []string {
	list, ok := d.list(v, "a list of methods such as [GET, POST]", 1, policy.MaxMethods)
	if !ok {
		return nil
	}
	methods := make([]string, 0, len(list))
	for _, v := range list {
		text, ok := d.text(v, "a method such as POST")
		upper := strings.ToUpper(text)
		switch {
		case !ok:
		case !policy.ValidMethod(text):
			d.fail(v, "%s is no method, want 1 to %d letters", quote(text), policy.MaxMethodLength)
		case text != upper && slices.Contains(standardMethods, upper):
			d.fail(v, "%s is not the method %s: capitals count", quote(text), upper)
		case slices.Contains(methods, text):
			d.fail(v, "%s is there twice", quote(text))
		default:
			methods = append(methods, text)
		}
	}
	return methods
}
