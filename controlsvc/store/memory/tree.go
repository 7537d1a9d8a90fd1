package memory

import (
	"sluice/controlsvc/store"
	"sluice/shared/instant"
)

// charge is an entry of the log: units that may be spent until score. All windows of a key share it.
type charge struct {
	score instant.Instant
	// number orders charges of one score; no two of a key have the same.
	number uint64
	units  int64
	kind   store.Kind
	// grant is the charge's name where it may still be settled or cancelled; call and part are the grant's.
	grant, call, part string
	// next and last lead to the other grants of its call.
	next, last *charge
	// held is how many windows hold it.
	held int
}

func (c *charge) before(d *charge) bool {
	return c.score < d.score || c.score == d.score && c.number < d.number
}

// node is a treap: ordered by score, a heap by priority, so that it is balanced whatever the order of insertion. Each node
// knows the sums of its subtree, so that no question needs to visit all charges.
type node struct {
	*charge

	left, right *node
	priority    uint64
	count       int
	// sum is the units of the subtree; certain is without those of leases, which may come back.
	sum, certain int64
}

func (n *node) total() int64 {
	if n == nil {
		return 0
	}
	return n.sum
}

func (n *node) totalCertain() int64 {
	if n == nil {
		return 0
	}
	return n.certain
}

func (n *node) size() int {
	if n == nil {
		return 0
	}
	return n.count
}

func (n *node) own() int64 { return n.units }

func (n *node) ownCertain() int64 {
	if n.kind == store.Lease {
		return 0
	}
	return n.units
}

// update counts a node's sums anew from its children's.
func (n *node) update() *node {
	n.count = n.left.size() + 1 + n.right.size()
	n.sum = n.left.total() + n.own() + n.right.total()
	n.certain = n.left.totalCertain() + n.ownCertain() + n.right.totalCertain()
	return n
}

// split gives the charges with a score of at most edge, and the others.
func split(n *node, edge instant.Instant) (upTo, after *node) {
	if n == nil {
		return nil, nil
	}
	if n.score <= edge {
		n.right, after = split(n.right, edge)
		return n.update(), after
	}
	upTo, n.left = split(n.left, edge)
	return upTo, n.update()
}

// splitBefore gives the charges before c, and the others.
func splitBefore(n *node, c *charge) (before, others *node) {
	if n == nil {
		return nil, nil
	}
	if n.before(c) {
		n.right, others = splitBefore(n.right, c)
		return n.update(), others
	}
	before, n.left = splitBefore(n.left, c)
	return before, n.update()
}

// merge joins two trees, all of the first before all of the second.
func merge(a, b *node) *node {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a.right = merge(a.right, b)
		return a.update()
	}
	b.left = merge(a, b.left)
	return b.update()
}

func insert(n, added *node) *node {
	if n == nil || added.priority > n.priority {
		added.left, added.right = splitBefore(n, added.charge)
		return added.update()
	}
	if added.before(n.charge) {
		n.left = insert(n.left, added)
	} else {
		n.right = insert(n.right, added)
	}
	return n.update()
}

// remove takes one charge out; false where it is not in.
func remove(n *node, c *charge) (*node, bool) {
	if n == nil {
		return nil, false
	}
	if n.charge == c {
		return merge(n.left, n.right), true
	}
	var found bool
	if c.before(n.charge) {
		n.left, found = remove(n.left, c)
	} else {
		n.right, found = remove(n.right, c)
	}
	return n.update(), found
}

// unitsUpTo sums the units with a score of at most edge.
func unitsUpTo(n *node, edge instant.Instant) int64 {
	var sum int64
	for n != nil {
		if n.score > edge {
			n = n.left
			continue
		}
		sum += n.left.total() + n.own()
		n = n.right
	}
	return sum
}

// reaches gives the earliest score up to which the units, or only the certain ones, sum up to at least so many, which is
// more than 0 and not more than there are.
func reaches(n *node, units int64, total, own func(*node) int64) instant.Instant {
	for {
		if before := total(n.left); before >= units {
			n = n.left
			continue
		} else if units -= before + own(n); units <= 0 {
			return n.score
		}
		n = n.right
	}
}

// latest gives the highest score.
func latest(n *node) instant.Instant {
	for n.right != nil {
		n = n.right
	}
	return n.score
}
