package authority

import (
	"context"

	"sluice/shared/wire"
)

// requests is how many of the group's requests the member's last reserve would do for, at once.
func (m *member) requests() int64 {
	if m.reserved.Err != nil || m.reserved.StartIn > 0 {
		return 0
	}
	return m.reserved.Units / m.cost
}

// holds says that the group's requests are held for a lease of the member's, which serves them later.
func (m *member) holds() bool {
	return m.limit.MaxWait > 0 && m.reserved.Err == nil && m.reserved.StartIn > 0
}

// leased says whether the member was granted a lease: it stays with the worker, whatever becomes of the requests. Where a
// lease was asked for and would have been too short, there is a strict charge, which serves the requests that are paused alone.
func (m *member) leased() bool { return m.reserved.EndIn > 0 && m.reserved.Units > 0 }

// leaseDenied says whether the group's requests are still wanted because a lease was denied that would have been of use
// for more than them. They are to be served without one.
func (g *group) leaseDenied() bool {
	if len(g.members) != 1 || g.wanted == 0 || g.failed {
		return false
	}
	m := &g.members[0]
	if m.plan.least <= m.cost || m.reserved.Units > 0 || m.reserved.Denial.Never {
		return false
	}
	m.strict = true
	return true
}

// conclude decides how many requests the last attempt serves, writes that to the results, and gives what is to be taken
// back: all that a member was granted beyond those requests, and whatever a failed reserve may have charged.
func (g *group) conclude(call string, results []wire.AskResult) []giveBack {
	served, failed, later := g.wanted, false, false
	for i := range g.members {
		m := &g.members[i]
		if len(g.members) == 1 && m.holds() {
			served = min(served, m.reserved.Units/m.cost)
		} else {
			served = min(served, m.requests())
		}
		failed = failed || m.reserved.Err != nil
		later = later || m.holds()
	}
	var back []giveBack
	for i := range g.members {
		m := &g.members[i]
		m.surplus = 0
		if !m.leased() {
			m.surplus = max(0, m.reserved.Units-served*m.cost)
		}
		switch {
		case m.reserved.Err != nil:
			back = append(back, giveBack{key: m.key, call: call, part: m.part})
		case failed && m.leased():
			back = append(back, giveBack{key: m.key, lease: m.reserved.Lease, unused: m.reserved.Units})
		case m.surplus > 0:
			back = append(back, giveBack{key: m.key, lease: m.reserved.Lease, unused: m.surplus})
		}
		m.denies = m.reserved.Err == nil && !m.holds() && m.requests() == served && served < g.wanted && (!failed || m.reserved.Units == 0)
		if failed {
			m.fail(&results[m.ask])
		} else {
			m.serve(&results[m.ask], served, g.wanted, later)
		}
	}
	g.failed = failed
	g.wanted -= served
	g.granted += served
	return back
}

// serve writes what the member's last reserve means for its ask. Later: another member lets the requests pass later, so that
// one which has nothing against them does not deny them.
func (m *member) serve(result *wire.AskResult, served, wanted int64, later bool) {
	result.Problem = wire.NoProblem
	if m.leased() {
		r := &m.reserved
		result.Lease, result.Units, result.StartIn, result.EndIn = r.Lease, r.Units, r.StartIn, r.EndIn
		m.state(result)
		if r.Denied {
			m.deny(result)
		}
		return
	}
	result.Units += served * m.cost
	m.state(result)
	if result.Lease == "" && m.surplus == 0 && served > 0 {
		// A grant that was settled already, to take its surplus back, cannot be settled by the worker.
		result.Lease = m.reserved.Lease
	}
	result.Denied, result.Denial = served < wanted && (m.denies || !later), wire.Denial{}
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
	s := m.reserved.State
	result.Limit, result.Window, result.Reset = s.Rate.Units, s.Rate.Window, s.Reset
	result.Remaining = max(0, min(s.Remaining+m.surplus, s.Rate.Most()))
}

func (m *member) deny(result *wire.AskResult) {
	d := m.reserved.Denial
	result.Denied, result.Denial = true, wire.Denial{DenyFor: d.DenyFor, RetryAfter: d.RetryAfter, Never: d.Never}
}

// close says to the others who want the group's keys what became of its last attempt, and gives how many of its grants
// were taken back.
func (g *group) close(back bool) (rolledBack int) {
	for i := range g.members {
		m := &g.members[i]
		if m.surplus > 0 {
			rolledBack++
		}
		m.entry.close(back && m.surplus > 0)
	}
	return rolledBack
}

// contested says whether requests were denied by units that have been taken back since.
func (g *group) contested(ctx context.Context) bool {
	if g.wanted == 0 || g.failed {
		return false
	}
	for i := range g.members {
		if g.members[i].leased() {
			// The worker has that lease, and spends it later than a strict charge of the same result could be spent.
			return false
		}
	}
	for i := range g.members {
		if m := &g.members[i]; m.denies && !m.reserved.Denial.Never && m.entry.contested(ctx) {
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
