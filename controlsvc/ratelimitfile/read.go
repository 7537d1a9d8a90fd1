package ratelimitfile

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"sluice/controlsvc/policyfile"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// descriptor is an entry of a file's tree.
type descriptor struct {
	file       string
	at         policyfile.Node
	key, value string
	// limit is nil where there is none.
	limit    *rateLimit
	shadow   bool
	children []*descriptor
}

// rateLimit is what a descriptor's rate_limit says.
type rateLimit struct {
	unlimited bool
	// rate is in the words of a policy: "20/5m".
	rate     string
	name     string
	replaces []replaced
}

// replaced is the name of limits that one stands in the place of.
type replaced struct {
	name string
	at   policyfile.Node
}

// The fields that envoyproxy/ratelimit has, and where. It takes each of them anywhere, and does nothing with one that is in
// the wrong place.
var (
	fileFields       = []string{"domain", "descriptors"}
	descriptorFields = []string{
		"key", "value", "rate_limit", "descriptors", "shadow_mode", "detailed_metric", "value_to_metric", "share_threshold", "quota_mode",
	}
	limitFields   = []string{"unit", "requests_per_unit", "unit_multiplier", "unlimited", "name", "replaces"}
	replaceFields = []string{"name"}
	everyField    = slices.Concat(fileFields, descriptorFields, limitFields)
)

// reader reads one file, and collects what is wrong with it and what is not carried over.
type reader struct {
	file          string
	errors, notes policyfile.Errors
	domain        string
}

// read reads a file; the reader has its domain and all that was found.
func read(file Source) (*reader, []*descriptor) {
	r := &reader{file: file.Name}
	tree, err := policyfile.ReadTree(file.Name, file.Data)
	if err != nil {
		if !errors.As(err, &r.errors) {
			r.fail(tree, "%v", err)
		}
		return r, nil
	}
	f, ok := r.fields(tree, "a configuration with domain and descriptors", fileFields)
	if !ok {
		return r, nil
	}
	domain, said := f["domain"]
	if said {
		r.domain = r.text(domain, "a domain's name")
	}
	switch {
	case !said || domain.Kind == policyfile.Empty || domain.Kind == policyfile.Scalar && domain.Text == "":
		r.fail(tree, "has no domain, want the one that Envoy's rate limit filter names")
	case r.domain != "" && !policy.ValidName(r.domain):
		r.fail(domain, "%s cannot be the domain of a Sluice policy, want 1 to %d of a-z 0-9 . _ -; change it here and in Envoy's filter",
			clip(r.domain), policy.MaxNameLength)
	}
	descriptors := r.descriptors(f["descriptors"], 0)
	return r, descriptors
}

// descriptors reads a list of them, which is depth others deep.
func (r *reader) descriptors(n policyfile.Node, depth int) []*descriptor {
	list := r.list(n, "a list of descriptors")
	if len(list) > 0 && depth == policy.MaxDescriptorEntries {
		r.fail(n, "is more than %d descriptors deep", policy.MaxDescriptorEntries)
		return nil
	}
	var all []*descriptor
	for _, n := range list {
		f, ok := r.fields(n, "a descriptor with key", descriptorFields)
		if !ok {
			continue
		}
		d := &descriptor{file: r.file, at: n}
		d.key, d.value = r.entry(n, f)
		r.unsupported(d, f)
		if n, ok := f["rate_limit"]; ok && n.Kind != policyfile.Empty {
			d.limit = r.rateLimit(n)
		}
		d.children = r.descriptors(f["descriptors"], depth+1)
		if d.key != "" {
			all = append(all, d)
		}
	}
	return all
}

// entry reads what the entry of a request's descriptor has to be.
func (r *reader) entry(at policyfile.Node, f map[string]policyfile.Node) (key, value string) {
	if n, ok := f["key"]; ok {
		key = r.text(n, "an entry's key")
	}
	if n := f["key"]; key == "" && (n.Kind == policyfile.Empty || n.Kind == policyfile.Scalar) {
		r.fail(at, "has no key")
	}
	n, ok := f["value"]
	if ok {
		value = r.text(n, "an entry's value")
	}
	for _, text := range []string{key, value} {
		if !policy.ValidDescriptorText(text) {
			r.fail(at, "%s has %d bytes, want at most %d", clip(text), len(text), policy.MaxDescriptorText)
		}
	}
	if strings.Contains(strings.TrimSuffix(value, wildcard), wildcard) {
		r.note(n, "the * inside %s is taken as itself; what newer versions of envoyproxy/ratelimit have it match is not carried over",
			clip(value))
	}
	return key, value
}

