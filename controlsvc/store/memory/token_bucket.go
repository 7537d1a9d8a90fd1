package memory

import (
	"slices"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// tokenBuckets is the token bucket, as the generic cell rate algorithm.
type tokenBuckets struct{ buckets []*tokenBucket }

var _ count = (*tokenBuckets)(nil)

// tokenBucket is the bucket of one window.
//
// A grant counts as spent at its end, all of it: full + units·T ≤ start + burst·T, and then full' = max(full, end) + units·T,
// T = window ÷ units.
type tokenBucket struct {
	length time.Duration
	level
	// parts is the units of the rate that the level is of.
	parts int64
	// known are the last charges, in their order, at most store.MostKnown, and before is the level before the first of them. The
	// level does not tell what it would be without one of them: what comes back is taken out here, and the others are
	// charged anew.
	known  []bucketCharge
	before level
}

// level is the instant at which a bucket is full again, full and part/parts of a microsecond, so that a rate which does not
// divide its window is exact all the same.
type level struct {
	full instant.Instant
	part int64
}

// bucketCharge is a grant, or units that count as they are, and the instant at which they count as spent.
type bucketCharge struct {
	store.Grant

	at instant.Instant
}

// maxFull bounds how far ahead a tokenBucket's fullness can be, in microseconds, to count with: 35 years.
const maxFull = 1 << 50

// inflow gives in how many microseconds so many units flow in, rounded down, and the parts that are missing.
func inflow(r limit.Rate, units int64) (micros, part int64) {
	return divide(units, r.Window.Microseconds(), r.Units)
}

func (b *tokenBucket) usedAt(r limit.Rate, at instant.Instant) int64 {
	if r.Units == 0 || b.full < at {
		return 0
	}
	window := r.Window.Microseconds()
	units, rest := divide(int64(b.full-at), r.Units, window)
	return units + (rest+b.part+window-1)/window
}

// take lets a bucket be full later, whatever its burst.
func (l *level) take(r limit.Rate, at instant.Instant, units int64) {
	if l.full < at {
		l.full, l.part = at, 0
	}
	if r.Units == 0 {
		return
	}
	micros, part := inflow(r, units)
	l.full, l.part = l.full+instant.Instant(micros), l.part+part
	if l.part >= r.Units {
		l.full, l.part = l.full+1, l.part-r.Units
	}
}

// rate is what the level is of; its burst is not known.
func (b *tokenBucket) rate() limit.Rate { return limit.Rate{Units: b.parts, Window: b.length} }

// charge takes units out, and knows of them. Where a bucket has been full for a window, nothing before matters; and what
// is only recorded matters to what is known before it.
func (b *tokenBucket) charge(c bucketCharge, now instant.Instant) {
	if b.full.Add(b.length) <= now {
		b.known = nil
	}
	switch n := len(b.known); {
	case n == 0 && c.Kind == store.Recorded:
		b.take(b.rate(), c.at, c.Units)
		return
	case n == 0:
		b.before = b.level
	case n == store.MostKnown:
		for _, old := range b.known[:n/2] {
			b.before.take(b.rate(), old.at, old.Units)
		}
		b.known = slices.Delete(b.known, 0, n/2)
	}
	b.known = append(grown(b.known), c)
	b.take(b.rate(), c.at, c.Units)
}

// change has known charges changed, or taken back where nothing remains of them.
func (b *tokenBucket) change(remains func(*bucketCharge)) {
	changed := false
	for i := range b.known {
		was := b.known[i]
		remains(&b.known[i])
		changed = changed || b.known[i] != was
	}
	if !changed {
		return
	}
	b.known = slices.DeleteFunc(b.known, func(c bucketCharge) bool { return c.Units == 0 })
	b.level = b.before
	for _, c := range b.known {
		b.take(b.rate(), c.at, c.Units)
	}
}

// holds says whether so many units more can be counted with.
func (b *tokenBucket) holds(r limit.Rate, units int64, now instant.Instant) bool {
	return r.Units == 0 ||
		float64(b.full-now)+float64(units+1)*float64(r.Window.Microseconds())/float64(r.Units) <= maxFull
}

func (b *tokenBucket) emptyAt() instant.Instant {
	if b.part > 0 {
		return b.full + 1
	}
	return b.full
}

// free implements window.
func (b *tokenBucket) free(r limit.Rate, start, _ instant.Instant) int64 {
	return r.Most() - b.usedAt(r, start)
}

// soonest implements window.
func (b *tokenBucket) soonest(r limit.Rate, units int64, _ time.Duration, now instant.Instant) (all, certain instant.Instant) {
	micros, part := inflow(r, r.Most()-units)
	at := b.full - instant.Instant(micros)
	if b.part > part {
		at++
	}
	at = max(now, at)
	return at, at
}

// lasts implements window. What ends while the units that the bucket keeps back flow in delays nothing after it. A lease that
// starts later may be a little longer, or a bucket of one unit would have none.
func (*tokenBucket) lasts(r limit.Rate, units int64, start, end instant.Instant, later bool) instant.Instant {
	if r.Units == 0 {
		return end
	}
	micros, _ := inflow(r, r.Most()-units)
	longest := start + instant.Instant(micros)
	if later {
		longest = max(longest, start.Add(store.Shortest))
	}
	return min(end, longest)
}

// standing implements window.
func (b *tokenBucket) standing(r limit.Rate, now instant.Instant) store.Standing {
	return store.Standing{Used: b.usedAt(r, now), Reset: max(0, b.emptyAt().Sub(now))}
}

// clock implements count.
func (*tokenBuckets) clock(read instant.Instant) instant.Instant { return read }

// windows implements count.
func (t *tokenBuckets) windows(rates []limit.Rate, _ instant.Instant) []window {
	view := make([]window, len(rates))
	for i, b := range t.of(rates) {
		view[i] = b
	}
	return view
}

// of gives the rates' buckets; those that are not there are made, full.
func (t *tokenBuckets) of(rates []limit.Rate) []*tokenBucket {
	buckets := make([]*tokenBucket, len(rates))
	for i, r := range rates {
		buckets[i] = t.bucket(r)
	}
	return buckets
}

func (t *tokenBuckets) bucket(r limit.Rate) *tokenBucket {
	at := slices.IndexFunc(t.buckets, func(b *tokenBucket) bool { return b.length == r.Window })
	if at < 0 {
		at = len(t.buckets)
		t.buckets = append(t.buckets, &tokenBucket{length: r.Window})
	}
	b := t.buckets[at]
	if b.parts != r.Units { // another rate than it was: no sooner full, and nothing comes back
		if b.part > 0 {
			b.full, b.part = b.full+1, 0
		}
		b.parts, b.known = r.Units, nil
	}
	return b
}

// view implements strictCount.
func (t *tokenBuckets) view(r limit.Rate, _ instant.Instant) window { return t.bucket(r) }

// spend implements strictCount.
func (t *tokenBuckets) spend(rates []limit.Rate, units int64, at, now instant.Instant) error {
	return t.charge([]bucketCharge{{Grant: store.Grant{Kind: store.Recorded, Units: units}, at: at}}, rates, now)
}

// grant implements count.
func (t *tokenBuckets) grant(g store.Grant, rates []limit.Rate, end, now instant.Instant) error {
	return t.charge([]bucketCharge{{Grant: g, at: end}}, rates, now)
}

// record implements count.
func (t *tokenBuckets) record(groups []authority.Use, rates []limit.Rate, now instant.Instant) error {
	charges := make([]bucketCharge, 0, len(groups))
	for _, g := range slices.Backward(groups) { // the oldest are the last
		charges = append(charges, bucketCharge{Grant: store.Grant{Kind: store.Recorded, Units: g.Units}, at: now.Add(-g.Age)})
	}
	return t.charge(charges, rates, now)
}

func (t *tokenBuckets) charge(charges []bucketCharge, rates []limit.Rate, now instant.Instant) error {
	var sum int64
	for _, c := range charges {
		sum += c.Units
	}
	buckets := t.of(rates)
	for i, b := range buckets {
		if !b.holds(rates[i], sum, now) {
			return errFull
		}
	}
	for _, b := range buckets {
		for _, c := range charges {
			b.charge(c, now)
		}
	}
	return nil
}

// settle implements count. The units that were spent count as spent with the last of them.
func (t *tokenBuckets) settle(granted store.Grant, _ string, uses []authority.Use, unused int64, now instant.Instant) {
	groups, kept := store.Divide(granted.Units, uses, unused)
	for _, b := range t.buckets {
		b.change(func(c *bucketCharge) {
			if c.Grant != granted {
				return
			}
			if kept == 0 && len(groups) > 0 {
				c.at = min(c.at, now.Add(-groups[0].Age))
			}
			c.Grant = store.Grant{Kind: store.Settled, Units: kept}
			for _, g := range groups {
				c.Units += g.Units
			}
		})
	}
}

// cancel implements count.
func (t *tokenBuckets) cancel(call, part string, _ instant.Instant) {
	for _, b := range t.buckets {
		b.change(func(c *bucketCharge) {
			if c.Call == call && (part == "" || c.Part == part) {
				c.Units = 0
			}
		})
	}
}

// leases implements count: they are not told.
func (*tokenBuckets) leases(instant.Instant) []liveLease { return nil }

// reset implements count.
func (t *tokenBuckets) reset(rates []limit.Rate) {
	t.buckets = slices.DeleteFunc(t.buckets, func(b *tokenBucket) bool {
		return slices.ContainsFunc(rates, func(r limit.Rate) bool { return r.Window == b.length })
	})
}

// emptyAt implements count: a window after the bucket is full, for records of what was before.
func (t *tokenBuckets) emptyAt(now instant.Instant) instant.Instant {
	at := now
	for _, b := range t.buckets {
		at = max(at, b.emptyAt().Add(b.length))
	}
	return at
}
