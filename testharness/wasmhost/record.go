package wasmhost

import (
	"fmt"
	"strings"
	"time"
)

// ViolationKind is what a guest did that it must not do.
type ViolationKind uint8

const (
	// AnsweredTwice: a stream that has its answer was answered or continued.
	AnsweredTwice ViolationKind = iota
	// AnsweredAfterEnd: a stream was answered or continued after the client had
	// left or while it was being torn down. Envoy may crash.
	AnsweredAfterEnd
	// AnsweredAfterRelease: a request that had been let through whole was
	// answered, from outside its own callbacks. The upstream has seen it.
	AnsweredAfterRelease
	// ContinuedUnpaused: a stream that was not paused was continued. Envoy may
	// send a truncated response.
	ContinuedUnpaused
	// NoStream: a stream was continued, closed or answered in a context that is
	// none: often for want of proxy_set_effective_context.
	NoStream
	// MalformedMap: a header map was passed that ends too early.
	MalformedMap
	// Livelock: without end, one thing led to another in the same instant.
	Livelock
)

// String is the kind in words.
func (k ViolationKind) String() string {
	names := [...]string{
		"answered twice", "answered after its end", "answered after release", "continued while not paused",
		"no stream", "malformed header map", "livelock",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("violation %d", k)
}

// Violation is one thing that a guest must not have done.
type Violation struct {
	At      time.Duration // the monotonic clock
	Worker  int           // which instance; -1 is the main thread
	Context uint32        // the context that was effective
	Kind    ViolationKind
	Detail  string
}

// String is the violation in one line.
func (v Violation) String() string {
	return fmt.Sprintf("%v worker %d context %d: %v: %s", v.At, v.Worker, v.Context, v.Kind, v.Detail)
}

// Trap is the end of one life of an instance: by a trap, by an exit, or because
// it could not be started.
type Trap struct {
	At       time.Duration // the monotonic clock
	Worker   int           // which instance; -1 is the main thread
	Callback string        // what the guest was doing
	Message  string        // the reason, with the guest's stack
	Stderr   string        // the last of what it wrote there, at most 4 KiB
}

// LogEntry is one message of a guest.
type LogEntry struct {
	At      time.Duration // the monotonic clock
	Worker  int           // which instance; -1 is the main thread
	Level   LogLevel
	Message string
}

// What is kept of each: the first violations and traps, the last messages.
const (
	maxViolations = 1000
	maxTraps      = 1000
	maxLogEntries = 10_000
)

// hostLog is what a Host has seen.
type hostLog struct {
	violations      []Violation
	violationsTotal int
	traps           []Trap
	trapsTotal      int
	logs            []LogEntry // a ring once it is full
	logsTotal       int
}

// Violations are what guests did and must not do, the first 1,000 of them.
// A test of a sound filter ends with a check that there are none.
func (l *hostLog) Violations() []Violation { return append([]Violation(nil), l.violations...) }

// ViolationCount is how many there were.
func (l *hostLog) ViolationCount() int { return l.violationsTotal }

// Traps are the failures of instances, the first 1,000 of them.
func (l *hostLog) Traps() []Trap { return append([]Trap(nil), l.traps...) }

// TrapCount is how many there were.
func (l *hostLog) TrapCount() int { return l.trapsTotal }

// Logs are what the guests logged at Config.LogLevel or above, oldest first, the
// last 10,000 messages.
func (l *hostLog) Logs() []LogEntry {
	out := make([]LogEntry, 0, len(l.logs))
	if l.logsTotal > len(l.logs) {
		oldest := l.logsTotal % maxLogEntries
		out = append(out, l.logs[oldest:]...)
		return append(out, l.logs[:oldest]...)
	}
	return append(out, l.logs...)
}

// ClearLogs forgets the messages so far.
func (l *hostLog) ClearLogs() { l.logs, l.logsTotal = nil, 0 }

func (l *hostLog) addLog(e LogEntry) {
	if len(l.logs) < maxLogEntries {
		l.logs = append(l.logs, e)
	} else {
		l.logs[l.logsTotal%maxLogEntries] = e
	}
	l.logsTotal++
}

func (l *hostLog) addTrap(t Trap) {
	l.trapsTotal++
	if len(l.traps) < maxTraps {
		l.traps = append(l.traps, t)
	}
}

// violate records what the guest did in the context; nil is the host itself.
func (h *Host) violate(c *guestContext, kind ViolationKind, detail string) {
	v := Violation{At: h.clock.mono, Kind: kind, Detail: detail, Worker: mainThread}
	if c != nil {
		v.Worker, v.Context = c.vm.worker.index, c.id
	}
	h.violationsTotal++
	if len(h.violations) < maxViolations {
		h.violations = append(h.violations, v)
	}
}

// lineWriter logs what a guest writes to stdout or stderr, line by line, and
// keeps the last of it.
type lineWriter struct {
	line func(string)
	rest strings.Builder
	tail []byte
}

const (
	maxLine = 4 << 10
	maxTail = 4 << 10
)

// Write never fails.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.tail = append(w.tail, p...)
	if len(w.tail) > maxTail {
		w.tail = append([]byte(nil), w.tail[len(w.tail)-maxTail:]...)
	}
	for _, b := range p {
		if b == '\n' || w.rest.Len() >= maxLine {
			w.line(w.rest.String())
			w.rest.Reset()
		}
		if b != '\n' {
			w.rest.WriteByte(b)
		}
	}
	return len(p), nil
}