// unsupported reads what only some versions know, and Sluice in part or not at all.
func (r *reader) unsupported(d *descriptor, f map[string]policyfile.Node) {
	for _, x := range []struct{ field, note string }{
		{"detailed_metric", "is not carried over: metrics have no values of descriptors"},
		{"value_to_metric", "is not carried over: metrics have no values of descriptors"},
		{"share_threshold", "is not carried over: each value that begins so has a count of its own, up to the whole limit"},
		{"quota_mode", "is carried over as shadow: true, which never denies; what it tells Envoy in dynamic metadata is not"},
		{"shadow_mode", ""},
	} {
		n, ok := f[x.field]
		if !ok || !r.truth(n) {
			continue
		}
		if x.note != "" {
			r.note(n, "%s", x.note)
		}
		d.shadow = d.shadow || x.field == "shadow_mode" || x.field == "quota_mode"
	}
}

// units are the words for windows: their letter in a policy, and how many of that letter's there are in one.
var units = map[string]struct {
	letter string
	count  uint64
}{
	"second": {"s", 1}, "minute": {"m", 1}, "hour": {"h", 1}, "day": {"d", 1}, "week": {"d", 7}, "month": {"d", 30}, "year": {"d", 365},
}

func (r *reader) rateLimit(n policyfile.Node) *rateLimit {
	f, ok := r.fields(n, "a rate limit with unit and requests_per_unit", limitFields)
	if !ok {
		return nil
	}
	l := &rateLimit{}
	if n, ok := f["name"]; ok {
		l.name = r.text(n, "a name for replaces")
	}
	for _, n := range r.list(f["replaces"], "a list of names such as [{name: other}]") {
		if name, ok := r.replaced(n, l.name); ok {
			l.replaces = append(l.replaces, replaced{name, n})
		}
	}
	unit, said := "", false
	if n, ok := f["unit"]; ok {
		unit = r.text(n, "a unit")
		_, said = units[strings.ToLower(unit)]
	}
	if n, ok := f["unlimited"]; ok && r.truth(n) {
		l.unlimited = true
		if said {
			r.fail(f["unit"], "is said of what is unlimited, want one of the two")
		}
		return l
	}
	if !said {
		r.fail(n, "has the unit %s, want second, minute, hour, day, week, month or year", clip(unit))
		return l
	}
	l.rate = r.rate(n, strings.ToLower(unit), f)
	return l
}

// rate gives a rate in the words of a policy.
func (r *reader) rate(at policyfile.Node, unit string, f map[string]policyfile.Node) string {
	requests, multiplier := uint64(0), uint64(1)
	if n, ok := f["requests_per_unit"]; ok {
		requests, _ = r.number(n, 0)
	} else {
		r.note(at, "has no requests_per_unit, which is 0: nothing is admitted")
	}
	if n, ok := f["unit_multiplier"]; ok {
		if multiplier, ok = r.number(n, 1); !ok {
			return ""
		}
	}
	u := units[unit]
	window := u.letter
	if u.count*multiplier != 1 {
		window = strconv.FormatUint(u.count*multiplier, 10) + u.letter
	}
	text := strconv.FormatUint(requests, 10) + "/" + window
	if _, err := limit.ParseRate(text); err != nil {
		r.fail(at, "cannot be carried over: %v", err)
	}
	return text
}

// replaced reads an element of replaces; own is the limit's own name.
func (r *reader) replaced(n policyfile.Node, own string) (string, bool) {
	f, ok := r.fields(n, "a mapping such as {name: other}", replaceFields)
	if !ok {
		return "", false
	}
	name := ""
	if n, ok := f["name"]; ok {
		name = r.text(n, "the name of another limit")
	}
	switch name {
	case "":
		r.fail(n, "has no name")
	case own:
		r.fail(n, "is the name of the limit itself")
	default:
		return name, true
	}
	return "", false
}

