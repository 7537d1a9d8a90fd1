package simulate

import (
	"time"

	"sluice/shared/limit"
)

// firstTenant is whom a plot shows.
const firstTenant = "tenant0"

// record is what a plot is drawn from: the first tenant's admissions, by intervals, of which there are a few hundred
// whatever the duration.
type record struct {
	limit    limit.Rate
	interval time.Duration
	// admitted is the units of each interval; fullest the fullest window that ended with an admission in it.
	admitted, fullest []int64
}

// newRecord picks an interval that is a whole part of the window, or a whole number of windows.
func newRecord(l limit.Rate, duration time.Duration) *record {
	const intervals = 400
	wanted := max(1, duration/intervals)
	r := &record{limit: l, interval: l.Window}
	if wanted < l.Window {
		r.interval = l.Window / time.Duration(rounded(int64(l.Window/wanted)))
	} else {
		r.interval = time.Duration(int64(l.Window) * rounded(int64(wanted/l.Window)))
	}
	r.interval = max(time.Microsecond, r.interval)
	n := (duration + r.interval - 1) / r.interval
	r.admitted, r.fullest = make([]int64, n), make([]int64, n)
	return r
}

// rounded gives the largest of 1, 2, 5, 10, 20, 50 and so on that is at most n, which is at least 1.
func rounded(n int64) int64 {
	result := int64(1)
	for decade := int64(1); decade <= n; decade *= 10 {
		for _, step := range []int64{1, 2, 5} {
			if decade*step <= n {
				result = decade * step
			}
		}
	}
	return result
}

// place gives the interval of an instant; false before and after those that there are.
func (r *record) place(at time.Duration) (int, bool) {
	i := int(at / r.interval)
	return i, at >= 0 && i < len(r.admitted)
}

func (r *record) spent(_, key string, at time.Duration, units int64) {
	if i, in := r.place(at); in && key == firstTenant {
		r.admitted[i] += units
	}
}

func (r *record) window(_, key string, _ int, end time.Duration, units int64) {
	if i, in := r.place(end); in && key == firstTenant {
		r.fullest[i] = max(r.fullest[i], units)
	}
}

// most gives, for each interval, the most units that the sliding window held during it: when one was admitted, or when the
// interval began.
func (r *record) most() []int64 {
	most := make([]int64, len(r.fullest))
	back := int(r.limit.Window / r.interval)
	held := int64(0)
	for i := range most {
		if i > back {
			held -= r.admitted[i-1-back]
		}
		most[i] = max(r.fullest[i], held)
		if back > 0 {
			held += r.admitted[i]
		}
	}
	return most
}
