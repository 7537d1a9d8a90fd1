package policy

// Request is what a policy reads of a request.
type Request interface {
	// Header reads a header by its name in lower case, and counts the fields of that name; ":method", ":path" and
	// ":authority" are headers. Of several fields, it gives the values joined by commas, and those of cookie by semicolons.
	Header(name string) (value string, fields int)
	// Property reads an attribute of the proxy's by its path, such as "source", "address"; false where there is none.
	Property(path ...string) (string, bool)
}

// Bound is a limit that a request is under, or a list that it stands on. It is valid until the Binder's next Bind, and as long
// as the strings of the request are.
type Bound struct {
	// Limit is an index into Policy.Limits; -1 for a list of the whole policy.
	Limit int
	// Listed is 0 for a limit that the request is under. With Allowed nothing but Limit holds. With Blocked Key names the list's
	// element, and is valid for good.
	Listed Listed
	// Rule is what holds for the key; it is never an unlimited one.
	Rule *Rule
	// Key tells the callers of this limit apart: the identities' values, each as EscapeValue has it, joined by slashes.
	Key string
	// Cost is what the request spends, in units, at least 1.
	Cost int64
}

// Binder says which limits of a policy a request is under, one request at a time: it keeps the space that it needs for one.
type Binder struct {
	policy  *Policy
	readers []reader
	index   index
	// rests are what of the limits' matches is still to be compared where the index leads to them; nil where nothing is.
	rests []*matcher
	// rules are the limits' own, for keys without an exception.
	rules []Rule
	// plain says of a limit that nothing but its match and its key has to be looked at: its own rule holds for all keys.
	plain   []bool
	binding binding
	// elements are the names of lists' elements that requests were blocked by.
	elements map[place]string
}

// NewBinder makes what a policy is bound by, once for the policy, which has passed Validate.
func NewBinder(p *Policy) *Binder { return newBinder(p, fewLimits) }

func newBinder(p *Policy, few int) *Binder {
	c := &Binder{
		policy: p, readers: make([]reader, len(p.Identities)), rests: make([]*matcher, len(p.Limits)),
		rules: make([]Rule, len(p.Limits)), plain: make([]bool, len(p.Limits)),
		elements: make(map[place]string),
	}
	c.binding = binding{binder: c, values: make([]value, len(p.Identities))}
	for i := range p.Identities {
		c.readers[i] = newReader(&p.Identities[i])
	}
	patterns := make(map[string]*pattern)
	indexed := len(p.Limits) > few
	for i := range p.Limits {
		l := &p.Limits[i]
		rest := l.Match
		if indexed {
			rest = rest.beyondIndex()
		}
		if !rest.empty() {
			c.rests[i] = newMatcher(&rest, patterns)
		}
		c.rules[i] = l.Rule("", "")
		c.plain[i] = l.plain()
	}
	c.index = newIndex(p.Limits, indexed)
	return c
}

// Policy gives what it was made of.
func (c *Binder) Policy() *Policy { return c.policy }

// Bind appends the limits that a request is under to dst, in the policy's order, and the lists of allowed callers that take
// it out of others. Of a request that is blocked it appends that alone. Every identity is read at most once, and only if a
// list or a limit that matches needs it.
func (c *Binder) Bind(r Request, dst []Bound) []Bound {
	p, b := c.policy, &c.binding
	b.reset(r)
	if len(p.Block) > 0 {
		if at := b.listed(p.Block); at.list != nil {
			return append(dst, Bound{Limit: -1, Listed: Blocked, Key: c.element(at)})
		}
	}
	before := len(dst)
	allowed := len(p.Allow) > 0 && b.on(p.Allow)
	if allowed {
		dst = append(dst, Bound{Limit: -1, Listed: Allowed})
	}
	b.found = b.matching(b.found[:0])
	for _, i := range b.found {
		l := &p.Limits[i]
		switch {
		case c.plain[i]:
			if allowed {
				continue
			}
			if key, ok := b.key(l.Key); ok {
				dst = append(dst, Bound{Limit: int(i), Rule: &c.rules[i], Key: key, Cost: l.RequestCost()})
			}
		case len(l.Block) > 0 && b.on(l.Block):
			return append(dst[:before], Bound{Limit: int(i), Listed: Blocked, Key: c.element(b.listed(l.Block))})
		case allowed:
		case len(l.Allow) > 0 && b.on(l.Allow):
			dst = append(dst, Bound{Limit: int(i), Listed: Allowed})
		default:
			if key, ok := b.key(l.Key); ok {
				if rule := b.rule(l, key); !rule.Unlimited {
					dst = append(dst, Bound{Limit: int(i), Rule: rule, Key: key, Cost: b.cost(l)})
				}
			}
		}
	}
	return dst
}

// plain says whether a limit's own rule holds for all keys, at a constant cost, and no list takes anybody out.
func (l *Limit) plain() bool {
	return len(l.Plans) == 0 && len(l.Overrides) == 0 && (l.Shadow == 0 || l.Shadow >= maxPercent) && !l.Unlimited &&
		len(l.Allow) == 0 && len(l.Block) == 0 && !l.Measure.measures()
}

// rule gives what holds for a key.
func (b *binding) rule(l *Limit, key string) *Rule {
	b.rules = append(b.rules, l.Rule(b.plan(l), key)) // where it grows, rules given before stay where they were
	return &b.rules[len(b.rules)-1]
}

// plan gives the name of the request's plan; empty where it says none. A name stands in a value as it is, and may be the
// default.
func (b *binding) plan(l *Limit) string {
	if len(l.Plans) == 0 {
		return ""
	}
	return unmarked(b.value(l.PlanBy).escaped)
}

// value is what is known of an identity's value.
type value struct {
	escaped       string
	read, present bool
}

// binding is one request on its way through the limits.
type binding struct {
	binder  *Binder
	request Request
	// values are the identities'.
	values []value
	// found are the limits whose match the request is to, rules those that were made for it.
	found []uint32
	rules []Rule

	target
}

// target is what a request is for, as far as it has been read.
type target struct {
	path, query, method, host      string
	hasPath, hasMethod             bool
	pathRead, methodRead, hostRead bool
}

// reset makes b ready for a request.
func (b *binding) reset(r Request) {
	b.request, b.target = r, target{}
	b.rules = b.rules[:0]
	clear(b.values)
}

// key makes a limit's key; false where the request lacks one of its identities.
func (b *binding) key(identities []uint32) (string, bool) {
	if len(identities) == 1 {
		v := b.value(identities[0])
		return v.escaped, v.present
	}
	var parts [MaxKeyParts]string
	for i, identity := range identities {
		v := b.value(identity)
		if !v.present {
			return "", false
		}
		parts[i] = v.escaped
	}
	return joinKey(parts[:len(identities)]), true
}

// value gives an identity's value, which it reads once.
func (b *binding) value(identity uint32) *value {
	v := &b.values[identity]
	if !v.read {
		b.read(identity, v)
	}
	return v
}
