package policyfile

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

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
	names := make([]string, 0, len(entries))
	for i, e := range entries {
		if !policy.ValidName(e.name) {
			d.failAt(e.key, e.value.path, "%s is no name, want 1 to %d of a-z 0-9 . _ -", quote(e.name), policy.MaxNameLength)
		}
		indices[e.name] = uint32(i)
		names = append(names, e.name)
	}
	list := make([]policy.Identity, 0, len(entries))
	before := len(d.errors)
	for _, e := range entries {
		list = append(list, d.identity(e, indices, names))
	}
	if len(d.errors) == before {
		if i := policy.Cycle(list); i >= 0 {
			d.fail(entries[i].value, "is read from itself, by first_of")
		}
	}
	return list
}

// sources are the fields of an identity that say where its value comes from.
var sources = []string{
	"header", "address", "cookie", "query", "jwt", "request", "path_template", "attribute", "constant", "first_of",
}

func (d *decoder) identity(e entry, indices map[string]uint32, names []string) policy.Identity {
	id := policy.Identity{Name: e.name}
	if e.value.node == nil {
		return id
	}
	const want = "a source such as {header: x-api-key} or {address: {trusted_hops: 0}}"
	before := len(d.errors)
	f, ok := d.fields(e.value, want, append(slices.Clone(sources), "hash", "lowercase", "max_length", "default")...)
	if !ok {
		return id
	}
	n := 0
	for _, name := range sources {
		if _, there := f[name]; there {
			n++
		}
	}
	if n != 1 && len(d.errors) == before {
		d.fail(e.value, "has %d sources, want one of %s", n, strings.Join(sources, ", "))
	}
	d.source(&id, f)
	if v, ok := f["first_of"]; ok {
		id.Source, id.FirstOf = policy.FirstOf, d.firstOf(v, indices, names)
	}
	d.modifiers(&id, f)
	return id
}

func (d *decoder) source(id *policy.Identity, f map[string]value) {
	if v, ok := f["header"]; ok {
		id.Source, id.Header = policy.FromHeader, d.header(v)
	}
	if v, ok := f["address"]; ok {
		id.Source = policy.FromAddress
		d.address(id, v)
	}
	if v, ok := f["cookie"]; ok {
		id.Source = policy.FromCookie
		if id.Text, ok = d.text(v, "a cookie's name"); ok && !policy.ValidCookie(id.Text) {
			d.fail(v, "%s is no cookie's name, want 1 to %d letters, digits and - _ .", quote(id.Text), policy.MaxNameLength)
		}
	}
	if v, ok := f["query"]; ok {
		id.Source, id.Text = policy.FromQuery, d.shortText(v, "a query parameter's name", policy.MaxNameLength)
	}
	if v, ok := f["constant"]; ok {
		id.Source, id.Text = policy.FromConstant, d.shortText(v, "the constant", policy.MaxValueLength)
	}
	if v, ok := f["jwt"]; ok {
		id.Source = policy.FromClaim
		d.claim(id, v)
	}
	if v, ok := f["request"]; ok {
		parts := map[string]policy.Source{"method": policy.FromMethod, "host": policy.FromHost, "path": policy.FromPath}
		id.Source = parts[d.word(v, "a part of the request", "method", "host", "path")]
	}
	if v, ok := f["attribute"]; ok {
		id.Source, id.Path = policy.FromAttribute, d.parts(v, "an attribute of the proxy's such as [connection, id]")
	}
	if v, ok := f["path_template"]; ok {
		id.Source = policy.FromPathTemplate
		list, _ := d.list(v, "a list of path templates such as [/v1/reports/{id}]", 1, policy.MaxTemplates)
		for _, v := range list {
			id.Path = append(id.Path, d.template(v))
		}
	}
}

func (d *decoder) address(id *policy.Identity, v value) {
	f, _ := d.fields(v, "a mapping such as {trusted_hops: 0}", "trusted_hops", "ipv4_prefix", "ipv6_prefix", "networks")
	for name, field := range map[string]struct {
		into      *uint32
		low, high uint64
	}{
		"trusted_hops": {&id.TrustedHops, 0, policy.MaxTrustedHops},
		"ipv4_prefix":  {&id.IPv4Prefix, 1, 32},
		"ipv6_prefix":  {&id.IPv6Prefix, 1, 128},
	} {
		if v, ok := f[name]; ok {
			n, _ := d.number(v, field.low, field.high)
			*field.into = uint32(n)
		}
	}
	if id.IPv4Prefix == 32 {
		id.IPv4Prefix = 0 // one policy, one version
	}
	if id.IPv6Prefix == 128 {
		id.IPv6Prefix = 0
	}
	v, ok := f["networks"]
	if !ok {
		return
	}
	for _, name := range []string{"ipv4_prefix", "ipv6_prefix"} {
		if v, ok := f[name]; ok {
			d.fail(v, "has no meaning beside networks, whose names stand for addresses")
		}
	}
	id.Networks = d.networks(v)
}

const wantNetworks = "a list of ranges such as [10.0.0.0/8], or a mapping of names to such lists"

