package policyfile

import (
	"slices"
	"strings"

	"sluice/shared/policy"
)

func (d *decoder) match(v value) policy.Match {
	var m policy.Match
	f, _ := d.fields(v, "a mapping with path or methods", "path", "methods")
	if v, ok := f["path"]; ok {
		const want = "a mapping such as {prefix: /v1} or {exact: /login}"
		before := len(d.errors)
		f, ok := d.fields(v, want, "exact", "prefix")
		if ok && len(f) != 1 && len(d.errors) == before {
			d.fail(v, "has %d conditions, want one: exact or prefix", len(f))
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
	}
	if v, ok := f["methods"]; ok {
		m.Methods = d.methods(v)
	}
	return m
}

func (d *decoder) path(v value) string {
	text, ok := d.text(v, "a path such as /v1/reports")
	if ok && !policy.ValidPath(text) {
		d.fail(v, "%s is no path, want a slash first, at most %d bytes, no query and no white space", quote(text), policy.MaxPathLength)
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
