package memory

import (
	"time"

	"sluice/shared/instant"
)

// window is the charges of one key within one window, and those of leases that end later.
type window struct {
	length  time.Duration
	charges *node
}

// edge is the score up to which charges are outside at an instant.
func (w *window) edge(at instant.Instant) instant.Instant { return at.Add(-w.length) }

// usedAt sums the units that are inside at an instant, which is not before the last prune.
func (w *window) usedAt(at instant.Instant) int64 {
	return w.charges.total() - unitsUpTo(w.charges, w.edge(at))
}

// fallsTo gives the first instant from now on at which at most so many units are inside, if nothing more is charged; and
// the first at which that is so of the certain ones alone.
func (w *window) fallsTo(units int64, now instant.Instant) (all, certain instant.Instant) {
	all, certain = now, now
	if over := w.charges.total() - units; over > 0 {
		all = reaches(w.charges, over, (*node).total, (*node).own).Add(w.length)
	}
	if over := w.charges.totalCertain() - units; over > 0 {
		certain = reaches(w.charges, over, (*node).totalCertain, (*node).ownCertain).Add(w.length)
	}
	return all, certain
}

// emptyAt gives the first instant from now on at which nothing is inside, if nothing more is charged.
func (w *window) emptyAt(now instant.Instant) instant.Instant {
	if w.charges == nil {
		return now
	}
	return latest(w.charges).Add(w.length)
}
