// Package lease is what a worker holds: units granted ahead of the requests that will spend them. It says when they may be
// spent, and what the worker reports when it is through with them.
//
// A lease lives once: it is granted, spent between its start and its end, retired, and then settled, whole. All instants
// are of the worker's monotonic clock; the two ends are turned from the store's durations so that they lie inside the
// store's own, whatever the delays of the network and within the drift margin (RATIONALE.md, clocks).
package lease

import (
	"time"

	"sluice/shared/instant"
)

// DriftShare is the inverse of ρ, the largest error of a worker's clock rate against the store's.
const DriftShare = 1000

// MaxUses bounds how many instants a lease's report tells apart.
const MaxUses = 64

// Drift is how far a worker's clock may be off the store's over a duration, rounded up to a microsecond.
func Drift(d time.Duration) time.Duration {
	return ((d + DriftShare - 1) / DriftShare).Truncate(time.Microsecond) + time.Microsecond
}

// AtLeast is the least that a duration of one of the two clocks measures on the other; never negative.
func AtLeast(d time.Duration) time.Duration { return max(0, d-Drift(d)) }

// AtMost is the most that a duration of one of the two clocks measures on the other.
func AtMost(d time.Duration) time.Duration { return d + Drift(d) }

// Lease is one grant in a worker's hands.
type Lease struct {
	// ID names it to the store.
	ID string
	// From and Until are the first and the last instant at which its units may be spent.
	From, Until instant.Instant
	left        int64
	uses        []Use
}

// Use is units spent not after an instant.
type Use struct {
	At    instant.Instant
	Units int64
}

// New gives the lease of a grant that was asked for by a call sent, and answered at received. It may be empty-handed: where
// the answer took longer than the lease lasts, Until lies before From and nothing can be spent.
func New(id string, units int64, sent, received instant.Instant, startIn, endIn time.Duration) *Lease {
	l := &Lease{ID: id, From: received, Until: sent.Add(AtLeast(endIn)), left: max(0, units)}
	if startIn > 0 {
		l.From = received.Add(AtMost(startIn))
	}
	return l
}

// Left gives the units not spent yet.
func (l *Lease) Left() int64 { return l.left }

// Free gives the units that may be spent at an instant.
func (l *Lease) Free(now instant.Instant) int64 {
	if now < l.From || now > l.Until {
		return 0
	}
	return l.left
}

// Over says that nothing of it can be spent any more.
func (l *Lease) Over(now instant.Instant) bool {
	return l.left == 0 || now > l.Until || l.Until < l.From
}

// Spend takes up to units, and gives how many it took.
func (l *Lease) Spend(now instant.Instant, units int64) int64 {
	units = min(units, l.Free(now))
	if units <= 0 {
		return 0
	}
	l.left -= units
	// Uses less than 1/60 of the lease apart are told as one, at the later instant: a score may be too high, never too low.
	width := l.Until.Sub(l.From)/(MaxUses-4) + time.Microsecond
	if n := len(l.uses); n > 0 {
		last := &l.uses[n-1]
		slot := func(at instant.Instant) time.Duration { return at.Sub(l.From) / width }
		if slot(last.At) == slot(now) || n == MaxUses {
			last.At = max(last.At, now)
			last.Units += units
			return units
		}
	}
	l.uses = append(l.uses, Use{At: now, Units: units})
	return units
}

// Retired is a lease that the worker is through with, until its report has been acknowledged.
type Retired struct {
	ID string
	// Uses holds at most MaxUses.
	Uses   []Use
	Unused int64
}

// Retire ends the lease: what is left is never spent, and what was spent is told.
func (l *Lease) Retire() Retired {
	r := Retired{ID: l.ID, Uses: l.uses, Unused: l.left}
	l.left, l.uses, l.Until = 0, nil, l.From-1
	return r
}

// Age gives how long ago a use was, as it is told to the store at an instant: not longer than it was on the store's clock,
// in whole microseconds.
func (u Use) Age(now instant.Instant) time.Duration { return AtLeast(now.Sub(u.At)) }
