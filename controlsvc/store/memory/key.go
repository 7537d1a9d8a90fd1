package memory

import (
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// id is what a key is found by: under another algorithm it is another count.
type id struct {
	name      string
	algorithm limit.Algorithm
}

func idOf(k authority.Key) id { return id{k.Name, k.Algorithm} }

// key is what is charged to one key.
type key struct {
	id    id
	count count
	// minted is the last grant's.
	minted instant.Instant

	// Where the key stands in its shard: see shard.
	expires      instant.Instant
	place        int
	newer, older *key
}

func (k *key) reserve(r authority.Reserve, now instant.Instant) authority.Reserved {
	asked := request{rates: store.Windows(r.Key.Rates), want: r.Want, least: r.Min, ttl: r.TTL, now: now}
	asked.windows = k.count.windows(asked.rates, now)
	start := now
	units, end := asked.free(start)
	if units == 0 && r.TTL > 0 && r.Horizon > 0 {
		at, never := asked.soonest()
		if !never && at.all <= now.Add(r.Horizon) {
			start = at.all
			units, end = asked.free(start)
		}
	}
	var out authority.Reserved
	if units > 0 {
		g := store.Grant{Kind: store.Strict, Call: r.Call, Part: r.Part, Units: units}
		if end > now {
			g.Kind = store.Lease
		}
		// Two grants may fall into one microsecond, and a clock may step back; a name is never given twice all the same.
		g.Minted = max(now, k.minted+1)
		if err := k.count.grant(g, asked.rates, end, now); err != nil {
			return authority.Reserved{Err: err}
		}
		k.minted = g.Minted
		out = authority.Reserved{Lease: g.Name(), Units: units, StartIn: start.Sub(now), EndIn: end.Sub(now)}
	}
	if r.Want-units >= r.Min {
		out.Denied = true
		if at, never := asked.soonest(); never {
			out.Denial.Never = true
		} else {
			out.Denial = store.Denial(at.all.Sub(now), at.certain.Sub(now), at.window)
		}
	}
	out.State = store.Least(r.Key.Rates, asked.rates, standings(asked.windows, asked.rates, now))
	return out
}

// request is what a reserve asks of the windows of its rates.
type request struct {
	rates       []limit.Rate
	windows     []window
	want, least int64
	ttl         time.Duration
	now         instant.Instant
}

// free gives how many units all rates have for a grant from start, and when it ends. A lease that is too short is a strict
// charge, or nothing.
func (r *request) free(start instant.Instant) (units int64, end instant.Instant) {
	end = start.Add(r.ttl)
	units = r.want
	for i, w := range r.windows {
		units = min(units, w.free(r.rates[i], start, end))
	}
	if units < r.least {
		return 0, start
	}
	units -= units % r.least
	for i, w := range r.windows {
		end = w.lasts(r.rates[i], units, start, end, start > r.now)
	}
	switch {
	case end.Sub(start) >= min(r.ttl, store.Shortest):
		return units, end
	case start == r.now:
		return units, start
	}
	return 0, start
}

// frees is when units will be free in all rates.
type frees struct {
	// all counts every charge, certain none of leases, which may come back.
	all, certain instant.Instant
	// window is that of the rate which is the last to have them free.
	window time.Duration
}

// soonest gives when the least units are free; never, where a rate does not hold so many.
func (r *request) soonest() (at frees, never bool) {
	for i, rate := range r.rates {
		if r.least > rate.Most() {
			return frees{}, true
		}
		all, certain := r.windows[i].soonest(rate, r.least, r.ttl, r.now)
		if i == 0 || all > at.all {
			at.all, at.window = all, rate.Window
		}
		at.certain = max(at.certain, certain)
	}
	return at, false
}

func standings(windows []window, rates []limit.Rate, now instant.Instant) []store.Standing {
	out := make([]store.Standing, len(windows))
	for i, w := range windows {
		out[i] = w.standing(rates[i], now)
	}
	return out
}

func (k *key) settle(s authority.Settle, now instant.Instant) {
	if grant, ok := store.ParseGrant(s.Lease); ok {
		k.count.settle(grant, s.Lease, s.Uses, s.Unused, now)
	}
}

func (k *key) record(r authority.Record, now instant.Instant) error {
	return k.count.record(store.Group(r.Uses), store.Windows(r.Key.Rates), now)
}
