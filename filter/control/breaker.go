package control

import (
	"time"

	"sluice/shared/instant"
)

const (
	// failuresToOpen is how many calls in a row must fail until nothing is asked any more.
	failuresToOpen = 3
	firstBackoff   = 100 * time.Millisecond
	// longestBackoff leaves room for a probe and for the trial after it within two seconds of an outage's end.
	longestBackoff = time.Second
)

// breaker says whether the service is worth asking.
//
//	closed → failuresToOpen calls in a row fail → open
//	open   → a probe, a call that asks for nothing, succeeds → trial; it fails → open, for twice as long
//	trial  → an ask is answered → closed; a call fails → open, for twice as long
//
// The trial is for a service that answers while its store does not: a probe alone cannot tell.
type breaker struct {
	state breakerState
	// epoch counts the changes of state; what a call of an earlier one comes to says nothing about this one.
	epoch    uint32
	failures int
	backoff  backoff
}

type breakerState uint8

const (
	closed breakerState = iota
	open
	trial
)

func (b *breaker) become(state breakerState) {
	b.state = state
	b.epoch++
	b.failures = 0
}

// failed notes that a call of an epoch failed, and says whether that has just opened the breaker.
func (b *breaker) failed(now instant.Instant, epoch uint32, random uint64) bool {
	if epoch != b.epoch {
		return false
	}
	b.failures++
	switch {
	case b.state == open:
		b.backoff.wait(now, random)
		return false
	case b.state == closed && b.failures < failuresToOpen:
		return false
	}
	b.become(open)
	b.backoff.wait(now, random)
	return true
}

// succeeded notes that a call was answered, and whether it asked for anything. It says whether that closed the breaker.
func (b *breaker) succeeded(asked bool) bool {
	switch {
	case b.state == closed:
		b.failures = 0
	case asked:
		b.become(closed)
		b.backoff = backoff{}
		return true
	case b.state == open:
		b.become(trial)
	}
	return false
}

// backoff spaces attempts: from firstBackoff to longestBackoff, doubling, each shortened by up to a half at random, so that
// workers which fail together do not come back together. The zero value is due at once.
type backoff struct {
	last time.Duration
	due  instant.Instant
}

func (b *backoff) wait(now instant.Instant, random uint64) {
	b.last = min(max(2*b.last, firstBackoff), longestBackoff)
	half := uint64(b.last/2) + 1
	b.due = now.Add(b.last - time.Duration(random%half))
}
