package control

import (
	"sluice/filter/host"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/policy"
)

// Request is one that waits for the store's answer. Whoever pauses it owns it, and may use it again once it was decided or
// forgotten. The zero value is ready.
type Request struct {
	Stream host.ContextID
	// Route is the path pattern that it is counted under; empty for none.
	Route string
	// Trace is the request's traceparent, of which the call that asks for it is to be a part; empty for none.
	Trace string
	// traceID is its W3C trace id, of one that waits: its headers cannot be read any more once it is denied.
	traceID string
	// Until is when it has to be decided, whatever its limits' max_wait; 0: as they say.
	Until instant.Instant
	// Shadows are the limits in shadow that it is under, to be decided once it is admitted.
	Shadows []Shadow

	// shadow is whose decision it stands for; nil for a request.
	shadow *Shadow

	group    *group
	deadline instant.Instant // for the store's answer
	links    [2]struct{ before, after *Request }
	// seq counts requests in the order in which they came; since is when this one did.
	seq   uint64
	since instant.Instant
	// held says that it waits for a lease to start, and for no answer.
	held bool
}

// patience is for how long the request may be held.
func (r *Request) patience() admission.Patience {
	return admission.Patience{Since: r.since, Until: r.Until}
}

// Paused says whether the client will still decide the request.
func (r *Request) Paused() bool { return r.group != nil }

// A request stands in two lines.
const (
	inGroup = 0 // those of its group, in the order in which they came
	inLine  = 1 // all that wait for an answer, by their deadlines, or all that are held, in the order in which they came
)

// line is a doubly linked list of requests through one of their pairs of links.
type line struct {
	which       int
	first, last *Request
	n           int
}

func (l *line) push(r *Request) {
	r.links[l.which].before, r.links[l.which].after = l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.links[l.which].after = r
	}
	l.last = r
	l.n++
}

// insert puts a request in its place by age.
func (l *line) insert(r *Request) {
	before := l.last
	for before != nil && before.seq > r.seq {
		before = before.links[l.which].before
	}
	if before == l.last {
		l.push(r)
		return
	}
	after := l.first
	if before != nil {
		after = before.links[l.which].after
		before.links[l.which].after = r
	} else {
		l.first = r
	}
	r.links[l.which].before, r.links[l.which].after = before, after
	after.links[l.which].before = r
	l.n++
}

func (l *line) remove(r *Request) {
	link := &r.links[l.which]
	if link.before == nil {
		l.first = link.after
	} else {
		link.before.links[l.which].after = link.after
	}
	if link.after == nil {
		l.last = link.before
	} else {
		link.after.links[l.which].before = link.before
	}
	link.before, link.after = nil, nil
	l.n--
}

// group is requests that need the same of the same keys: one ask for each key speaks for all of them.
type group struct {
	keys    []*Key
	demands []admission.Demand
	// rules are those that the requests found the keys under: a key may be in one plan for one and in another for the next.
	rules   []policy.Rule
	members line
	hash    uint64
	// same is the next of the waiting groups whose hash is the same.
	same *group
	// before and after are the waiting groups next to it, in the order in which they began to wait.
	before, after *group
	call          *call // nil while it waits
	asked         int   // members when the call was sent
	decided       bool  // by the call's answer
	// held are the demands, by index, that the call did not ask for, since leases held enough for a request.
	held []bool
}

func hash(keys []*Key, demands []admission.Demand) uint64 {
	h := uint64(14695981039346656037)
	for i, k := range keys {
		h = (h ^ k.serial) * 1099511628211
		h = (h ^ uint64(demands[i].Cost)) * 1099511628211
		h ^= h >> 29
	}
	return h
}

func (g *group) is(keys []*Key, demands []admission.Demand) bool {
	if len(g.keys) != len(keys) {
		return false
	}
	for i := range keys {
		if g.keys[i] != keys[i] || g.demands[i].Cost != demands[i].Cost || g.rules[i].Plan != keys[i].plan() {
			return false
		}
	}
	return true
}

// follow puts the keys under the group's rules. False where one of them is unlimited now.
func (g *group) follow(now instant.Instant) bool {
	limited := true
	for i, k := range g.keys {
		limited = k.follow(now, &g.rules[i]) && limited
	}
	return limited
}

// groups holds those that wait for a call.
type groups struct {
	// held says that they wait for leases to start, and not for a call.
	held        bool
	byHash      map[uint64]*group
	first, last *group
	n           int
	free        []*group // to be used again
}

// maxFree bounds the groups that are kept for later use.
const maxFree = 256

// find gives the group that waits for the demands in the plans that the keys are in now, made now where there is none.
func (q *groups) find(keys []*Key, demands []admission.Demand) *group {
	h := hash(keys, demands)
	if g := q.known(h, keys, demands); g != nil {
		return g
	}
	g := q.take()
	g.hash, g.same = h, q.byHash[h]
	g.keys = append(g.keys, keys...)
	g.demands = append(g.demands, demands...)
	for _, k := range keys {
		g.rules = append(g.rules, *k.Admission.Rule())
		k.groups++
		if !q.held {
			k.waiting++
			k.asking++
		}
	}
	q.byHash[h] = g
	g.before = q.last
	if q.last == nil {
		q.first = g
	} else {
		q.last.after = g
	}
	q.last = g
	q.n++
	return g
}

// like gives the group that waits for the same as another one, whose rules its keys are under; nil for none.
func (q *groups) like(g *group) *group { return q.known(g.hash, g.keys, g.demands) }

func (q *groups) known(h uint64, keys []*Key, demands []admission.Demand) *group {
	for g := q.byHash[h]; g != nil; g = g.same {
		if g.is(keys, demands) {
			return g
		}
	}
	return nil
}

func (q *groups) take() *group {
	if n := len(q.free); n > 0 {
		g := q.free[n-1]
		q.free = q.free[:n-1]
		return g
	}
	return &group{members: line{which: inGroup}}
}

// remove takes a group out of those that wait; it goes into a call, or is released.
func (q *groups) remove(g *group) {
	if q.byHash[g.hash] == g {
		if g.same == nil {
			delete(q.byHash, g.hash)
		} else {
			q.byHash[g.hash] = g.same
		}
	} else {
		for other := q.byHash[g.hash]; other != nil; other = other.same {
			if other.same == g {
				other.same = g.same
				break
			}
		}
	}
	if g.before == nil {
		q.first = g.after
	} else {
		g.before.after = g.after
	}
	if g.after == nil {
		q.last = g.before
	} else {
		g.after.before = g.before
	}
	g.same, g.before, g.after = nil, nil, nil
	q.n--
	if q.held {
		return
	}
	for _, k := range g.keys {
		k.waiting--
	}
}

// lacked is how many of the group's demands its call asked for.
func (g *group) lacked() int {
	n := 0
	for _, held := range g.held {
		if !held {
			n++
		}
	}
	return n
}

// release ends a group that has no members and does not wait any more.
func (q *groups) release(g *group) {
	for i, k := range g.keys {
		k.groups--
		if !q.held {
			k.asking--
		}
		g.keys[i] = nil
		g.demands[i] = admission.Demand{}
		g.rules[i] = policy.Rule{}
	}
	g.keys, g.demands, g.rules, g.held, g.call, g.decided = g.keys[:0], g.demands[:0], g.rules[:0], g.held[:0], nil, false
	if len(q.free) < maxFree {
		q.free = append(q.free, g)
	}
}
