package replay

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/controlsvc/accesslog"
	"sluice/shared/policy"
)

// The names of what a policy may read of a request that is no header.
const (
	ofClient    = "the client's address"
	ofAuthority = ":authority"
	ofMethod    = ":method"
)

// needs is what policies read of a request, and what for.
type needs struct {
	// headers, attributes and others (the constants above) lead to those that need them.
	headers, attributes, others map[string][]string
}

// needsOf says what a policy reads. What names the policy where there are two.
func (n *needs) add(p *policy.Policy, which string) {
	used := make([]bool, len(p.Identities))
	var use func(i uint32)
	use = func(i uint32) {
		if !used[i] {
			used[i] = true
			for _, next := range p.Identities[i].FirstOf {
				use(next)
			}
		}
	}
	lists := func(lists []policy.List) {
		for _, l := range lists {
			use(l.Identity)
		}
	}
	lists(p.Allow)
	lists(p.Block)
	for i := range p.Limits {
		l := &p.Limits[i]
		if len(l.Descriptor) > 0 {
			continue
		}
		for _, identity := range l.Key {
			use(identity)
		}
		if len(l.Plans) > 0 {
			use(l.PlanBy)
		}
		lists(l.Allow)
		lists(l.Block)
		by := "limit " + l.Name + which
		n.match(&l.Match, by)
		if l.Measure.Header != "" {
			note(n.headers, l.Measure.Header, by)
		}
		if l.Measure.Bytes > 0 {
			note(n.headers, "content-length", by)
		}
	}
	for i, is := range used {
		if is {
			n.identity(&p.Identities[i], which)
		}
	}
}

func note(in map[string][]string, what, by string) {
	if !slices.Contains(in[what], by) {
		in[what] = append(in[what], by)
	}
}

func (n *needs) match(m *policy.Match, by string) {
	for _, h := range m.Headers {
		if h.Name == ofAuthority || h.Name == ofMethod {
			note(n.others, h.Name, by)
		} else if h.Name[0] != ':' {
			note(n.headers, h.Name, by)
		}
	}
	if m.Host != "" {
		note(n.others, ofAuthority, by)
	}
	if len(m.Methods) > 0 {
		note(n.others, ofMethod, by)
	}
	if m.Not != nil {
		n.match(m.Not, by)
	}
}

func (n *needs) identity(id *policy.Identity, which string) {
	by := "identity " + id.Name + which
	switch id.Source {
	case policy.FromHeader:
		switch id.Header {
		case ofAuthority, ofMethod:
			note(n.others, id.Header, by)
		case ":path":
		default:
			note(n.headers, id.Header, by)
		}
	case policy.FromAddress:
		if id.TrustedHops > 0 {
			note(n.headers, "x-forwarded-for", by)
		}
		note(n.others, ofClient, by)
	case policy.FromCookie:
		note(n.headers, "cookie", by)
	case policy.FromClaim:
		if id.Header != "" {
			note(n.headers, id.Header, by)
		} else {
			note(n.attributes, "claim "+strings.Join(id.Path, "."), by)
		}
	case policy.FromAttribute:
		note(n.attributes, "attribute "+strings.Join(id.Path, "."), by)
	case policy.FromMethod:
		note(n.others, ofMethod, by)
	case policy.FromHost:
		note(n.others, ofAuthority, by)
	case policy.FromPath, policy.FromPathTemplate, policy.FromQuery, policy.FromConstant, policy.FirstOf:
	}
}

// mappedHeader is the header that stands for an identity which is read from a field of the log.
func mappedHeader(identity string) string { return "sluice-replay-" + identity }

// mapIdentities gives a policy whose identities of these names are read from a header that stands for a field of the log.
func mapIdentities(p *policy.Policy, fields map[string]string) *policy.Policy {
	if len(fields) == 0 {
		return p
	}
	own := *p
	own.Identities = slices.Clone(p.Identities)
	for i := range own.Identities {
		id := &own.Identities[i]
		if fields[id.Name] == "" {
			continue
		}
		*id = policy.Identity{
			Name: id.Name, Source: policy.FromHeader, Header: mappedHeader(id.Name),
			Hash: id.Hash, Lowercase: id.Lowercase, MaxLength: id.MaxLength, Default: id.Default,
		}
	}
	return &own
}

// checkIdentities says which mapped identities no policy has, or cannot be mapped.
func checkIdentities(fields map[string]string, policies ...*policy.Policy) error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		found := false
		for _, p := range policies {
			for i := range p.Identities {
				if id := &p.Identities[i]; id.Name == name {
					found = true
					if id.Source == policy.FromAddress {
						all = append(all, fmt.Errorf("identity %s is a client's address: map --field client=%s instead", name, fields[name]))
					}
				}
			}
		}
		if !found {
			all = append(all, fmt.Errorf("there is no identity %s in the policy", name))
		}
	}
	return errors.Join(all...)
}

// request shows an entry of a log to a policy.
type request struct {
	entry   *accesslog.Entry
	headers []string // what is wanted of the log, in its order
}

var _ policy.Request = (*request)(nil)

// Header implements policy.Request.
func (r *request) Header(name string) (string, int) {
	if name[0] == ':' {
		switch name {
		case ":path":
			return one(r.entry.Path)
		case ofMethod:
			return one(r.entry.Method)
		case ofAuthority:
			return one(r.entry.Authority)
		}
		return "", 0
	}
	for i, h := range r.headers {
		if h == name {
			if value, is := r.entry.Wanted(i); is {
				return value, 1
			}
			return "", 0
		}
	}
	return "", 0
}

func one(value string) (string, int) {
	if value == "" {
		return "", 0
	}
	return value, 1
}

// Property implements policy.Request: a log knows the client's address alone.
func (r *request) Property(path ...string) (string, bool) {
	if len(path) == 2 && path[0] == "source" && path[1] == "address" {
		return r.entry.Client, r.entry.Client != ""
	}
	return "", false
}
