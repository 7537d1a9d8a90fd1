package authority

import (
	"time"

	"sluice/shared/instant"
	"sluice/shared/lease"
	"sluice/shared/limit"
)

// A limit with max_wait has its requests held until units are free (RATIONALE.md, max_wait). For requests that are paused a
// lease may start as late as they may wait. Leases ahead of need are granted of what is free now only: what becomes free
// later goes to the requests that wait for it, in the order in which their workers ask.
const (
	// A lease for requests that are held is spent when it starts. It lasts for W/heldShare, within [minHeldTTL, maxHeldTTL]:
	// long enough for a worker to wake up, and short, since what starts a window later starts after its end, for nobody
	// knows yet when it will be spent. Only where everything that is waited for was spent and settled before, with a max_wait
	// of less than W/longWait, does that not matter.
	heldShare  = 40
	minHeldTTL = 8 * time.Millisecond
	maxHeldTTL = time.Second
	longWait   = 2
	// driftShare is for what two clocks may differ by until it starts: the start told late and the end early, ρ each.
	driftShare = lease.DriftShare / 2
)

// heldFor is how long units come back after they were spent: a window, or, one by one, into a token bucket.
func heldFor(key Key, rate limit.Rate) time.Duration {
	if key.Algorithm == limit.TokenBucket && rate.Units > 0 {
		return rate.Window / time.Duration(rate.Units)
	}
	return rate.Window
}

// held makes a plan one for a limit that holds its requests back for up to wait. Where units are scarce a worker is given at
// most a fair share of what becomes free in that time.
func (s *sizing) held(p plan, key Key, now instant.Instant, who asker, wait time.Duration, paused, cost int64) plan {
	if paused == 0 {
		p.horizon = 0
		return p
	}
	s.mu.Lock()
	k := s.of(key.Name)
	rate, _ := k.free(now, key.Rates)
	workers := max(1, int64(len(k.active)))
	s.mu.Unlock()
	scarce := p.ttl == 0 || p.horizon > 0
	p.horizon = wait
	if !scarce || rate.Units < cost {
		return p
	}
	if p.ttl == 0 || wait >= rate.Window/longWait {
		p.ttl = clamp(heldFor(key, rate)/heldShare, minHeldTTL+who.round, maxHeldTTL+who.round) + wait/driftShare
		p.ttl = p.ttl.Truncate(time.Microsecond) // as stores count
	}
	freed := int64(float64(rate.Units) * min(1, float64(wait)/float64(rate.Window)))
	p.want = max(cost, min(p.want, freed/workers/cost*cost))
	p.least = min(p.least, p.want)
	p.want -= p.want % p.least
	return p
}
