package telemetry

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"

	"sluice/shared/instant"
)

// A collector that does not answer is told of in JSON as all else, and not for every batch.
func TestSpanErrors(t *testing.T) {
	var text bytes.Buffer
	now := instant.Instant(1)
	LogSpanErrors(slog.New(slog.NewJSONHandler(&text, nil)), func() instant.Instant { return now })
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	for range 5 {
		otel.Handle(errors.New("traces export: connection refused"))
	}
	now = now.Add(10 * time.Second)
	otel.Handle(errors.New("traces export: connection refused"))
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"count":1,"why":"traces export: connection refused"}`) || !strings.Contains(lines[1], `"count":5,`) {
		t.Errorf("%s", &text)
	}
}
