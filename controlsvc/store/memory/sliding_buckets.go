package memory

import (
	"slices"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// slidingBuckets counts every charge as if it could be spent until the end of the bucket that its score lies in. What it
// remembers does not depend on how many units there are, but for the leases that are out.
type slidingBuckets struct{ rings []*bucketWindow }

var _ count = (*slidingBuckets)(nil)

// bucketWindow is one window in buckets.
type bucketWindow struct {
	length, width time.Duration
	// buckets are those that hold something, the first to leave first.
	buckets       []bucket
	units, leased int64
	// pruned is the index up to which buckets have left. Nothing gets into one of them again, whatever the clock does.
	pruned int64
	// live has the grants that may still be settled or cancelled, the oldest first: those of some workers, and strict of the
	// strict ones, which are few.
	live   []liveGrant
	strict int
}

// bucket is the units of one bucket; its index counts buckets since 1970. leased is how many of the units leases have.
type bucket struct {
	index         int64
	units, leased int64
}

// liveGrant is a grant that may still be settled or cancelled, and its bucket's index.
type liveGrant struct {
	grant store.Grant
	index int64
}

// leaves gives when a bucket's units are outside.
func (w *bucketWindow) leaves(index int64) instant.Instant {
	return instant.Instant(index * w.width.Microseconds()).Add(w.length)
}

// edge gives the index up to which buckets are outside at an instant.
func (w *bucketWindow) edge(at instant.Instant) int64 {
	return -ceilDiv(-int64(at.Add(-w.length)), w.width.Microseconds())
}

// ceilDiv divides and rounds up; by is positive.
func ceilDiv(n, by int64) int64 {
	quotient := n / by
	if n%by > 0 {
		quotient++
	}
	return quotient
}

// place gives the bucket of what is charged with a score; false where it has left already.
func (w *bucketWindow) place(score, now instant.Instant) (index int64, inside bool) {
	index = ceilDiv(int64(score), w.width.Microseconds())
	return max(index, w.pruned+1), index > w.edge(now)
}

// find gives where a bucket is, or would be.
func (w *bucketWindow) find(index int64) (place int, found bool) {
	return slices.BinarySearchFunc(w.buckets, index, func(b bucket, index int64) int { return int(b.index - index) })
}

// add charges units, or takes them out; so many of them are a lease's.
func (w *bucketWindow) add(index, units, leased int64) {
	place, found := w.find(index)
	if !found {
		w.buckets = slices.Insert(grown(w.buckets), place, bucket{index: index})
	}
	b := &w.buckets[place]
	b.units, b.leased = b.units+units, b.leased+leased
	w.units, w.leased = w.units+units, w.leased+leased
	if b.units == 0 {
		w.buckets = slices.Delete(w.buckets, place, place+1)
	}
}

// prune takes out the buckets that have left.
func (w *bucketWindow) prune(now instant.Instant) {
	w.pruned = max(w.pruned, w.edge(now))
	gone, leases := 0, false
	for ; gone < len(w.buckets) && w.buckets[gone].index <= w.pruned; gone++ {
		w.units -= w.buckets[gone].units
		w.leased -= w.buckets[gone].leased
		leases = leases || w.buckets[gone].leased > 0
	}
	w.buckets = slices.Delete(w.buckets, 0, gone)
	if leases {
		w.forget(func(l liveGrant) bool { return l.index <= w.pruned })
	}
}

// forget takes grants out of the live ones.
func (w *bucketWindow) forget(gone func(liveGrant) bool) {
	w.live = slices.DeleteFunc(w.live, func(l liveGrant) bool {
		if !gone(l) {
			return false
		}
		if l.grant.Kind == store.Strict {
			w.strict--
		}
		return true
	})
}

// take removes the live grants that are wanted from their buckets, and gives the last of them.
func (w *bucketWindow) take(wanted func(*store.Grant) bool) (taken liveGrant, found bool) {
	w.forget(func(l liveGrant) bool {
		if !wanted(&l.grant) {
			return false
		}
		if l.index > w.pruned {
			taken, found = l, true
			w.add(l.index, -l.grant.Units, -leasedOf(l.grant))
		}
		return true
	})
	return taken, found
}

func leasedOf(g store.Grant) int64 {
	if g.Kind == store.Lease {
		return g.Units
	}
	return 0
}

// note makes a grant one that may be settled or cancelled; of too many strict ones it forgets the older.
func (w *bucketWindow) note(g store.Grant, index int64) {
	w.live = append(grown(w.live), liveGrant{g, index})
	if g.Kind != store.Strict {
		return
	}
	if w.strict++; w.strict < store.MostStrict {
		return
	}
	w.forget(func(l liveGrant) bool { return l.index <= w.pruned })
	if w.strict < store.MostStrict {
		return
	}
	older := w.strict - store.MostStrict/2
	w.forget(func(l liveGrant) bool {
		if l.grant.Kind == store.Strict {
			older--
		}
		return l.grant.Kind == store.Strict && older >= 0
	})
}

// spend charges groups of units where they were spent, at most in a bucket.
func (w *bucketWindow) spend(groups []authority.Use, most int64, now instant.Instant) {
	for _, used := range groups {
		if index, inside := w.place(now.Add(-used.Age), now); inside {
			w.add(min(index, most), used.Units, 0)
		}
	}
}

// free implements window.
func (w *bucketWindow) free(r limit.Rate, start, _ instant.Instant) int64 {
	left := r.Units - w.units
	for _, b := range w.buckets {
		if w.leaves(b.index) > start {
			break
		}
		left += b.units
	}
	return left
}

// soonest implements window.
func (w *bucketWindow) soonest(r limit.Rate, units int64, _ time.Duration, now instant.Instant) (all, certain instant.Instant) {
	room := r.Units - units
	left, sure := w.units, w.units-w.leased
	all, certain = now, now
	for _, b := range w.buckets {
		if left <= room {
			break
		}
		all = w.leaves(b.index)
		if sure > room {
			certain = all
		}
		left, sure = left-b.units, sure-b.units+b.leased
	}
	return all, certain
}

// lasts implements window.
func (*bucketWindow) lasts(_ limit.Rate, _ int64, _, end instant.Instant, _ bool) instant.Instant {
	return end
}

// standing implements window.
func (w *bucketWindow) standing(_ limit.Rate, now instant.Instant) store.Standing {
	return store.Standing{Used: w.units, Reset: w.emptyAt(now).Sub(now)}
}

func (w *bucketWindow) emptyAt(now instant.Instant) instant.Instant {
	if len(w.buckets) == 0 {
		return now
	}
	return w.leaves(w.buckets[len(w.buckets)-1].index)
}

// clock implements count.
func (*slidingBuckets) clock(read instant.Instant) instant.Instant { return read }

// windows implements count.
func (s *slidingBuckets) windows(rates []limit.Rate, now instant.Instant) []window {
	s.prune(now)
	view := make([]window, len(rates))
	for i, r := range rates {
		view[i] = s.window(r.Window, now)
	}
	return view
}

// window gives the window of a length, which is made where it is not there.
func (s *slidingBuckets) window(length time.Duration, now instant.Instant) *bucketWindow {
	for _, w := range s.rings {
		if w.length == length {
			return w
		}
	}
	w := &bucketWindow{length: length, width: limit.BucketWidth(length)}
	w.pruned = w.edge(now)
	s.rings = append(s.rings, w)
	return w
}

func (s *slidingBuckets) prune(now instant.Instant) {
	for _, w := range s.rings {
		w.prune(now)
	}
	s.rings = slices.DeleteFunc(s.rings, func(w *bucketWindow) bool { return w.units == 0 })
}

// grant implements count.
func (s *slidingBuckets) grant(g store.Grant, rates []limit.Rate, end, now instant.Instant) error {
	for _, r := range rates {
		if len(s.window(r.Window, now).live) >= store.MaxCharges {
			return errFull
		}
	}
	for _, r := range rates {
		w := s.window(r.Window, now)
		index, _ := w.place(end, now) // it ends now or later, so it is inside
		w.add(index, g.Units, leasedOf(g))
		w.note(g, index)
	}
	return nil
}

// settle implements count.
func (s *slidingBuckets) settle(g store.Grant, _ string, uses []authority.Use, unused int64, now instant.Instant) {
	s.prune(now)
	groups, kept := store.Divide(g.Units, uses, unused)
	for _, w := range s.rings {
		taken, found := w.take(func(other *store.Grant) bool { return other.Minted == g.Minted && *other == g })
		if !found {
			continue
		}
		w.spend(groups, taken.index, now)
		if kept > 0 {
			w.add(taken.index, kept, 0)
		}
	}
}

// cancel implements count.
func (s *slidingBuckets) cancel(call, part string, now instant.Instant) {
	s.prune(now)
	for _, w := range s.rings {
		w.take(func(g *store.Grant) bool { return call == g.Call && (part == "" || part == g.Part) })
	}
}

// record implements count.
func (s *slidingBuckets) record(groups []authority.Use, rates []limit.Rate, now instant.Instant) error {
	s.prune(now)
	var sum int64
	for _, used := range groups {
		sum += used.Units
	}
	for _, r := range rates {
		if s.window(r.Window, now).units+sum > store.MaxHeld {
			return errFull
		}
	}
	for _, r := range rates {
		s.window(r.Window, now).spend(groups, 1<<62, now)
	}
	return nil
}

// reset implements count.
func (s *slidingBuckets) reset(rates []limit.Rate) {
	s.rings = slices.DeleteFunc(s.rings, func(w *bucketWindow) bool {
		return slices.ContainsFunc(rates, func(r limit.Rate) bool { return r.Window == w.length })
	})
}

// leases implements count.
func (s *slidingBuckets) leases(now instant.Instant) []liveLease {
	ends := map[store.Grant]instant.Instant{}
	for _, w := range s.rings {
		for _, l := range w.live {
			end := w.leaves(l.index).Add(-w.length)
			if known, is := ends[l.grant]; l.grant.Kind == store.Lease && end > now && (!is || end < known) {
				ends[l.grant] = end
			}
		}
	}
	live := make([]liveLease, 0, len(ends))
	for g, end := range ends {
		live = append(live, liveLease{g, end})
	}
	return live
}

// emptyAt implements count.
func (s *slidingBuckets) emptyAt(now instant.Instant) instant.Instant {
	at := now
	for _, w := range s.rings {
		at = max(at, w.emptyAt(now))
	}
	return at
}
