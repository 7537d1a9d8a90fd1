package policy

import "strings"

// Explanation says what becomes of a request under one limit.
type Explanation struct {
	Bound
	// Why says why the limit does not bind the request, and what of it would have to be otherwise; empty where it does.
	Why string
}

// Explain says of every limit of the policy, in order, whether it binds the request, and why not. What binds is what Bind
// gives. Before the limits come the policy's own lists, with Limit -1, where the request stands on one. It is for people: it
// looks at everything.
func (c *Binder) Explain(r Request) []Explanation {
	p, b := c.policy, &c.binding
	b.reset(r)
	patterns := make(map[string]*pattern)
	var all []Explanation
	listed := Listed(0)
	switch {
	case b.on(p.Block):
		listed = Blocked
		all = append(all, Explanation{Bound: Bound{Limit: -1, Listed: listed, Key: c.element(b.listed(p.Block))}})
	case b.on(p.Allow):
		listed = Allowed
		all = append(all, Explanation{Bound: Bound{Limit: -1, Listed: listed}})
	}
	blockedBy := -1
	for i := range p.Limits {
		e := b.explain(i, patterns)
		if e.Listed == Blocked && listed != Blocked && blockedBy < 0 {
			blockedBy = i
		}
		all = append(all, e)
	}
	for i := range all {
		e := &all[i]
		switch {
		case e.Why != "":
		case blockedBy >= 0 && e.Limit != blockedBy:
			e.Why = "the block list of " + p.Limits[blockedBy].Name + " denies the request"
		case e.Limit < 0:
		case listed == Blocked:
			e.Why = "the policy's block list denies the request before any limit is looked at"
		case listed == Allowed && blockedBy < 0:
			e.Why = "the policy's allow list takes the request out of all limits"
		}
	}
	return all
}

// explain looks at one limit by itself.
func (b *binding) explain(i int, patterns map[string]*pattern) Explanation {
	l := &b.binder.policy.Limits[i]
	e := Explanation{Bound: Bound{Limit: i}}
	switch {
	case len(l.Descriptor) > 0:
		e.Why = "it is for descriptors of Envoy's own rate limit filter"
		return e
	default:
		if e.Why = b.mismatch(newMatcher(&l.Match, patterns)); e.Why != "" {
			return e
		}
	}
	switch {
	case b.on(l.Block):
		e.Listed, e.Key = Blocked, b.binder.element(b.listed(l.Block))
		return e
	case b.on(l.Allow):
		e.Listed = Allowed
		return e
	}
	key, ok := b.key(l.Key)
	if !ok {
		e.Why = "the request has no " + b.absent(l.Key)
		return e
	}
	e.Key, e.Rule, e.Cost = key, b.rule(l, key), b.cost(l)
	if e.Rule.Unlimited {
		e.Why = "it is unlimited for this key"
	}
	return e
}

// absent names the first of the identities that the request lacks.
func (b *binding) absent(identities []uint32) string {
	for _, i := range identities {
		if !b.value(i).present {
			return b.binder.policy.Identities[i].Name
		}
	}
	return ""
}

// mismatch says what of the match is not as it has to be; empty where all is.
func (b *binding) mismatch(m *matcher) string {
	b.readMethod()
	hasPath := b.readPath()
	path := "the path is " + b.path
	if !hasPath {
		path = "there is no path"
	}
	switch {
	case !b.matchesMethod(m.Methods):
		return "the method is " + b.method + ", not " + strings.Join(m.Methods, " or ")
	case m.Host != "" && !matchesHost(m.Host, b.readHost()):
		return "the host is " + b.readHost() + ", not " + m.Host
	case m.PathExact != "" && (!hasPath || b.path != m.PathExact):
		return path + ", not " + m.PathExact
	case m.PathPrefix != "" && (!hasPath || !hasPathPrefix(b.path, m.PathPrefix)):
		return path + ", not " + m.PathPrefix + " or below it"
	case m.PathTemplate != "" && (!hasPath || !matchesTemplate(b.path, m.PathTemplate)):
		return path + ", which is no " + m.PathTemplate
	case !b.matchesPath(m, true):
		return path + ", which does not match " + m.PathRegex
	case !b.matchesHeaders(m, true):
		return "the header " + b.firstOther(m.Headers, m.headers, func(one *matcher) bool { return b.matchesHeaders(one, true) })
	case !b.matchesQuery(m, true):
		return "the query parameter " + b.firstOther(m.Query, m.query, func(one *matcher) bool { return b.matchesQuery(one, true) })
	case m.not != nil && b.matches(m.not, false):
		return "it is what the limit's `not` says"
	}
	return ""
}

// firstOther names the first of several fields that is not as it has to be.
func (b *binding) firstOther(fields []FieldMatch, patterns []*pattern, matches func(*matcher) bool) string {
	for i := range fields {
		one := fields[i : i+1]
		if matches(&matcher{Match: &Match{Headers: one, Query: one}, headers: patterns[i : i+1], query: patterns[i : i+1]}) {
			continue
		}
		switch fields[i].Kind {
		case FieldExact:
			return fields[i].Name + " is not " + fields[i].Value
		case FieldPrefix:
			return fields[i].Name + " does not begin with " + fields[i].Value
		case FieldRegex:
			return fields[i].Name + " does not match " + fields[i].Value
		case FieldPresent:
			return fields[i].Name + " is not there"
		}
	}
	return ""
}
