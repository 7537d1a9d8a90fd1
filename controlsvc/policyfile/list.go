package policyfile

import (
	"net/netip"
	"slices"

	"sluice/shared/policy"
)

// lists reads who is allowed or blocked.
func (d *decoder) lists(v value, identities map[string]uint32) []policy.List {
	list, ok := d.list(v, "a list of callers such as [{identity: api_key, values: [stolen]}]", 0, policy.MaxLists)
	if !ok {
		return nil
	}
	lists := make([]policy.List, 0, len(list))
	for _, v := range list {
		f, ok := d.fields(v, "callers, with identity, and values or cidrs", "identity!", "values", "cidrs")
		if !ok {
			continue
		}
		var l policy.List
		id, ok := f["identity"]
		if !ok {
			continue
		}
		if l.Identity, ok = d.identityOf(id, identities); !ok {
			continue
		}
		values, hasValues := f["values"]
		cidrs, hasCIDRs := f["cidrs"]
		if !hasValues && !hasCIDRs {
			d.fail(v, "names nobody, want values or cidrs")
		}
		if hasValues {
			l.Values = d.listValues(l.Identity, values)
		}
		if hasCIDRs {
			l.Prefixes = d.prefixes(cidrs)
			if of := &d.built.Identities[l.Identity]; of.Source != policy.FromAddress {
				d.fail(id, "%s is no address, want an identity such as {address: {}} for cidrs", quote(of.Name))
			}
		}
		lists = append(lists, l)
	}
	return lists
}

func (d *decoder) listValues(identity uint32, v value) []string {
	list, ok := d.list(v, "a list of an identity's values", 1, policy.MaxListEntries)
	if !ok {
		return nil
	}
	values := make([]string, 0, len(list))
	for _, v := range list {
		if form, ok := d.valueOf(identity, v); ok {
			values = append(values, form)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// prefixes reads ranges of addresses; one within another says nothing more.
func (d *decoder) prefixes(v value) []netip.Prefix {
	list, ok := d.list(v, "a list of ranges of addresses such as [10.0.0.0/8, 2001:db8::1]", 1, policy.MaxListEntries)
	if !ok {
		return nil
	}
	all := make([]netip.Prefix, 0, len(list))
	for _, v := range list {
		text, ok := d.text(v, "a range of addresses such as 10.0.0.0/8")
		if !ok {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if address, bad := netip.ParseAddr(text); err != nil && bad == nil && address.Zone() == "" {
			prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		switch {
		case err != nil:
			d.fail(v, "%s is no range of addresses, want one such as 10.0.0.0/8 or 2001:db8::1", quote(text))
		case prefix.Addr().Is4In6():
			d.fail(v, "%s is a range of IPv4 within IPv6, want it as IPv4, for such addresses are read as IPv4", quote(text))
		case prefix != prefix.Masked():
			d.fail(v, "%s has bits beyond its length, did you mean %s?", quote(text), prefix.Masked())
		default:
			all = append(all, prefix)
		}
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits() // the wider first
	})
	disjoint := all[:0]
	for _, p := range all {
		if n := len(disjoint); n == 0 || !disjoint[n-1].Overlaps(p) {
			disjoint = append(disjoint, p)
		}
	}
	return disjoint
}
