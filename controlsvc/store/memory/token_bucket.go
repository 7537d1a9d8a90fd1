package memory

import (
	"slices"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// tokenBuckets is the token bucket, as the generic cell rate algorithm. What was granted does not come back: a bucket does
// not know what it would be without it.
type tokenBuckets struct{ buckets []*tokenBucket }

var _ count = (*tokenBuckets)(nil)

// tokenBucket is the bucket of one window: the instant at which it is full again, full and part/parts of a microsecond, so that
// a rate which does not divide its window is exact all the same.
//
// A grant counts as spent at its end, all of it: full + units·T ≤ start + burst·T, and then full' = max(full, end) + units·T,
// T = window ÷ units.
type tokenBucket struct {
	length      time.Duration
	full        instant.Instant
	part, parts int64
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

// take lets a tokenBucket be full later, whatever its burst.
func (b *tokenBucket) take(r limit.Rate, at instant.Instant, units int64) {
	if b.full < at {
		b.full, b.part = at, 0
	}
	if r.Units == 0 {
		return
	}
	micros, part := inflow(r, units)
	b.full, b.part = b.full+instant.Instant(micros), b.part+part
	if b.part >= r.Units {
		b.full, b.part = b.full+1, b.part-r.Units
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
	if b.part > 0 && b.parts != r.Units { // another rate than it was: no sooner full
		b.full, b.part = b.full+1, 0
	}
	b.parts = r.Units
	return b
}

// view implements strictCount.
func (t *tokenBuckets) view(r limit.Rate, _ instant.Instant) window { return t.bucket(r) }

// spend implements strictCount.
func (t *tokenBuckets) spend(rates []limit.Rate, units int64, at, now instant.Instant) error {
	return t.takeAll(rates, []instant.Instant{at}, []int64{units}, now)
}

// grant implements count.
func (t *tokenBuckets) grant(g store.Grant, rates []limit.Rate, end, now instant.Instant) error {
	return t.takeAll(rates, []instant.Instant{end}, []int64{g.Units}, now)
}

// record implements count.
func (t *tokenBuckets) record(groups []authority.Use, rates []limit.Rate, now instant.Instant) error {
	at, units := make([]instant.Instant, len(groups)), make([]int64, len(groups))
	for i := range groups {
		g := groups[len(groups)-1-i] // the oldest are the last
		at[i], units[i] = now.Add(-g.Age), g.Units
	}
	return t.takeAll(rates, at, units, now)
}

func (t *tokenBuckets) takeAll(rates []limit.Rate, at []instant.Instant, units []int64, now instant.Instant) error {
	var sum int64
	for _, n := range units {
		sum += n
	}
	buckets := t.of(rates)
	for i, b := range buckets {
		if !b.holds(rates[i], sum, now) {
			return errFull
		}
	}
	for i, b := range buckets {
		for j := range at {
			b.take(rates[i], at[j], units[j])
		}
	}
	return nil
}

// settle implements count: nothing comes back.
func (*tokenBuckets) settle(store.Grant, string, []authority.Use, int64, instant.Instant) {}

// cancel implements count: nothing comes back.
func (*tokenBuckets) cancel(string, string, instant.Instant) {}

// leases implements count.
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
