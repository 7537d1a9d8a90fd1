package memory

import (
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// count is what one algorithm remembers of one key: every window that was ever asked about and has not emptied since.
// Rates are those that store.Windows gives.
type count interface {
	// clock gives what counts as now when the clock reads so: that, or later where it has stepped back and an algorithm has
	// forgotten what was.
	clock(read instant.Instant) instant.Instant
	// windows gives how the key stands within each rate's window, in their order, without what has left it. They
	// show what is granted after the call too.
	windows(rates []limit.Rate, now instant.Instant) []window
	// grant charges units that are free from start until end, in every rate's window. errFull where one cannot hold more.
	grant(g store.Grant, rates []limit.Rate, end, now instant.Instant) error
	// settle reports a grant; see authority.Settle. name is the grant's.
	settle(g store.Grant, name string, uses []authority.Use, unused int64, now instant.Instant)
	// cancel removes the unsettled grants of a call, or of a part of it.
	cancel(call, part string, now instant.Instant)
	// record charges groups of units, whatever the limits. errFull where a window cannot hold more.
	record(groups []authority.Use, rates []limit.Rate, now instant.Instant) error
	// reset forgets every charge within the rates' windows.
	reset(rates []limit.Rate)
	// leases gives those that may still be spent, and until when.
	leases(now instant.Instant) []liveLease
	// emptyAt gives when the last charge leaves the last window, if nothing more is charged; now where there is none.
	emptyAt(now instant.Instant) instant.Instant
}

// liveLease is a lease that may be spent until end.
type liveLease struct {
	grant store.Grant
	end   instant.Instant
}

// window answers a reserve's questions about one rate's window; the rate is the one that it was asked for with.
type window interface {
	// free gives how many units may be granted from start, which is not before now, until end. It may be negative.
	free(r limit.Rate, start, end instant.Instant) int64
	// soonest gives the first instant from now on at which so many units, at most the rate's Most, may be granted for ttl, if
	// nothing more is charged; and the first at which that is so if every lease comes back.
	soonest(r limit.Rate, units int64, ttl time.Duration, now instant.Instant) (all, certain instant.Instant)
	// lasts gives until when a grant of so many units from start until end may be spent; later: it starts after now.
	lasts(r limit.Rate, units int64, start, end instant.Instant, later bool) instant.Instant
	// standing tells how full it is.
	standing(r limit.Rate, now instant.Instant) store.Standing
}

// counts makes each algorithm's count of a key that nothing has been charged to.
var counts = map[limit.Algorithm]func() count{
	limit.SlidingLog:           func() count { return &slidingLog{} },
	limit.SlidingBuckets:       func() count { return &slidingBuckets{} },
	limit.SlidingWindowCounter: func() count { return &fixedWindows{weighted: true} },
	limit.FixedWindow:          func() count { return &fixedWindows{} },
	limit.TokenBucket:          func() count { return &tokenBuckets{} },
}