// networks reads ranges of addresses: a list of them, each with itself as its name, or a mapping of names to lists.
func (d *decoder) networks(v value) []policy.Network {
	var all []policy.Network
	if _, isList := v.node.(*ast.SequenceNode); isList {
		all = d.networkList(v, "", all)
	} else if entries, ok := d.entries(v, wantNetworks); ok {
		for _, e := range entries {
			if e.name == "" || len(e.name) > policy.MaxNameLength {
				d.failAt(e.key, e.value.path, "has a name of %d bytes, want 1 to %d", len(e.name), policy.MaxNameLength)
			}
			if e.value.node != nil {
				all = d.networkList(e.value, e.name, all)
			}
		}
	}
	if len(all) > policy.MaxNetworks {
		d.fail(v, "has %d ranges, want at most %d", len(all), policy.MaxNetworks)
		return nil
	}
	return all
}

// networkList appends the ranges of one name; without one, each has itself as its name.
func (d *decoder) networkList(v value, name string, all []policy.Network) []policy.Network {
	list, _ := d.list(v, wantNetworks, 1, policy.MaxNetworks)
	for _, v := range list {
		text, ok := d.text(v, "a range of addresses such as 10.0.0.0/8")
		if !ok {
			continue
		}
		prefix, ok := policy.ParseCIDR(text)
		n := policy.Network{Name: name, CIDR: prefix.String()}
		if name == "" {
			n.Name = n.CIDR
		}
		switch {
		case !ok:
			d.fail(v, "%s is no range of addresses, want ADDRESS/BITS with 0 in all other bits, such as 10.0.0.0/8 or 2001:db8::/32", quote(text))
		case slices.ContainsFunc(all, func(other policy.Network) bool { return other.CIDR == n.CIDR }):
			d.fail(v, "%s is there twice", n.CIDR)
		default:
			all = append(all, n)
		}
	}
	return all
}

func (d *decoder) claim(id *policy.Identity, v value) {
	const want = "a mapping such as {claim: sub, header: authorization} or {claim: sub, metadata: NAME}"
	before := len(d.errors)
	f, ok := d.fields(v, want, "claim!", "header", "metadata")
	if !ok {
		return
	}
	_, fromHeader := f["header"]
	_, fromMetadata := f["metadata"]
	if fromHeader == fromMetadata && len(d.errors) == before {
		d.fail(v, "wants either header, of which the token is read unverified, or metadata, the payload_in_metadata of Envoy's jwt_authn")
	}
	if v, ok := f["claim"]; ok {
		id.Path = d.parts(v, "a claim such as sub or realm_access.role, or a list of the names on the way to it")
	}
	if v, ok := f["header"]; ok {
		id.Header = d.header(v)
	}
	if v, ok := f["metadata"]; ok {
		id.Metadata = d.shortText(v, "the name of the payload", policy.MaxNameLength)
	}
}

// parts reads a path: text with dots between its parts, or a list of them.
func (d *decoder) parts(v value, want string) []string {
	var parts []string
	if _, isList := v.node.(*ast.SequenceNode); isList {
		list, _ := d.list(v, want, 1, policy.MaxPathParts)
		for _, v := range list {
			if text, ok := d.text(v, want); ok {
				parts = append(parts, text)
				if !policy.ValidPart(text) {
					d.fail(v, "%s is no part of a path, want 1 to %d bytes", quote(text), policy.MaxNameLength)
				}
			}
		}
		return parts
	}
	text, ok := d.text(v, want)
	if !ok {
		return nil
	}
	parts = strings.Split(text, ".")
	if len(parts) > policy.MaxPathParts || slices.ContainsFunc(parts, func(p string) bool { return !policy.ValidPart(p) }) {
		d.fail(v, "%s is no path of 1 to %d names with dots between them, want %s", quote(text), policy.MaxPathParts, want)
	}
	return parts
}

func (d *decoder) firstOf(v value, indices map[string]uint32, names []string) []uint32 {
	list, _ := d.list(v, "a list of identities' names such as [api_key, client]", 1, policy.MaxFirstOf)
	var members []uint32
	for _, v := range list {
		name, ok := d.text(v, "an identity's name")
		if !ok {
			continue
		}
		index, known := indices[name]
		switch {
		case !known:
			d.fail(v, "%s is no identity of this policy, %s", quote(name), suggest(name, names))
		case slices.Contains(members, index):
			d.fail(v, "%s is there twice", quote(name))
		default:
			members = append(members, index)
		}
	}
	return members
}

// modifiers reads what becomes of a value.
func (d *decoder) modifiers(id *policy.Identity, f map[string]value) {
	for _, name := range []string{"hash", "lowercase", "max_length"} {
		if v, ok := f[name]; ok && id.Source == policy.FirstOf {
			d.fail(v, "says nothing beside first_of, want it at the identities in that")
		}
	}
	if v, ok := f["hash"]; ok {
		id.Hash = d.hash(v)
	}
	if v, ok := f["lowercase"]; ok {
		id.Lowercase = d.flag(v)
	}
	if v, ok := f["max_length"]; ok {
		n, _ := d.number(v, 1, policy.MaxMaxLength)
		id.MaxLength = uint32(n)
	}
	if v, ok := f["default"]; ok {
		id.Default = d.shortText(v, "the value where a request has none", policy.MaxDefaultLength)
	}
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

// shortText reads text of 1 to most bytes.
func (d *decoder) shortText(v value, want string, most int) string {
	text, ok := d.text(v, want)
	if ok && (text == "" || len(text) > most) {
		d.fail(v, "has %d bytes, want %s, 1 to %d", len(text), want, most)
	}
	return text
}

// flag reads true or false.
func (d *decoder) flag(v value) bool {
	if n, ok := v.node.(*ast.BoolNode); ok {
		return n.Value
	}
	d.fail(v, "is %s, want true or false", describe(v.node))
	return false
}
