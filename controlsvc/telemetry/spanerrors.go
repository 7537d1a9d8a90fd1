package telemetry

import (
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"

	"sluice/shared/instant"
)

// spanErrorsEvery is how often errors of tracing are logged at most.
const spanErrorsEvery = 10 * time.Second

// LogSpanErrors has what goes wrong with tracing logged, such as a collector that does not answer, in the form of all other lines:
// one in a while, with how many there were since the one before.
func LogSpanErrors(logger *slog.Logger, now func() instant.Instant) {
	otel.SetErrorHandler(&spanErrors{logger: logger, now: now})
}

type spanErrors struct {
	logger *slog.Logger
	now    func() instant.Instant

	mu    sync.Mutex
	next  instant.Instant
	count int64
}

// Handle implements otel.ErrorHandler.
func (s *spanErrors) Handle(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if now := s.now(); now >= s.next {
		s.logger.Warn("spans were lost", "count", s.count, "why", err.Error())
		s.next, s.count = now.Add(spanErrorsEvery), 0
	}
}
