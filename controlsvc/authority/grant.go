package authority

import (
	"context"
	"sort"
	"strconv"

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
	// failed: the store did not answer for one of the keys in the last attempt.
	failed bool
	// retry: somebody else's rollback may have made room for those that are still wanted.
	retry bool
}

// member is one key that a group's requests need: an ask.
type member struct {
	ask   int // index in the request
	limit *policy.Limit
	key   Key
	cost  int64 // units of one request
	// What became of the member's last reserve.
	part     string
	reserved Reserved
	entry    *entry
	surplus  int64 // units granted beyond what all members can serve
	denies   bool  // the member is why requests of the group are still wanted
}

// answer answers the asks of a call, in their order. Every grant is a strict charge: it serves requests that were paused
// before the call was sent.
func (a *Authority) answer(ctx context.Context, book *ruleBook, request *wire.SyncRequest) []wire.AskResult {
	results := make([]wire.AskResult, len(request.Asks))
	groups := gather(book, request.Asks, results)
	call := callName(request.WorkerID, request.CallID)
	a.reserve(ctx, call, groups, results)
	var again []*group
	for _, g := range groups {
		if g.retry && ctx.Err() == nil {
			again = append(again, g)
		}
	}
	if len(again) > 0 {
		a.reserve(ctx, call, again, results)
	}
	for _, g := range groups {
		a.observe(g, results)
	}
	return results
}

// gather sorts the asks into groups, and answers those that cannot be asked of the store.
func gather(book *ruleBook, asks []wire.Ask, results []wire.AskResult) []*group {
	groups := make([]*group, 0, len(asks))
	byNumber := make(map[uint32]*group)
	for i := range asks {
		ask := &asks[i]
		g := byNumber[ask.Group]
		if ask.Group == 0 || g == nil {
			g = &group{wanted: limit.MaxUnits}
			groups = append(groups, g)
			if ask.Group != 0 {
				byNumber[ask.Group] = g
			}
		}
		key, l, known := book.key(ask.KeyRef)
		switch {
		case !known:
			// The limit does not bind the requests, which go on without it.
			results[i].Problem = wire.UnknownLimit
			continue
		case !validAsk(ask):
			// A request that needs what makes no sense can be granted nothing.
			g.wanted = 0
		}
		requests := int64(0)
		if ask.Min > 0 {
			requests = min(ask.Want/ask.Min, int64(ask.Waiting))
		}
		g.wanted = min(g.wanted, requests)
		g.members = append(g.members, member{ask: i, limit: l, key: key, cost: ask.Min})
	}
	valid := groups[:0]
	for _, g := range groups {
		if g.wanted > 0 && len(g.members) > 0 {
			valid = append(valid, g)
			continue
		}
		for _, m := range g.members {
			results[m.ask].Problem = wire.InvalidAsk
		}
	}
	return valid
}

func validAsk(ask *wire.Ask) bool {
	return ask.Min >= 1 && ask.Want >= ask.Min && ask.Want <= limit.MaxUnits && policy.ValidKey(ask.Key) &&
		ask.Waiting >= 1 && ask.Waiting <= maxWaiting
}

// reserve makes one attempt for what the groups still want: it reserves on every key, takes back what went beyond the
// requests that every key granted, and writes the results.
func (a *Authority) reserve(ctx context.Context, call string, groups []*group, results []wire.AskResult) {
	// Drawn anew for each attempt, and where a call arrives twice: a cancel of the earlier one's may still be under way.
	parts := strconv.FormatUint(a.config.Random(), 16)
	type operation struct {
		*member

		wanted int64
	}
	operations := make([]operation, 0, len(results))
	defer func() {
		for _, o := range operations {
			o.entry.leave()
		}
	}()
	for _, g := range groups {
		g.retry = false
		for i := range g.members {
			m := &g.members[i]
			m.part = parts + "." + strconv.Itoa(m.ask)
			m.entry = a.contests.enter(m.key.Name, len(g.members) > 1)
			operations = append(operations, operation{m, g.wanted})
		}
	}
	// One order for every caller: two groups that share keys meet at the first of them, where one is served before the
	// other, and do not each take what the other lacks.
	sort.SliceStable(operations, func(i, j int) bool { return operations[i].key.Name < operations[j].key.Name })
	reserves := make([]Reserve, len(operations))
	for i, o := range operations {
		reserves[i] = Reserve{Key: o.key, Call: call, Part: o.part, Want: o.wanted * o.cost, Min: o.cost}
	}
	for i, reserved := range a.config.Store.Reserve(ctx, reserves) {
		operations[i].reserved = reserved
	}
	var charges []giveBack
	for _, g := range groups {
		charges = append(charges, g.conclude(call, results)...)
	}
	back := a.takeBack(ctx, charges)
	rolledBack := 0
	for _, g := range groups {
		rolledBack += g.close(back)
	}
	if rolledBack > 0 {
		a.config.Observer.RolledBack(rolledBack)
	}
	for _, g := range groups {
		g.retry = g.contested(ctx)
	}
}