// fields reads a mapping. A field that envoyproxy/ratelimit has elsewhere does nothing there either; one that looks like a
// slip of the pen is an error, for envoyproxy/ratelimit would not have started with it.
func (r *reader) fields(n policyfile.Node, want string, known []string) (map[string]policyfile.Node, bool) {
	if n.Kind != policyfile.Mapping {
		r.fail(n, "is %s, want %s", describe(n), want)
		return nil, false
	}
	fields := make(map[string]policyfile.Node, len(n.Fields))
	for _, f := range n.Fields {
		at := policyfile.Node{Line: f.Line, Column: f.Column, Path: n.Path}
		if slices.Contains(known, f.Name) {
			if f.Value.Kind == policyfile.Empty {
				f.Value.Line, f.Value.Column, f.Value.Path = f.Line, f.Column, n.Path+"."+f.Name
			}
			fields[f.Name] = f.Value
		} else if slices.Contains(everyField, f.Name) {
			r.note(at, "the field %s does nothing here, in envoyproxy/ratelimit either", clip(f.Name))
		} else if meant := policyfile.Closest(f.Name, everyField); meant != "" {
			r.fail(at, "unknown field %s, did you mean %s?", clip(f.Name), clip(meant))
		} else {
			r.note(at, "the field %s is not carried over", clip(f.Name))
		}
	}
	return fields, true
}

// list reads a list; an empty place is an empty list.
func (r *reader) list(n policyfile.Node, want string) []policyfile.Node {
	if n.Kind != policyfile.List && n.Kind != policyfile.Empty {
		r.fail(n, "is %s, want %s", describe(n), want)
	}
	return n.Elements
}

// text reads any scalar as its text; an empty place is empty text.
func (r *reader) text(n policyfile.Node, want string) string {
	if n.Kind != policyfile.Scalar && n.Kind != policyfile.Empty {
		r.fail(n, "is %s, want %s", describe(n), want)
	}
	return n.Text
}

// truth reads true or false, in every spelling that YAML 1.1 has; an empty place is false.
func (r *reader) truth(n policyfile.Node) bool {
	switch strings.ToLower(n.Text) {
	case "true", "yes", "on", "y":
		return true
	case "false", "no", "off", "n":
		return false
	}
	if n.Kind != policyfile.Empty {
		r.fail(n, "is %s, want true or false", describe(n))
	}
	return false
}

// number reads a whole number from low up, of 32 bits; 1e3 is one.
func (r *reader) number(n policyfile.Node, low uint64) (uint64, bool) {
	if f, err := strconv.ParseFloat(n.Text, 64); err == nil && strings.ContainsAny(n.Text, ".eE") && !strings.ContainsAny(n.Text, "xX_") &&
		f == math.Trunc(f) && f >= float64(low) && f <= math.MaxUint32 {
		return uint64(f), true
	}
	if number, err := strconv.ParseUint(n.Text, 0, 32); err == nil && number >= low {
		return number, true
	}
	r.fail(n, "is %s, want a whole number from %d to %d", describe(n), low, uint32(1<<32-1))
	return 0, false
}

func (r *reader) fail(at policyfile.Node, format string, arguments ...any) {
	r.errors = append(r.errors, finding(r.file, at, format, arguments...))
}

func (r *reader) note(at policyfile.Node, format string, arguments ...any) {
	r.notes = append(r.notes, finding(r.file, at, format, arguments...))
}

func finding(file string, at policyfile.Node, format string, arguments ...any) *policyfile.Error {
	if at.Path == "" {
		at.Path = "$"
	}
	return &policyfile.Error{File: file, Line: at.Line, Column: at.Column, Path: at.Path, Problem: fmt.Sprintf(format, arguments...)}
}

func describe(n policyfile.Node) string {
	switch n.Kind {
	case policyfile.Scalar:
		return clip(n.Text)
	case policyfile.List:
		return "a list"
	case policyfile.Mapping:
		return "a mapping"
	default:
		return "empty"
	}
}

// clip puts text in quotes, cut to a length that a line can hold.
func clip(text string) string {
	const most = 64
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return strconv.Quote(text)
}
