package branch

import (
	"slices"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/lease"
	"sluice/shared/limit"
)

// How leases are bought. No choice here can break the guarantee; they trade calls of the store against units that lie idle.
// Tuned with testharness/sim.
const (
	// worthAsks: a lease that is bought where little is free has to stand for so many asks, or they go to the store themselves.
	worthAsks = 2
	// scarceShare: little is free where less than L/scarceShare is, as in the authority's own sizes.
	scarceShare = 4
	// With much free a lease is what is asked for within W/aheadShare, so that hardly any of it waits to be asked for.
	aheadShare = 8
	// A lease lasts for longer than a sub-lease of it, so that several can be given one after the other.
	longer    = 3
	longerBy  = 2
	strictTTL = 5 // W/strictTTL, where paused requests are all that is asked for
	minTTL    = 40 * time.Millisecond
	maxTTL    = 5 * time.Second
	// maxHorizon is as in the authority's own sizes.
	horizonShare = 2
	maxHorizon   = 5 * time.Second

	// Asks are counted for a period; a key stays hot while it has half of what made it so.
	period = 250 * time.Millisecond
	// maxDenial bounds for how long a denial is remembered: somebody may reset the key.
	maxDenial = time.Second
	// A denial until a lease starts stands for W/leastDenial at least.
	leastDenial = 40
	// maxLeases and maxSubs bound what is held of one key.
	maxLeases = 64
	maxSubs   = 4096
	// firstTrust is how many sub-leases may be out before one was settled. Each that is settled allows for one more, and each
	// that is not halves them, down to none for a while: workers that go to another replica with every call settle them where
	// nobody knows them, and then it is better that the store itself leases to them.
	firstTrust = 8
	leastTrust = 2
	distrust   = 30 * time.Second
)

// key is what is known of a key that is asked for.
type key struct {
	of      authority.Key
	holding bool // it is in its shard's list
	// Asks and units wanted since began, and the same by the second in the last period.
	began          instant.Instant
	asks, wanted   int64
	asked, demands int64
	hot            bool
	// state is how the key stood in the store at an instant.
	state standing
	// leases are those that units may be given of, or that are not settled; subs are the sub-leases of them that are not.
	leases []*held
	subs   map[string]*sub
	// buying is closed when a lease that is being bought is there.
	buying chan struct{}
	// denials are the store's last ones: of units now, of units within a horizon, and of a lease to divide.
	denials [denials]denial
	// out are the sub-leases of leases that are held, and trust is how many there may be; 0: none until again.
	out, trust int
	again      instant.Instant
	// part is this replica's part of all workers.
	part float64
}

// standing is how a key stood at an instant.
type standing struct {
	authority.State

	at    instant.Instant
	known bool
}

// Which denial is which.
const (
	ofNow = iota
	ofHorizon
	ofLease
	denials
)

// denial is one of the store's: so many units, for as far ahead, are not to be had.
type denial struct {
	min     int64
	horizon time.Duration
	until   instant.Instant
	// standsTill is until when the store's own denial stands, which may be later.
	standsTill, retryAt instant.Instant
}

// count takes an ask into account.
func (k *key) count(now instant.Instant, wanted, hotAsks int64) {
	k.asks++
	k.wanted += wanted
	passed := now.Sub(k.began)
	if passed < period {
		if !k.hot && k.asks*int64(time.Second) >= hotAsks*int64(period) {
			k.hot, k.asked, k.demands = true, perSecond(k.asks, period), perSecond(k.wanted, period)
		}
		return
	}
	k.asked, k.demands = perSecond(k.asks, passed), perSecond(k.wanted, passed)
	least := hotAsks
	if k.hot {
		least /= 2
	}
	k.hot = k.asked >= least
	k.began, k.asks, k.wanted = now, 0, 0
}

func perSecond(n int64, in time.Duration) int64 {
	return int64(float64(n) * float64(time.Second) / float64(in))
}

// same says whether two keys are counted and limited alike.
func same(a, b authority.Key) bool {
	return a.Algorithm == b.Algorithm && slices.Equal(a.Rates, b.Rates)
}

// verdict is what there is to do for a reserve that is not served out of what is held.
type verdict int

const (
	byItself verdict = iota // the store is asked for it alone
	toBuy                   // a lease is bought, and divided
	denied                  // it is known to be denied
)

