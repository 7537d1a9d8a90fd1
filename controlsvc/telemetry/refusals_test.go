package telemetry

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// However many are refused, there is a line in ten seconds, and the counts of all lines add up to them.
func TestRefusals(t *testing.T) {
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
		<-time.After(refusalsEvery)
		lines(1, 100)
		r.Note("peer", "p")
		<-time.After(3 * refusalsEvery)
		lines(1, 100, 1)
		r.Note("peer", "p")
		lines(1, 100, 1, 1)
		r.Note("peer", "p")
		r.Flush()
		lines(1, 100, 1, 1, 1)
		<-time.After(2 * refusalsEvery) // nothing waits any more
	})
}
