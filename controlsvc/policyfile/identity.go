package policyfile

import (
	"strings"

	"sluice/shared/policy"
)

// identities reads the mapping of names to sources, and fills in which index each name has, valid or not, so that one
// mistake is told once.
func (d *decoder) identities(v value, indices map[string]uint32) []policy.Identity {
	entries, ok := d.entries(v, "a mapping of names to where their values come from")
	if !ok {
		return nil
	}
	if len(entries) > policy.MaxIdentities {
		d.fail(v, "has %d identities, want at most %d", len(entries), policy.MaxIdentities)
		return nil
	}
	list := make([]policy.Identity, 0, len(entries))
	for _, e := range entries {
		if !policy.ValidName(e.name) {
			d.failAt(e.key, e.value.path, "%s is no name, want 1 to %d of a-z 0-9 . _ -", quote(e.name), policy.MaxNameLength)
		}
		indices[e.name] = uint32(len(list))
		list = append(list, d.identity(e))
	}
	return list
}

func (d *decoder) identity(e entry) policy.Identity {
	id := policy.Identity{Name: e.name}
	if e.value.node == nil {
		return id
	}
	const want = "a source such as {header: x-api-key} or {address: {trusted_hops: 0}}"
	before := len(d.errors)
	f, ok := d.fields(e.value, want, "header", "address")
	if !ok {
		return id
	}
	if len(f) != 1 && len(d.errors) == before {
		d.fail(e.value, "has %d sources, want one: header or address", len(f))
	}
	if v, ok := f["header"]; ok {
		id.Source, id.Header = policy.FromHeader, d.header(v)
	}
	if v, ok := f["address"]; ok {
		id.Source = policy.FromAddress
		f, _ := d.fields(v, "a mapping such as {trusted_hops: 0}", "trusted_hops")
		if v, ok := f["trusted_hops"]; ok {
			hops, _ := d.number(v, 0, policy.MaxTrustedHops)
			id.TrustedHops = uint32(hops)
		}
	}
	return id
}

// header reads a header's name, and gives it in lower case.
func (d *decoder) header(v value) string {
	text, ok := d.text(v, "a header's name")
	lower := strings.ToLower(text)
	if ok && !policy.ValidHeader(lower) {
		d.fail(v, "%s is no header's name, want 1 to %d letters, digits and -, or :authority, :method, :path, :scheme",
			quote(text), policy.MaxNameLength)
	}
	return lower
}
