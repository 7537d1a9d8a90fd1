package sim

import (
	"time"

	"sluice/shared/instant"
)

// Watch is what somebody wants to be told of a run while it is played, for a plot and for a progress bar; it changes
// nothing about the run. Functions may be nil. Instants count from when the traffic began, in virtual time.
type Watch struct {
	// Spent is told of the units of each admission, for each key that the request is under. Instants come in order but for
	// strict charges: those are told when the answer has arrived, with the instant of the charge at the store.
	Spent func(limit, key string, at time.Duration, units int64)
	// Window is told how many units each window holds that ends with an admission: (end − the window of that rate of the
	// limit's, end]. A later admission of an earlier instant tells some windows again, fuller.
	Window func(limit, key string, rate int, end time.Duration, units int64)
	// Passed is told after each hundredth of the traffic's duration.
	Passed func(time.Duration)
}

// watched is a Watch in a run.
type watched struct {
	Watch

	began instant.Instant
}

func (w *watched) spent(k boundKey, at instant.Instant, units int64) {
	if w.Spent != nil {
		w.Spent(k.limit, k.key, at.Sub(w.began), units)
	}
}

func (w *watched) window(k boundKey, rate int, end instant.Instant, units int64) {
	if w.Window != nil {
		w.Window(k.limit, k.key, rate, end.Sub(w.began), units)
	}
}

// play runs what is due while there is traffic.
func (r *run) play(duration time.Duration) {
	const parts = 100
	r.watch.began = r.world.now
	for i := range int64(parts) {
		// The duration may be no multiple of the parts, and too long to be multiplied by them.
		part, rest := int64(duration)/parts, int64(duration)%parts
		passed := time.Duration(part*(i+1) + rest*(i+1)/parts)
		r.world.runUntil(r.watch.began.Add(passed))
		if r.watch.Passed != nil {
			r.watch.Passed(passed)
		}
	}
}
