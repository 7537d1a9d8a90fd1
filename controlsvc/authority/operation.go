package authority

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// operation is one reserve of the store: a member's own, or the strict charge of all groups of a call that need the same of one
// key and of others besides. What one of the others denies is taken back under one name then, of which some algorithms know only
// so many, however many requests are denied.
type operation struct {
	key   Key
	limit *policy.Limit
	// part names the operation within the call.
	part     string
	plan     plan
	reserved Reserved
	entry    entry
	// left is units that were granted and that no group has taken; told is what was left when a group's asks were told last.
	left, told int64
	// looked is how the key stands where nothing was asked of it, for another limit had denied; nil where that is not known.
	looked *State
}

// asked says that the store was asked for it in the last attempt.
func (o *operation) asked() bool { return o.part != "" }

// strict says that the operation is a strict charge, now or not at all.
func (o *operation) strict() bool { return o.plan.ttl == 0 && o.plan.horizon == 0 }

// forgets says that the operation is a charge which may be forgotten before it is taken back: of algorithms other than the log
// only so many have names.
func (o *operation) forgets() bool { return o.strict() && o.key.Algorithm != limit.SlidingLog }

// room is how many units the key has at most.
func (o *operation) room() int64 {
	room := int64(math.MaxInt64)
	for _, rate := range o.key.Rates {
		room = min(room, rate.Most())
	}
	return room
}

// alike tells which strict charges of a call are one operation: those of one key in one plan, for requests of one cost.
type alike struct {
	name, tier string
	cost       int64
}

// operations appends what the groups need of the store in a turn, each as a part of no other attempt.
func (a *Authority) operations(groups []*group, turn int, parts string, to []*operation) []*operation {
	asked := len(to)
	joint := make(map[alike]*operation)
	for _, g := range groups {
		if turn > 0 && g.served == 0 {
			continue // what has been denied is not charged
		}
		for i := range g.members {
			m := &g.members[i]
			if m.turn != turn {
				continue
			}
			o, tentative := &m.own, len(g.members) > 1
			if turn > 0 {
				o.plan.want = g.served * m.cost
			}
			if tentative && o.strict() && m.join(joint) {
				continue
			}
			if o.plan.want == 0 {
				continue
			}
			o.part = parts + "." + strconv.Itoa(m.ask)
			o.entry = a.contests.enter(m.key.Name, tentative)
			to = append(to, o)
		}
	}
	// One order for every caller: two groups that share keys meet at the first of them, where one is served before the
	// other, and do not each take what the other lacks.
	slices.SortStableFunc(to[asked:], func(a, b *operation) int { return strings.Compare(a.key.Name, b.key.Name) })
	return to
}

// join makes the member's strict charge a part of another group's where there is one like it.
func (m *member) join(joint map[alike]*operation) bool {
	same := alike{m.key.Name, m.tier, m.cost}
	with := joint[same]
	if with == nil {
		joint[same] = &m.own
		return false
	}
	with.plan.want += m.own.plan.want
	m.operation = with
	return true
}

// ask has the store execute the operations.
func (a *Authority) ask(ctx context.Context, now instant.Instant, call string, operations []*operation) {
	if len(operations) == 0 {
		return
	}
	reserves := make([]Reserve, len(operations))
	for i, o := range operations {
		reserves[i] = Reserve{
			Key: o.key, Call: call, Part: o.part, Want: o.plan.want, Min: o.plan.least,
			TTL: o.plan.ttl, Horizon: o.plan.horizon,
			// What is held for its turn is in the store's order, and what is charged strictly denied by the store alone.
			Shared: o.limit.Mode == limit.Lease && o.limit.MaxWait == 0,
		}
	}
	for i, reserved := range a.config.Store.Reserve(ctx, reserves) {
		o := operations[i]
		o.reserved = reserved
		if reserved.Err != nil {
			continue
		}
		if !o.leased() {
			o.left, o.told = reserved.Units, reserved.Units
		}
		if o.limit.Mode == limit.Lease {
			a.sizing.note(o.key.Name, now, reserved.State)
		}
	}
}

// leased says whether a lease was granted: it stays with the worker, whatever becomes of the requests. Where a lease was asked
// for and would have been too short, there is a strict charge, which serves the requests that are paused alone.
func (o *operation) leased() bool { return o.reserved.EndIn > 0 && o.reserved.Units > 0 }

// takeSurplus takes back what nobody took once all groups have been served, and whatever a failed reserve may have charged; and
// says to the others who want the keys what became of it.
func (a *Authority) takeSurplus(ctx context.Context, call string, operations []*operation) {
	var charges []giveBack
	rolledBack := 0
	for _, o := range operations {
		switch {
		case o.reserved.Err != nil:
			charges = append(charges, giveBack{key: o.key, call: call, part: o.part})
		case o.left > 0:
			charges = append(charges, giveBack{key: o.key, lease: o.reserved.Lease, unused: o.left})
			rolledBack++
		}
	}
	back := a.takeBack(ctx, charges)
	for _, o := range operations {
		o.entry.close(back && o.left > 0)
	}
	if rolledBack > 0 {
		a.config.Observer.RolledBack(rolledBack)
	}
}

// look finds out how the keys stand that nothing was asked of.
func (a *Authority) look(ctx context.Context, groups []*group) {
	var keys []Key
	var asked []alike
	of := make(map[alike][]*operation)
	for _, g := range groups {
		for i := range g.members {
			m := &g.members[i]
			if m.turn == 0 || m.operation.asked() || g.failed {
				continue
			}
			same := alike{name: m.key.Name, tier: m.tier}
			if len(of[same]) == 0 {
				keys, asked = append(keys, m.key), append(asked, same)
			}
			of[same] = append(of[same], m.operation)
		}
	}
	for n, states := range a.peek(ctx, keys) {
		if len(states) == 0 {
			continue
		}
		least := slices.MinFunc(states, func(a, b State) int {
			if a.Scarcer(b) {
				return -1
			}
			return 0
		})
		for _, o := range of[asked[n]] {
			o.looked = &least
		}
	}
}
