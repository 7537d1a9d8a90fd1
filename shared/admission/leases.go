package admission

import (
	"time"

	"sluice/shared/instant"
	"sluice/shared/lease"
	"sluice/shared/limit"
)

// MaxLeases bounds the leases of one key in a worker's hands: one that is spent, one that follows, and room for answers
// that cross.
const MaxLeases = 4

// MaxHeldLeases bounds them for a limit with max_wait, of which each request that is held may wait for one of its own.
const MaxHeldLeases = 128

// A worker's estimate of a key's demand looks back over one to two widths: an eighth of the shortest window, within these.
const (
	minDemandWidth = 20 * time.Millisecond
	maxDemandWidth = time.Second
)

// longWindow is how long a window is at most under which a worker asks for more ahead than it was asked for lately.
const longWindow = time.Minute

// endNoticed is how long before its end a lease is followed by the next, at most a quarter of its life.
const endNoticed = 40 * time.Millisecond

// leased says whether the key's units may come from leases.
func (k *Key) leased() bool { return k.rule.Limit.Mode == limit.Lease }

// Free gives the units that may be spent of the worker's own accord: those of leases in hand.
func (k *Key) Free(now instant.Instant) (units int64) {
	for _, l := range k.leases {
		if l.From > now {
			break // so do those behind it
		}
		units += l.Free(now)
	}
	return units
}

// Lacks says whether the demand has to be asked for or held, because the leases in hand do not hold its cost beyond what
// they hold for others. In mode async nothing is asked for.
func (d Demand) Lacks(now instant.Instant) bool {
	return !d.Key.async() && (d.Behind || d.Key.Free(now)-d.Ahead < d.Cost)
}

// spendLeased takes units out of the leases in hand, the one that ends first first. There are as many: see Free.
func (k *Key) spendLeased(now instant.Instant, units int64) {
	for units > 0 {
		var first *lease.Lease
		for _, l := range k.leases {
			if l.Free(now) > 0 && (first == nil || l.Until < first.Until) {
				first = l
			}
		}
		if first == nil {
			return
		}
		took := first.Spend(now, units)
		units -= took
		k.spend(now, took)
	}
}

// startsIn gives when a lease in hand starts that holds the cost; false where none is to come. Under a limit with max_wait
// only where the worker can hold no more of them: what is to come belongs to others, and the last of it is told.
func (d Demand) startsIn(now instant.Instant) (time.Duration, bool) {
	k := d.Key
	if k.MaxWait() > 0 {
		if len(k.leases) < MaxHeldLeases {
			return 0, false
		}
		return max(0, k.leases[len(k.leases)-1].From.Sub(now)), true
	}
	for _, l := range k.leases {
		if l.From > now && l.Left() >= d.Cost && !l.Over(now) {
			return l.From.Sub(now), true
		}
	}
	return 0, false
}

// hold takes a lease into the worker's hands.
func (k *Key) hold(l *lease.Lease, now instant.Instant) {
	k.Tidy(now)
	most := MaxLeases
	if k.MaxWait() > 0 {
		most = MaxHeldLeases
	}
	for len(k.leases) >= most { // the one that ends first makes room
		first := 0
		for i := range k.leases {
			if k.leases[i].Until < k.leases[first].Until {
				first = i
			}
		}
		k.retire(first, &k.retired)
	}
	place := len(k.leases)
	for place > 0 && k.leases[place-1].From > l.From {
		place--
	}
	k.leases = append(k.leases, nil)
	copy(k.leases[place+1:], k.leases[place:])
	k.leases[place] = l
	k.ttl = max(0, l.Until.Sub(l.From))
	k.scarce = l.From > now
}

// Tidy retires the leases that are over.
func (k *Key) Tidy(now instant.Instant) {
	k.tidy(now, &k.retired)
	if k.aside != nil {
		k.aside.tidy(now, &k.retired)
	}
}

// GiveBack retires every lease, spent or not: the worker stops, or the key is idle.
func (k *Key) GiveBack() {
	k.retireAll(&k.retired)
	if k.aside != nil {
		k.aside.retireAll(&k.retired)
	}
}

