package authority

import (
	"cmp"
	"context"
	"slices"

	"sluice/shared/wire"
)

// requests is how many of the group's requests the member's last reserve would do for, at once.
func (m *member) requests() int64 {
	o := m.operation
	switch {
	case o.reserved.Err != nil || o.reserved.StartIn > 0:
		return 0
	case o.leased():
		return o.reserved.Units / m.cost
	}
	return o.left / m.cost
}

// holds says that the group's requests are held for a lease of the member's, which serves them later.
func (m *member) holds() bool {
	return m.limit.MaxWait > 0 && m.operation.reserved.Err == nil && m.operation.reserved.StartIn > 0
}

// leaseDenied says whether the group's requests are still wanted because a lease was denied that would have been of use
// for more than them. They are to be served without one.
func (g *group) leaseDenied() bool {
	if len(g.members) != 1 || g.wanted == 0 || g.failed {
		return false
	}
	m := &g.members[0]
	if o := m.operation; o.plan.least <= m.cost || o.reserved.Units > 0 || o.reserved.Denial.Never {
		return false
	}
	m.strict = true
	return true
}

// takeTurns says in which turn each member is asked for, and how many turns that takes. What can be taken back for certain comes
// first, all at once. The rest is asked for one by one, and only for requests that were granted all before: the limit with the
// most room last, for it is the one that most share, and denies least.
func (g *group) takeTurns() (turns int) {
	var late []*member
	for i := range g.members {
		m := &g.members[i]
		m.turn = 0
		if len(g.members) > 1 && m.own.forgets() {
			late = append(late, m)
		}
	}
	slices.SortStableFunc(late, func(a, b *member) int { return cmp.Compare(a.own.room(), b.own.room()) })
	if len(late) < len(g.members) {
		turns = 1
	}
	for _, m := range late {
		m.turn = turns
		turns++
	}
	return turns
}

// serve decides how many requests a turn serves, and takes what they need of what was granted.
func (g *group) serve(turn int) {
	if turn > 0 && g.served == 0 {
		return
	}
	for i := range g.members {
		m := &g.members[i]
		if m.turn != turn {
			continue
		}
		m.found = m.requests()
		if len(g.members) == 1 && m.holds() {
			m.found = m.operation.reserved.Units / m.cost
		}
		g.served = min(g.served, m.found)
		g.failed = g.failed || m.operation.reserved.Err != nil
		g.later = g.later || m.holds()
	}
	for i := range g.members {
		m := &g.members[i]
		o := m.operation
		switch {
		case m.turn > turn:
		case !o.leased():
			o.left += m.taken - g.served*m.cost
			m.taken = g.served * m.cost
		case g.failed:
			o.left = o.reserved.Units
		}
	}
}

// tell writes what the last attempt means for the group's asks.
func (g *group) tell(results []wire.AskResult) {
	for i := range g.members {
		m := &g.members[i]
		o := m.operation
		m.denies = o.asked() && o.reserved.Err == nil && !m.holds() && m.found == g.served && g.served < g.wanted &&
			(!g.failed || !o.leased())
		o.told -= m.taken
		if g.failed {
			m.fail(&results[m.ask])
		} else {
			m.tell(&results[m.ask], g)
		}
	}
	g.wanted -= g.served
	g.granted += g.served
}

// tell writes what the member's last reserve means for its ask. Where another member lets the requests pass later, one which has
// nothing against them does not deny them.
func (m *member) tell(result *wire.AskResult, g *group) {
	o := m.operation
	if !o.asked() && o.looked == nil {
		// Another denies for certain; how this one stands is not known, nor whether what an attempt before said of it holds.
		result.Denial.DenyFor = 0
		return
	}
	result.Problem = wire.NoProblem
	if o.leased() {
		r := &o.reserved
		result.Lease, result.Units, result.StartIn, result.EndIn = r.Lease, r.Units, r.StartIn, r.EndIn
		m.state(result)
		if r.Denied {
			m.deny(result)
		}
		return
	}
	// A grant that was settled already, to take its surplus back, cannot be settled by the worker; nor can units of two grants, for
	// those of one may be more than this group's part of the other.
	if g.served > 0 {
		m.strict = true // a lease of a second attempt would stand in this one's place
		result.Lease = ""
		if result.Units == 0 && o.left == 0 {
			result.Lease = o.reserved.Lease
		}
	}
	result.Units += g.served * m.cost
	m.state(result)
	result.Denied, result.Denial = g.served < g.wanted && (m.denies || !g.later), wire.Denial{}
	if m.denies {
		m.deny(result)
	}
}

// fail writes what it means that the store did not answer for one of the group's keys. A key that denies the requests by
// itself still does; for the others it is not known.
func (m *member) fail(result *wire.AskResult) {
	switch {
	case result.Denied:
		// The first attempt's answer holds; but its denial was in doubt, and nobody has cleared it up.
		result.Denial.DenyFor = 0
	case m.denies:
		m.state(result)
		m.deny(result)
	default:
		result.Problem = wire.StoreProblem
	}
}

func (m *member) state(result *wire.AskResult) {
	o := m.operation
	s := o.reserved.State
	if o.looked != nil {
		s = *o.looked
	}
	result.Limit, result.Window, result.Reset = s.Rate.Units, s.Rate.Window, s.Reset
	result.Remaining = max(0, min(s.Remaining+o.told, s.Rate.Most()))
}

func (m *member) deny(result *wire.AskResult) {
	d := m.operation.reserved.Denial
	result.Denied, result.Denial = true, wire.Denial{DenyFor: d.DenyFor, RetryAfter: d.RetryAfter, Never: d.Never}
}

// contested says whether requests were denied by units that have been taken back since.
func (g *group) contested(ctx context.Context) bool {
	if g.wanted == 0 || g.failed {
		return false
	}
	for i := range g.members {
		if g.members[i].operation.leased() {
			// The worker has that lease, and spends it later than a strict charge of the same result could be spent.
			return false
		}
	}
	for i := range g.members {
		m := &g.members[i]
		o := m.operation
		// Units are left where another group had them that shares the operation, until a later turn.
		if m.denies && !o.reserved.Denial.Never && (o.left > 0 || o.entry.contested(ctx)) {
			return true
		}
	}
	return false
}

// observe counts what became of a group's requests, once for each of its limits.
func (a *Authority) observe(g *group, results []wire.AskResult) {
	for i := range g.members {
		m := &g.members[i]
		var denied, unanswered int64
		switch {
		case results[m.ask].Problem == wire.StoreProblem:
			unanswered = g.wanted
		case m.denies:
			denied = g.wanted
		}
		a.config.Observer.Decided(m.limit.Name, g.granted, denied, unanswered)
	}
}
