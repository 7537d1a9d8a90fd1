// Package slidinglog keeps what was spent within one sliding window, in bounded memory.
package slidinglog

import (
	"time"

	"sluice/shared/instant"
)

// MaxEntries bounds a log. Up to so many different instants within a window it is exact; beyond, neighbours are merged
// into spans of at most 1/128 of the window, and the two counts below say what is certain of a span that the window's
// edge cuts.
const MaxEntries = 512

const minEntries = 4

// Log holds units spent within the last Window. It grows with what is in it, not with the limit, and shrinks again. The
// zero value is not usable: see New.
type Log struct {
	window time.Duration
	// ring holds n spans from head on, disjoint and in order; its length is a power of two, or 0.
	ring  []span
	head  int
	n     int
	total int64
}

// span is units spent between first and last, both included.
type span struct {
	first, last instant.Instant
	units       int64
}

// New gives an empty log over a window, which is positive.
func New(window time.Duration) Log { return Log{window: window} }

// Window gives the window that the log keeps.
func (l *Log) Window() time.Duration { return l.window }

// Add notes units spent at an instant. It may be a little earlier than what is in the log.
func (l *Log) Add(at instant.Instant, units int64) {
	if units <= 0 {
		return
	}
	l.total += units
	place := l.n
	for place > 0 && l.at(place-1).first > at {
		place--
	}
	if place > 0 && l.at(place-1).last >= at {
		l.at(place - 1).units += units
		return
	}
	if l.n == MaxEntries {
		l.total -= units
		l.prune(at)
		l.merge(l.window / 128)
		if l.n == MaxEntries { // instants far apart that nobody pruned: one span, for the bound's sake
			l.merge(l.at(l.n - 1).last.Sub(l.at(0).first))
		}
		l.Add(at, units)
		return
	}
	if l.n == len(l.ring) {
		l.resize(max(minEntries, 2*len(l.ring)))
	}
	l.n++
	for i := l.n - 1; i > place; i-- {
		*l.at(i) = *l.at(i - 1)
	}
	*l.at(place) = span{first: at, last: at, units: units}
}

// AtMost is the most that can have been spent within (now − window, now].
func (l *Log) AtMost(now instant.Instant) int64 {
	l.prune(now)
	return l.total
}

// AtLeast is the least that was certainly spent within (now − window + margin, now].
func (l *Log) AtLeast(now instant.Instant, margin time.Duration) int64 {
	l.prune(now)
	count := l.total
	edge := now.Add(margin - l.window)
	for i := 0; i < l.n && l.at(i).first <= edge; i++ {
		count -= l.at(i).units
	}
	return count
}

// FallsTo gives how long after now AtLeast, with the same margin, is at most units: 0 where it is already, the whole
// window where units is negative.
func (l *Log) FallsTo(units int64, now instant.Instant, margin time.Duration) time.Duration {
	l.prune(now)
	if units < 0 {
		return l.window
	}
	left := l.total
	for i := 0; i < l.n && left > units; i++ {
		left -= l.at(i).units
		if left <= units {
			return max(0, l.at(i).first.Add(l.window-margin).Sub(now))
		}
	}
	return 0
}

// EmptyIn gives how long after now nothing of the log is in the window any more.
func (l *Log) EmptyIn(now instant.Instant) time.Duration {
	l.prune(now)
	if l.n == 0 {
		return 0
	}
	return max(0, l.at(l.n-1).last.Add(l.window).Sub(now))
}

// prune drops what has left the window, and memory that stays unused.
func (l *Log) prune(now instant.Instant) {
	edge := now.Add(-l.window)
	for l.n > 0 && l.at(0).last <= edge {
		l.total -= l.at(0).units
		l.head = (l.head + 1) & (len(l.ring) - 1)
		l.n--
	}
	switch {
	case l.n == 0 && len(l.ring) > minEntries:
		l.ring, l.head = nil, 0
	case len(l.ring) > minEntries && l.n <= len(l.ring)/8:
		l.resize(len(l.ring) / 2)
	}
}

// merge joins neighbours whose common span is at most width. Two neighbours that stay apart span more than that together,
// so of a window's entries about half at most are left.
func (l *Log) merge(width time.Duration) {
	kept := 0
	for i := 1; i < l.n; i++ {
		into, next := l.at(kept), l.at(i)
		if next.last.Sub(into.first) <= width {
			into.last = next.last
			into.units += next.units
			continue
		}
		kept++
		*l.at(kept) = *next
	}
	l.n = kept + 1
}

func (l *Log) resize(size int) {
	ring := make([]span, size)
	for i := range l.n {
		ring[i] = *l.at(i)
	}
	l.ring, l.head = ring, 0
}

func (l *Log) at(i int) *span { return &l.ring[(l.head+i)&(len(l.ring)-1)] }
