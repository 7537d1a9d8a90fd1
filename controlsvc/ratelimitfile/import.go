// Package ratelimitfile turns configuration files of envoyproxy/ratelimit into policy files that decide the same.
//
// There a descriptor's entry goes to the exact value, else to the first wildcard of the file that the value begins with, else
// to the key without a value, and whichever there is, no other is tried. In a policy the longest prefix goes first; an entry
// that an earlier wildcard hides is left out, so that the two orders are the same.
package ratelimitfile

import (
	"cmp"
	"slices"
	"strings"

	"sluice/controlsvc/policyfile"
	"sluice/shared/policy"
)

// wildcard ends a value that stands for all that begin so.
const wildcard = "*"

// Source is a configuration file.
type Source struct {
	// Name is what errors call it.
	Name string
	Data []byte
}

// Policy is the policy of one domain.
type Policy struct {
	Domain string
	// Limits is how many it has, those among them that limit nothing but take a caller out of a more general one.
	Limits int
	// YAML is the policy file, valid as policyfile has it.
	YAML []byte
}

// Import gives a policy for each domain, in the order of the files, of which several may be about one domain. Notes tell what
// is not carried over, or does not mean there what it seems to. algorithm is what every limit says that it counts by; empty:
// nothing. Where anything is wrong with the files there is no policy, and the error is of type policyfile.Errors and has all
// of it.
func Import(sources []Source, algorithm string) (policies []Policy, notes policyfile.Errors, err error) {
	var wrong policyfile.Errors
	var domains []*domain
	byName := make(map[string]*domain)
	for _, source := range sources {
		r, descriptors := read(source)
		wrong, notes = append(wrong, r.errors...), append(notes, r.notes...)
		d := byName[r.domain]
		if d == nil {
			d = &domain{name: r.domain}
			byName[r.domain], domains = d, append(domains, d)
		}
		d.files = append(d.files, source.Name)
		d.descriptors = append(d.descriptors, descriptors...)
	}
	for _, d := range domains {
		d.level(d.descriptors, nil)
		d.nameLimits()
		d.replace()
		wrong, notes = append(wrong, d.errors...), append(notes, d.notes...)
	}
	inOrder(sources, wrong)
	inOrder(sources, notes)
	if len(wrong) > 0 {
		return nil, notes, wrong
	}
	for _, d := range domains {
		text := d.yaml(algorithm)
		if _, err := policyfile.Parse("the policy of "+d.name, text); err != nil {
			return nil, notes, err
		}
		policies = append(policies, Policy{Domain: d.name, Limits: len(d.limits), YAML: text})
	}
	return policies, notes, nil
}

// inOrder sorts what was found as the files were given, and as it stands in each.
func inOrder(sources []Source, found policyfile.Errors) {
	index := make(map[string]int, len(sources))
	for i := range sources {
		index[sources[i].Name] = i
	}
	slices.SortStableFunc(found, func(a, b *policyfile.Error) int {
		return cmp.Or(cmp.Compare(index[a.File], index[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// domain is what the files say of one.
type domain struct {
	name          string
	files         []string
	descriptors   []*descriptor
	limits        []*limited
	errors, notes policyfile.Errors
}

// limited is a limit of the policy.
type limited struct {
	*descriptor
	entries []policy.DescriptorEntry
	// name is unique; replaces are the names of others.
	name     string
	replaces []string
}

// level collects the limits of descriptors that follow the same entries.
func (d *domain) level(descriptors []*descriptor, above []policy.DescriptorEntry) {
	earlier, first := make(map[[2]string]*descriptor, len(descriptors)), make(map[[2]string]*descriptor)
	anything := make(map[string]*descriptor)
	for _, x := range descriptors {
		if x.value == wildcard && anything[x.key] == nil {
			anything[x.key] = x
		}
	}
	for _, x := range descriptors {
		if other := earlier[[2]string{x.key, x.value}]; other != nil {
			d.errors = append(d.errors, finding(x.file, x.at, "has the key and value of the descriptor at %s:%d", other.file, other.at.Line))
			continue
		}
		earlier[[2]string{x.key, x.value}] = x
		e := policy.DescriptorEntry{Key: x.key, Value: x.value}
		if prefix, ok := strings.CutSuffix(x.value, wildcard); ok {
			e.Value, e.Prefix = prefix, prefix != ""
			if by := shadowing(first, x.key, prefix); by != nil {
				d.note(x, "is never reached, and left out: %s at %s:%d goes first", clip(by.value), by.file, by.at.Line)
				continue
			}
			first[[2]string{x.key, prefix}] = x
		} else if by := anything[x.key]; by != nil && x.value == "" {
			d.note(x, `is never reached, and left out: "*" at %s:%d goes first`, by.file, by.at.Line)
			continue
		} else if x.value == "" && strings.HasSuffix(x.key, wildcard) {
			d.note(x, "is for every key that begins so, which is not carried over: want one for each key")
			continue
		}
		d.descend(x, append(slices.Clip(above), e))
	}
}

// shadowing gives the wildcard that has all values that begin with the prefix already.
func shadowing(first map[[2]string]*descriptor, key, prefix string) *descriptor {
	for n := 0; n <= len(prefix); n++ {
		if by := first[[2]string{key, prefix[:n]}]; by != nil {
			return by
		}
	}
	return nil
}

// descend collects the limits of a descriptor and of those in it. One without a limit in it limits nothing, but hides a more
// general one beside it: it becomes a limit that is unlimited.
func (d *domain) descend(x *descriptor, entries []policy.DescriptorEntry) {
	l := &limited{descriptor: x, entries: entries}
	at := len(d.limits)
	if x.limit != nil {
		d.limits = append(d.limits, l)
	}
	d.level(x.children, entries)
	if len(d.limits) == at {
		d.limits = append(d.limits, l)
	}
	counted := 0
	for i := range entries {
		if entries[i].Counted() {
			counted++
		}
	}
	if counted == policy.MaxKeyParts+1 && entries[len(entries)-1].Counted() {
		d.errors = append(d.errors, finding(x.file, x.at, "is the %dth entry without a fixed value, want at most %d", counted, policy.MaxKeyParts))
	}
}

// replace finds the limits that others stand in the place of. Several may have one name; a name that none has does nothing.
func (d *domain) replace() {
	byName := make(map[string][]string)
	for _, l := range d.limits {
		if l.limit != nil && l.limit.name != "" {
			byName[l.limit.name] = append(byName[l.limit.name], l.name)
		}
	}
	for _, l := range d.limits {
		if l.limit == nil {
			continue
		}
		for _, r := range l.limit.replaces {
			if byName[r.name] == nil {
				d.notes = append(d.notes, finding(l.file, r.at, "no limit of the domain has the name %s: nothing is replaced", clip(r.name)))
			}
			for _, name := range byName[r.name] {
				if !slices.Contains(l.replaces, name) {
					l.replaces = append(l.replaces, name)
				}
			}
		}
		if len(l.replaces) > policy.MaxReplaces {
			d.errors = append(d.errors, finding(l.file, l.at, "replaces %d limits, want at most %d", len(l.replaces), policy.MaxReplaces))
		}
	}
}

func (d *domain) note(x *descriptor, format string, arguments ...any) {
	d.notes = append(d.notes, finding(x.file, x.at, format, arguments...))
}
