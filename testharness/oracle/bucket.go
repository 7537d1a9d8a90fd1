package oracle

import (
	"math/big"
	"slices"
	"time"
)

// TokenBucket is the generic cell rate algorithm, in exact fractions: of each rate an instant, full, at which the bucket is
// full again. Where something comes back, that is counted anew from all that was ever charged and has not come back.
type TokenBucket struct {
	ledger

	rates []Rate
	// burst of each rate, in units.
	burst []int64
	// full is in microseconds.
	full []*big.Rat
}

// NewTokenBucket gives a full bucket for each rate. A burst of 0 is the rate's units. Of rates with one window the one
// with the fewest units fills all of their buckets.
func NewTokenBucket(burst int64, rates ...Rate) *TokenBucket {
	b := &TokenBucket{rates: rates}
	for _, rate := range rates {
		most := burst
		if most == 0 {
			most = rate.Units
		}
		b.burst = append(b.burst, most)
	}
	b.Reset()
	return b
}

// Reserve asks for a multiple of least, at most want, in all rates or none. Units come before time: a lease lasts only as
// long as its units, spent at its end, would be within the burst; one that starts later than now at least a moment.
func (b *TokenBucket) Reserve(now time.Duration, call string, want, least int64, ttl, horizon time.Duration) Grant {
	grant := Grant{Start: now, End: now}
	grant.Units = multiple(min(want, b.free(now)), least)
	if grant.Units > 0 {
		grant.End = b.leaseEnd(now, ttl, grant.Units, 0)
		if grant.End-now < min(ttl, shortest) {
			grant.End = now
		}
	}
	if start, ok := b.firstFree(now, least); grant.Units == 0 && ttl > 0 && ok && start <= now+horizon {
		units := multiple(min(want, b.free(start)), least)
		if end := b.leaseEnd(start, ttl, units, shortest); end-start >= min(ttl, shortest) {
			grant.Start, grant.End, grant.Units = start, end, units
		}
	}
	if grant.Units > 0 {
		b.charge(&grant, call, grant.End > grant.Start)
		b.take(b.charges[len(b.charges)-1])
	}
	if want-grant.Units >= least {
		retryAt, ok := b.firstFree(now, least)
		grant.Denied, grant.Never, grant.RetryAt = true, !ok, retryAt
		if !ok {
			grant.RetryAt = now
		}
		grant.DenyUntil = grant.RetryAt
	}
	return grant
}

// emission is the microseconds in which so many units flow in: of the rate, or the slowest with its window.
func (b *TokenBucket) emission(of Rate, units int64) *big.Rat {
	if b.slowest(of) == 0 {
		return new(big.Rat)
	}
	return new(big.Rat).Mul(ratio(units, 1), ratio(of.Window.Microseconds(), b.slowest(of)))
}

func (b *TokenBucket) slowest(of Rate) int64 {
	slowest := of.Units
	for _, rate := range b.rates {
		if rate.Window == of.Window {
			slowest = min(slowest, rate.Units)
		}
	}
	return slowest
}

// used is the units that have not flowed in again: as many as would be lacking at the instant, rounded up.
func (b *TokenBucket) used(i int, at time.Duration) int64 {
	lacking := new(big.Rat).Sub(b.full[i], ratio(at.Microseconds(), 1))
	if lacking.Sign() <= 0 || b.slowest(b.rates[i]) == 0 {
		return 0
	}
	return roundUp(lacking.Quo(lacking, b.emission(b.rates[i], 1)))
}

func (b *TokenBucket) free(at time.Duration) int64 {
	free := b.burst[0]
	for i := range b.rates {
		if b.rates[i].Units == 0 {
			return 0
		}
		free = min(free, b.burst[i]-b.used(i, at))
	}
	return free
}

// leaseEnd is the latest instant within ttl at which units may still be spent: end + units·T ≤ start + burst·T, or the least
// that a lease lasts.
func (b *TokenBucket) leaseEnd(start, ttl time.Duration, units int64, lasts time.Duration) time.Duration {
	for i, rate := range b.rates {
		spare := roundDown(b.emission(rate, b.burst[i]-units))
		ttl = min(ttl, max(lasts, time.Duration(spare)*time.Microsecond))
	}
	return start + ttl
}