// terms says whether to buy a lease for a reserve, and on which terms. Batch is the share of
// the limit that a lease is where little is free.
func (k *key) terms(o *authority.Reserve, now instant.Instant, batch float64) (authority.Reserve, verdict) {
	buy := authority.Reserve{Key: k.of, Min: o.Min}
	if o.TTL > 0 && !k.trusts(now) {
		return buy, byItself
	}
	if k.covers(o, now) != nil || o.TTL == 0 && k.scheduled(o.Min, now) != instant.Never {
		return buy, denied
	}
	if len(k.leases) >= maxLeases || len(k.subs) >= maxSubs {
		return buy, byItself
	}
	rate, free := k.free(now)
	buy.TTL = min(max(o.TTL*longer/longerBy, minTTL), maxTTL)
	if o.TTL == 0 {
		buy.TTL = min(max(rate.Window/strictTTL, minTTL), maxTTL)
	}
	if o.Horizon == 0 && free > rate.Most()/scarceShare {
		expected := int64(float64(k.demands) * (rate.Window / aheadShare).Seconds())
		buy.Want = min(o.Want+expected, int64(float64(free)*k.part/2))
		buy.Want -= buy.Want % o.Min
		if buy.Want < 2*o.Want {
			return buy, byItself
		}
		return buy, toBuy
	}
	units := int64(float64(rate.Most()) * batch)
	units -= units % o.Min
	if now < k.denials[ofLease].until || units < 2*o.Min || float64(k.asked)*rate.Window.Seconds()*batch < worthAsks*k.part {
		return buy, byItself
	}
	buy.Want, buy.Min, buy.Horizon = units, units, min(rate.Window/horizonShare, maxHorizon)
	return buy, toBuy
}

// free guesses what is free in the store, of the rate that was the scarcest last time.
func (k *key) free(now instant.Instant) (limit.Rate, int64) {
	rate := k.of.Rates[0]
	for _, r := range k.of.Rates {
		if k.state.known && r.Window == k.state.Rate.Window {
			rate = r
		}
	}
	if !k.state.known || now.Sub(k.state.at) >= rate.Window {
		return rate, rate.Most()
	}
	return rate, min(k.state.Remaining, rate.Most())
}

// serve answers a reserve out of what is held; where it may be in part, with less than it wants.
func (k *key) serve(p *pending, now instant.Instant, inPart bool, name func() string) bool {
	o := p.operation
	var from *held
	var units int64
	for _, h := range k.leases {
		n := k.gives(h, o, now, inPart)
		if n > units || n == units && n > 0 && h.lease.Until < from.lease.Until {
			from, units = h, n
		}
	}
	if units == 0 {
		return false
	}
	s := &sub{of: from, call: o.Call, part: o.Part, units: units, strict: o.TTL == 0, last: now, at: now}
	r := authority.Reserved{Lease: name(), Units: units}
	if !s.strict {
		start := max(now, from.lease.From)
		r.StartIn, r.EndIn = start.Sub(now), min(start.Add(o.TTL), from.lease.Until).Sub(now)
		s.last = now.Add(lease.AtMost(r.EndIn))
		from.out++
		k.out++
	}
	from.left -= units
	if k.subs == nil {
		k.subs = map[string]*sub{}
	}
	k.subs[r.Lease] = s
	r.State = k.stands(now)
	if o.Want-units >= o.Min {
		r.Denied, r.Denial = true, k.denial(o, now)
	}
	*p.result = r
	return true
}

// gives is how many units a reserve may have of a lease. A sub-lease that starts later starts with the lease.
func (k *key) gives(h *held, o *authority.Reserve, now instant.Instant, inPart bool) int64 {
	start, least := max(now, h.lease.From), min(o.TTL, store.Shortest)
	if !inPart {
		least = max(least, o.TTL/2)
	}
	units := min(o.Want, h.left)
	units -= units % o.Min
	switch {
	case units == 0 || !inPart && o.Want-units >= o.Min || len(k.subs) >= maxSubs,
		start > now && (o.TTL == 0 || start > now.Add(o.Horizon)),
		h.lease.Until < start.Add(least):
		return 0
	}
	return units
}

// stands says how the key stands: as in the store, with what is given to nobody yet.
func (k *key) stands(now instant.Instant) authority.State {
	s := k.state.State
	s.Remaining = min(s.Remaining+k.unspent(now), s.Rate.Most())
	s.Reset = max(0, s.Reset-now.Sub(k.state.at))
	return s
}

// unspent is how many units of the leases may be given to somebody now.
func (k *key) unspent(now instant.Instant) (units int64) {
	for _, h := range k.leases {
		if h.lease.From <= now && now <= h.lease.Until {
			units += h.left
		}
	}
	return units
}

// note takes over what the store answered.
func (k *key) note(o *authority.Reserve, r *authority.Reserved, bought bool, sent, received instant.Instant) {
	k.state = standing{State: r.State, at: received, known: true}
	if !r.Denied || r.Denial.Never {
		return
	}
	d := denial{
		min: o.Min, horizon: o.Horizon, retryAt: received.Add(r.Denial.RetryAfter),
		until:      sent.Add(lease.AtLeast(min(r.Denial.DenyFor, maxDenial))),
		standsTill: sent.Add(lease.AtLeast(r.Denial.DenyFor)),
	}
	switch {
	case o.Horizon == 0:
		k.denials[ofNow] = d
	case bought:
		k.denials[ofLease] = d
	default:
		k.denials[ofHorizon] = d
	}
}

