package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sluice/controlsvc/traffic"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// maxDenialLines is how many lines wait to be written; more are lost, and counted.
const maxDenialLines = 1024

// DenialLog writes some of the denials that workers report, one line of JSON each, and how many there were. Nobody waits for
// a line to be written.
type DenialLog struct {
	logger *slog.Logger
	now    func() instant.Instant
	every  time.Duration
	lost   func()
	lines  chan denialLine

	mu    sync.Mutex
	names *traffic.Names
	since map[denialKind]*sinceLine
}

// denialKind is what lines are thinned out by.
type denialKind struct {
	limit  string
	shadow bool
}

// sinceLine is how many denials there were since the last line of a kind, which was at an instant.
type sinceLine struct {
	count int64
	at    instant.Instant
}

type denialLine struct {
	wire.DenialSample

	worker uint64
	count  int64
}

// DenialLog gives a log of denials: of each limit at most one line in every so long, and one more for what it would deny in
// shadow; no lines where that is 0. Lines that are lost, for they cannot be written as fast, are counted. Run has to be called.
func (m *Metrics) DenialLog(logger *slog.Logger, now func() instant.Instant, every time.Duration) *DenialLog {
	return &DenialLog{
		logger: logger, now: now, every: every, lost: m.lostLines.Inc, lines: make(chan denialLine, maxDenialLines),
		names: traffic.NewNames(&policy.Policy{}), since: make(map[denialKind]*sinceLine),
	}
}

// SetPolicy says which limits there are; the others' denials are counted together.
func (l *DenialLog) SetPolicy(p *policy.Policy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = traffic.NewNames(p)
	for kind := range l.since {
		if l.names.Limit(kind.limit) != kind.limit {
			delete(l.since, kind)
		}
	}
}

// Reported has denials logged that a worker reports.
func (l *DenialLog) Reported(worker uint64, report *wire.Report) {
	if l.every <= 0 {
		return
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range report.Tallies {
		if t := &report.Tallies[i]; t.Result == wire.Denied || t.Result == wire.ShadowDenied {
			l.kind(t.Limit, t.Result == wire.ShadowDenied).count += max(t.Count, 0)
		}
	}
	for i := range report.Denials {
		sample := report.Denials[i]
		of := l.kind(sample.Limit, sample.Shadow)
		if of.count == 0 || of.at != 0 && now.Sub(of.at) < l.every {
			continue
		}
		select {
		case l.lines <- denialLine{sample, worker, of.count}:
			of.count, of.at = 0, now
		default:
			l.lost() // its count goes to the next one
		}
	}
}

func (l *DenialLog) kind(limit string, shadow bool) *sinceLine {
	kind := denialKind{l.names.Limit(limit), shadow}
	of := l.since[kind]
	if of == nil {
		of = &sinceLine{}
		l.since[kind] = of
	}
	return of
}

// Run writes lines until the context ends, and then those that wait.
func (l *DenialLog) Run(ctx context.Context) {
	for {
		select {
		case line := <-l.lines:
			l.write(ctx, line)
			continue
		case <-ctx.Done():
		}
		for {
			select {
			case line := <-l.lines:
				l.write(ctx, line)
			default:
				return
			}
		}
	}
}

func (l *DenialLog) write(ctx context.Context, line denialLine) {
	attributes := []slog.Attr{
		slog.String("limit", line.Limit), slog.String("key", line.Key), slog.Bool("shadow", line.Shadow),
		slog.String("route", line.Route), slog.String("window", line.Window.String()),
		slog.String("source", admission.Source(line.Source).String()), slog.String("retry_after", line.RetryAfter.String()),
		slog.String("age", line.Age.String()),
		slog.String("worker", workerName(line.worker)), slog.Int64("count", line.count),
	}
	if admission.Source(line.Source) != admission.FromFallback { // which knows nothing of what is left
		attributes = append(attributes, slog.Int64("remaining", line.Remaining))
	}
	if line.TraceID != "" {
		attributes = append(attributes, slog.String("trace_id", line.TraceID))
	}
	l.logger.LogAttrs(ctx, slog.LevelInfo, "denied", attributes...)
}
