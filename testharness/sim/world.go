// Package sim runs whole Sluices in virtual time: workers with the real filter core, a network that delays, loses, repeats
// and reorders, the real authority and a real store, crashes, restarts and drifting clocks, all from one seed. Everything
// that was admitted is judged by the rules of the guarantee (RATIONALE.md).
//
// One run is one goroutine of events in the order of their time, so that a seed gives the same run each time.
package sim

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"sluice/shared/instant"
)

// world is the time and the chance of one run. Its clock is the store's.
type world struct {
	now    instant.Instant
	random *rand.Rand
	queue  events
	serial uint64
}

// origin is where the store's clock begins, in 2025.
const origin instant.Instant = 1_750_000_000_000_000

func newWorld(seed uint64) *world {
	return &world{now: origin, random: rand.New(rand.NewPCG(seed, 0x51_1c_e5))}
}

// after runs f when the time has come; what is due at one instant runs in the order in which it was asked for.
func (w *world) after(d time.Duration, f func()) {
	w.serial++
	heap.Push(&w.queue, event{at: w.now.Add(max(0, d)), serial: w.serial, run: f})
}

// runUntil runs what is due up to an instant, and stops there.
func (w *world) runUntil(end instant.Instant) {
	for len(w.queue) > 0 && w.queue[0].at <= end {
		next := heap.Pop(&w.queue).(event)
		w.now = next.at
		next.run()
	}
	w.now = end
}

// chance is true with the probability p.
func (w *world) chance(p float64) bool { return p > 0 && w.random.Float64() < p }

// spread gives a duration with an exponential distribution.
func (w *world) spread(mean time.Duration) time.Duration {
	return time.Duration(w.random.ExpFloat64() * float64(mean))
}

// between gives a duration within [low, high).
func (w *world) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(w.random.Int64N(int64(high-low)))
}

type event struct {
	at     instant.Instant
	serial uint64
	run    func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].serial < q[j].serial
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = event{}
	*q = (*q)[:last]
	return x
}
