package memory

import (
	"slices"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// Strict counts one key as the store does, for somebody who plays what was: every charge is a strict one that is never given
// back, and time does not go back. It decides as a reserve does, and keeps nothing by which a charge could be settled. It is
// not for use by several goroutines.
type Strict struct {
	// log counts where it is in use, else count: the log is what nearly every key has, and stands within for speed.
	log   strictLog
	count strictCount
}

// strictCount is what of a count strict charges need.
type strictCount interface {
	windows(rates []limit.Rate, now instant.Instant) []window
	record(groups []authority.Use, rates []limit.Rate, now instant.Instant) error
	emptyAt(now instant.Instant) instant.Instant
}

// NewStrict gives the count of a key that nothing has been charged to, by one of the five algorithms.
func NewStrict(a limit.Algorithm) Strict {
	if a == limit.SlidingLog {
		return Strict{}
	}
	return Strict{count: counts[a](0).(strictCount)} //nolint:forcetypeassert // a count has all of it
}

// Wait gives how long it is until so many units, at least 1, may be charged within all rates: 0 where that is now, and never
// where they do not hold so many. There is at least one rate, and no two have one window.
func (s *Strict) Wait(rates []limit.Rate, units int64, now instant.Instant) (wait time.Duration, never bool) {
	count := s.count
	// Nearly always there is room, which is found out without making anything.
	switch c := count.(type) {
	case nil:
		if s.log.hasFree(rates, units, now) {
			return 0, false
		}
		count = &s.log
	case *slidingBuckets:
		if c.hasFree(rates, units, now) {
			return 0, false
		}
	}
	asked := request{rates: rates, want: units, least: units, now: now}
	asked.windows = count.windows(asked.rates, now)
	if free, _ := asked.free(now); free > 0 {
		return 0, false
	}
	at, never := asked.soonest()
	if never {
		return 0, true
	}
	return at.all.Sub(now), false
}

// Charge charges units that are spent in so long. It is not asked whether they may be: see Wait. The error is for a key that
// cannot count more.
func (s *Strict) Charge(rates []limit.Rate, units int64, now instant.Instant, in time.Duration) error {
	switch c := s.count.(type) {
	case nil:
		return s.log.charge(rates, units, now.Add(in))
	case *slidingBuckets:
		return c.charge(rates, units, now.Add(in), now)
	}
	return s.count.record([]authority.Use{{Age: -in, Units: units}}, rates, now)
}

// EmptyAt gives when nothing of the key counts any more, if nothing is charged; at most now where that is so.
func (s *Strict) EmptyAt(now instant.Instant) instant.Instant {
	if s.count == nil {
		return s.log.emptyAt(now)
	}
	return s.count.emptyAt(now)
}

// Entries is how many entries there are, each of some tens of bytes: what the key takes up grows with them.
func (s *Strict) Entries() int {
	n := 0
	switch c := s.count.(type) {
	case nil:
		n = len(s.log.first.ring)
		for i := range s.log.others {
			n += len(s.log.others[i].ring)
		}
	case *slidingBuckets:
		for _, ring := range c.rings {
			n += cap(ring.buckets)
		}
	}
	return n
}

// hasFree says whether all rates have so many units free: what is in the buckets after a prune counts at now.
func (s *slidingBuckets) hasFree(rates []limit.Rate, units int64, now instant.Instant) bool {
	s.prune(now)
	for _, r := range rates {
		if units > r.Units-s.window(r.Window, now).units {
			return false
		}
	}
	return true
}

// charge is record of one group.
func (s *slidingBuckets) charge(rates []limit.Rate, units int64, at, now instant.Instant) error {
	for _, r := range rates {
		w := s.window(r.Window, now)
		if w.units+units > store.MaxHeld {
			return errFull
		}
		index, _ := w.place(at, now) // it is now or later, so it is inside
		w.add(index, units, 0)
	}
	return nil
}

// strictLog is a slidingLog of charges that stay as they are: they stand in order in a ring for each window. The first window
// stands by itself, for there is seldom a second one.
type strictLog struct {
	first  strictWindow // of no length before there is one
	others []strictWindow
}

// strictWindow has the charges that count at now, or will, in the order of their scores.
type strictWindow struct {
	length time.Duration
	// ring holds n charges from head on; its length is a power of two, or 0.
	ring    []strictCharge
	head, n int
	total   int64
}

// strictCharge is units of one score.
type strictCharge struct {
	score instant.Instant
	units int64
}

func (w *strictWindow) at(i int) *strictCharge { return &w.ring[(w.head+i)&(len(w.ring)-1)] }

// free implements window. The charges that have left at start are the first.
func (w *strictWindow) free(r limit.Rate, start, _ instant.Instant) int64 {
	free := r.Units - w.total
	for i := 0; i < w.n && w.at(i).score <= start.Add(-w.length); i++ {
		free += w.at(i).units
	}
	return free
}

// soonest implements window.
func (w *strictWindow) soonest(r limit.Rate, units int64, _ time.Duration, now instant.Instant) (all, certain instant.Instant) {
	all = now
	over := w.total - (r.Units - units)
	for i := 0; i < w.n && over > 0; i++ {
		over -= w.at(i).units
		all = w.at(i).score.Add(w.length)
	}
	return all, all
}

// lasts implements window.
func (*strictWindow) lasts(_ limit.Rate, _ int64, _, end instant.Instant, _ bool) instant.Instant {
	return end
}

// standing implements window.
func (w *strictWindow) standing(_ limit.Rate, now instant.Instant) store.Standing {
	return store.Standing{Used: w.total, Reset: w.emptyAt(now).Sub(now)}
}

func (w *strictWindow) emptyAt(now instant.Instant) instant.Instant {
	if w.n == 0 {
		return now
	}
	return w.at(w.n - 1).score.Add(w.length)
}

// prune drops what has left, and room that stays unused.
func (w *strictWindow) prune(now instant.Instant) {
	edge := now.Add(-w.length)
	for w.n > 0 && w.ring[w.head].score <= edge {
		w.total -= w.ring[w.head].units
		w.head = (w.head + 1) & (len(w.ring) - 1)
		w.n--
	}
	if least := 8; len(w.ring) > least && w.n <= len(w.ring)/8 {
		w.resize(len(w.ring) / 4)
	}
}

func (w *strictWindow) resize(size int) {
	ring := make([]strictCharge, size)
	for i := range w.n {
		ring[i] = *w.at(i)
	}
	w.ring, w.head = ring, 0
}

// add puts a charge in its place, which is nearly always the last.
func (w *strictWindow) add(score instant.Instant, units int64) {
	w.total += units
	place := w.n
	for place > 0 && w.at(place-1).score > score {
		place--
	}
	if place > 0 && w.at(place-1).score == score {
		w.at(place - 1).units += units
		return
	}
	if w.n == len(w.ring) {
		w.resize(max(2, 2*w.n))
	}
	w.n++
	for i := w.n - 1; i > place; i-- {
		*w.at(i) = *w.at(i - 1)
	}
	*w.at(place) = strictCharge{score, units}
}

func (l *strictLog) windows(rates []limit.Rate, now instant.Instant) []window {
	for _, r := range rates {
		l.window(r.Window)
	}
	l.prune(now)
	view := make([]window, len(rates))
	for i, r := range rates {
		view[i] = l.window(r.Window)
	}
	return view
}

func (l *strictLog) prune(now instant.Instant) {
	l.first.prune(now)
	for i := range l.others {
		l.others[i].prune(now)
	}
}

// window gives the window of a length, which is made where it is not there; what was given before may not be used any more.
func (l *strictLog) window(length time.Duration) *strictWindow {
	if l.first.length == 0 {
		l.first.length = length
	}
	if l.first.length == length {
		return &l.first
	}
	for i := range l.others {
		if l.others[i].length == length {
			return &l.others[i]
		}
	}
	l.others = append(slices.Clip(l.others), strictWindow{length: length})
	return &l.others[len(l.others)-1]
}

// hasFree says whether all rates have so many units free.
func (l *strictLog) hasFree(rates []limit.Rate, units int64, now instant.Instant) bool {
	l.prune(now)
	for _, r := range rates {
		if units > r.Units-l.window(r.Window).total {
			return false
		}
	}
	return true
}

func (l *strictLog) record(groups []authority.Use, rates []limit.Rate, now instant.Instant) error {
	for _, used := range groups {
		if err := l.charge(rates, used.Units, now.Add(-used.Age)); err != nil {
			return err
		}
	}
	return nil
}

func (l *strictLog) charge(rates []limit.Rate, units int64, at instant.Instant) error {
	for _, r := range rates {
		w := l.window(r.Window)
		if w.n >= store.MaxCharges || w.total+units > store.MaxHeld {
			return errFull
		}
		w.add(at, units)
	}
	return nil
}

func (l *strictLog) emptyAt(now instant.Instant) instant.Instant {
	at := max(now, l.first.emptyAt(now))
	for i := range l.others {
		at = max(at, l.others[i].emptyAt(now))
	}
	return at
}
