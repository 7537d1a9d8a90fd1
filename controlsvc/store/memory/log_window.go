package memory

import (
	"slices"
	"sort"
	"time"

	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// logWindow is the charges of one key within one window, and those of leases that end later, in the order of their scores. They
// lie in blocks, each with its sums: most keys have one, and where there are very many charges no question visits all of them
// but that for a name.
type logWindow struct {
	length time.Duration
	// blocks have at least one charge each.
	blocks []block
}

// mostInBlock is how many charges lie in one block.
const mostInBlock = 256

// block is charges that follow each other, and what they sum up to.
type block struct {
	charges []charge
	units   sums
}

// sums are units: all of them, and those without what leases have, which may come back.
type sums struct{ all, certain int64 }

func (s sums) plus(other sums) sums  { return sums{s.all + other.all, s.certain + other.certain} }
func (s sums) minus(other sums) sums { return sums{s.all - other.all, s.certain - other.certain} }
func (s sums) ofAll() int64          { return s.all }
func (s sums) ofCertain() int64      { return s.certain }

// charge is an entry of the log: units that may be spent until score.
type charge struct {
	score instant.Instant
	units int64
	// grant is its name where it may still be settled or cancelled, and tail its call's: most others have another, and to read their
	// names is to wait for memory.
	grant string
	tail  uint64
}

// tailOf gives the last bytes of a call's name, where one differs from the next.
func tailOf(call string) (tail uint64) {
	for _, b := range []byte(call[max(0, len(call)-8):]) {
		tail = tail<<8 | uint64(b)
	}
	return tail
}

func (c *charge) isLease() bool { return c.grant != "" && c.grant[0] == byte(store.Lease) }

func (c *charge) sums() sums {
	if c.isLease() {
		return sums{all: c.units}
	}
	return sums{c.units, c.units}
}

// leftAt says that a charge has left a window whose edge, the score up to which charges are outside, is there.
func (c *charge) leftAt(edge instant.Instant) bool { return c.score <= edge }

func (b *block) first() *charge { return &b.charges[0] }
func (b *block) last() *charge  { return &b.charges[len(b.charges)-1] }

// edge is the score up to which charges are outside at an instant.
func (w *logWindow) edge(at instant.Instant) instant.Instant { return at.Add(-w.length) }

func (w *logWindow) total() sums {
	var total sums
	for i := range w.blocks {
		total = total.plus(w.blocks[i].units)
	}
	return total
}

func (w *logWindow) size() int {
	size := 0
	for i := range w.blocks {
		size += len(w.blocks[i].charges)
	}
	return size
}

// after gives how many of a list have a score that is not above this one.
func after[T any](list []T, score instant.Instant, of func(*T) instant.Instant) int {
	return sort.Search(len(list), func(i int) bool { return of(&list[i]) > score })
}

// add puts a charge behind those of its score and below; one that has left already is none.
func (w *logWindow) add(c charge, now instant.Instant) {
	if c.leftAt(w.edge(now)) {
		return
	}
	if len(w.blocks) == 0 {
		w.blocks = make([]block, 1)
	}
	at := after(w.blocks[1:], c.score, func(b *block) instant.Instant { return b.first().score })
	b := &w.blocks[at]
	place := after(b.charges, c.score, func(c *charge) instant.Instant { return c.score })
	if len(b.charges) == mostInBlock {
		cut := mostInBlock / 2
		if place == mostInBlock {
			cut = place // most come last
		}
		w.cut(at, cut)
		if place >= cut {
			at, place = at+1, place-cut
		}
		b = &w.blocks[at]
	}
	b.charges = slices.Insert(grown(b.charges), place, c)
	b.units = b.units.plus(c.sums())
}

// cut makes a block of its own of what is in a block from a place on.
func (w *logWindow) cut(at, place int) {
	b := &w.blocks[at]
	next := block{charges: slices.Clone(b.charges[place:]), units: b.units}
	b.remove(place, len(b.charges))
	next.units = next.units.minus(b.units)
	w.blocks = slices.Insert(grown(w.blocks), at+1, next)
}

// remove takes out the charges from one place until before another.
func (b *block) remove(from, until int) {
	for i := from; i < until; i++ {
		b.units = b.units.minus(b.charges[i].sums())
	}
	b.charges = slices.Delete(b.charges, from, until)
	if spare := 8; cap(b.charges) > spare && len(b.charges) <= cap(b.charges)/4 {
		b.charges = slices.Clone(b.charges)
	}
}

// dropEmpty drops the blocks that nothing is left in.
func (w *logWindow) dropEmpty() {
	w.blocks = slices.DeleteFunc(w.blocks, func(b block) bool { return len(b.charges) == 0 })
}

// prune takes out what has left the window.
func (w *logWindow) prune(now instant.Instant) {
	edge := w.edge(now)
	if len(w.blocks) == 0 || !w.blocks[0].first().leftAt(edge) {
		return
	}
	for i := range w.blocks {
		b := &w.blocks[i]
		left := after(b.charges, edge, func(c *charge) instant.Instant { return c.score })
		b.remove(0, left)
		if len(b.charges) > 0 {
			break
		}
	}
	w.dropEmpty()
}

// take removes those of a call's grants whose names are wanted, and gives them. wanted is asked about others, too.
func (w *logWindow) take(call string, wanted func(grant string) bool) []charge {
	tail := tailOf(call)
	var taken []charge
	for i := range w.blocks {
		b := &w.blocks[i]
		for place := len(b.charges) - 1; place >= 0; place-- {
			c := &b.charges[place]
			if c.tail == tail && c.grant != "" && wanted(c.grant) {
				taken = append(taken, *c)
				b.remove(place, place+1)
			}
		}
	}
	if len(taken) > 0 {
		w.dropEmpty()
	}
	return taken
}

// unitsUpTo sums the units with a score of at most edge.
func (w *logWindow) unitsUpTo(edge instant.Instant) int64 {
	var sum int64
	for i := range w.blocks {
		b := &w.blocks[i]
		if b.last().leftAt(edge) {
			sum += b.units.all
			continue
		}
		for j := 0; b.charges[j].leftAt(edge); j++ {
			sum += b.charges[j].units
		}
		break
	}
	return sum
}

// reaches gives the earliest score up to which the units, of these sums, are at least so many, of which there are as many.
func (w *logWindow) reaches(units int64, of func(sums) int64) instant.Instant {
	at := 0
	for ; of(w.blocks[at].units) < units; at++ {
		units -= of(w.blocks[at].units)
	}
	place := 0
	for ; ; place++ {
		if units -= of(w.blocks[at].charges[place].sums()); units <= 0 {
			return w.blocks[at].charges[place].score
		}
	}
}

// free implements window. What is inside now and outside at start was inside at the last prune.
func (w *logWindow) free(r limit.Rate, start, _ instant.Instant) int64 {
	return r.Units - w.total().all + w.unitsUpTo(w.edge(start))
}

// soonest implements window.
func (w *logWindow) soonest(r limit.Rate, units int64, _ time.Duration, now instant.Instant) (all, certain instant.Instant) {
	all, certain = now, now
	total, room := w.total(), r.Units-units
	if over := total.all - room; over > 0 {
		all = w.reaches(over, sums.ofAll).Add(w.length)
	}
	if over := total.certain - room; over > 0 {
		certain = w.reaches(over, sums.ofCertain).Add(w.length)
	}
	return all, certain
}

// lasts implements window.
func (*logWindow) lasts(_ limit.Rate, _ int64, _, end instant.Instant, _ bool) instant.Instant {
	return end
}

// standing implements window.
func (w *logWindow) standing(_ limit.Rate, now instant.Instant) store.Standing {
	return store.Standing{Used: w.total().all, Reset: w.emptyAt(now).Sub(now)}
}

func (w *logWindow) emptyAt(now instant.Instant) instant.Instant {
	if len(w.blocks) == 0 {
		return now
	}
	return w.blocks[len(w.blocks)-1].last().score.Add(w.length)
}
