package control

import (
	"testing"
	"time"

	"sluice/shared/instant"
)

func TestBreaker(t *testing.T) {
	const (
		fails   = iota // a call of the present epoch fails
		stale          // one of an earlier epoch fails
		asked          // one that asks is answered
		answers        // one that asks for nothing is answered
	)
	for _, step := range []struct {
		name string
		then []int
		want breakerState
	}{
		{"nothing yet", nil, closed},
		{"two failures", []int{fails, fails}, closed},
		{"three failures", []int{fails, fails, fails}, open},
		{"not in a row", []int{fails, fails, asked, fails, fails}, closed},
		{"not in a row, heartbeats count", []int{fails, fails, answers, fails, fails}, closed},
		{"open, a probe fails", []int{fails, fails, fails, fails}, open},
		{"open, a probe is answered", []int{fails, fails, fails, answers}, trial},
		{"open, a late ask is answered", []int{fails, fails, fails, asked}, closed},
		{"trial, calls from before fail", []int{fails, fails, fails, answers, stale, stale, stale, stale}, trial},
		{"trial, heartbeats alone do not close", []int{fails, fails, fails, answers, answers}, trial},
		{"trial, one failure is enough", []int{fails, fails, fails, answers, fails}, open},
		{"trial, an ask is answered", []int{fails, fails, fails, answers, asked}, closed},
		{"closed again, it takes three", []int{fails, fails, fails, answers, asked, fails, fails}, closed},
	} {
		var b breaker
		for _, event := range step.then {
			switch event {
			case fails:
				b.failed(0, b.epoch, 0)
			case stale:
				b.failed(0, b.epoch-1, 0)
			case asked:
				b.succeeded(true)
			case answers:
				b.succeeded(false)
			}
		}
		if b.state != step.want {
			t.Errorf("%s: state %d, want %d", step.name, b.state, step.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	now := instant.Instant(0)
	for i, millis := range []int{100, 200, 400, 800, 1000, 1000} {
		longest := time.Duration(millis) * time.Millisecond
		shortest := b
		b.wait(now, 0)
		shortest.wait(now, uint64(longest/2))
		if got := b.due.Sub(now); got != longest {
			t.Errorf("attempt %d: waits %v at most, want %v", i, got, longest)
		}
		if got := shortest.due.Sub(now); got != longest/2 {
			t.Errorf("attempt %d: waits %v at least, want %v", i, got, longest/2)
		}
	}
}
