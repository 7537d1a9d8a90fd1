package wasmhost

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestViolations: a filter that misbehaves is found out, each way by its name,
// and what becomes of the request is what Envoy makes of it.
func TestViolations(t *testing.T) {
	for _, step := range []struct {
		name    string
		scripts []string
		config  string
		then    func(h *Host, s *Stream)
		outcome string
		want    []ViolationKind
	}{
		{name: "sound: reply", scripts: []string{"request", "reply 429 no -1"}, outcome: `local reply 429 "no"`},
		{name: "sound: paused, continued", scripts: []string{"request", "call a /x 0; pause", "reply", "effective stream; continue 0"}, outcome: "continued"},
		{name: "sound: paused, answered", scripts: []string{"request", "call a /x 0; pause", "reply", "effective stream; reply 429 no -1"}, outcome: `local reply 429 "no"`},
		{name: "sound: answered in the response", scripts: []string{"response", "reply 403 no -1"}, then: respond, outcome: `local reply 403 "no"`},
		{name: "sound: a stream that has gone is tried", scripts: []string{"request", "remember it; call a /x 0; pause"}, config: "reply: effective it", then: cancel, outcome: "cancelled"},

		{name: "answered twice at once", scripts: []string{"request", "reply 429 one -1; reply 430 two -1"}, outcome: `local reply 429 "one"`, want: []ViolationKind{AnsweredTwice}},
		{name: "answered, then continued", scripts: []string{"request", "reply 429 one -1; continue 0"}, outcome: `local reply 429 "one"`, want: []ViolationKind{AnsweredTwice}},
		{name: "answered again while its response is held", scripts: []string{"request", "reply 429 one -1; remember it; call a /x 0", "response", "pause", "reply", "effective it; reply 430 two -1; continue 0; continue 1"}, outcome: `local reply 429 "one"`, want: []ViolationKind{AnsweredTwice, AnsweredTwice}},
		{name: "answered after the response went", scripts: []string{"response-body", "reply 500 x -1"}, then: respond, outcome: "continued", want: []ViolationKind{AnsweredTwice}},
		{name: "answered while it is torn down", scripts: []string{"request", "pause", "done", "reply 429 no -1"}, then: cancel, outcome: "cancelled", want: []ViolationKind{AnsweredAfterEnd}},
		{name: "continued while it is logged", scripts: []string{"request", "pause", "log", "continue 0"}, then: cancel, outcome: "cancelled", want: []ViolationKind{AnsweredAfterEnd}},
		{name: "closed while it is logged", scripts: []string{"log", "close 0"}, then: cancel, outcome: "continued", want: []ViolationKind{AnsweredAfterEnd}},
		{name: "answered after release", scripts: []string{"request", "call a /x 0", "reply", "effective stream; reply 403 late -1"}, outcome: `local reply 403 "late"`, want: []ViolationKind{AnsweredAfterRelease}},
		{name: "continued while not paused", scripts: []string{"request", "call a /x 0", "reply", "effective stream; continue 0"}, outcome: "continued", want: []ViolationKind{ContinuedUnpaused}},
		{name: "continued twice", scripts: []string{"request", "call a /x 0; pause", "reply", "effective stream; continue 0; continue 0"}, outcome: "continued", want: []ViolationKind{ContinuedUnpaused}},
		{name: "continued in the callback", scripts: []string{"request", "continue 0"}, outcome: "continued", want: []ViolationKind{ContinuedUnpaused}},
		{name: "response continued in the callback", scripts: []string{"response", "continue 1"}, then: respond, outcome: "continued", want: []ViolationKind{ContinuedUnpaused}},
		{name: "no effective context: continued", scripts: []string{"request", "call a /x 0; pause", "reply", "continue 0"}, outcome: "pending", want: []ViolationKind{NoStream}},
		{name: "no effective context: answered", scripts: []string{"request", "call a /x 0; pause", "reply", "reply 429 no -1; close 0"}, outcome: "pending", want: []ViolationKind{NoStream, NoStream}},
		{name: "a stream that has gone", scripts: []string{"request", "remember it; call a /x 0; pause"}, config: "reply: effective it; reply 429 no -1", then: cancel, outcome: "cancelled", want: []ViolationKind{NoStream}},
		{name: "a map that ends too early", scripts: []string{"request", "reply-raw 429 \x02\x00\x00\x00"}, outcome: `local reply 429 ""`, want: []ViolationKind{MalformedMap}},
	} {
		t.Run(step.name, func(t *testing.T) {
			h := newHost(t, Config{PluginConfig: []byte(step.config), HTTPCall: func(*Call) Reply {
				return Reply{Headers: Headers{{":status", "200"}}, Delay: time.Millisecond}
			}})
			s := h.Worker(0).Request(asked(step.scripts...))
			if step.then != nil {
				step.then(h, s)
			}
			h.Advance(time.Millisecond)
			if got := s.Outcome().String(); got != step.outcome {
				t.Errorf("the outcome is %s, want %s", got, step.outcome)
			}
			checkKinds(t, h, step.want...)
			if h.TrapCount() != 0 {
				t.Error(h.Traps())
			}
		})
	}
}

func respond(_ *Host, s *Stream) {
	s.Respond(Message{Headers: Headers{{":status", "200"}}, Body: []byte("body")})
}

func cancel(_ *Host, s *Stream) { s.Cancel() }

// TestViolationsAreBounded: the first are kept, all are counted, and each says
// where and when.
func TestViolationsAreBounded(t *testing.T) {
	h := newHost(t, Config{Workers: 2})
	h.Advance(time.Second)
	for range maxViolations + 10 {
		h.Worker(1).Request(asked("request", "continue 0")).Cancel()
	}
	if h.ViolationCount() != maxViolations+10 || len(h.Violations()) != maxViolations {
		t.Errorf("%d violations, %d kept", h.ViolationCount(), len(h.Violations()))
	}
	want := Violation{At: time.Hour + time.Second, Worker: 1, Context: 2, Kind: ContinuedUnpaused, Detail: "continued in the callback that could have returned Continue"}
	if diff := cmp.Diff(want, h.Violations()[0]); diff != "" {
		t.Errorf("the first (-want +got):\n%s", diff)
	}
	const line = "1h0m1s worker 1 context 2: continued while not paused: continued in the callback that could have returned Continue"
	if got := fmt.Sprint(h.Violations()[0]); got != line {
		t.Errorf("it reads %q", got)
	}
}
