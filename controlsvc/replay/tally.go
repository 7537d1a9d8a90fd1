package replay

import (
	"cmp"
	"slices"
	"time"

	"sluice/shared/instant"
	"sluice/shared/policy"
)

// tally counts what became of the requests under one policy.
type tally struct {
	policy *policy.Policy
	totals Totals
	limits []limitTally
	// routes are those of the limits' paths, the first of limits without one; routeOf has each limit's, by index.
	routes  []*Route
	routeOf []*Route
	stats   keyStats
	// Of the request that is being decided: the route of the first of its limits that has one, and the first of its limits.
	route *Route
	limit int
}

type limitTally struct {
	requests, admitted, denied, deniedToo, held, blocked, shadowDenied, changed int64
	keys                                                                        int64
	first, last                                                                 instant.Instant
}

func newTally(p *policy.Policy, maxKeys int) *tally {
	t := &tally{policy: p, limits: make([]limitTally, len(p.Limits)), routes: []*Route{{}}, routeOf: make([]*Route, len(p.Limits))}
	byName := map[string]*Route{"": t.routes[0]}
	for i := range p.Limits {
		name := routeOf(&p.Limits[i])
		if byName[name] == nil {
			byName[name] = &Route{Route: name}
			t.routes = append(t.routes, byName[name])
		}
		t.routeOf[i] = byName[name]
	}
	t.stats = keyStats{most: maxKeys, byKey: map[statID]*keyStat{}}
	return t
}

// begin makes ready for a request.
func (t *tally) begin() { t.route, t.limit = t.routes[0], -1 }

// bound implements watcher.
func (t *tally) bound(limit int, k *key, o outcome) {
	if t.limit < 0 {
		t.limit = limit
	}
	if t.route == t.routes[0] {
		t.route = t.routeOf[limit]
	}
	l := &t.limits[limit]
	l.requests++
	switch o {
	case admits:
		l.admitted++
	case holds:
		l.admitted++
		l.held++
	case deniesToo:
		l.deniedToo++
	case shadowDenies:
		l.shadowDenied++
	case denies, passive:
	}
	if k.stat != nil && !k.stat.dropped {
		k.stat.requests++
		if o == shadowDenies {
			k.stat.shadowDenied++
		}
	} else if o == shadowDenies {
		t.stats.of(k).shadowDenied++
	}
}

// end counts a request that was decided, and gives its key's record where it was denied by what a key has used.
func (t *tally) end(now instant.Instant, d *decision) *keyStat {
	t.totals.Requests++
	if d.limit >= 0 && t.route == t.routes[0] {
		t.route = t.routeOf[d.limit] // of a block list
	}
	t.route.Requests++
	switch {
	case !d.denied:
		t.admitted(d)
		return nil
	case d.limit < 0:
		t.totals.Blocked++
	default:
		l := &t.limits[d.limit]
		if l.first == 0 {
			l.first = now
		}
		l.last = now
		l.denied++
		if d.listed == policy.Blocked {
			l.requests++
			l.blocked++
			t.totals.Blocked++
		}
	}
	t.totals.Denied++
	t.route.Denied++
	if d.key == nil {
		return nil
	}
	stat := t.stats.of(d.key)
	if stat.denied == 0 {
		stat.first = now
		t.limits[d.limit].keys++
	}
	stat.denied++
	stat.last = now
	stat.wait = max(stat.wait, d.wait)
	return stat
}

func (t *tally) admitted(d *decision) {
	t.totals.Admitted++
	switch {
	case d.held > 0:
		t.totals.Held++
		t.totals.longestHeld = max(t.totals.longestHeld, d.held)
	case d.listed == policy.Allowed:
		t.totals.Allowed++
	case t.limit < 0:
		t.totals.Unlimited++
	}
}

// keyStat is what is told of a key that was denied.
type keyStat struct {
	id                                      statID
	requests, denied, changed, shadowDenied int64
	first, last                             instant.Instant
	wait                                    time.Duration
	dropped                                 bool
}

type statID struct {
	limit int
	key   string
}

// keyStats are those of the keys that were denied. Of too many, the half with fewest denials is forgotten.
type keyStats struct {
	byKey map[statID]*keyStat
	most  int
	// forgotten is how many were.
	forgotten int64
}

// of gives a key's record, which is made at its first denial.
func (s *keyStats) of(k *key) *keyStat {
	if k.stat != nil && !k.stat.dropped {
		return k.stat
	}
	id := statID{int(k.limit), k.name}
	if k.stat = s.byKey[id]; k.stat == nil {
		if len(s.byKey) >= s.most {
			s.halve()
		}
		k.stat = &keyStat{id: id}
		s.byKey[id] = k.stat
	}
	k.stat.requests += k.requests
	k.requests = 0
	return k.stat
}

func (s *keyStats) halve() {
	all := make([]*keyStat, 0, len(s.byKey))
	for _, stat := range s.byKey {
		all = append(all, stat)
	}
	slices.SortFunc(all, func(a, b *keyStat) int { return a.compare(b) })
	for _, stat := range all[len(all)/2:] {
		stat.dropped = true
		delete(s.byKey, stat.id)
		s.forgotten++
	}
}

// compare puts the one with more denials first.
func (s *keyStat) compare(other *keyStat) int {
	return cmp.Or(cmp.Compare(other.denied, s.denied), cmp.Compare(other.shadowDenied, s.shadowDenied),
		cmp.Compare(s.first, other.first), cmp.Compare(s.id.limit, other.id.limit), cmp.Compare(s.id.key, other.id.key))
}

// top gives the first so many by an order.
func (s *keyStats) top(n int, compare func(a, b *keyStat) int, counts func(*keyStat) bool) []*keyStat {
	var all []*keyStat
	for _, stat := range s.byKey {
		if counts(stat) {
			all = append(all, stat)
		}
	}
	slices.SortFunc(all, compare)
	return all[:min(n, len(all))]
}
