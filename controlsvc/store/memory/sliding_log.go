package memory

import (
	"slices"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// slidingLog counts every charge until its score has left the window.
type slidingLog struct {
	logs   []*logWindow
	grants grantIndex
	// number is the last charge's.
	number uint64
	random uint64
}

var _ count = (*slidingLog)(nil)

func newSlidingLog(seed uint64) *slidingLog {
	return &slidingLog{random: seed | 1}
}

// logWindow is the charges of one key within one window, and those of leases that end later.
type logWindow struct {
	length  time.Duration
	charges *node
}

// edge is the score up to which charges are outside at an instant.
func (w *logWindow) edge(at instant.Instant) instant.Instant { return at.Add(-w.length) }

// free implements window. What is inside now and outside at start was inside at the last prune.
func (w *logWindow) free(r limit.Rate, start, _ instant.Instant) int64 {
	return r.Units - w.charges.total() + unitsUpTo(w.charges, w.edge(start))
}

// soonest implements window.
func (w *logWindow) soonest(r limit.Rate, units int64, _ time.Duration, now instant.Instant) (all, certain instant.Instant) {
	all, certain = now, now
	room := r.Units - units
	if over := w.charges.total() - room; over > 0 {
		all = reaches(w.charges, over, (*node).total, (*node).own).Add(w.length)
	}
	if over := w.charges.totalCertain() - room; over > 0 {
		certain = reaches(w.charges, over, (*node).totalCertain, (*node).ownCertain).Add(w.length)
	}
	return all, certain
}

// lasts implements window.
func (*logWindow) lasts(_ limit.Rate, _ int64, _, end instant.Instant, _ bool) instant.Instant {
	return end
}

// standing implements window.
func (w *logWindow) standing(_ limit.Rate, now instant.Instant) store.Standing {
	return store.Standing{Used: w.charges.total(), Reset: w.emptyAt(now).Sub(now)}
}

func (w *logWindow) emptyAt(now instant.Instant) instant.Instant {
	if w.charges == nil {
		return now
	}
	return latest(w.charges).Add(w.length)
}

// clock implements count.
func (*slidingLog) clock(read instant.Instant) instant.Instant { return read }

// windows implements count.
func (l *slidingLog) windows(rates []limit.Rate, now instant.Instant) []window {
	l.prune(now)
	view := make([]window, len(rates))
	for i, r := range rates {
		view[i] = l.window(r.Window)
	}
	return view
}

// window gives the window of a length, which is made where it is not there.
func (l *slidingLog) window(length time.Duration) *logWindow {
	for _, w := range l.logs {
		if w.length == length {
			return w
		}
	}
	w := &logWindow{length: length}
	l.logs = append(l.logs, w)
	return w
}

// prune forgets what has left the windows. Each charge is pruned once, so its cost is part of the charging's.
func (l *slidingLog) prune(now instant.Instant) {
	for _, w := range l.logs {
		var gone *node
		gone, w.charges = split(w.charges, w.edge(now))
		l.release(gone)
	}
	l.logs = slices.DeleteFunc(l.logs, func(w *logWindow) bool { return w.charges == nil })
}

func (l *slidingLog) release(gone *node) {
	if gone == nil {
		return
	}
	l.release(gone.left)
	l.release(gone.right)
	if gone.held--; gone.held == 0 {
		l.forget(gone.charge)
	}
}

// forget takes a charge out of the grants.
func (l *slidingLog) forget(c *charge) {
	if c.grant != "" {
		l.grants.remove(c)
	}
}

// add puts a charge into the windows that it has not left.
func (l *slidingLog) add(c charge, windows []*logWindow, now instant.Instant) {
	added := &c
	l.number++
	added.number = l.number
	for _, w := range windows {
		if added.score > w.edge(now) {
			added.held++
			w.charges = insert(w.charges, &node{charge: added, priority: l.priority()})
		}
	}
	if added.held > 0 && added.grant != "" {
		l.grants.add(added)
	}
}

// priority draws the next of a fixed sequence (xorshift): a treap wants them spread, not secret.
func (l *slidingLog) priority() uint64 {
	l.random ^= l.random << 13
	l.random ^= l.random >> 7
	l.random ^= l.random << 17
	return l.random
}

// take removes an unsettled charge and gives the windows that held it.
func (l *slidingLog) take(c *charge) []*logWindow {
	var held []*logWindow
	for _, w := range l.logs {
		var found bool
		if w.charges, found = remove(w.charges, c); found {
			held = append(held, w)
		}
	}
	l.forget(c)
	return held
}

// of gives the rates' windows.
func (l *slidingLog) of(rates []limit.Rate) []*logWindow {
	windows := make([]*logWindow, len(rates))
	for i, r := range rates {
		windows[i] = l.window(r.Window)
	}
	return windows
}

// grant implements count.
func (l *slidingLog) grant(g store.Grant, rates []limit.Rate, end, now instant.Instant) error {
	windows := l.of(rates)
	for _, w := range windows {
		if w.charges.size() >= store.MaxCharges {
			return errFull
		}
	}
	name := g.Name()
	call := name[len("l:"):][:len(g.Call)] // one string is kept, not the caller's too
	part := name[len("l:")+len(call)+len(":"):][:len(g.Part)]
	l.add(charge{score: end, units: g.Units, kind: g.Kind, grant: name, call: call, part: part}, windows, now)
	return nil
}

// settle implements count.
func (l *slidingLog) settle(g store.Grant, name string, uses []authority.Use, unused int64, now instant.Instant) {
	l.prune(now)
	granted := l.grants.of(g.Call)
	at := slices.IndexFunc(granted, func(c *charge) bool { return c.grant == name })
	if at < 0 {
		return
	}
	whole := granted[at]
	windows := l.take(whole)
	groups, kept := store.Divide(whole.units, uses, unused)
	for _, used := range groups {
		l.add(charge{score: min(whole.score, now.Add(-used.Age)), units: used.Units, kind: store.Settled}, windows, now)
	}
	if kept > 0 {
		l.add(charge{score: whole.score, units: kept, kind: store.Settled}, windows, now)
	}
}

// cancel implements count.
func (l *slidingLog) cancel(call, part string, now instant.Instant) {
	l.prune(now)
	for _, granted := range l.grants.of(call) {
		if part == "" || part == granted.part {
			l.take(granted)
		}
	}
}

// record implements count.
func (l *slidingLog) record(groups []authority.Use, rates []limit.Rate, now instant.Instant) error {
	l.prune(now)
	windows := l.of(rates)
	var sum int64
	for _, used := range groups {
		sum += used.Units
	}
	for _, w := range windows {
		if w.charges.total()+sum > store.MaxHeld || w.charges.size() >= store.MaxCharges {
			return errFull
		}
	}
	for _, used := range groups {
		l.add(charge{score: now.Add(-used.Age), units: used.Units, kind: store.Recorded}, windows, now)
	}
	return nil
}

// reset implements count.
func (l *slidingLog) reset(rates []limit.Rate) {
	l.logs = slices.DeleteFunc(l.logs, func(w *logWindow) bool {
		gone := slices.ContainsFunc(rates, func(r limit.Rate) bool { return r.Window == w.length })
		if gone {
			l.release(w.charges)
		}
		return gone
	})
}

// leases implements count.
func (l *slidingLog) leases(now instant.Instant) []liveLease {
	var live []liveLease
	l.grants.each(func(c *charge) {
		if g, ok := store.ParseGrant(c.grant); ok && g.Kind == store.Lease && c.score > now {
			live = append(live, liveLease{g, c.score})
		}
	})
	return live
}

// emptyAt implements count.
func (l *slidingLog) emptyAt(now instant.Instant) instant.Instant {
	at := now
	for _, w := range l.logs {
		at = max(at, w.emptyAt(now))
	}
	return at
}
