package telemetry

import (
	"log/slog"
	"sync"
	"time"
)

// repeatedEvery is how often a Repeated logs at most.
const repeatedEvery = 10 * time.Second

// Repeated logs a warning of what may go wrong very often: the first at once, and what follows, however much, as one line now and
// then with the exact count. It may be used by many goroutines.
type Repeated struct {
	logger  *slog.Logger
	after   func(time.Duration) <-chan time.Time
	message string

	mu      sync.Mutex
	waiting bool // while one goroutine waits to log what count has
	count   int64
	last    []any
}

// NewRepeated logs that message with the attributes, and those of Note.
func NewRepeated(logger *slog.Logger, after func(time.Duration) <-chan time.Time, message string, attributes ...any) *Repeated {
	return &Repeated{logger: logger.With(attributes...), after: after, message: message}
}

// NewRefusals logs that callers without the admin token were refused at a place.
func NewRefusals(logger *slog.Logger, after func(time.Duration) <-chan time.Time, at string) *Repeated {
	return NewRepeated(logger, after, "refused for want of the admin token", "audit", "admin", "at", at)
}

// Note counts one more. What it says of it is logged if it is the last one before a line.
func (r *Repeated) Note(attributes ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count, r.last = r.count+1, attributes
	if !r.waiting {
		r.waiting = true
		r.log()
		go r.wait()
	}
}

// Flush logs what has not been logged yet.
func (r *Repeated) Flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log()
}

// wait logs what comes, until nothing does.
func (r *Repeated) wait() {
	for waiting := true; waiting; {
		<-r.after(repeatedEvery)
		r.mu.Lock()
		r.waiting = r.count > 0
		waiting = r.waiting
		r.log()
		r.mu.Unlock()
	}
}

func (r *Repeated) log() {
	if r.count > 0 {
		r.logger.Warn(r.message, append([]any{"count", r.count}, r.last...)...)
	}
	r.count = 0
}
