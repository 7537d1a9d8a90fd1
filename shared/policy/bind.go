package policy

// Request is what a policy reads of a request.
type Request interface {
	// Header reads a header by its name in lower case, and counts the fields of that name; ":method", ":path" and
	// ":authority" are headers. Of several fields, it gives the values joined by commas, and those of cookie by semicolons.
	Header(name string) (value string, fields int)
	// Property reads an attribute of the proxy's by its path, such as "source", "address"; false where there is none.
	Property(path ...string) (string, bool)
}

// Bound is a limit that a request is under, or a list that it stands on.
type Bound struct {
	// Limit is an index into Policy.Limits; -1 for a list of the whole policy.
	Limit int
	// Listed is 0 for a limit that the request is under. With Allowed or Blocked nothing but Limit holds.
	Listed Listed
	// Rule is what holds for the key; it is never an unlimited one.
	Rule Rule
	// Key tells the callers of this limit apart: the identities' values, each as EscapeValue has it, joined by slashes.
	// Valid as long as the strings of the request are.
	Key string
	// Cost is what the request spends, in units, at least 1.
	Cost int64
}

// Binder says which limits of a policy a request is under. It is read-only once made: many requests share it.
type Binder struct {
	policy   *Policy
	readers  []reader
	matchers []*matcher
	index    index
}

// NewBinder makes what a policy is bound by, once for the policy, which has passed Validate.
func NewBinder(p *Policy) *Binder {
	c := &Binder{policy: p, readers: make([]reader, len(p.Identities)), matchers: make([]*matcher, len(p.Limits))}
	for i := range p.Identities {
		c.readers[i] = newReader(&p.Identities[i])
	}
	patterns := make(map[string]*pattern)
	for i := range p.Limits {
		c.matchers[i] = newMatcher(&p.Limits[i].Match, patterns)
	}
	c.index = newIndex(p.Limits)
	return c
}

// Policy gives what it was made of.
func (c *Binder) Policy() *Policy { return c.policy }

// Bind appends the limits that a request is under to dst, in the policy's order, and the lists of allowed callers that take
// it out of others. Of a request that is blocked it appends that alone. Every identity is read at most once, and only if a
// list or a limit that matches needs it.
func (c *Binder) Bind(r Request, dst []Bound) []Bound {
	p := c.policy
	b := binding{binder: c, request: r}
	if more := len(p.Identities) - len(b.first); more > 0 {
		b.others = make([]value, more)
	}
	if b.on(p.Block) {
		return append(dst, Bound{Limit: -1, Listed: Blocked})
	}
	before := len(dst)
	allowed := b.on(p.Allow)
	if allowed {
		dst = append(dst, Bound{Limit: -1, Listed: Allowed})
	}
	var room [32]uint32
	for _, i := range b.matching(room[:0]) {
		l := &p.Limits[i]
		switch {
		case b.on(l.Block):
			return append(dst[:before], Bound{Limit: int(i), Listed: Blocked})
		case allowed:
		case b.on(l.Allow):
			dst = append(dst, Bound{Limit: int(i), Listed: Allowed})
		default:
			if key, ok := b.key(l.Key); ok {
				if rule := l.Rule(b.plan(l), key); !rule.Unlimited {
					dst = append(dst, Bound{Limit: int(i), Rule: rule, Key: key, Cost: b.cost(l)})
				}
			}
		}
	}
	return dst
}

// plan gives the name of the request's plan; empty where it says none. A name stands in a value as it is, and may be the
// default.
func (b *binding) plan(l *Limit) string {
	if len(l.Plans) == 0 {
		return ""
	}
	v := b.value(l.PlanBy)
	if !v.read {
		b.read(l.PlanBy, v)
	}
	return unmarked(v.escaped)
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
	// first holds the identities' values, and others those that it has no room for. It is enough for most policies; an
	// array for MaxIdentities would have to be cleared for every request.
	first  [32]value
	others []value

	path, query, method, host      string
	hasPath, hasMethod             bool
	pathRead, methodRead, hostRead bool
}

// key makes a limit's key; false where the request lacks one of its identities.
func (b *binding) key(identities []uint32) (string, bool) {
	var parts [MaxKeyParts]string
	for i, identity := range identities {
		v := b.value(identity)
		if !v.read {
			b.read(identity, v)
		}
		if !v.present {
			return "", false
		}
		parts[i] = v.escaped
	}
	return joinKey(parts[:len(identities)]), true
}

func (b *binding) value(identity uint32) *value {
	if int(identity) < len(b.first) {
		return &b.first[identity]
	}
	return &b.others[int(identity)-len(b.first)]
}