// covers gives the denial that covers a reserve; nil where there is none. Where the store has no lease to divide as far ahead,
// it is not asked for less: what is free then is the next such lease's.
func (k *key) covers(o *authority.Reserve, now instant.Instant) *denial {
	for i := range k.denials {
		d := &k.denials[i]
		if now < d.until && (o.Min >= d.min && o.Horizon <= d.horizon || i == ofLease && o.Horizon > 0) {
			return d
		}
	}
	return nil
}

// scheduled gives when the first lease starts that starts later and has so many units.
func (k *key) scheduled(units int64, now instant.Instant) instant.Instant {
	first := instant.Never
	for _, h := range k.leases {
		if h.lease.From > now && h.left >= units && h.lease.From <= h.lease.Until {
			first = min(first, h.lease.From)
		}
	}
	return first
}

// deny answers a reserve that is known to be denied.
func (k *key) deny(p *pending, now instant.Instant) {
	*p.result = authority.Reserved{State: k.stands(now), Denied: true, Denial: k.denial(p.operation, now)}
}

// denial says when a reserve is to be asked again: when a lease starts, when the store may have more, or soon.
func (k *key) denial(o *authority.Reserve, now instant.Instant) authority.Denial {
	window := k.state.Rate.Window
	if d := k.covers(o, now); d != nil {
		denyFor := d.until.Sub(now)
		if o.Min >= d.min {
			denyFor = d.standsTill.Sub(now) // nobody is to come again before
		}
		return authority.Denial{RetryAfter: max(denyFor, d.retryAt.Sub(now)), DenyFor: denyFor}
	}
	if at := k.scheduled(o.Min, now); at != instant.Never {
		// Many are denied until then, more than it has units for: not all of them are to come back at once.
		return store.Denial(max(at.Sub(now), window/leastDenial), 0, window)
	}
	return store.Denial(store.Shortest, 0, window)
}

// settle takes a sub-lease back that its worker has retired.
func (k *key) settle(o *authority.Settle, now instant.Instant) {
	s, is := k.subs[o.Lease]
	if !is {
		return
	}
	k.takeBack(o.Lease, s, o.Uses, o.Unused, now)
	if !s.strict {
		k.came()
	}
}

func (k *key) takeBack(name string, s *sub, uses []authority.Use, unused int64, now instant.Instant) {
	delete(k.subs, name)
	if !s.strict {
		k.out--
	}
	s.of.takeBack(s, uses, unused, now)
}

// trusts says whether one more sub-lease may be out.
func (k *key) trusts(now instant.Instant) bool {
	if k.trust == 0 && now >= k.again {
		k.trust = firstTrust
	}
	return k.out < k.trust
}

// lost notes a sub-lease that nobody has settled.
func (k *key) lost(now instant.Instant) {
	if k.trust /= 2; k.trust < leastTrust {
		k.trust, k.again = 0, now.Add(distrust)
	}
}

// cancel takes back what a call was given.
func (k *key) cancel(o *authority.Cancel, now instant.Instant) {
	for name, s := range k.subs {
		if s.call == o.Call && (o.Part == "" || s.part == o.Part) {
			k.takeBack(name, s, nil, s.units, now)
		}
	}
}

// patience is for how long after its end a lease waits for the reports of its sub-leases. A worker sends one by itself within
// half a window and 2 s of the sub-lease's end.
func (k *key) patience() time.Duration {
	window := k.of.Rates[0].Window
	for _, r := range k.of.Rates {
		window = min(window, r.Window)
	}
	return min(window/2, 2*time.Second) + 4*minTTL
}

// retire gives the leases that can be settled: nothing of them may be spent any more, or the service ends, and then what may
// be spent keeps the lease's score.
func (k *key) retire(now instant.Instant, end bool) (retired []*held) {
	if now.Sub(k.began) >= 4*period {
		k.hot = false
	}
	kept := k.leases[:0]
	for _, h := range k.leases {
		late := now > h.lease.Until.Add(lease.AtMost(k.patience()))
		if !end && !late && (h.out > 0 || k.hot && !h.over(now)) {
			kept = append(kept, h)
			continue
		}
		for name, s := range k.subs {
			if s.of == h {
				k.takeBack(name, s, nil, 0, now)
				if !s.strict {
					k.lost(now)
				}
			}
		}
		retired = append(retired, h)
	}
	clear(k.leases[len(kept):])
	k.leases = kept
	return retired
}

// came notes a sub-lease that its worker has settled.
func (k *key) came() {
	if k.trust > 0 {
		k.trust = min(k.trust+1, maxSubs)
	}
}
