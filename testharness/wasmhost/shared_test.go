package wasmhost

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSharedAmongInstances: data, queues and metrics are the proxy's, and outlive
// an instance.
func TestSharedAmongInstances(t *testing.T) {
	h := newHost(t, Config{Workers: 2, PluginConfig: []byte("configure: queue-register q\nqueue: dequeue queue")})
	h.SetSharedData("from-test", []byte("hello"))
	h.Worker(0).Request(asked("request", "data-set k v 0; metric 0 hits; increment hits 2")).Cancel()
	if err := h.Worker(0).Reload(); err != nil {
		t.Fatal(err)
	}
	transcript(h)
	h.Worker(1).Request(asked("request", "data-get k; data-get from-test; metric 0 hits; increment hits 3; metric-get hits; metric 2 sizes; record sizes 5; record sizes 6; metric 1 level; record level 4; enqueue queue item"))
	checkLines(t, transcript(h)[2:], `
		data-get k -> 0 "v"
		data-get from-test -> 0 "hello"
		metric 0 hits -> 0
		increment hits 3 -> 0
		metric-get hits -> 0 "5"
		metric 2 sizes -> 0
		record sizes 5 -> 0
		record sizes 6 -> 0
		metric 1 level -> 0
		record level 4 -> 0
		enqueue queue item -> 0`)
	want := []Metric{{Kind: Counter, Name: "hits", Value: 5}, {Kind: Gauge, Name: "level", Value: 4}, {Kind: Histogram, Name: "sizes", Count: 2, Sum: 11}}
	if diff := cmp.Diff(want, h.Metrics()); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if v, ok := h.Metric("hits"); v != 5 || !ok {
		t.Errorf("hits: %d %v", v, ok)
	}
	if _, ok := h.Metric("sizes"); ok {
		t.Error("a histogram has a value")
	}
	if v, ok := h.SharedData("k"); string(v) != "v" || !ok {
		t.Errorf("k: %q %v", v, ok)
	}
	// Worker 0 was the last to register: it alone is told.
	h.Advance(0)
	checkLines(t, transcript(h), "on_queue_ready root\ndequeue queue -> 0 \"item\"")
}

// TestForeignFunctions: given ones, Envoy's own, and a guest that wants no answer.
func TestForeignFunctions(t *testing.T) {
	h := newHost(t, Config{Foreign: map[string]func([]byte) ([]byte, Status){
		"double": func(b []byte) ([]byte, Status) { return append(b, b...), StatusOK },
		"broken": func([]byte) ([]byte, Status) { return nil, StatusInternalFailure },
	}})
	h.Worker(0).Request(asked("request", "foreign double ab; foreign broken x; foreign clear_route_cache x; foreign nosuch x"))
	checkLines(t, transcript(h)[5:9], `
		foreign double ab -> 0 "abab"
		foreign broken x -> 10
		foreign clear_route_cache x -> 0 ""
		foreign nosuch x -> 1`)
}

// TestLogs: levels, and what a guest prints.
func TestLogs(t *testing.T) {
	for level, want := range map[LogLevel]string{LogTrace: "0", LogInfo: "2", LogCritical: "5"} {
		h := newHost(t, Config{LogLevel: level})
		h.Worker(0).Request(asked("request", "metric 1 level; log 0 t; log 4 e; log 5 c; log-level"))
		kept := map[LogLevel]int{}
		for _, e := range h.Logs() {
			kept[e.Level]++
		}
		for _, l := range []LogLevel{LogTrace, LogError, LogCritical} {
			if (kept[l] > 0) != (l >= level) {
				t.Errorf("at %v, %d messages of level %v are kept", level, kept[l], l)
			}
		}
		if level == LogCritical {
			continue
		}
		logs := h.Logs()
		if last := logs[len(logs)-1].Message; last != fmt.Sprintf("log-level -> 0 %q", want) {
			t.Errorf("at %v: %s", level, last)
		}
	}
	h := newHost(t, Config{})
	h.Worker(0).Request(asked("request", "trap"))
	for _, e := range h.Logs() {
		if e.Message == "panic: told to" && e.Level == LogError {
			return
		}
	}
	t.Error("what the guest wrote to stderr is not in the log")
}

// TestLogsAreBounded: the last are kept.
func TestLogsAreBounded(t *testing.T) {
	h := newHost(t, Config{PluginConfig: []byte("configure: tick 1")})
	h.Advance((maxLogEntries + 500) * time.Millisecond)
	logs := h.Logs()
	if len(logs) != maxLogEntries || logs[0].At >= logs[1].At || logs[len(logs)-1].At != h.Now() {
		t.Errorf("%d messages, from %v to %v", len(logs), logs[0].At, logs[len(logs)-1].At)
	}
}

// TestMemoryIsMeasured: what the guest keeps shows, and what it does not keep
// does not.
func TestMemoryIsMeasured(t *testing.T) {
	h := newHost(t, Config{Workers: 2})
	w := h.Worker(0)
	before := w.MemoryBytes()
	w.Request(asked("request", "keep 20000000")).Cancel()
	after := w.MemoryBytes()
	if grown := after - before; grown < 20_000_000 || grown > 60_000_000 {
		t.Errorf("the guest kept 20 MB and grew by %d", grown)
	}
	if h.Worker(1).MemoryBytes() != before {
		t.Error("another instance grew")
	}
	for range 3000 {
		w.Request(asked("request", "reply 429 no -1"))
	}
	if grown := w.MemoryBytes() - after; grown > 8<<20 {
		t.Errorf("3,000 requests that keep nothing grew it by %d", grown)
	}
	if w.OpenStreams() != 0 || len(w.vm.contexts) != 1 {
		t.Errorf("%d streams and %d contexts are left", w.OpenStreams(), len(w.vm.contexts))
	}
}

// TestMemoryIsBounded: a guest that wants more than it may traps.
func TestMemoryIsBounded(t *testing.T) {
	h := newHost(t, Config{MaxMemoryBytes: 32 << 20})
	h.Worker(0).Request(asked("request", "keep 40000000"))
	if !h.Worker(0).Failed() || h.Worker(0).MemoryBytes() > 32<<20 {
		t.Errorf("failed %v, %d bytes", h.Worker(0).Failed(), h.Worker(0).MemoryBytes())
	}
}

// TestStrings: what shows up in failures of tests reads well.
func TestStrings(t *testing.T) {
	for want, got := range map[string]any{
		"invalid memory access": StatusInvalidMemoryAccess, "status 99": Status(99), "warning": LogWarn, "level 9": LogLevel(9),
		"livelock": Livelock, "violation 99": ViolationKind(99), "pending": Pending, "kind 99": Kind(99), "cancelled": Outcome{Kind: Cancelled},
	} {
		if fmt.Sprint(got) != want {
			t.Errorf("%q, want %q", fmt.Sprint(got), want)
		}
	}
}

// TestCacheDir: compiled once, used by the next process.
func TestCacheDir(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		h := newHost(t, Config{CacheDir: dir})
		if h.Worker(0).Request(asked("request", "reply 429")).Outcome().Status != 429 {
			t.Error("it does not run")
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	h := newHost(b, Config{LogLevel: LogCritical})
	headers := asked("request", "reply 429 denied -1")
	b.ReportAllocs()
	for b.Loop() {
		h.Worker(0).Request(headers)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		_ = newHost(b, Config{}).Close()
	}
}
