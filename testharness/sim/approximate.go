package sim

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"

	"sluice/shared/instant"
	"sluice/shared/limit"
)

// approximate says whether an algorithm has a bound of its own, above the limit's.
func approximate(a limit.Algorithm) bool {
	return a == limit.FixedWindow || a == limit.SlidingWindowCounter || a == limit.TokenBucket
}

// approximate holds what was admitted under the approximate algorithms against the bounds that they have:
//   - a fixed window, and the counter's as well, holds at most the limit, so that any window holds twice that at most;
//   - under the counter without leases, what is inside and the share of the window before that a window which ends now
//     overlaps is at most the limit, whenever a unit is spent;
//   - a token bucket lets at most its burst through, and what flows in meanwhile, in every interval.
func (j *judge) approximate() {
	for _, k := range slices.SortedFunc(maps.Keys(j.spent), compareKeys) {
		all, l := j.spent[k], j.run.limit(k.limit)
		if !approximate(l.Algorithm) || j.run.isAsync(k.limit) {
			continue
		}
		for i, rate := range l.Rates {
			most := j.run.allowed(k.limit, i)
			if l.Algorithm == limit.TokenBucket {
				j.bucket(k, all, rate, most)
				continue
			}
			strict := l.Mode == limit.Strict && l.Algorithm == limit.SlidingWindowCounter
			j.windows(k, all, rate, most, strict)
		}
	}
}

// compareKeys orders keys, so that a run complains in one order.
func compareKeys(a, b boundKey) int {
	return cmp.Or(cmp.Compare(a.limit, b.limit), cmp.Compare(a.key, b.key))
}

// windows judges windows aligned to 1970; weighted also by the counter's estimate.
func (j *judge) windows(k boundKey, all []instant.Instant, rate limit.Rate, most int64, weighted bool) {
	length := rate.Window.Microseconds()
	counts := map[int64]int64{}
	for _, at := range all {
		number := int64(at) / length
		counts[number]++
		count := counts[number]
		j.run.figures.Worst = max(j.run.figures.Worst, float64(count)/float64(most))
		if count > most {
			j.complain("%d units of %s/%s in the fixed window of %v that %v is in, %d are allowed",
				count, k.limit, k.key, rate.Window, at.Sub(origin), most)
		}
		left := (number+1)*length - int64(at)
		if estimate := count + (counts[number-1]*left+length-1)/length; weighted && estimate > most {
			j.complain("the counter of %s/%s over %v comes to %d at %v, %d are allowed", k.limit, k.key, rate.Window, estimate, at.Sub(origin), most)
		}
	}
}

// bucket judges every interval from one admission to another: at most the burst, and what flows in meanwhile.
func (j *judge) bucket(k boundKey, all []instant.Instant, rate limit.Rate, units int64) {
	burst := float64(units)
	if rate.Burst > 0 { // where the rate changes, or is another one in a plan, it is so much time of the slowest
		burst = float64(rate.Burst) * float64(units) / float64(j.run.slowest(k.limit))
	}
	const rounding = 1e-6 // units; a microsecond of what the simulation draws is more
	missing, last := 0.0, instant.Instant(0)
	for _, at := range all {
		missing = max(0, missing-float64(at.Sub(last))/float64(rate.Window)*float64(units)) + 1
		last = at
		j.run.figures.Worst = max(j.run.figures.Worst, missing/burst)
		if missing > burst+rounding {
			j.complain("%.4f units of %s/%s are missing from a bucket of %g at %v, into which %d flow per %v",
				missing, k.limit, k.key, burst, at.Sub(origin), units, rate.Window)
			return
		}
	}
}

// slowest is the least units that the first rate of a limit has in the run.
func (r *run) slowest(name string) int64 {
	units := r.rates(name)[0].Units
	if name != r.scenario.Limits[0].Name {
		return units
	}
	for _, other := range []int64{r.scenario.ChangeTo, r.scenario.Paid} {
		if other > 0 {
			units = min(units, other)
		}
	}
	return units
}

// drawAlgorithm has some limits counted approximately, by chances of its own: what else a seed stands for stays. Not those
// whose requests are decided by the count; and where requests are held under two limits, only a bucket: with units of this
// window and of the next in both, a later one may pass some earlier ones, seldom.
func (s *Scenario) drawAlgorithm() {
	r := rand.New(rand.NewPCG(s.Seed, 0xb0c4))
	for i := range s.Limits {
		l := &s.Limits[i]
		if l.Mode == limit.Async || r.IntN(4) > 0 {
			continue
		}
		l.Algorithm = []limit.Algorithm{limit.FixedWindow, limit.SlidingWindowCounter, limit.TokenBucket}[r.IntN(3)]
		if l.MaxWait > 0 && len(s.Limits) > 1 {
			l.Algorithm = limit.TokenBucket
		}
		if l.Algorithm == limit.TokenBucket && len(l.Rates) == 1 && r.IntN(2) == 0 {
			l.Rates = slices.Clone(l.Rates)
			l.Rates[0].Burst = l.RequestCost() + r.Int64N(2*l.Rates[0].Units)
		}
	}
}
