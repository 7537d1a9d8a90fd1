package policyfile

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sluice/shared/policy"
)

// limitResponse reads what a limit says of its denials, on top of what the policy says, and gives the index of the whole.
func (d *decoder) limitResponse(v value) uint32 {
	said := d.response(v, d.responses[0])
	same := func(r policy.Response) bool {
		return r.Status == said.Status && r.Body == said.Body && r.JSON == said.JSON && r.RetryAfterJitter == said.RetryAfterJitter &&
			slices.Equal(r.Headers, said.Headers)
	}
	if i := slices.IndexFunc(d.responses, same); i >= 0 {
		return uint32(i)
	}
	if len(d.responses) == policy.MaxResponses {
		d.fail(v, "is one more than the %d different responses that a policy may have", policy.MaxResponses)
		return 0
	}
	d.responses = append(d.responses, said)
	return uint32(len(d.responses) - 1)
}

// isDefault says whether a response says nothing.
func isDefault(r *policy.Response) bool {
	return r.Status == 0 && r.Body == "" && len(r.Headers) == 0 && r.RetryAfterJitter == 0
}

// response reads a response; what it leaves out is as in base.
func (d *decoder) response(v value, base policy.Response) policy.Response {
	r := base
	f, _ := d.fields(v, "a mapping with status, body, headers or retry_after_jitter", "status", "body", "headers", "retry_after_jitter")
	if v, ok := f["status"]; ok {
		status, _ := d.number(v, 400, 599)
		r.Status = uint32(status)
		if status == 429 {
			r.Status = 0 // a policy that says 429 and one that says nothing are the same
		}
	}
	if v, ok := f["body"]; ok {
		r.Body, r.JSON = d.body(v)
	}
	if v, ok := f["headers"]; ok {
		r.Headers = d.responseHeaders(v)
	}
	if v, ok := f["retry_after_jitter"]; ok {
		r.RetryAfterJitter = d.duration(v, policy.MaxRetryAfterJitter)
	}
	return r
}

// body reads a body's template and what it is a template of.
func (d *decoder) body(v value) (template string, isJSON bool) {
	const want = `{json: '{"error":"{{message}}"}'} or {text: "{{message}}"}`
	before := len(d.errors)
	f, ok := d.fields(v, want, "json", "text")
	if ok && len(f) != 1 && len(d.errors) == before {
		d.fail(v, "has %d bodies, want one: json or text", len(f))
	}
	v, isJSON = f["json"]
	if !isJSON {
		if v, ok = f["text"]; !ok {
			return "", false
		}
	}
	text, ok := d.text(v, "a template such as "+want)
	if !ok {
		return "", isJSON
	}
	if len(text) == 0 || len(text) > policy.MaxBodyLength {
		d.fail(v, "has %d bytes, want 1 to %d", len(text), policy.MaxBodyLength)
		return "", isJSON
	}
	if name, found := policy.UnknownVariable(text); found {
		d.fail(v, "{{%s}} is no variable, %s", name, suggest(name, policy.Variables))
		return "", isJSON
	}
	if isJSON && !json.Valid([]byte(sample(text))) {
		d.fail(v, `is no JSON once its variables stand for values; texts need quotes around them: "{{message}}"`)
	}
	return text, isJSON
}

// sample puts a value in each variable's place that may stand there: the numbers where they may be numbers, within quotes or
// not, and a text that needs quotes for the rest.
func sample(template string) string {
	var b strings.Builder
	for {
		before, name, after, found := policy.CutVariable(template)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		switch name {
		case "remaining", "reset":
			b.WriteString("1")
		case "retry_after":
			b.WriteString("null")
		default:
			b.WriteString("text")
		}
		template = after
	}
}

func (d *decoder) responseHeaders(v value) []policy.Field {
	entries, ok := d.entries(v, "a mapping of headers' names to their values")
	if !ok {
		return nil
	}
	if len(entries) > policy.MaxResponseHeaders {
		d.fail(v, "has %d headers, want at most %d", len(entries), policy.MaxResponseHeaders)
		return nil
	}
	headers := make([]policy.Field, 0, len(entries))
	for _, e := range entries {
		name := strings.ToLower(e.name)
		switch {
		case !policy.ValidHeader(name):
			d.failAt(e.key, e.value.path, "%s is no header's name, want 1 to %d letters, digits and -", quote(e.name), policy.MaxNameLength)
			continue
		case policy.ReservedHeader(name):
			d.failAt(e.key, e.value.path, "%s is written by Sluice or the proxy itself", quote(e.name))
			continue
		case slices.ContainsFunc(headers, func(h policy.Field) bool { return h.Name == name }):
			d.failAt(e.key, e.value.path, "%s is there twice", quote(e.name))
			continue
		}
		text, ok := d.text(e.value, "a header's value")
		if ok && !policy.ValidHeaderValue(text) {
			d.fail(e.value, "%s is no header's value, want up to %d bytes of printable ASCII", quote(text), policy.MaxHeaderValue)
		}
		headers = append(headers, policy.Field{Name: name, Value: text})
	}
	return headers
}

// fieldStyles reads which header fields tell of the limits: one style or a list of them.
func (d *decoder) fieldStyles(v value) policy.FieldStyles {
	const want = "ratelimit, ratelimit-legacy, x-ratelimit or none, or a list of them"
	styles := map[string]policy.FieldStyles{
		"ratelimit": policy.StandardFields, "ratelimit-legacy": policy.LegacyFields, "x-ratelimit": policy.XFields, "none": policy.NoFields,
	}
	words := []string{"ratelimit", "ratelimit-legacy", "x-ratelimit", "none"}
	list := []value{v}
	if _, isList := v.node.(*ast.SequenceNode); isList {
		var ok bool
		if list, ok = d.list(v, want, 1, len(words)); !ok {
			return 0
		}
	}
	var all policy.FieldStyles
	for _, v := range list {
		all |= styles[d.word(v, want, words...)]
	}
	switch {
	case all&policy.NoFields != 0 && all != policy.NoFields:
		d.fail(v, "none stands with other styles, want it alone")
	case all == policy.StandardFields:
		return 0 // the default
	}
	return all
}

// duration reads a duration from 0 to the longest, in whole microseconds.
func (d *decoder) duration(v value, longest time.Duration) time.Duration {
	const want = `a duration such as "500ms"`
	text, ok := d.text(v, want)
	if !ok {
		return 0
	}
	read, err := time.ParseDuration(text)
	if err != nil || read < 0 || read > longest || read%time.Microsecond != 0 {
		d.fail(v, "%s is not %s, from 0s to %v in whole microseconds", quote(text), want, longest)
		return 0
	}
	return read
}
