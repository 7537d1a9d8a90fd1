// Package instant holds points in time as plain numbers, so that every decision takes the time as an argument and none
// reads a clock.
//
// An Instant means something only on the clock that it was read from: the store's clock counts from 1970, a worker's
// monotonic clock from wherever it likes. Instants of two clocks are never compared; what crosses a machine is a
// duration.
package instant

import (
	"math"
	"time"
)

// Instant is a point in time in whole microseconds since its clock's origin. Microseconds, because Redis counts time in
// them and because their count since 1970 fits a double exactly (below 2^53), which Redis' scores are.
type Instant int64

// Never is later than every instant that a clock gives.
const Never Instant = 1<<63 - 1

// Add gives the instant d after t; d is truncated to whole microseconds, towards zero.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d.Microseconds()) }

// Sub gives the time from u to t, negative where u is later; where a Duration does not hold it, as up to Never, the longest
// that one does.
func (t Instant) Sub(u Instant) time.Duration {
	const longest = Instant(math.MaxInt64 / time.Microsecond)
	return time.Duration(min(max(t-u, -longest), longest)) * time.Microsecond
}

// After says whether t is later than u.
func (t Instant) After(u Instant) bool { return t > u }

// FromTime gives the instant of a wall clock's reading, in microseconds since 1970, rounded down.
func FromTime(t time.Time) Instant { return Instant(t.UnixMicro()) }
