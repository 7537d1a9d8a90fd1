package policyfile

import (
	"fmt"
	"strings"

	"sluice/shared/policy"
)

// descriptor reads what a descriptor of Envoy's own rate limit filter has to be; f has the limit's fields, and paths the
// lines of the descriptors before.
func (d *decoder) descriptor(v value, f map[string]value, paths map[string]int) []policy.DescriptorEntry {
	for _, name := range []string{"match", "key", "plans", "overrides", "allow", "block"} {
		if other, both := f[name]; both {
			d.fail(other, "is about a request's identities, want it without a descriptor")
		}
	}
	list, ok := d.list(v, "a list of entries such as {key: path, value: /v1}", 1, policy.MaxDescriptorEntries)
	if !ok {
		return nil
	}
	entries := make([]policy.DescriptorEntry, 0, len(list))
	var path strings.Builder
	counted := 0
	for _, v := range list {
		e := d.descriptorEntry(v)
		if e.Counted() {
			counted++
		}
		fmt.Fprintf(&path, "%q %q %t ", e.Key, e.Value, e.Prefix)
		entries = append(entries, e)
	}
	if counted > policy.MaxKeyParts {
		d.fail(v, "has %d entries without a fixed value, want at most %d", counted, policy.MaxKeyParts)
	}
	if line, twice := paths[path.String()]; twice {
		d.fail(v, "is the descriptor of an earlier limit, on line %d", line)
	} else {
		paths[path.String()] = position(v.node).Position.Line
	}
	return entries
}

func (d *decoder) descriptorEntry(v value) (e policy.DescriptorEntry) {
	f, ok := d.fields(v, "an entry with key, and value or prefix", "key!", "value", "prefix", "hash")
	if !ok {
		return e
	}
	if v, ok := f["key"]; ok {
		e.Key = d.descriptorText(v, "an entry's key")
	}
	if v, ok := f["value"]; ok {
		e.Value = d.descriptorText(v, "an entry's value; without one, each value has a count of its own")
	}
	if v, ok := f["prefix"]; ok {
		if _, both := f["value"]; both {
			d.fail(v, "is said together with value, want one of the two")
			return e
		}
		e.Value, e.Prefix = d.descriptorText(v, "what an entry's value begins with"), true
	}
	if v, ok := f["hash"]; ok {
		if e.Hash = d.hash(v); e.Hash && !e.Counted() {
			d.fail(v, "says nothing of a fixed value, which stands in no key, want it with prefix, or without value")
		}
	}
	return e
}

func (d *decoder) descriptorText(v value, want string) string {
	text, ok := d.text(v, want)
	if ok && (text == "" || !policy.ValidDescriptorText(text)) {
		d.fail(v, "has %d bytes, want 1 to %d", len(text), policy.MaxDescriptorText)
	}
	return text
}

// replacement is what the i-th limit says that it stands in the place of.
type replacement struct {
	limit int
	value value
}

// replaces reads the names of limits, now that all are known.
func (d *decoder) replaces(limits []policy.Limit, all []replacement) {
	byName := make(map[string]int, len(limits))
	var names []string
	for i := range limits {
		if len(limits[i].Descriptor) > 0 {
			byName[limits[i].Name] = i
			names = append(names, limits[i].Name)
		}
	}
	for _, r := range all {
		list, ok := d.list(r.value, "a list of limits' names", 1, policy.MaxReplaces)
		if !ok {
			continue
		}
		l := &limits[r.limit]
		if len(l.Descriptor) == 0 {
			d.fail(r.value, "is for limits with a descriptor")
			continue
		}
		for _, v := range list {
			name, ok := d.text(v, "a limit's name")
			if !ok {
				continue
			}
			switch i, known := byName[name]; {
			case !known:
				d.fail(v, "%s is no limit with a descriptor, %s", quote(name), suggest(name, names))
			case i == r.limit:
				d.fail(v, "is the limit itself")
			default:
				l.Replaces = append(l.Replaces, uint32(i))
			}
		}
	}
}
