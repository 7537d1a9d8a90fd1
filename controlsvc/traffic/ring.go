package traffic

import (
	"math/bits"

	"sluice/shared/instant"
)

const microsPerSecond = 1_000_000

// ring keeps something for each of the last steps of time, in a fixed space.
type ring[T any] struct {
	step   int64 // seconds
	newest int64 // the number of the newest step since 1970; the one before it lies before it in the ring
	slots  []T
}

func newRing[T any](step, length int64) ring[T] { return ring[T]{step: step, slots: make([]T, length)} }

// number gives the number of the step that an instant lies in.
func (r *ring[T]) number(at instant.Instant) int64 { return int64(at) / microsPerSecond / r.step }

// at gives the step that an instant lies in, for what is to be counted in it. reset empties the slots of steps that begin.
func (r *ring[T]) at(now instant.Instant, reset func(*T)) *T {
	n, length := r.number(now), int64(len(r.slots))
	for i := max(r.newest+1, n-length+1); i <= n; i++ {
		reset(&r.slots[i%length])
	}
	r.newest = max(r.newest, n)
	return r.slot(n)
}

// slot gives a step by its number, which is not above that of the newest; of what is older than the ring it is the oldest.
func (r *ring[T]) slot(number int64) *T {
	length := int64(len(r.slots))
	return &r.slots[max(number, r.newest-length+1)%length]
}

// each visits the steps from the one that begins at the second from, oldest first, with the second that each begins at.
func (r *ring[T]) each(from int64, visit func(second int64, slot *T)) {
	length := int64(len(r.slots))
	for i := max(from/r.step, r.newest-length+1, 0); i <= r.newest; i++ {
		visit(i*r.step, &r.slots[i%length])
	}
}

// cell is counts in little space, in the order of columns; a count that is too large stays the largest.
type cell [columns]uint32

// columns is how many numbers there are of a step: those of Counts, and the calls.
const columns = 8

// columns gives the counts as a cell has them.
func (c *Counts) columns(calls int64) [columns]int64 {
	return [columns]int64{c.Admitted, c.Denied, c.Left, c.ShadowAdmitted, c.ShadowDenied, c.Near, c.Fallback, calls}
}

func (c *cell) add(column int, n int64) { c[column] = uint32(min(int64(c[column])+n, 1<<32-1)) }

func (c *cell) wide() (counts Counts, calls int64) {
	return Counts{
		Admitted: int64(c[0]), Denied: int64(c[1]), Left: int64(c[2]), ShadowAdmitted: int64(c[3]), ShadowDenied: int64(c[4]),
		Near: int64(c[5]), Fallback: int64(c[6]),
	}, int64(c[7])
}

func empty[T any](slot *T) {
	var zero T
	*slot = zero
}

// timeline is a series of counts: by second for five minutes, by minute for a day.
type timeline struct{ seconds, minutes ring[cell] }

func newTimeline() *timeline {
	return &timeline{seconds: newRing[cell](1, 5*60), minutes: newRing[cell](60, 24*60)}
}

// add counts what happened evenly between two instants. A worker that was cut off reports minutes at once, of many limits:
// so a step takes a few additions.
func (l *timeline) add(from, to instant.Instant, c Counts, calls int64) {
	// What took longer than the finer ring is long is counted as if it had not.
	last := l.seconds.number(to)
	parts := min(max(last-l.seconds.number(from)+1, 1), int64(len(l.seconds.slots)))
	l.seconds.at(to, empty)
	l.minutes.at(to, empty)
	var spreads [columns]spread
	used := spreads[:0]
	for column, n := range c.columns(calls) {
		if n != 0 {
			used = append(used, spread{column: column, each: n / parts, rest: n % parts})
		}
	}
	for i := last - parts + 1; i <= last; i++ {
		second, minute := l.seconds.slot(i), l.minutes.slot(i/60)
		for j := range used {
			n := used[j].next(parts)
			second.add(used[j].column, n)
			minute.add(used[j].column, n)
		}
	}
}

// spread divides a number into parts that differ by one at most, and the sum of the first ones of which is never too large.
type spread struct {
	column           int
	each, rest, over int64
}

// next gives the next of so many parts.
func (s *spread) next(parts int64) int64 {
	if s.over += s.rest; s.over >= parts {
		s.over -= parts
		return s.each + 1
	}
	return s.each
}

const (
	// A histogram has four buckets for each doubling of a duration in microseconds, up to 67 s.
	perDoubling      = 4
	histogramBuckets = 25 * perDoubling
)

// histogram counts durations; see bucketOf.
type histogram [histogramBuckets]uint32

// bucketOf gives the bucket of a duration in microseconds. Durations below 4 µs have a bucket each; from there on a bucket's
// width is a quarter of the power of two that it begins at or after.
func bucketOf(micros int64) int {
	micros = max(micros, 0)
	if micros < perDoubling {
		return int(micros)
	}
	doubling := bits.Len64(uint64(micros)) - 3 // 0 for 4 to 7
	return min(perDoubling*(doubling+1)+int(micros>>doubling)-perDoubling, histogramBuckets-1)
}

// bucketMiddle is a duration in microseconds that is off by at most an eighth from any in the bucket, but the last one.
func bucketMiddle(bucket int) int64 {
	if bucket < perDoubling {
		return int64(bucket)
	}
	doubling := bucket/perDoubling - 1
	least := int64(perDoubling+bucket%perDoubling) << doubling
	return least + (int64(1)<<doubling)/2
}

// latencies are two histograms for each step of time: 10 s for five minutes, a minute for a day.
type latencies struct{ fine, coarse ring[histogram] }

func newLatencies() latencies {
	return latencies{fine: newRing[histogram](10, 30), coarse: newRing[histogram](60, 24*60)}
}

func (l *latencies) add(now instant.Instant, micros int64) {
	bucket := bucketOf(micros)
	for _, slot := range []*histogram{l.fine.at(now, empty), l.coarse.at(now, empty)} {
		if slot[bucket] < 1<<32-1 {
			slot[bucket]++
		}
	}
}
