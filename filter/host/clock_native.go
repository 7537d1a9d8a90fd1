//go:build !wasip1

package host

import (
	"math/rand/v2"
	"time"

	"sluice/shared/instant"
)

var start = time.Now()

// now reads the monotonic clock, which Go's time package uses between two of its own readings.
func now() instant.Instant { return instant.Instant(time.Since(start).Microseconds()) }

func random() uint64 { return rand.Uint64() }
