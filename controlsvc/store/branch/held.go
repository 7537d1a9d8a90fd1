package branch

import (
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/instant"
	"sluice/shared/lease"
)

// held is a lease of the replica's own.
type held struct {
	// lease says from when until when units may be spent. None is spent of it: left are those that are given to nobody.
	lease *lease.Lease
	left  int64
	// out are the sub-leases that are not settled.
	out int
	// uses are units spent not after an instant, by the part of the lease that it lies in.
	uses  [lease.MaxUses]lease.Use
	width time.Duration
}

// sub is what a worker was given of a lease.
type sub struct {
	of         *held
	call, part string
	units      int64
	// strict says that the units were spent at last, by requests that waited. Else last is the last instant at which the
	// worker may spend one, by this replica's clock.
	strict bool
	last   instant.Instant
	// at is when it was given.
	at instant.Instant
}

func newHeld(l *lease.Lease, units int64) *held {
	return &held{lease: l, left: units, width: l.Until.Sub(l.From)/lease.MaxUses + time.Microsecond}
}

// spent notes units that were spent at an instant, or earlier.
func (h *held) spent(at instant.Instant, units int64) {
	if units <= 0 {
		return
	}
	use := &h.uses[min(max(0, at.Sub(h.lease.From)/h.width), lease.MaxUses-1)]
	use.At = max(use.At, at)
	use.Units += units
}

// takeBack has a sub-lease end that none of is spent any more. Uses are as the worker reported them now.
func (h *held) takeBack(s *sub, uses []authority.Use, unused int64, now instant.Instant) {
	if !s.strict {
		h.out--
	}
	rest := s.units
	for _, u := range uses {
		n := min(u.Units, rest)
		h.spent(min(now.Add(-u.Age), s.last), n)
		rest -= n
	}
	unused = min(unused, rest)
	h.left += unused
	h.spent(s.last, rest-unused)
}

// over says that no unit of the lease may be given to anybody any more.
func (h *held) over(now instant.Instant) bool { return h.left == 0 || now > h.lease.Until }

// report gives the settle of a lease that nobody spends any more.
func (h *held) report(key authority.Key, now instant.Instant) authority.Settle {
	s := authority.Settle{Key: key, Lease: h.lease.ID, Unused: h.left}
	for _, u := range h.uses {
		// What may still be spent keeps the lease's own score.
		if u.Units > 0 && u.At <= now {
			s.Uses = append(s.Uses, authority.Use{Age: u.Age(now), Units: u.Units})
		}
	}
	return s
}
