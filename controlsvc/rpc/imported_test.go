package rpc

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/ratelimitfile"
)

// foreign is a descriptor of a configuration of envoyproxy/ratelimit, as its README describes it.
type foreign struct {
	key, value string
	// kind is what rate_limit says; the limit's number is its requests_per_unit.
	kind     foreignKind
	number   int
	shadow   bool
	children []*foreign
}

type foreignKind int

const (
	noLimit foreignKind = iota
	unlimited
	limited
)

// foreignLimit is what the README says of which limit holds for a request's descriptor: at each entry the key with that very
// value, else the first whose value ends with * and begins so, else the key without a value; the limit of the last, if that is
// as deep as the request's descriptor. What it does not say is left out: that a value of "x*" goes to the wildcard x* even where an
// earlier one has it, and that keys and values that look the same when joined by an underscore are the same. It is written for obviousness, and shares nothing with what it checks.
func foreignLimit(all []*foreign, request []entry) *foreign {
	var found *foreign
	for _, entry := range request {
		found = nil
		for _, d := range all {
			if d.key == string(entry.key) && d.value != "" && !strings.HasSuffix(d.value, "*") && d.value == string(entry.value) {
				found = d
			}
		}
		for _, d := range all {
			if found == nil && d.key == string(entry.key) && strings.HasSuffix(d.value, "*") &&
				strings.HasPrefix(string(entry.value), d.value[:len(d.value)-1]) {
				found = d
			}
		}
		for _, d := range all {
			if found == nil && d.key == string(entry.key) && d.value == "" {
				found = d
			}
		}
		if found == nil {
			return nil
		}
		all = found.children
	}
	return found
}

func (f *foreign) yaml(b *strings.Builder, indent string) {
	fmt.Fprintf(b, "%s- key: %s\n", indent, f.key)
	if f.value != "" {
		fmt.Fprintf(b, "%s  value: %q\n", indent, f.value)
	}
	switch f.kind {
	case unlimited:
		fmt.Fprintf(b, "%s  rate_limit: {unlimited: true}\n", indent)
	case limited:
		fmt.Fprintf(b, "%s  rate_limit: {unit: minute, requests_per_unit: %d}\n", indent, f.number)
	}
	fmt.Fprintf(b, "%s  shadow_mode: %t\n", indent, f.shadow)
	if len(f.children) > 0 {
		fmt.Fprintf(b, "%s  descriptors:\n", indent)
	}
	for _, c := range f.children {
		c.yaml(b, indent+"  ")
	}
}

// drawForeign draws descriptors that may stand beside each other, and are up to depth deep.
func drawForeign(t *rapid.T, depth int, number *int) (all []*foreign) {
	seen := map[[2]string]bool{}
	for range rapid.IntRange(0, 6).Draw(t, "descriptors") {
		f := &foreign{
			key:   rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"),
			value: rapid.SampledFrom([]string{"", "x", "xy", "xyz", "*", "x*", "xy*", "y*", "x*z", "x**"}).Draw(t, "value"),
			kind:  rapid.SampledFrom([]foreignKind{noLimit, unlimited, limited, limited}).Draw(t, "kind"),
		}
		if seen[[2]string{f.key, f.value}] {
			continue
		}
		seen[[2]string{f.key, f.value}] = true
		if f.kind == limited {
			*number++
			f.number = *number
		}
		f.shadow = rapid.Bool().Draw(t, "shadow")
		if depth > 1 && rapid.Bool().Draw(t, "nested") {
			f.children = drawForeign(t, depth-1, number)
		}
		all = append(all, f)
	}
	return all
}

// TestImportedDecidesTheSame: under a policy that was made of a configuration of envoyproxy/ratelimit every descriptor has the
// limit that it had there, and two descriptors of a limit have one count here if they had one there.
func TestImportedDecidesTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := 0
		all := drawForeign(t, 3, &number)
		var b strings.Builder
		b.WriteString("domain: d\ndescriptors:\n")
		for _, f := range all {
			f.yaml(&b, "")
		}
		policies, _, err := ratelimitfile.Import([]ratelimitfile.Source{{Name: "a.yaml", Data: []byte(b.String())}}, "")
		if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		p, err := policyfile.Parse("policy.yaml", policies[0].YAML)
		if err != nil {
			t.Fatalf("%v\n%s", err, policies[0].YAML)
		}
		tree := newDescriptors(p)
		counts, countsThere := map[string]string{}, map[string]string{}
		for range 60 {
			var request []entry
			there := ""
			for range rapid.IntRange(1, 3).Draw(t, "entries") {
				key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
				value := rapid.SampledFrom([]string{"", "x", "xy", "xyz", "xyy", "x*z", "x*", "x*y", "y", "yy", "z", "*"}).Draw(t, "value")
				request = append(request, entry{[]byte(key), []byte(value)})
				there += fmt.Sprintf("%q=%q ", key, value)
			}
			want := foreignLimit(all, request)
			i, key, found := tree.find(p, request)
			if want == nil || want.kind != limited {
				if found && !p.Limits[i].Unlimited {
					t.Fatalf("%s has the limit %s, want none\n%s\n%s", there, p.Limits[i].Name, b.String(), policies[0].YAML)
				}
				continue
			}
			if !found || p.Limits[i].Unlimited || p.Limits[i].Rates[0].Units != int64(want.number) || (p.Limits[i].Shadow == 100) != want.shadow {
				t.Fatalf("%s has limit %d, found %t, want number %d\n%s\n%s", there, i, found, want.number, b.String(), policies[0].YAML)
			}
			here := fmt.Sprintf("%d %s", i, key)
			if other, known := counts[here]; known && other != there {
				t.Fatalf("%s and %s have one count", there, other)
			}
			if other, known := countsThere[there]; known && other != here {
				t.Fatalf("%s has two counts, %s and %s", there, here, other)
			}
			counts[here], countsThere[there] = there, here
		}
	})
}
