package wasmhost

import (
	"strings"
	"testing"
	"time"
)

// TestTrap: by policy, what becomes of the request that made the instance trap,
// of others on their way, and of later ones.
func TestTrap(t *testing.T) {
	const failed, passed, held = `local reply 503 ""`, "continued", "pending"
	for _, step := range []struct {
		name                                  string
		policy                                FailurePolicy
		trapping, paused, inFlight, next, far string
		loads                                 int
	}{
		{"reload", FailReload, failed, held, failed, failed, passed, 2},
		{"closed", FailClosed, failed, held, failed, failed, failed, 1},
		{"open", FailOpen, passed, held, passed, passed, passed, 1},
	} {
		t.Run(step.name, func(t *testing.T) {
			h := newHost(t, Config{Failure: step.policy, HTTPCall: func(*Call) Reply { return delayed(time.Second) }})
			w := h.Worker(0)
			paused := w.Request(asked("request", "call svc /x 3000; pause", "reply", "effective stream; continue 0"))
			inFlight := w.Request(asked())
			check := func(what string, s *Stream, want string) {
				t.Helper()
				if got := s.Outcome().String(); got != want {
					t.Errorf("the request that %s: %s, want %s", what, got, want)
				}
			}
			check("traps", w.Request(asked("request", "trap")), step.trapping)
			check("comes next", w.Request(asked()), step.next)
			h.Advance(time.Second)
			last := w.Request(asked())
			check("comes a second later", last, step.far)
			h.Advance(5 * time.Second)
			inFlight.Respond(Message{Headers: Headers{{":status", "200"}}, Body: []byte("body")})
			check("was under way", inFlight, step.inFlight)
			check("was paused", paused, step.paused)
			if !inFlight.Ended() || w.Loads() != step.loads || w.Failed() != (step.loads == 1) || h.TrapCount() != 1 {
				t.Errorf("ended %v, %d loads, failed %v, %d traps", inFlight.Ended(), w.Loads(), w.Failed(), h.TrapCount())
			}
			paused.Cancel()
			last.Cancel()
			checkKinds(t, h)
		})
	}
}

// TestTrapIsRecorded with what the guest said of it.
func TestTrapIsRecorded(t *testing.T) {
	h := newHost(t, Config{Workers: 2})
	h.Advance(time.Second)
	h.Worker(1).Request(asked("request", "trap"))
	if h.TrapCount() != 1 {
		t.Fatalf("%d traps", h.TrapCount())
	}
	trap := h.Traps()[0]
	if trap.At != time.Hour+time.Second || trap.Worker != 1 || trap.Callback != "proxy_on_request_headers" ||
		!strings.Contains(trap.Message, "unreachable") || !strings.Contains(trap.Stderr, "told to") {
		t.Errorf("%+v", trap)
	}
	if h.Worker(0).Failed() {
		t.Error("the other worker failed, too")
	}
}

// TestTrapElsewhere: in callbacks that no stream waits for.
func TestTrapElsewhere(t *testing.T) {
	for name, step := range map[string]struct {
		config   string
		scripts  []string
		callback string
	}{
		"tick":            {config: "configure: tick 10\ntick: trap", callback: "proxy_on_tick"},
		"reply":           {config: "configure: call svc /x 0\nreply: trap", callback: "proxy_on_http_call_response"},
		"log":             {scripts: []string{"log", "trap"}, callback: "proxy_on_log"},
		"local response":  {scripts: []string{"request", "reply 429 a -1", "response", "trap"}, callback: "proxy_on_response_headers"},
		"response":        {scripts: []string{"response", "trap"}, callback: "proxy_on_response_headers"},
		"body":            {scripts: []string{"response-body", "trap"}, callback: "proxy_on_response_body"},
		"several callers": {config: "configure: tick 10\ntick: call svc /x 0; trap", callback: "proxy_on_tick"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Config{PluginConfig: []byte(step.config), HTTPCall: func(*Call) Reply { return StatusReply(200, "") }})
			s := h.Worker(0).Request(asked(step.scripts...))
			respond(h, s)
			h.Advance(time.Second)
			if traps := h.Traps(); len(traps) != 1 || traps[0].Callback != step.callback {
				t.Errorf("traps: %v, want one in %s", traps, step.callback)
			}
			if h.Worker(0).OutstandingCalls() != 0 {
				t.Error("its calls outlived it")
			}
			if _, ok := h.NextEvent(); ok {
				t.Error("its timers outlived it")
			}
			checkKinds(t, h)
		})
	}
}

// TestTrapStopsTimers: nothing is due any more for an instance that has trapped.
func TestTrapStopsTimers(t *testing.T) {
	h := newHost(t, Config{PluginConfig: []byte("configure: tick 10; call svc /x 1000; grpc-call svc s m 1000 x")})
	h.Worker(0).Request(asked("request", "trap"))
	if d, due := h.NextEvent(); due || h.Worker(0).TickPeriod() != 0 {
		t.Errorf("something is due in %v; the tick is %v", d, h.Worker(0).TickPeriod())
	}
}

