package oracle

import (
	"math/big"
	"slices"
	"time"
)

// Windows counts in fixed windows, aligned to 1970: a charge is of the window that its score lies in. Of a lease that is the
// window of its start, since it ends with that window. Nothing is ever pruned. Instants are whole microseconds since 1970.
type Windows struct {
	rates []Rate
	// weighted: what is used is the units of the current window and those of the one before, these by its share that a
	// window which ends now still overlaps, rounded up.
	weighted bool

	ledger
}

// NewFixedWindow counts each window by itself.
func NewFixedWindow(rates ...Rate) *Windows { return &Windows{rates: rates} }

// NewSlidingWindowCounter adds the window before, weighted by its overlap.
func NewSlidingWindowCounter(rates ...Rate) *Windows { return &Windows{rates: rates, weighted: true} }

// shortest is how long a lease has to be, or as long as it was asked for: a shorter one would be over before its answer is
// there. What could start now becomes a strict charge instead.
const shortest = 20 * time.Millisecond

// Reserve is as the exact limiter's, but for where a lease ends.
func (w *Windows) Reserve(now time.Duration, call string, want, least int64, ttl, horizon time.Duration) Grant {
	grant := Grant{Start: now, End: now}
	grant.Units = multiple(min(want, w.free(now, w.charges)), least)
	if grant.Units > 0 {
		grant.End = w.leaseEnd(now, ttl)
		if grant.End-now < min(ttl, shortest) {
			grant.End = now
		}
	}
	if start, ok := w.firstFree(now, least, w.charges); grant.Units == 0 && ttl > 0 && ok && start <= now+horizon {
		units, end := multiple(min(want, w.free(start, w.charges)), least), w.leaseEnd(start, ttl)
		if units > 0 && end-start >= min(ttl, shortest) {
			grant.Start, grant.End, grant.Units = start, end, units
		}
	}
	if grant.Units > 0 {
		w.charge(&grant, call, grant.End > now)
	}
	if want-grant.Units >= least {
		w.deny(&grant, now, w.rates, func(rates []Rate, charges []charge) (time.Duration, bool) {
			return (&Windows{rates: rates, weighted: w.weighted}).firstFree(now, least, charges)
		})
	}
	return grant
}

// leaseEnd is the last instant of a lease: within the window of its start, in every rate.
func (w *Windows) leaseEnd(start, ttl time.Duration) time.Duration {
	end := start + ttl
	for _, rate := range w.rates {
		end = min(end, w.startOf(w.index(start, rate)+1, rate)-time.Microsecond)
	}
	return end
}

// index numbers the windows of a rate from 1970 on.
func (w *Windows) index(at time.Duration, rate Rate) int64 {
	return int64(at / rate.Window)
}

func (w *Windows) startOf(index int64, rate Rate) time.Duration {
	return time.Duration(index) * rate.Window
}

func (w *Windows) unitsOf(index int64, rate Rate, charges []charge) int64 {
	var sum int64
	for _, c := range charges {
		if w.index(c.score, rate) == index {
			sum += c.units
		}
	}
	return sum
}

func (w *Windows) used(at time.Duration, rate Rate, charges []charge) int64 {
	index := w.index(at, rate)
	current := w.unitsOf(index, rate, charges)
	if !w.weighted {
		return current
	}
	before := w.unitsOf(index-1, rate, charges)
	left := w.startOf(index+1, rate) - at
	return current + roundUp(new(big.Rat).Mul(ratio(before, 1), ratio(left.Microseconds(), rate.Window.Microseconds())))
}

func (w *Windows) free(at time.Duration, charges []charge) int64 {
	free := w.rates[0].Units
	for _, rate := range w.rates {
		free = min(free, rate.Units-w.used(at, rate, charges))
	}
	return free
}

// firstFree is when the last of the rates is free, each looked at by itself. Of the others one may be taken again by then, by
// a lease that starts later.
func (w *Windows) firstFree(now time.Duration, least int64, charges []charge) (at time.Duration, ok bool) {
	at = now
	for _, rate := range w.rates {
		of, ok := w.firstFreeOf(rate, now, least, charges)
		if !ok {
			return 0, false
		}
		at = max(at, of)
	}
	return at, true
}

// firstFreeOf tries every instant from now on at which less of a rate may be used: where a window begins, and where one
// unit less of the window before counts.
func (w *Windows) firstFreeOf(rate Rate, now time.Duration, least int64, charges []charge) (at time.Duration, ok bool) {
	instants := []time.Duration{now}
	last := w.index(now, rate)
	for _, c := range charges {
		last = max(last, w.index(c.score, rate))
	}
	for index := w.index(now, rate); index <= last+2; index++ {
		instants = append(instants, w.startOf(index, rate))
		before := w.unitsOf(index-1, rate, charges)
		for units := int64(1); w.weighted && units < before; units++ {
			left := new(big.Rat).Mul(ratio(units, before), ratio(rate.Window.Microseconds(), 1))
			instants = append(instants, w.startOf(index+1, rate)-time.Duration(roundDown(left))*time.Microsecond)
		}
	}
	slices.Sort(instants)
	for _, at := range instants {
		if at >= now && rate.Units-w.used(at, rate, charges) >= least {
			return at, true
		}
	}
	return 0, false
}

// Settle gives units back that will never be spent, at most those that are not said to be spent. Only the first of a
// grant counts.
func (w *Windows) Settle(number int, uses []Use, unused int64) {
	for i := range w.charges {
		c := &w.charges[i]
		if number == 0 || c.grant != number {
			continue
		}
		c.grant = 0
		left := c.units
		for _, use := range uses {
			left -= min(left, use.Units)
		}
		c.units -= min(left, unused)
	}
}

// States gives a state for each rate. Its reset is when nothing is used any more.
func (w *Windows) States(now time.Duration) []State {
	var states []State
	for _, rate := range w.rates {
		state := State{Rate: rate, Remaining: max(0, rate.Units-w.used(now, rate, w.charges))}
		for _, c := range w.charges {
			ends := w.index(c.score, rate) + 1
			if w.weighted {
				ends++
			}
			if c.units > 0 {
				state.Reset = max(state.Reset, w.startOf(ends, rate)-now)
			}
		}
		states = append(states, state)
	}
	return states
}

// Least gives the state with the smallest remaining share of its units, the earlier where two are equal.
func (w *Windows) Least(now time.Duration) State { return least(w.States(now)) }

func ratio(a, b int64) *big.Rat { return big.NewRat(a, b) }

func roundDown(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }

func roundUp(r *big.Rat) int64 { return -roundDown(new(big.Rat).Neg(r)) }
