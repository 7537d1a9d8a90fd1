package policy

import (
	"slices"
	"strings"
)

// index finds the limits that a request may be under without a look at all of them. Each limit stands in one place: by its
// host, then by its path, then by the first header that has to have one value. What a limit says beyond that, and all that a
// regular expression or a negation says, is looked at for each that stands where the request leads.
type index struct {
	// hosts leads to the limits of one host by its name, domains to those of *.NAME by NAME: what they hold are indices
	// into named. others are the limits of any host.
	hosts, domains node
	named          []paths
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

// headerIndex holds limits by the value that a header has to have, and all of them.
type headerIndex struct {
	name   string
	values node
	all    []uint32
}

// node is all paths, or names, or values, that begin with the texts that lead to it. To go from node to node by the first byte
// costs less than a look at a map.
type node struct {
	// text is what stands between the node above and this one. It ends anywhere, not only where a segment does.
	text string
	// next are the nodes below, first the first bytes of their texts, in the same order; no two are the same.
	first string
	next  []*node
	// variable stands for a whole segment, which is not empty; what leads to it ends in a slash.
	variable *node
	// here holds for what ends here, below for that and for all that goes on with a slash; nil where nothing does.
	here, below *bucket
}

// fewLimits is up to how many limits a look at each of them, as few policies have more, takes no longer than a way through
// the index.
const fewLimits = 8

// newIndex makes the index of a policy's limits; where it is not wanted, all of them stand in one place.
func newIndex(limits []Limit, wanted bool) index {
	var x index
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
	in := &x.hosts
	if name, all := strings.CutPrefix(host, "*."); all {
		in, host, x.longest = &x.domains, name, max(x.longest, len(name))
	}
	u := placed(&in.grow(host).here)
	if len(u.limits) == 0 {
		u.limits = append(u.limits, uint32(len(x.named)))
		x.named = append(x.named, paths{})
	}
	return &x.named[u.limits[0]]
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
		return placed(&p.tree.grow(m.PathExact).here)
	case m.PathTemplate != "":
		return p.tree.template(m.PathTemplate)
	default:
		return placed(&p.tree.grow(strings.TrimSuffix(m.PathPrefix, "/")).below)
	}
}

// template gives where a path template belongs that CheckTemplate has passed.
func (n *node) template(text string) *bucket {
	for {
		begin := strings.IndexByte(text, '{')
		if begin < 0 {
			return placed(&n.grow(text).here)
		}
		if isRest(text) && strings.IndexByte(text[begin:], '/') < 0 {
			return placed(&n.grow(text[:begin-1]).below)
		}
		n = n.grow(text[:begin])
		if n.variable == nil {
			n.variable = &node{}
		}
		n = n.variable
		_, text = cutSegment(text[begin-1:])
	}
}

// placed gives the bucket of a node, which there is from then on.
func placed(u **bucket) *bucket {
	if *u == nil {
		*u = &bucket{}
	}
	return *u
}

// grow gives the node of a text.
func (n *node) grow(text string) *node {
	for text != "" {
		i := strings.IndexByte(n.first, text[0])
		if i < 0 {
			n.first += text[:1]
			n.next = append(n.next, &node{text: text})
			return n.next[len(n.next)-1]
		}
		next, same := n.next[i], 1
		for same < min(len(text), len(next.text)) && text[same] == next.text[same] {
			same++
		}
		if same < len(next.text) {
			n.next[i] = &node{text: next.text[:same], first: next.text[same : same+1], next: []*node{next}}
			next.text = next.text[same:]
		}
		n, text = n.next[i], text[same:]
	}
	return n
}

// at gives the limits of a text.
func (n *node) at(text string) []uint32 {
	for n != nil && text != "" {
		n, text = n.toward(text)
	}
	if n == nil || n.here == nil {
		return nil
	}
	return n.here.limits
}

// toward gives the node below on the way to a text, and what of the text is left there; nil where there is none.
func (n *node) toward(text string) (*node, string) {
	if i := strings.IndexByte(n.first, text[0]); i >= 0 {
		if next := n.next[i]; strings.HasPrefix(text, next.text) {
			return next, text[len(next.text):]
		}
	}
	return nil, ""
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
		u.headers = append(u.headers, headerIndex{name: f.Name})
	}
	h := &u.headers[at]
	h.all = append(h.all, limit)
	value := placed(&h.values.grow(f.Value).here)
	value.limits = append(value.limits, limit)
}

// matching appends the limits whose match the request is to found, in the policy's order.
func (b *binding) matching(found []uint32) []uint32 {
	x := &b.binder.index
	found = b.inPaths(&x.others, found)
	if len(x.named) > 0 {
		host := b.readHost()
		for _, i := range x.hosts.at(host) {
			found = b.inPaths(&x.named[i], found)
		}
		for at := max(0, len(host)-x.longest-1); at < len(host) && x.longest > 0; at++ {
			if host[at] != '.' || at == 0 {
				continue
			}
			for _, i := range x.domains.at(host[at+1:]) {
				found = b.inPaths(&x.named[i], found)
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
	for n != nil {
		if n.below != nil && (path == "" || path[0] == '/') {
			found = b.inBucket(n.below, found)
		}
		if path == "" {
			if n.here != nil {
				found = b.inBucket(n.here, found)
			}
			break
		}
		if n.variable != nil && path[0] != '/' {
			found = b.inTree(n.variable, behindSegment(path), found)
		}
		n, path = n.toward(path)
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
		elements := strings.Count(value, ",")
		if elements >= maxElements {
			found = b.among(h.all, found)
			continue
		}
		found = b.among(h.values.at(value), found)
		for rest, more := value, elements > 0; more; {
			var element string
			element, rest, more = strings.Cut(rest, ",")
			found = b.among(h.values.at(strings.Trim(element, " \t")), found)
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
