package authority

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"sluice/shared/instant"
	"sluice/shared/limit"
)

// How leases are sized. No choice here can break the guarantee, which the store keeps; they trade calls against units that
// lie idle in somebody's hands. Tuned with testharness/sim.
const (
	// A lease lasts from W/shortTTL, where little is free, to W/longTTL, where all is; and within [minTTL, maxTTL]. Where
	// little is free a worker spends it in about half of that: units that are left over at its end lay idle for all of it.
	// The bounds are for the time at the worker: its way to the service comes on top.
	shortTTL = 5
	longTTL  = 2
	minTTL   = 20 * time.Millisecond
	maxTTL   = 5 * time.Second
	// minScheduledTTL is two of the workers' ticks: a lease that starts later has to be noticed.
	minScheduledTTL = 40 * time.Millisecond
	// A lease may start so far ahead: W/horizonShare, at most maxHorizon.
	horizonShare = 2
	maxHorizon   = 5 * time.Second
	// A batch is a request's cost and L/batchShare divided by the active workers, for two requests at least: of so many
	// units each lease that starts later is made. A larger one saves calls and lies idle for longer, for a worker spends it
	// no faster than it is asked.
	batchShare = 30
	// leastShare: a limit of fewer requests is charged strictly, and one of fewer requests a worker is where little is free or the
	// window is longer than longWindow; leases would lie idle.
	leastShare = 20
	longWindow = time.Minute
	// lossShare: a token bucket may miss one unit in lossShare of its burst while a lease is out.
	lossShare = 10
	// scarceShare: with less than L/scarceShare free, leases are given out in equal batches, as units become free.
	scarceShare = 4
	// activeFor bounds how long a worker that asked for a key counts as active there; a window at most.
	activeFor = 30 * time.Second
	// maxRound bounds what a worker's way to the service may add to a lease.
	maxRound = time.Second
	// maxSized and maxActive bound what is remembered: keys, and workers of one key.
	maxSized  = 65_536
	maxActive = 4096
)

// sizing is what the service remembers of keys to size their leases: who asks for them, and how they last stood. It is a
// guess; another replica's workers are not in it.
type sizing struct {
	mu   sync.Mutex
	keys *simplelru.LRU[string, *sized]
}

func newSizing() sizing {
	keys, err := simplelru.NewLRU[string, *sized](maxSized, nil)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return sizing{keys: keys}
}

// sized is what is remembered of one key.
type sized struct {
	active map[uint64]instant.Instant
	// state is how the key stood at an instant.
	known     bool
	state     State
	at        instant.Instant
	lastSwept instant.Instant
}

// asker is a worker, and how long an answer takes it: for so long a lease cannot be spent.
type asker struct {
	worker uint64
	round  time.Duration
}

// plan is how much to ask of the store for one ask, and on which terms. Of least or more units the store gives what there
// is; a lease of fewer is not worth a call.
type plan struct {
	want, least  int64
	ttl, horizon time.Duration
}

func (s *sizing) of(name string) *sized {
	if k, known := s.keys.Get(name); known {
		return k
	}
	k := &sized{active: map[uint64]instant.Instant{}}
	s.keys.Add(name, k)
	return k
}

// plan sizes a lease for a worker whose paused requests need so many units, and that expects to spend so many on top; each
// request costs cost. Without anything on top, or where a share of what is free is less than the paused requests need, it
// is a strict charge for those alone.
func (s *sizing) plan(key Key, now instant.Instant, who asker, paused, ahead, cost int64) plan {
	strict := plan{want: paused, least: cost}
	s.mu.Lock()
	k := s.of(key.Name)
	workers := k.workers(now, who.worker, key.Rates)
	rate, free := k.free(now, key.Rates)
	lossless := k.lossless(now, key)
	s.mu.Unlock()
	if tooSmall(rate) || tooFew(key.Rates, workers, cost) || lossless < minTTL+who.round {
		return strict
	}
	p := sizeLease(rate, free, workers, who, paused, ahead, cost)
	p.ttl = min(p.ttl, lossless)
	return p
}

