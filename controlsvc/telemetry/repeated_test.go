package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
)

// However many are refused, there is a line in ten seconds, and the counts of all lines add up to them.
func TestRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		r := NewRefusals(slog.New(slog.NewJSONHandler(&text, nil)), time.After, "dashboard")
		lines := func(want ...int64) {
			t.Helper()
			synctest.Wait()
			r.mu.Lock() // which the writers hold
			written := bytes.Clone(text.Bytes())
			r.mu.Unlock()
			decoder := json.NewDecoder(bytes.NewReader(written))
			for i := 0; decoder.More(); i++ {
				var line struct {
					Audit string `json:"audit"`
					At    string `json:"at"`
					Peer  string `json:"peer"`
					Count int64  `json:"count"`
				}
				if err := decoder.Decode(&line); err != nil {
					t.Fatal(err)
				}
				if i >= len(want) || line.Count != want[i] || line.Audit != "admin" || line.At != "dashboard" || line.Peer != "p" {
					t.Fatalf("line %d: %+v; want counts of %v", i, line, want)
				}
			}
			if got := bytes.Count(written, []byte("\n")); got != len(want) {
				t.Fatalf("%d lines, want %d", got, len(want))
			}
		}
		r.Note("peer", "p")
		lines(1)
		for range 100 {
			r.Note("peer", "p")
		}
		lines(1)
		<-time.After(repeatedEvery)
		lines(1, 100)
		r.Note("peer", "p")
		<-time.After(3 * repeatedEvery)
		lines(1, 100, 1)
		r.Note("peer", "p")
		lines(1, 100, 1, 1)
		r.Note("peer", "p")
		r.Flush()
		lines(1, 100, 1, 1, 1)
		<-time.After(2 * repeatedEvery) // nothing waits any more
	})
}

// A collector that does not answer is told of in JSON as all else, and not for every batch.
func TestSpanErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		LogSpanErrors(slog.New(slog.NewJSONHandler(&text, nil)), time.After)
		defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
		for range 6 {
			otel.Handle(errors.New("traces export: connection refused"))
		}
		<-time.After(3 * repeatedEvery)
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], `"count":1,"why":"traces export: connection refused"}`) || !strings.Contains(lines[1], `"count":5,`) {
			t.Errorf("%s", &text)
		}
	})
}
