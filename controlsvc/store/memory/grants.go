package memory

import "slices"

// grantIndex has a key's charges that may still be settled or cancelled. Most keys have one or two, and a map for each of a
// million keys would be half of what they take up.
type grantIndex struct {
	// few has them while they are at most fewGrants; then many has them by call, the younger first, linked by next and last.
	few  []*charge
	many map[string]*charge
}

const fewGrants = 16

// of gives the charges of a call.
func (g *grantIndex) of(call string) []*charge {
	var found []*charge
	for _, c := range g.few {
		if c.call == call {
			found = append(found, c)
		}
	}
	for c := g.many[call]; c != nil; c = c.next {
		found = append(found, c)
	}
	return found
}

// each visits all of them.
func (g *grantIndex) each(visit func(*charge)) {
	for _, c := range g.few {
		visit(c)
	}
	for _, c := range g.many {
		for ; c != nil; c = c.next {
			visit(c)
		}
	}
}

func (g *grantIndex) add(c *charge) {
	if len(g.many) == 0 && len(g.few) < fewGrants {
		g.few = append(g.few, c)
		return
	}
	if g.many == nil {
		g.many = map[string]*charge{}
	}
	for _, moved := range append(g.few, c) {
		if moved.next = g.many[moved.call]; moved.next != nil {
			moved.next.last = moved
		}
		g.many[moved.call] = moved
	}
	g.few = nil
}

// remove takes a charge out, where it is in.
func (g *grantIndex) remove(c *charge) {
	if len(g.many) == 0 {
		if i := slices.Index(g.few, c); i >= 0 {
			g.few = slices.Delete(g.few, i, i+1)
		}
		return
	}
	if c.next != nil {
		c.next.last = c.last
	}
	switch {
	case c.last != nil:
		c.last.next = c.next
	case c.next != nil:
		g.many[c.call] = c.next
	default:
		delete(g.many, c.call)
	}
	c.next, c.last = nil, nil
	if len(g.many) == 0 {
		g.many = nil
	}
}
