package memory

import (
	"time"

	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// Strict counts one key as the store does, for somebody who plays what was: every charge is a strict one that is never given
// back, and time does not go back. It decides as a reserve does, and keeps nothing by which a charge could be settled. It is
// not for use by several goroutines.
type Strict struct {
	// The charges of sliding_log and of sliding_buckets, which are what nearly every key has, stand in a window for each length
	// that was asked about. The first is within, for there is seldom a second one; it has no length before there is one.
	first strictWindow
	// buckets: a charge counts as if it were made at the end of its bucket.
	buckets bool
	// count counts by the other algorithms; else it is nil, which takes half the room that an interface does.
	count *strictCount
}

// strictCount is what of a count strict charges need.
type strictCount interface {
	// view gives how the key stands within one rate's window.
	view(r limit.Rate, now instant.Instant) window
	// spend is record of one group, at an instant that is not before now.
	spend(rates []limit.Rate, units int64, at, now instant.Instant) error
	emptyAt(now instant.Instant) instant.Instant
}

// NewStrict gives the count of a key that nothing has been charged to, by one of the five algorithms.
func NewStrict(a limit.Algorithm) Strict {
	switch a {
	case limit.SlidingLog:
		return Strict{}
	case limit.SlidingBuckets:
		return Strict{buckets: true}
	default:
		count := counts[a]().(strictCount) //nolint:forcetypeassert // a count has all of it
		return Strict{count: &count}
	}
}

// Wait gives how long it is until so many units, at least 1, may be charged within all rates: 0 where that is now, and never
// where they do not hold so many. There is at least one rate, and no two have one window.
func (s *Strict) Wait(rates []limit.Rate, units int64, now instant.Instant) (wait time.Duration, never bool) {
	at := now
	for i := range rates {
		r, free := &rates[i], now
		never = never || units > r.Most()
		switch {
		case s.count != nil:
			// Each is looked at, for a token bucket takes note of its rate.
			if w := (*s.count).view(*r, now); !never {
				free, _ = w.soonest(*r, units, 0, now)
			}
		case !never:
			free = s.window(r.Window).soonest(r.Units-units, now)
		}
		at = max(at, free)
	}
	if never {
		return 0, true
	}
	return at.Sub(now), false
}

// Charge charges units that are spent in so long. It is not asked whether they may be: see Wait. The error is for a key that
// cannot count more.
func (s *Strict) Charge(rates []limit.Rate, units int64, now instant.Instant, in time.Duration) error {
	if s.count != nil {
		return (*s.count).spend(rates, units, now.Add(in), now)
	}
	for i := range rates {
		w := s.window(rates[i].Window)
		score := now.Add(in)
		if s.buckets {
			width := limit.BucketWidth(w.length).Microseconds()
			score = instant.Instant(ceilDiv(int64(score), width) * width)
		}
		if !w.add(score, units, now) {
			return errFull
		}
	}
	return nil
}

// EmptyAt gives when nothing of the key counts any more, if nothing is charged; at most now where that is so.
func (s *Strict) EmptyAt(now instant.Instant) instant.Instant {
	if s.count != nil {
		return (*s.count).emptyAt(now)
	}
	at := now
	for w := &s.first; w != nil; w = w.next {
		if w.n > 0 {
			at = max(at, w.at(w.n-1).score.Add(w.length))
		}
	}
	return at
}

// Entries is how many entries there is room for, each of some tens of bytes: what the key takes up grows with them.
func (s *Strict) Entries() int {
	n := 0
	for w := &s.first; w != nil; w = w.next {
		n += len(w.ring)
	}
	return n
}

// window gives the window of a length, which is made where it is not there.
func (s *Strict) window(length time.Duration) *strictWindow {
	w := &s.first
	if w.length == 0 {
		w.length = length
	}
	for w.length != length {
		if w.next == nil {
			w.next = &strictWindow{length: length}
		}
		w = w.next
	}
	return w
}

// strictWindow has the charges that count, or will, in the order of their scores, and some that do not count any more: to see
// which those are is to wait for memory, so it is done where there seems to be no room.
type strictWindow struct {
	length time.Duration
	// ring holds n charges from head on; its length is a power of two, or 0.
	ring    []strictCharge
	head, n int32
	total   int64
	// last is the score of the last charge.
	last instant.Instant
	next *strictWindow
}

// strictCharge is units of one score.
type strictCharge struct {
	score instant.Instant
	units int64
}

func (w *strictWindow) at(i int32) *strictCharge { return &w.ring[int(w.head+i)&(len(w.ring)-1)] }

// soonest gives the first instant from now on at which at most so many units are charged.
func (w *strictWindow) soonest(most int64, now instant.Instant) instant.Instant {
	if w.total <= most {
		return now
	}
	w.prune(now)
	at, over := now, w.total-most
	for i := int32(0); over > 0; i++ {
		first := w.at(i)
		over -= first.units
		at = first.score.Add(w.length)
	}
	return at
}

// prune drops what has left, and room that stays unused.
func (w *strictWindow) prune(now instant.Instant) {
	edge := now.Add(-w.length)
	for w.n > 0 && w.at(0).score <= edge {
		w.total -= w.at(0).units
		w.head = (w.head + 1) & int32(len(w.ring)-1)
		w.n--
	}
	if least := 8; len(w.ring) > least && int(w.n) <= len(w.ring)/8 {
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

// add puts a charge in its place, which is nearly always the last; false where the window cannot hold it.
func (w *strictWindow) add(score instant.Instant, units int64, now instant.Instant) bool {
	if int(w.n) == len(w.ring) || w.total+units > store.MaxHeld {
		w.prune(now)
	}
	if w.n >= store.MaxCharges || w.total+units > store.MaxHeld {
		return false
	}
	w.total += units
	place := w.n
	if score <= w.last {
		for place > 0 && w.at(place-1).score > score {
			place--
		}
		if place > 0 && w.at(place-1).score == score {
			w.at(place - 1).units += units
			return true
		}
	}
	if int(w.n) == len(w.ring) {
		w.resize(max(4, 2*len(w.ring)))
	}
	w.n++
	for i := w.n - 1; i > place; i-- {
		*w.at(i) = *w.at(i - 1)
	}
	w.last = max(w.last, score)
	*w.at(place) = strictCharge{score, units}
	return true
}