func (n *known) tidy(now instant.Instant, retired *[]lease.Retired) {
	for i := len(n.leases) - 1; i >= 0; i-- {
		if n.leases[i].Over(now) {
			n.retire(i, retired)
		}
	}
}

func (n *known) retireAll(retired *[]lease.Retired) {
	for i := len(n.leases) - 1; i >= 0; i-- {
		n.retire(i, retired)
	}
}

func (n *known) retire(i int, retired *[]lease.Retired) {
	*retired = append(*retired, n.leases[i].Retire())
	last := len(n.leases) - 1
	copy(n.leases[i:], n.leases[i+1:])
	n.leases[last] = nil
	n.leases = n.leases[:last]
}

// Scarce says that the last lease was scheduled: there was nothing to be had at once.
func (k *Key) Scarce() bool { return k.scarce }

// Idle says that the key holds leases and nobody has asked for its units lately, or waits for them.
func (k *Key) Idle(now instant.Instant) bool {
	return k.Leases() > 0 && k.claimed == 0 && k.demand.over(now, k.demand.width) == 0
}

// Leases gives how many leases the worker holds of the key, under whichever plan.
func (k *Key) Leases() int {
	if k.aside == nil {
		return len(k.leases)
	}
	return len(k.leases) + len(k.aside.leases)
}

// TakeRetired hands out the leases that are over, each once: the caller reports them until that is acknowledged.
func (k *Key) TakeRetired() []lease.Retired {
	r := k.retired
	k.retired = nil
	return r
}

// Ahead gives how many units to ask for before any request needs them; 0 for none. Ahead of time is twice round, the time
// from an ask to its answer and as much again: a lease that will be spent or over by then is followed by another one.
func (k *Key) Ahead(now instant.Instant, round time.Duration) int64 {
	if !k.leased() || len(k.leases) == 0 || k.standing(now, k.rule.Limit.RequestCost()) {
		return 0
	}
	// A lease's end is noticed by the next request or the next tick, whichever comes first.
	soon := now.Add(max(4*round, min(endNoticed, k.ttl/4)))
	spare := 2 * k.rule.Limit.RequestCost() // demand comes in lumps
	var units int64
	for _, l := range k.leases {
		if l.From > now {
			return 0 // the next one is in hand
		}
		if l.Until > soon {
			units += l.Left()
		}
	}
	if units > k.demand.over(now, 4*round)+spare {
		return 0
	}
	return k.Expected(now, 0)
}

// Expected gives how many units the worker expects to spend within the life of the next lease; within half of it where
// units are scarce, so that hardly any are left over at its end. One request alone, of so many units, is no sign of another.
// Where the shortest window is longer than longWindow there are as many to come as there were lately, and no more: what a
// lease holds in vain is missed for as long.
func (k *Key) Expected(now instant.Instant, one int64) int64 {
	if k.demand.over(now, k.demand.width) <= one {
		return 0
	}
	ttl := k.ttl
	switch {
	case ttl == 0:
		ttl = k.rule.Rates[0].Window / 20
	case k.scarce:
		ttl /= 2
	}
	if k.shortest() > longWindow {
		ttl = min(ttl, k.demand.width)
	}
	return k.demand.over(now, ttl)
}

// demand estimates how many units per time are asked for, whatever becomes of them, from two counters.
type demand struct {
	width time.Duration
	// start is when the current counter began.
	start             instant.Instant
	current, previous int64
}

// add notes units asked for.
func (d *demand) add(now instant.Instant, units int64) {
	d.roll(now)
	d.current += units
}

// over gives the units to expect within a duration.
func (d *demand) over(now instant.Instant, span time.Duration) int64 {
	d.roll(now)
	into := now.Sub(d.start)
	seen := float64(d.current) + float64(d.previous)*(1-float64(into)/float64(d.width))
	return int64(seen*float64(span)/float64(d.width) + 0.5)
}

func (d *demand) roll(now instant.Instant) {
	switch passed := now.Sub(d.start); {
	case passed < d.width:
	case passed < 2*d.width:
		d.start = d.start.Add(d.width)
		d.previous, d.current = d.current, 0
	default:
		d.start = now
		d.previous, d.current = 0, 0
	}
}
