package memory

import (
	"slices"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// key is what is charged to one key, under every window that it was ever asked about and that has not emptied since.
type key struct {
	name    string
	windows []*window
	// grants has those that may still be settled or cancelled, by call: nearly always one, and then the younger first.
	grants map[string]*charge
	// minted is the last grant's; number is the last charge's.
	minted instant.Instant
	number uint64
	random uint64

	// Where the key stands in its shard: see shard.
	expires      instant.Instant
	place        int
	newer, older *key
}

// view gives the key's windows for the rates, in their order, without what has left them.
func (k *key) view(rates []limit.Rate, now instant.Instant) []*window {
	k.prune(now)
	view := make([]*window, len(rates))
	for i, r := range rates {
		at := slices.IndexFunc(k.windows, func(w *window) bool { return w.length == r.Window })
		if at < 0 {
			k.windows = append(k.windows, &window{length: r.Window})
			at = len(k.windows) - 1
		}
		view[i] = k.windows[at]
	}
	return view
}

// prune forgets what has left the windows. Each charge is pruned once, so its cost is part of the charging's.
func (k *key) prune(now instant.Instant) {
	for _, w := range k.windows {
		var gone *node
		gone, w.charges = split(w.charges, w.edge(now))
		k.release(gone)
	}
	k.windows = slices.DeleteFunc(k.windows, func(w *window) bool { return w.charges == nil })
}

func (k *key) release(gone *node) {
	if gone == nil {
		return
	}
	k.release(gone.left)
	k.release(gone.right)
	if gone.held--; gone.held == 0 {
		k.forget(gone.charge)
	}
}

// forget takes a charge out of the grants.
func (k *key) forget(c *charge) {
	if c.grant == "" {
		return
	}
	if c.next != nil {
		c.next.last = c.last
	}
	switch {
	case c.last != nil:
		c.last.next = c.next
	case c.next != nil:
		k.grants[c.call] = c.next
	default:
		delete(k.grants, c.call)
	}
	c.next, c.last = nil, nil
}

// add puts a charge into the windows that it has not left.
func (k *key) add(c charge, windows []*window, now instant.Instant) {
	added := &c
	k.number++
	added.number = k.number
	for _, w := range windows {
		if added.score > w.edge(now) {
			added.held++
			w.charges = insert(w.charges, &node{charge: added, priority: k.priority()})
		}
	}
	if added.held > 0 && added.grant != "" {
		if added.next = k.grants[added.call]; added.next != nil {
			added.next.last = added
		}
		k.grants[added.call] = added
	}
}

// priority draws the next of a fixed sequence (xorshift): a treap wants them spread, not secret.
func (k *key) priority() uint64 {
	k.random ^= k.random << 13
	k.random ^= k.random >> 7
	k.random ^= k.random << 17
	return k.random
}

// take removes an unsettled charge and gives the windows that held it.
func (k *key) take(c *charge) []*window {
	var held []*window
	for _, w := range k.windows {
		var found bool
		if w.charges, found = remove(w.charges, c); found {
			held = append(held, w)
		}
	}
	k.forget(c)
	return held
}

// emptyAt is when the last charge leaves the last window.
func (k *key) emptyAt(now instant.Instant) instant.Instant {
	at := now
	for _, w := range k.windows {
		at = max(at, w.emptyAt(now))
	}
	return at
}

func (k *key) reserve(r authority.Reserve, now instant.Instant) authority.Reserved {
	rates := store.Windows(r.Key.Rates)
	windows := k.view(rates, now)
	start := now
	units := multiple(min(r.Want, free(rates, windows, now)), r.Min)
	if units == 0 && r.TTL > 0 && r.Horizon > 0 {
		at, never := soonest(rates, windows, r.Min, now)
		if !never && at.all <= now.Add(r.Horizon) {
			start = at.all
			units = multiple(min(r.Want, free(rates, windows, start)), r.Min)
		}
	}
	var out authority.Reserved
	if units > 0 {
		for _, w := range windows {
			if w.charges.size() >= store.MaxCharges {
				return authority.Reserved{Err: errFull}
			}
		}
		out = k.grant(r, units, start, now, windows)
	}
	if r.Want-units >= r.Min {
		out.Denied = true
		if at, never := soonest(rates, windows, r.Min, now); never {
			out.Denial.Never = true
		} else {
			out.Denial = store.Denial(at.all.Sub(now), at.certain.Sub(now), at.window)
		}
	}
	out.State = store.Least(r.Key.Rates, rates, standings(windows, now))
	return out
}

// grant charges units that are free.
func (k *key) grant(r authority.Reserve, units int64, start, now instant.Instant, windows []*window) authority.Reserved {
	kind, end := store.Strict, start.Add(r.TTL)
	if r.TTL > 0 {
		kind = store.Lease
	}
	// Two grants may fall into one microsecond, and a clock may step back; a name is never given twice all the same.
	k.minted = max(now, k.minted+1)
	name := store.Grant{Kind: kind, Call: r.Call, Part: r.Part, Minted: k.minted, Units: units}.Name()
	k.add(charge{score: end, units: units, kind: kind, grant: name, call: r.Call, part: r.Part}, windows, now)
	return authority.Reserved{Lease: name, Units: units, StartIn: start.Sub(now), EndIn: end.Sub(now)}
}

func multiple(n, of int64) int64 {
	if n < of {
		return 0
	}
	return n - n%of
}

// free is what all rates have left at an instant.
func free(rates []limit.Rate, windows []*window, at instant.Instant) int64 {
	least := rates[0].Units - windows[0].usedAt(at)
	for i := 1; i < len(rates); i++ {
		least = min(least, rates[i].Units-windows[i].usedAt(at))
	}
	return least
}

// frees is when units will be free in all rates.
type frees struct {
	// all counts every charge, certain none of leases, which may come back.
	all, certain instant.Instant
	// window is that of the rate which is the last to have them free.
	window time.Duration
}

// soonest gives when units are free; never, where a rate does not hold so many.
func soonest(rates []limit.Rate, windows []*window, units int64, now instant.Instant) (at frees, never bool) {
	for i, r := range rates {
		if units > r.Units {
			return frees{}, true
		}
		all, certain := windows[i].fallsTo(r.Units-units, now)
		if i == 0 || all > at.all {
			at.all, at.window = all, r.Window
		}
		at.certain = max(at.certain, certain)
	}
	return at, false
}

func standings(windows []*window, now instant.Instant) []store.Standing {
	out := make([]store.Standing, len(windows))
	for i, w := range windows {
		out[i] = store.Standing{Used: w.charges.total(), Reset: w.emptyAt(now).Sub(now)}
	}
	return out
}

func (k *key) settle(s authority.Settle, now instant.Instant) {
	grant, ok := store.ParseGrant(s.Lease)
	if !ok {
		return
	}
	k.prune(now)
	whole := k.grants[grant.Call]
	for whole != nil && whole.grant != s.Lease {
		whole = whole.next
	}
	if whole == nil {
		return
	}
	windows := k.take(whole)
	groups, kept := store.Divide(whole.units, s.Uses, s.Unused)
	for _, g := range groups {
		k.add(charge{score: min(whole.score, now.Add(-g.Age)), units: g.Units, kind: store.Settled}, windows, now)
	}
	if kept > 0 {
		k.add(charge{score: whole.score, units: kept, kind: store.Settled}, windows, now)
	}
}

func (k *key) cancel(c authority.Cancel, now instant.Instant) {
	k.prune(now)
	for granted := k.grants[c.Call]; granted != nil; {
		next := granted.next
		if c.Part == "" || c.Part == granted.part {
			k.take(granted)
		}
		granted = next
	}
}

func (k *key) record(r authority.Record, now instant.Instant) error {
	windows := k.view(store.Windows(r.Key.Rates), now)
	groups := store.Group(r.Uses)
	var sum int64
	for _, g := range groups {
		sum += g.Units
	}
	for _, w := range windows {
		if w.charges.total()+sum > store.MaxHeld || w.charges.size() >= store.MaxCharges {
			return errFull
		}
	}
	for _, g := range groups {
		k.add(charge{score: now.Add(-g.Age), units: g.Units, kind: store.Recorded}, windows, now)
	}
	return nil
}

// reset forgets the windows of the rates.
func (k *key) reset(rates []limit.Rate) {
	k.windows = slices.DeleteFunc(k.windows, func(w *window) bool {
		gone := slices.ContainsFunc(rates, func(r limit.Rate) bool { return r.Window == w.length })
		if gone {
			k.release(w.charges)
		}
		return gone
	})
}
