package load

import (
	"math/rand/v2"
	"time"
)

// Arrivals gives the time from one request to the next, and from the start to the first. It does not depend on how fast
// requests are answered.
type Arrivals func() time.Duration

// Fixed sends perSecond requests a second, evenly spaced. It must be positive.
func Fixed(perSecond float64) Arrivals {
	sent := 0.0
	return func() time.Duration {
		sent++ // of the total, so that rounding does not add up
		return time.Duration(sent/perSecond*float64(time.Second)) - time.Duration((sent-1)/perSecond*float64(time.Second))
	}
}

// Poisson sends perSecond requests a second on average, each independent of the others, as many independent callers do.
// It must be positive.
func Poisson(perSecond float64, random *rand.Rand) Arrivals {
	return func() time.Duration { return time.Duration(random.ExpFloat64() / perSecond * float64(time.Second)) }
}
