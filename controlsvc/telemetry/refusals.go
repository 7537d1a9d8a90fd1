package telemetry

import (
	"log/slog"
	"sync"
	"time"
)

// refusalsEvery is how often refusals are logged at most: each of the lines says how many it stands for.
const refusalsEvery = 10 * time.Second

// Refusals logs that callers without the admin token were refused: the first at once, and what follows, however much, as one line
// now and then with the exact count. It may be used by many goroutines.
type Refusals struct {
	logger *slog.Logger
	after  func(time.Duration) <-chan time.Time
	at     string

	mu      sync.Mutex
	waiting bool // while one goroutine waits to log what count has
	count   int64
	last    []any
}

// NewRefusals logs those of a place.
func NewRefusals(logger *slog.Logger, after func(time.Duration) <-chan time.Time, at string) *Refusals {
	return &Refusals{logger: logger, after: after, at: at}
}

// Note counts a refusal. What it says of it is logged if it is the last one before a line.
func (r *Refusals) Note(attributes ...any) {
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
func (r *Refusals) Flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log()
}

// wait logs what comes, until nothing does.
func (r *Refusals) wait() {
	for waiting := true; waiting; {
		<-r.after(refusalsEvery)
		r.mu.Lock()
		r.waiting = r.count > 0
		waiting = r.waiting
		r.log()
		r.mu.Unlock()
	}
}

func (r *Refusals) log() {
	if r.count > 0 {
		r.logger.Warn("refused for want of the admin token", append([]any{"audit", "admin", "at", r.at, "count", r.count}, r.last...)...)
	}
	r.count = 0
}
