package policy

import (
	"slices"
	"strings"
)

// index finds the limits that a request may be under without a look at all of them. Each limit stands in one place: by its
// host, then by its path, then by the first header that has to have one value. What a limit says beyond that, and all that a
// regular expression or a negation says, is looked at for each that stands where the request leads.
type index struct {
	// hosts holds the limits of one host by its name, domains those of *.NAME by NAME, and others those of any host.
	hosts, domains map[string]*paths
	others         paths
	// longest is the length of the longest NAME in domains.
	longest int
}

// paths holds limits by their path, and in any those without one.
type paths struct {
	any  bucket
	tree *node
}

// bucket holds limits, by their indices, in the policy's order.
type bucket struct {
	limits  []uint32
	headers []headerIndex
}

// headerIndex holds limits by the value that a header has to have.
type headerIndex struct {
	name   string
	values map[string][]uint32
}

// node is all paths that begin with the segments that lead to it.
type node struct {
	literal  map[string]*node
	variable *node
	// here holds for the path that ends here, below for that one and all that go on.
	here, below bucket
}

// fewLimits is up to how many limits a look at each of them, as few policies have more, takes no longer than a way through
// the index.
const fewLimits = 8

// newIndex makes the index of a policy's limits; where it is not wanted, all of them stand in one place.
func newIndex(limits []Limit, wanted bool) index {
	x := index{hosts: make(map[string]*paths), domains: make(map[string]*paths)}
	for i := range limits {
		if len(limits[i].Descriptor) > 0 {
			continue // no request of the filter's
		}
		m := &limits[i].Match
		if !wanted {
			x.others.any.limits = append(x.others.any.limits, uint32(i))
			continue
		}
		x.place(m.Host).place(m).add(m, uint32(i))
	}
	return x
}

// beyondIndex gives what of a match is still to be compared for a request that the index leads to the limit.
func (m Match) beyondIndex() Match {
	m.Host = ""
	switch { // as paths.place has it
	case m.PathExact != "":
		m.PathExact = ""
	case m.PathTemplate != "":
		m.PathTemplate = ""
	default:
		m.PathPrefix = ""
	}
	if at := m.indexedHeader(); at >= 0 {
		m.Headers = append(m.Headers[:at:at], m.Headers[at+1:]...)
	}
	return m
}

// indexedHeader gives which of a match's headers the index goes by; -1 for none.
func (m *Match) indexedHeader() int {
	return slices.IndexFunc(m.Headers, func(f FieldMatch) bool { return f.Kind == FieldExact })
}

func (x *index) place(host string) *paths {
	if host == "" {
		return &x.others
	}
	in := x.hosts
	if name, all := strings.CutPrefix(host, "*."); all {
		in, host, x.longest = x.domains, name, max(x.longest, len(name))
	}
	p := in[host]
	if p == nil {
		p = &paths{}
		in[host] = p
	}
	return p
}

func (p *paths) place(m *Match) *bucket {
	if m.PathExact == "" && m.PathTemplate == "" && m.PathPrefix == "" {
		return &p.any
	}
	if p.tree == nil {
		p.tree = &node{}
	}
	switch {
	case m.PathExact != "":
		return &p.tree.grow(m.PathExact, false).here
	case m.PathTemplate != "":
		return p.tree.template(m.PathTemplate)
	default:
		return &p.tree.grow(strings.TrimSuffix(m.PathPrefix, "/"), false).below
	}
}

// template gives where a path template belongs.
func (n *node) template(text string) *bucket {
	head, rest := text, false
	if last := strings.LastIndexByte(text, '/'); isRest(text[last:]) {
		head, rest = text[:last], true
	}
	n = n.grow(head, true)
	if rest {
		return &n.below
	}
	return &n.here
}

// grow gives the node of a path, with variables in it or without.
func (n *node) grow(path string, variables bool) *node {
	for path != "" {
		var segment string
		segment, path = cutSegment(path)
		if variables && isPathVariable(segment) {
			if n.variable == nil {
				n.variable = &node{}
			}
			n = n.variable
			continue
		}
		next := n.literal[segment]
		if next == nil {
			if n.literal == nil {
				n.literal = make(map[string]*node)
			}
			next = &node{}
			n.literal[segment] = next
		}
		n = next
	}
	return n
}

func (u *bucket) add(m *Match, limit uint32) {
	by := m.indexedHeader()
	if by < 0 {
		u.limits = append(u.limits, limit)
		return
	}
	f := &m.Headers[by]
	at := slices.IndexFunc(u.headers, func(h headerIndex) bool { return h.name == f.Name })
	if at < 0 {
		at = len(u.headers)
		u.headers = append(u.headers, headerIndex{f.Name, make(map[string][]uint32)})
	}
	values := u.headers[at].values
	values[f.Value] = append(values[f.Value], limit)
}

// matching appends the limits whose match the request is to found, in the policy's order.
func (b *binding) matching(found []uint32) []uint32 {
	x := &b.binder.index
	found = b.inPaths(&x.others, found)
	if len(x.hosts)+len(x.domains) > 0 {
		host := b.readHost()
		if p := x.hosts[host]; p != nil {
			found = b.inPaths(p, found)
		}
		for at := max(0, len(host)-x.longest-1); at < len(host) && x.longest > 0; at++ {
			if host[at] != '.' || at == 0 {
				continue
			}
			if p := x.domains[host[at+1:]]; p != nil {
				found = b.inPaths(p, found)
			}
		}
	}
	for i := 1; i < len(found); i++ {
		if found[i-1] >= found[i] {
			slices.Sort(found)
			return slices.Compact(found)
		}
	}
	return found
}

func (b *binding) inPaths(p *paths, found []uint32) []uint32 {
	found = b.inBucket(&p.any, found)
	if p.tree != nil && b.readPath() && b.path[0] == '/' {
		found = b.inTree(p.tree, b.path, found)
	}
	return found
}

func (b *binding) inTree(n *node, path string, found []uint32) []uint32 {
	found = b.inBucket(&n.below, found)
	if path == "" {
		return b.inBucket(&n.here, found)
	}
	segment, rest := cutSegment(path)
	if next := n.literal[segment]; next != nil {
		found = b.inTree(next, rest, found)
	}
	if n.variable != nil && segment != "" {
		found = b.inTree(n.variable, rest, found)
	}
	return found
}

func (b *binding) inBucket(u *bucket, found []uint32) []uint32 {
	found = b.among(u.limits, found)
	for i := range u.headers {
		h := &u.headers[i]
		value, fields := b.request.Header(h.name)
		if fields == 0 {
			continue
		}
		found = b.among(h.values[value], found)
		switch elements := strings.Count(value, ","); {
		case elements >= maxElements:
			for _, limits := range h.values {
				found = b.among(limits, found)
			}
		case elements > 0:
			for rest, more := value, true; more; {
				var element string
				element, rest, more = strings.Cut(rest, ",")
				found = b.among(h.values[strings.Trim(element, " \t")], found)
			}
		}
	}
	return found
}

// among appends those of the limits that match.
func (b *binding) among(limits, found []uint32) []uint32 {
	for _, i := range limits {
		if rest := b.binder.rests[i]; rest == nil || b.matches(rest, true) {
			found = append(found, i)
		}
	}
	return found
}
