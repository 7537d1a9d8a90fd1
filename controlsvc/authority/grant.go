package authority

import (
	"context"
	"slices"
	"strconv"
	"time"

	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// maxWaiting bounds how many paused requests one ask may speak for.
const maxWaiting = 1 << 20

// group is requests that all need the same of the same keys. Each of them is granted all that it needs, or nothing.
type group struct {
	members []member
	// wanted requests have not been granted anything yet; granted have all they need.
	wanted, granted int64
	// served requests were granted all that was asked for in the last attempt. Failed: the store did not answer for one of the
	// keys in it. Later: a key lets the requests pass later.
	served        int64
	failed, later bool
	// retry: somebody else's rollback may have made room for those that are still wanted.
	retry bool
}

// member is one key that a group's requests need: an ask.
type member struct {
	ask   int // index in the request
	limit *policy.Limit
	key   Key
	tier  string // the plan that the ask names, by which the key has its rates
	cost  int64  // units of one request
	// within is for how long the requests may be held at most; 0: for as long as the limit says.
	within time.Duration
	// ahead is units wanted beyond what the paused requests need: only a lease can hold them.
	ahead int64
	// strict: a lease was denied, and the paused requests are to be served without one.
	strict bool
	// In an attempt the member is asked for in a turn of the group's, by an operation, which may be another member's own.
	turn      int
	own       operation
	operation *operation
	// found is for how many of the group's requests there was enough, taken how many units of it they have.
	found, taken int64
	denies       bool // the member is why requests of the group are still wanted
}

// answer answers the asks of a call, in their order. A grant is a lease, or a strict charge, which serves requests that were
// paused before the call was sent.
func (a *Authority) answer(ctx context.Context, book *ruleBook, request *wire.SyncRequest) []wire.AskResult {
	results := make([]wire.AskResult, len(request.Asks))
	groups := gather(book, request.Asks, results)
	call := callName(request.WorkerID, request.CallID)
	who := asker{request.WorkerID, min(request.Round, maxRound)}
	a.reserve(ctx, who, call, groups, results)
	var again []*group
	for _, g := range groups {
		if g.retry && ctx.Err() == nil {
			again = append(again, g)
		}
	}
	if len(again) > 0 {
		a.reserve(ctx, who, call, again, results)
	}
	for _, g := range groups {
		a.observe(g, results)
	}
	a.count(ctx, book, call, request.Asks, results)
	return results
}

// gather sorts the asks into groups, and answers those that cannot be asked of the store.
func gather(book *ruleBook, asks []wire.Ask, results []wire.AskResult) []*group {
	groups := make([]*group, 0, len(asks))
	// Most asks are a group of their own.
	groupSpace, memberSpace := make([]group, len(asks)), make([]member, len(asks))
	byNumber := make(map[uint32]*group)
	for i := range asks {
		ask := &asks[i]
		if onlyCounts(ask) {
			continue
		}
		g := byNumber[ask.Group]
		if ask.Group == 0 || g == nil {
			g = &groupSpace[len(groups)]
			g.wanted, g.members = limit.MaxUnits, memberSpace[i:i:i+1]
			groups = append(groups, g)
			if ask.Group != 0 {
				byNumber[ask.Group] = g
			}
		}
		key, l, known := book.key(ask.KeyRef, ask.Plan)
		switch {
		case !known:
			// The limit does not bind the requests, which go on without it.
			results[i].Problem = wire.UnknownLimit
			continue
		case !validAsk(ask, l.Mode), slices.ContainsFunc(g.members, func(m member) bool { return m.key.Name == key.Name }):
			// A request that needs what makes no sense, or the same key twice, can be granted nothing.
			g.wanted = 0
		}
		requests := int64(0)
		if ask.Min > 0 {
			requests = min(ask.Want/ask.Min, int64(ask.Waiting))
		}
		g.wanted = min(g.wanted, requests)
		m := member{ask: i, limit: l, key: key, tier: ask.Plan, cost: ask.Min, within: ask.Within}
		if l.Mode == limit.Lease && ask.Min > 0 {
			m.ahead = ask.Want - requests*ask.Min
		}
		g.members = append(g.members, m)
	}
	valid := groups[:0]
	for _, g := range groups {
		if g.valid() {
			valid = append(valid, g)
			continue
		}
		for _, m := range g.members {
			results[m.ask].Problem = wire.InvalidAsk
		}
	}
	return valid
}

// valid says whether there is anything to reserve for the group: paused requests, or a lease for those to come.
func (g *group) valid() bool {
	return len(g.members) > 0 && g.wanted > 0 || len(g.members) == 1 && g.members[0].ahead > 0
}

// validAsk says whether an ask makes sense. Only a lease can be asked for while no request waits.
func validAsk(ask *wire.Ask, mode limit.Mode) bool {
	return ask.Min >= 1 && ask.Want >= ask.Min && ask.Want <= limit.MaxUnits && policy.ValidKey(ask.Key) &&
		(ask.Waiting >= 1 || mode == limit.Lease) && ask.Waiting <= maxWaiting
}

// reserve makes one attempt for what the groups still want: it reserves on every key, takes back what went beyond the
// requests that every key granted, and writes the results.
func (a *Authority) reserve(ctx context.Context, who asker, call string, groups []*group, results []wire.AskResult) {
	// Drawn anew for each attempt, and where a call arrives twice: a cancel of the earlier one's may still be under way.
	// Short, for it is in the name of every grant.
	parts := strconv.FormatUint(a.config.Random()&(1<<32-1), 36)
	now, turns := a.config.Now(), 0
	for _, g := range groups {
		g.served, g.failed, g.later = g.wanted, false, false
		for i := range g.members {
			m := &g.members[i]
			m.own = operation{key: m.key, limit: m.limit, plan: a.plan(now, who, g, m)}
			m.operation, m.taken = &m.own, 0
		}
		turns = max(turns, g.takeTurns())
	}
	operations := make([]*operation, 0, len(results))
	defer func() {
		for _, o := range operations {
			o.entry.leave()
		}
	}()
	for turn := range turns {
		asked := len(operations)
		operations = a.operations(groups, turn, parts, operations)
		a.ask(ctx, now, call, operations[asked:])
		for _, g := range groups {
			g.serve(turn)
		}
	}
	a.takeSurplus(ctx, call, operations)
	if turns > 1 {
		a.look(ctx, groups)
	}
	for _, g := range groups {
		g.tell(results)
		g.retry = g.leaseDenied() || g.contested(ctx)
	}
}

// plan decides what to ask of the store for a member.
func (a *Authority) plan(now instant.Instant, who asker, g *group, m *member) plan {
	paused := g.wanted * m.cost
	p := plan{want: paused, least: m.cost}
	if m.limit.Mode != limit.Lease {
		return p
	}
	if !m.strict {
		p = a.sizing.plan(m.key, now, who, paused, m.ahead, m.cost)
	}
	if wait := m.limit.MaxWait; wait > 0 {
		p = a.sizing.held(p, m.key, now, who, wait, paused, m.cost)
		if m.within > 0 {
			p.horizon = min(p.horizon, m.within)
		}
	}
	if len(g.members) > 1 {
		p.least = m.cost // what another limit needs as well must not wait for a batch
	}
	return p
}