// firstFree is the first instant from now on at which full + least·T ≤ instant + burst·T in every rate.
func (b *TokenBucket) firstFree(now time.Duration, least int64) (at time.Duration, ok bool) {
	at = now
	for i, rate := range b.rates {
		if rate.Units == 0 || b.burst[i] < least {
			return 0, false
		}
		free := new(big.Rat).Sub(b.full[i], b.emission(rate, b.burst[i]-least))
		at = max(at, time.Duration(roundUp(free))*time.Microsecond)
	}
	return at, true
}

// Settle says when a grant's units were spent, and how many never will be: those come back. Where it says it of all of them,
// they count as spent with the last of them, else at the grant's end. What it says too much is left out, the units given
// back first, then the earliest uses. Only the first of a grant counts.
func (b *TokenBucket) Settle(number int, uses []Use, unused int64) {
	i := slices.IndexFunc(b.charges, func(c charge) bool { return number != 0 && c.grant == number })
	if i < 0 {
		return
	}
	c := &b.charges[i]
	spent, last := int64(0), time.Duration(-1<<62)
	for _, use := range uses {
		if use.Units > 0 {
			spent, last = spent+use.Units, max(last, use.At)
		}
	}
	spent = min(spent, c.units)
	kept := c.units - spent - min(c.units-spent, unused)
	c.grant, c.units = 0, spent+kept
	if kept == 0 {
		c.score = min(c.score, last)
	}
	if c.units == 0 {
		b.charges = slices.Delete(b.charges, i, i+1)
	}
	b.anew()
}

// Cancel takes back what a call was granted and has not been settled.
func (b *TokenBucket) Cancel(call string) {
	b.ledger.Cancel(call)
	b.anew()
}

// Record takes units out whatever the limit.
func (b *TokenBucket) Record(uses []Use) {
	from := len(b.charges)
	b.ledger.Record(uses)
	for _, c := range b.charges[from:] {
		b.take(c)
	}
}

// take counts a charge: full' = max(full, score) + units·T.
func (b *TokenBucket) take(c charge) {
	for i, rate := range b.rates {
		if at := ratio(c.score.Microseconds(), 1); b.full[i].Cmp(at) < 0 {
			b.full[i] = at
		}
		b.full[i] = new(big.Rat).Add(b.full[i], b.emission(rate, c.units))
	}
}

// anew counts every charge anew, in their order.
func (b *TokenBucket) anew() {
	b.full = nil
	for range b.rates {
		b.full = append(b.full, ratio(-1<<50, 1))
	}
	for _, c := range b.charges {
		b.take(c)
	}
}

// Reset fills every bucket.
func (b *TokenBucket) Reset() {
	b.ledger.Reset()
	b.anew()
}

// States gives a state for each rate. Its reset is when the bucket is full, rounded up to the microsecond.
func (b *TokenBucket) States(now time.Duration) []State {
	var states []State
	for i, rate := range b.rates {
		states = append(states, State{
			Rate: rate, Remaining: max(0, b.burst[i]-b.used(i, now)),
			Reset: max(0, time.Duration(roundUp(b.full[i]))*time.Microsecond-now),
		})
	}
	return states
}

// Least gives the state with the smallest remaining share of its units, the earlier where two are equal.
func (b *TokenBucket) Least(now time.Duration) State { return least(b.States(now)) }

// MostMissing is the most units, rounded up, that are missing at any admission from a bucket that is full at first and fills
// at a rate: with a burst of as many, no interval has more than the burst and what flows in meanwhile. The admissions are in
// their order, each certainly made once it was answered.
func MostMissing(admissions []Interval, rate Rate) int64 {
	var missing, most int64 // in units × nanoseconds of the window
	for i, a := range admissions {
		if i > 0 {
			missing -= min(missing, rate.Units*int64(a.Answered-admissions[i-1].Answered))
		}
		missing += a.Units * int64(rate.Window)
		most = max(most, missing)
	}
	return (most + int64(rate.Window) - 1) / int64(rate.Window)
}
