package wasmhost

import (
	"container/heap"
	"time"
)

// clock is the time of one Host: a monotonic clock that only Advance moves, and
// a wall clock that runs along with it from wherever it was last set.
type clock struct {
	mono time.Duration
	// wallAtZero is the wall clock's reading where the monotonic one is zero.
	wallAtZero time.Time
	queue      eventQueue
	seq        uint64
}

// event is something that happens at an instant of the monotonic clock.
type event struct {
	due time.Duration
	seq uint64
	run func()
	at  int // its place in the queue, outOfQueue once it has left
}

const outOfQueue = -1

// cancel takes the event back, unless it has happened. It may be nil.
func (c *clock) cancel(e *event) {
	if e != nil && e.at != outOfQueue {
		heap.Remove(&c.queue, e.at)
	}
}

func (c *clock) wall() time.Time { return c.wallAtZero.Add(c.mono) }

func (c *clock) setWall(t time.Time) { c.wallAtZero = t.Add(-c.mono) }

// after schedules run. Events of the same instant happen in the order in which
// they were scheduled. A negative delay is none.
func (c *clock) after(d time.Duration, run func()) *event {
	e := &event{due: c.mono + max(d, 0), seq: c.seq, run: run}
	c.seq++
	heap.Push(&c.queue, e)
	return e
}

// next takes the first event that is due by the instant, nil if there is none.
func (c *clock) next(until time.Duration) *event {
	if len(c.queue) == 0 || c.queue[0].due > until {
		return nil
	}
	return heap.Pop(&c.queue).(*event)
}

// nextDue is the instant of the first event.
func (c *clock) nextDue() (time.Duration, bool) {
	if len(c.queue) == 0 {
		return 0, false
	}
	return c.queue[0].due, true
}

type eventQueue []*event

func (q eventQueue) Len() int { return len(q) }

func (q eventQueue) Less(i, j int) bool {
	if q[i].due != q[j].due {
		return q[i].due < q[j].due
	}
	return q[i].seq < q[j].seq
}

func (q eventQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *eventQueue) Push(x any) {
	e := x.(*event)
	e.at = len(*q)
	*q = append(*q, e)
}

func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	e.at = outOfQueue
	return e
}
