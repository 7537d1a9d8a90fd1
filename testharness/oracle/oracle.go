// Package oracle has the limiters that all others are checked against, one for each algorithm: every charge that was ever
// made, kept in a list and summed anew for each question. They are obvious, slow, and share no code with what they check.
//
// Instants are durations since an origin of the caller's choice. They may have any resolution, but those of one Limiter
// or one judgement come from one clock.
package oracle

import (
	"math/big"
	"slices"
	"time"
)

// Rate is at most Units within every half-open interval (s − Window, s].
type Rate struct {
	Units  int64
	Window time.Duration
}

// Limiter is the exact sliding log of one key, under all of its rates. Nothing is ever pruned.
type Limiter struct {
	rates []Rate
	// parts, where it is not 0, is into how many buckets a window is divided.
	parts int

	ledger
}

// ledger is every charge that was ever made.
type ledger struct {
	charges []charge
	grants  int
}

// charge is units that may be spent until score. Of a grant that has not been settled, grant is its number; else 0.
type charge struct {
	grant int
	lease bool
	call  string
	units int64
	score time.Duration
}

// New gives the limiter of a key that nothing has been charged to.
func New(rates ...Rate) *Limiter { return &Limiter{rates: rates} }

// NewBuckets gives a limiter that divides each window into so many buckets of whole microseconds since 1970, which is the
// origin then: what may be spent within a bucket counts as if it were spent at its end.
func NewBuckets(parts int, rates ...Rate) *Limiter { return &Limiter{rates: rates, parts: parts} }

// leaves is when a charge has left a window.
func (l *Limiter) leaves(c charge, window time.Duration) time.Duration {
	if l.parts == 0 {
		return c.score + window
	}
	width := (window / time.Duration(l.parts)).Truncate(time.Microsecond)
	end := c.score.Truncate(width)
	if end < c.score {
		end += width
	}
	return end + window
}

// Grant is what a reserve is given.
type Grant struct {
	// Number names the grant to Settle; 0 where Units is 0.
	Number     int
	Units      int64
	Start, End time.Duration
	// Denied: another Min within Want was not to be had. The rest says when it could be.
	Denied bool
	// Never: Min is more than a rate holds.
	Never bool
	// RetryAt is the first instant at which Min is free if nothing more is charged. DenyUntil is how long nobody needs to
	// ask.
	RetryAt, DenyUntil time.Duration
}

// Reserve asks for a multiple of least, at most want, in all rates or none. With a ttl of 0 it is a strict charge; else a
// lease, which may start as late as horizon from now where nothing is free yet.
func (l *Limiter) Reserve(now time.Duration, call string, want, least int64, ttl, horizon time.Duration) Grant {
	grant := Grant{Start: now}
	grant.Units = multiple(min(want, l.free(now)), least)
	if start, ok := l.firstFree(now, least, l.charges); grant.Units == 0 && ttl > 0 && ok && start <= now+horizon {
		grant.Start = start
		grant.Units = multiple(min(want, l.free(start)), least)
	}
	grant.End = grant.Start + ttl
	if grant.Units > 0 {
		l.charge(&grant, call, ttl > 0)
	} else {
		grant.Start, grant.End = now, now
	}
	if want-grant.Units >= least {
		l.deny(&grant, now, l.rates, func(rates []Rate, charges []charge) (time.Duration, bool) {
			return (&Limiter{rates: rates, parts: l.parts}).firstFree(now, least, charges)
		})
	}
	return grant
}

func multiple(n, of int64) int64 {
	if n < of {
		return 0
	}
	return n - n%of
}

// charge notes a grant, and numbers it.
func (l *ledger) charge(grant *Grant, call string, lease bool) {
	l.grants++
	grant.Number = l.grants
	l.charges = append(l.charges, charge{grant: grant.Number, lease: lease, call: call, units: grant.Units, score: grant.End})
}