// TestReload: a new instance, configured anew, that knows nothing of the old one.
func TestReload(t *testing.T) {
	answered := 0
	h := newHost(t, Config{PluginConfig: []byte("configure: tick 100"), HTTPCall: func(*Call) Reply {
		answered++
		return delayed(50 * time.Millisecond)
	}})
	w := h.Worker(0)
	paused := w.Request(asked(waits...))
	inFlight := w.Request(asked())
	if err := w.Reload(); err != nil {
		t.Fatal(err)
	}
	transcript(h)
	h.Advance(99 * time.Millisecond)
	if lines := transcript(h); len(lines) != 0 || answered != 1 || w.OutstandingCalls() != 0 {
		t.Errorf("the new instance heard of the old one's call: %v", lines)
	}
	h.Advance(time.Millisecond)
	checkLines(t, transcript(h), "on_tick root")
	if paused.Outcome().Kind != Pending {
		t.Errorf("the paused request: %v", paused.Outcome())
	}
	if got := inFlight.RespondUpstream(Headers{{":status", "200"}}).Get(":status"); got != "503" {
		t.Errorf("the response of a stream of the old instance: %s", got)
	}
	if s := w.Request(asked("request", "reply 429")); s.Outcome().Status != 429 || w.Loads() != 2 || w.Failed() {
		t.Errorf("the new instance: %v, %d loads", s.Outcome(), w.Loads())
	}
	paused.Cancel()
	checkKinds(t, h)
}

// TestReloadThatFails leaves the worker failed, and is tried again.
func TestReloadThatFails(t *testing.T) {
	h := newHost(t, Config{})
	w := h.Worker(0)
	w.config = []byte("refuse: yes")
	if err := w.Reload(); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Fatalf("reload: %v", err)
	}
	if got := w.Request(asked()).Outcome(); got.Status != 503 || !w.Failed() {
		t.Errorf("a request: %v", got)
	}
	w.config = nil
	h.Advance(time.Second)
	if got := w.Request(asked()).Outcome(); got.Kind != Continued || w.Loads() != 3 {
		t.Errorf("a request after a second: %v, %d loads", got, w.Loads())
	}
	if w.Reconfigure([]byte("refuse: yes")) == nil {
		t.Error("a refused configuration was taken")
	}
	if got := w.Request(asked()).Outcome(); got.Kind != Continued {
		t.Errorf("a request after a configuration was refused: %v", got)
	}
}

// TestReconfigure: new streams get the new plugin, old ones keep theirs, and the
// old one ends with the last of them.
func TestReconfigure(t *testing.T) {
	h := newHost(t, Config{Workers: 2, PluginConfig: []byte("configure: tick 1000\nreply: say old")})
	old := h.Worker(0).Request(asked("request", "pause"))
	transcript(h)
	if err := h.Reconfigure([]byte("configure: tick 300\nreply: say new")); err != nil {
		t.Fatal(err)
	}
	// The second worker had no stream: its old plugin ended at once.
	checkLines(t, transcript(h), `
		on_context_create root
		on_vm_start root 0
		on_configure root 34
		tick 300 -> 0
		on_context_create root
		on_vm_start root 0
		on_configure root 34
		tick 300 -> 0
		on_done root
		on_delete root`)
	h.Advance(time.Second)
	checkLines(t, transcript(h), strings.Repeat("on_tick root\n", 7))
	old.Cancel()
	checkLines(t, transcript(h), "on_log stream\non_done stream\non_delete stream\non_done root\non_delete root")
	if h.Worker(0).Loads() != 1 || h.Worker(0).TickPeriod() != 300*time.Millisecond {
		t.Errorf("%d loads, tick %v", h.Worker(0).Loads(), h.Worker(0).TickPeriod())
	}
	if err := h.Worker(0).Reload(); err != nil || h.Worker(0).TickPeriod() != 300*time.Millisecond {
		t.Errorf("a reload took another configuration: %v", err)
	}
}

// TestStop: a plugin ends at once.
func TestStop(t *testing.T) {
	h := newHost(t, Config{PluginConfig: []byte("configure: tick 100")})
	w := h.Worker(0)
	transcript(h)
	for range 2 {
		if !w.Stop() {
			t.Error("a plugin that is done did not stop")
		}
	}
	checkLines(t, transcript(h), "on_done root\non_delete root")
	if s := w.Request(asked("request", "reply 429")); s.Outcome().Kind != Continued {
		t.Errorf("a request after the end: %v", s.Outcome())
	}
	if _, ok := h.NextEvent(); ok {
		t.Error("it ticks on")
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// TestStopLater: the plugin may ask for time, and goes on until it has finished.
func TestStopLater(t *testing.T) {
	h := newHost(t, Config{
		PluginConfig: []byte("configure: tick 100; done\ndone-later: yes\ndone: call svc /settle 0\nreply: done; done"),
		HTTPCall:     func(*Call) Reply { return delayed(120 * time.Millisecond) },
	})
	w := h.Worker(0)
	checkLines(t, transcript(h)[3:], "tick 100 -> 0\ndone -> 1")
	for range 2 {
		if w.Stop() {
			t.Error("a plugin that asked for time stopped at once")
		}
	}
	h.Advance(time.Second)
	checkLines(t, transcript(h), `
		on_done root
		call svc /settle 0 -> 0
		on_tick root
		on_http_call_response root 1 0 0
		done -> 0
		done -> 1
		on_delete root`)
	if !w.Stop() {
		t.Error("it has not stopped")
	}
}
