package replay

import (
	"slices"
	"time"

	"sluice/shared/instant"
)

// moment is what came and was denied within an interval.
type moment struct {
	requests, denied, today, newly, gone int64
}

func (m *moment) add(other moment) {
	m.requests += other.requests
	m.denied += other.denied
	m.today += other.today
	m.newly += other.newly
	m.gone += other.gone
}

const (
	// maxBins bounds the intervals of a course: where there are more, several become one.
	maxBins = 480
	// maxCourses bounds the limits whose denials have a course of their own.
	maxCourses = 16
	// maxWorst is how many of the worst minutes are kept.
	maxWorst = 20
)

// steps are how long an interval may be, each a multiple of the one before.
var steps = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour, 364 * 24 * time.Hour, 3640 * 24 * time.Hour,
	36400 * 24 * time.Hour,
}

// course is what happened when, at bounded memory.
type course struct {
	step  int   // among steps
	first int64 // the first bin's number since 1970
	bins  []moment
	// limits are the denials of each limit by bin; nil for one without.
	limits  [][]int64
	courses int

	minute moment
	began  int64 // the minute's number since 1970
	// current is the last bin, which lasts until currentEnd; minuteEnd is when the minute does.
	current               int
	currentEnd, minuteEnd instant.Instant
	worst                 []worstMinute
}

type worstMinute struct {
	at instant.Instant
	moment
}

func newCourse(limits int) *course { return &course{limits: make([][]int64, limits)} }

func (c *course) width() int64 { return steps[c.step].Microseconds() }

// add counts what came at an instant, which is not before the last; limit is the one that denied, or negative.
func (c *course) add(at instant.Instant, m moment, limit int) {
	bin := c.bin(at)
	c.bins[bin].add(m)
	if limit >= 0 && (c.limits[limit] != nil || c.courses < maxCourses) {
		if c.limits[limit] == nil {
			c.limits[limit] = make([]int64, maxBins)
			c.courses++
		}
		c.limits[limit][bin]++
	}
	if at >= c.minuteEnd {
		c.closeMinute()
		c.began = int64(at) / time.Minute.Microseconds()
		c.minuteEnd = instant.Instant((c.began + 1) * time.Minute.Microseconds())
	}
	c.minute.add(m)
}

// bin gives the place of an instant, and makes room for it.
func (c *course) bin(at instant.Instant) int {
	if at < c.currentEnd {
		return c.current
	}
	if len(c.bins) == 0 {
		c.bins = make([]moment, 0, maxBins)
		c.first = int64(at) / c.width()
	}
	for int64(at)/c.width()-c.first >= maxBins && c.step < len(steps)-1 {
		c.coarsen()
	}
	place := int(min(int64(at)/c.width()-c.first, maxBins-1))
	for place >= len(c.bins) {
		c.bins = append(c.bins, moment{})
	}
	c.current, c.currentEnd = place, instant.Instant((c.first+int64(place)+1)*c.width())
	return place
}

// coarsen joins bins.
func (c *course) coarsen() {
	by := int64(steps[c.step+1] / steps[c.step])
	first := c.first / by
	place := func(i int) int { return int((c.first+int64(i))/by - first) }
	old := slices.Clone(c.bins)
	c.bins = c.bins[:0]
	for i, m := range old {
		for len(c.bins) <= place(i) {
			c.bins = append(c.bins, moment{})
		}
		c.bins[place(i)].add(m)
	}
	for _, bins := range c.limits {
		for i, n := range bins {
			bins[i] = 0
			if n > 0 {
				bins[place(i)] += n
			}
		}
	}
	c.first = first
	c.step++
}

// closeMinute takes the minute that is over into the worst ones.
func (c *course) closeMinute() {
	if c.minute.denied+c.minute.newly+c.minute.gone > 0 {
		at := slices.IndexFunc(c.worst, func(w worstMinute) bool { return w.denied < c.minute.denied })
		if at < 0 {
			at = len(c.worst)
		}
		if at < maxWorst {
			c.worst = slices.Insert(c.worst, at, worstMinute{instant.Instant(c.began * time.Minute.Microseconds()), c.minute})
			c.worst = c.worst[:min(len(c.worst), maxWorst)]
		}
	}
	c.minute = moment{}
}