// deny says when what is not granted could be had. soonest gives the first instant at which some rates have it, under some
// charges; false: never.
func (l *ledger) deny(grant *Grant, now time.Duration, rates []Rate, soonest func([]Rate, []charge) (time.Duration, bool)) {
	grant.Denied = true
	retryAt, ok := soonest(rates, l.charges)
	if !ok {
		grant.Never = true
		grant.RetryAt, grant.DenyUntil = now, now
		return
	}
	grant.RetryAt = retryAt
	var certain []charge // what no worker can give back
	for _, c := range l.charges {
		if c.grant == 0 || !c.lease {
			certain = append(certain, c)
		}
	}
	certainly, _ := soonest(rates, certain)
	var window, latest time.Duration // of the rate that denies for the longest
	for i, rate := range rates {
		at, _ := soonest(rates[i:i+1], l.charges)
		if i == 0 || at > latest {
			window, latest = rate.Window, at
		}
	}
	pause := max(20*time.Millisecond, min(time.Second, window/20))
	grant.DenyUntil = min(retryAt, max(certainly, now+pause))
}

// used is Σ units of charges with score > at − window.
func (l *Limiter) used(charges []charge, at, window time.Duration) int64 {
	var sum int64
	for _, c := range charges {
		if l.leaves(c, window) > at {
			sum += c.units
		}
	}
	return sum
}

// free is what all rates have left at an instant, if nothing more is charged until then.
func (l *Limiter) free(at time.Duration) int64 { return l.freeOf(at, l.charges) }

func (l *Limiter) freeOf(at time.Duration, charges []charge) int64 {
	free := l.rates[0].Units
	for _, rate := range l.rates {
		free = min(free, rate.Units-l.used(charges, at, rate.Window))
	}
	return free
}

// firstFree tries every instant from now on at which a charge leaves a window.
func (l *Limiter) firstFree(now time.Duration, least int64, charges []charge) (at time.Duration, ok bool) {
	instants := []time.Duration{now}
	for _, c := range charges {
		for _, rate := range l.rates {
			if leaves := l.leaves(c, rate.Window); leaves > now {
				instants = append(instants, leaves)
			}
		}
	}
	slices.Sort(instants)
	for _, at := range instants {
		if l.freeOf(at, charges) >= least {
			return at, true
		}
	}
	return 0, false
}

// Use is units spent at an instant.
type Use struct {
	At    time.Duration
	Units int64
}

// Settle says when a grant's units were spent, and how many never will be. What it does not say keeps its score; what it
// says too much is left out, the units given back first, then the earliest uses. Only the first of a grant counts.
func (l *Limiter) Settle(number int, uses []Use, unused int64) {
	i := slices.IndexFunc(l.charges, func(c charge) bool { return number != 0 && c.grant == number })
	if i < 0 {
		return
	}
	whole := l.charges[i]
	l.charges = slices.Delete(l.charges, i, i+1)
	uses = slices.Clone(uses)
	slices.SortFunc(uses, func(a, b Use) int { return int(b.At - a.At) })
	left := whole.units
	for _, use := range uses {
		units := min(left, use.Units)
		left -= units
		l.charges = append(l.charges, charge{units: units, score: min(use.At, whole.score)})
	}
	left -= min(left, unused)
	l.charges = append(l.charges, charge{units: left, score: whole.score})
}

// Cancel removes what a call was granted and has not been settled.
func (l *ledger) Cancel(call string) {
	l.charges = slices.DeleteFunc(l.charges, func(c charge) bool { return c.grant != 0 && c.call == call })
}

// Record charges units whatever the limit.
func (l *ledger) Record(uses []Use) {
	for _, use := range uses {
		l.charges = append(l.charges, charge{units: use.Units, score: use.At})
	}
}

// Reset forgets everything.
func (l *ledger) Reset() { l.charges = nil }

// State is how one rate stands.
type State struct {
	Rate      Rate
	Remaining int64
	// Reset is how long it takes until the window is empty, if nothing more is charged.
	Reset time.Duration
}

// States gives a state for each rate.
func (l *Limiter) States(now time.Duration) []State {
	var states []State
	for _, rate := range l.rates {
		state := State{Rate: rate, Remaining: max(0, rate.Units-l.used(l.charges, now, rate.Window))}
		for _, c := range l.charges {
			if c.units > 0 {
				state.Reset = max(state.Reset, l.leaves(c, rate.Window)-now)
			}
		}
		states = append(states, state)
	}
	return states
}

// Least gives the state with the smallest remaining share of its units, the earlier where two are equal.
func (l *Limiter) Least(now time.Duration) State { return least(l.States(now)) }

func least(states []State) State {
	return slices.MinFunc(states, func(a, b State) int { return a.share().Cmp(b.share()) })
}

func (s State) share() *big.Rat {
	if s.Rate.Units == 0 {
		return new(big.Rat)
	}
	return big.NewRat(s.Remaining, s.Rate.Units)
}
