package oracle

import (
	"container/heap"
	"slices"
	"time"
)

// Interval is an admission as its client saw it: it left at Left and was answered at Answered, and in between the limiter
// admitted Units. A client that cannot tell has Left = Answered.
type Interval struct {
	Left, Answered time.Duration
	Units          int64
}

// WorstWindow is the largest sum of units, over all instants s, of admissions that left after s − window and were answered
// by s: those were certainly admitted within (s − window, s]. It takes O(n log n) and leaves the admissions as they are.
func WorstWindow(admissions []Interval, window time.Duration) int64 {
	answered := slices.Clone(admissions)
	slices.SortFunc(answered, func(a, b Interval) int {
		switch {
		case a.Answered < b.Answered:
			return -1
		case a.Answered > b.Answered:
			return 1
		}
		return 0
	})
	// The sum grows only where an answer comes, so no other instant needs to be looked at; and what has left the window
	// once never comes back.
	var inside byLeft
	var sum, worst int64
	for _, admission := range answered {
		heap.Push(&inside, admission)
		sum += admission.Units
		for len(inside) > 0 && inside[0].Left <= admission.Answered-window {
			sum -= heap.Pop(&inside).(Interval).Units
		}
		worst = max(worst, sum)
	}
	return worst
}

// byLeft is a heap with the earliest to have left on top.
type byLeft []Interval

func (h byLeft) Len() int           { return len(h) }
func (h byLeft) Less(i, j int) bool { return h[i].Left < h[j].Left }
func (h byLeft) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byLeft) Push(x any)        { *h = append(*h, x.(Interval)) }
func (h *byLeft) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
