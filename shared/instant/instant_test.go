package instant_test

import (
	"testing"
	"time"

	"sluice/shared/instant"
)

func TestSub(t *testing.T) {
	const today instant.Instant = 1_764_000_000_000_000
	for _, c := range []struct {
		from, to instant.Instant
		want     time.Duration
	}{
		{today, today + 1500, 1500 * time.Microsecond},
		{today + 1500, today, -1500 * time.Microsecond},
		{0, today, time.Duration(today) * time.Microsecond},
		{today, instant.Never, (1<<63 - 1) / 1000 * time.Microsecond},
		{instant.Never, today, -(1<<63 - 1) / 1000 * time.Microsecond},
	} {
		if got := c.to.Sub(c.from); got != c.want {
			t.Errorf("%d.Sub(%d) = %v, want %v", c.to, c.from, got, c.want)
		}
	}
}