// sizeLease is plan for a limit that may be leased, whose scarcest rate has so many units free.
func sizeLease(rate limit.Rate, free, workers int64, who asker, paused, ahead, cost int64) plan {
	strict := plan{want: paused, least: cost}
	if free > rate.Most()/scarceShare {
		want := min(paused+ahead, free/(2*workers))
		want -= want % cost
		if want <= paused {
			return strict
		}
		headroom := min(1, 2*float64(free)/float64(rate.Most()))
		ttl := rate.Window/shortTTL + time.Duration(headroom*float64(rate.Window/longTTL-rate.Window/shortTTL))
		return plan{want: want, least: cost, ttl: clamp(ttl, minTTL+who.round, maxTTL+who.round), horizon: 0}
	}
	batch := min(max(cost+rate.Units/(batchShare*workers), 2*cost), paused+ahead, rate.Most()/2)
	batch -= batch % cost
	if batch <= cost || rate.Units/workers < leastShare*cost {
		return strict
	}
	want := min(max(batch, free/(2*workers)), paused+ahead)
	return plan{
		want: want / batch * batch, least: batch,
		ttl: clamp(rate.Window/shortTTL, minScheduledTTL+who.round, maxTTL+who.round), horizon: min(rate.Window/horizonShare, maxHorizon),
	}
}

// tooSmall says whether a token bucket has no room for leases: half of it flows in sooner than a lease lasts. What the store
// cut to a strict charge would be lost beyond what is paused.
func tooSmall(rate limit.Rate) bool {
	return rate.Burst > 0 && float64(rate.Burst)*float64(rate.Window) < float64(rate.Units)*float64(2*minScheduledTTL)
}

// tooFew says whether a limit has too few requests to lease any ahead of need: a unit that lies in one worker's hands is missed
// by the others, and for long where a window is long.
func tooFew(rates []limit.Rate, workers, cost int64) bool {
	for _, rate := range rates {
		asking := int64(1)
		if rate.Window > longWindow {
			asking = workers
		}
		if rate.Most()/asking < leastShare*cost {
			return true
		}
	}
	return false
}

func clamp(d, low, high time.Duration) time.Duration { return min(max(d, low), high) }

// note remembers how a key stood after an operation.
func (s *sizing) note(name string, now instant.Instant, state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.of(name)
	k.known, k.state, k.at = true, state, now
}

// workers counts the workers that asked for the key lately, this one included.
func (k *sized) workers(now instant.Instant, worker uint64, rates []limit.Rate) int64 {
	within := activeFor
	for _, rate := range rates {
		within = min(within, rate.Window)
	}
	if now.Sub(k.lastSwept) > within/4 {
		k.lastSwept = now
		for id, last := range k.active {
			if now.Sub(last) > within {
				delete(k.active, id)
			}
		}
	}
	if _, is := k.active[worker]; is || len(k.active) < maxActive {
		k.active[worker] = now
	}
	return max(1, int64(len(k.active)))
}

// lossless is for how long a lease may last without a loss that matters. A token bucket's units count as spent when their lease
// ends, until it is settled: what would flow in until then, once the bucket is full, is missing until then, to those who ask
// meanwhile for good. It is not full before what is known to be missing has flowed in; and one unit in lossShare may be missing.
func (k *sized) lossless(now instant.Instant, key Key) time.Duration {
	longest := maxTTL + maxRound
	if key.Algorithm != limit.TokenBucket {
		return longest
	}
	for _, rate := range key.Rates {
		if rate.Units == 0 {
			return 0
		}
		lasts := inflow(rate, rate.Most()/lossShare)
		if k.known && k.state.Rate.Window == rate.Window {
			missing := rate.Most() - k.state.Remaining - 1 // the last of them may be a part
			lasts = max(lasts, inflow(rate, missing)-now.Sub(k.at))
		}
		longest = min(longest, lasts)
	}
	return longest.Truncate(time.Microsecond) // as stores count
}

// inflow is how long it takes for so many units to flow into a token bucket.
func inflow(rate limit.Rate, units int64) time.Duration {
	return time.Duration(float64(units) * float64(rate.Window) / float64(rate.Units))
}

// free guesses what is free now, of the rate that was the scarcest last time. What was charged then has left the window
// after a whole one.
func (k *sized) free(now instant.Instant, rates []limit.Rate) (limit.Rate, int64) {
	rate := rates[0]
	for _, r := range rates {
		if k.known && r.Window == k.state.Rate.Window {
			rate = r
		}
	}
	if !k.known || now.Sub(k.at) >= rate.Window {
		return rate, rate.Most()
	}
	return rate, min(k.state.Remaining, rate.Most())
}
