package wasmhost

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// waits is a filter that holds each request for a call, and lets it go with the
// reply, whatever it is.
var waits = []string{"request", "call svc /ask 1000 hello; pause", "reply", "header 6 :status; effective stream; continue 0"}

// TestCall: what the handler sees, and when the reply arrives.
func TestCall(t *testing.T) {
	var seen []Call
	h := newHost(t, Config{HTTPCall: func(c *Call) Reply {
		seen = append(seen, *c)
		r := StatusReply(207, "")
		r.Delay = 300 * time.Millisecond
		return r
	}})
	h.Advance(time.Second)
	w := h.Worker(0)
	s := w.Request(asked(waits...))
	want := []Call{{
		Worker: w, Stream: s, Cluster: "svc", Headers: Headers{{":method", "POST"}, {":path", "/ask"}, {":authority", "svc"}},
		Body: []byte("hello"), Timeout: time.Second, Sent: time.Hour + time.Second,
	}}
	if diff := cmp.Diff(want, seen, cmpopts.IgnoreUnexported(Call{}), cmp.Comparer(func(a, b *Stream) bool { return a == b }), cmp.Comparer(func(a, b *Worker) bool { return a == b })); diff != "" {
		t.Errorf("the call (-want +got):\n%s", diff)
	}
	h.Advance(299 * time.Millisecond)
	if s.Outcome().Kind != Pending || w.OutstandingCalls() != 1 {
		t.Errorf("before the reply: %v, %d calls", s.Outcome(), w.OutstandingCalls())
	}
	h.Advance(time.Second)
	if got, at := s.Outcome(), time.Hour+1300*time.Millisecond; got.Kind != Continued || got.At != at || w.OutstandingCalls() != 0 {
		t.Errorf("after it: %v at %v, want %v; %d calls", got, got.At, at, w.OutstandingCalls())
	}
	if _, ok := h.NextEvent(); ok {
		t.Error("the timeout outlived its call")
	}
}

// TestReplies: late, lost, repeated and broken ones.
func TestReplies(t *testing.T) {
	for _, step := range []struct {
		name  string
		reply Reply
		want  string
		took  time.Duration
	}{
		{name: "at once", reply: StatusReply(200, ""), want: `on_http_call_response root 1 0 0; header 6 :status -> 0 "200"`},
		{name: "just in time", reply: delayed(999 * time.Millisecond), want: `on_http_call_response root 1 0 0; header 6 :status -> 0 "200"`, took: 999 * time.Millisecond},
		{name: "late", reply: delayed(time.Second), want: `on_http_call_response root 1 24 0; header 6 :status -> 0 "504"`, took: time.Second},
		{name: "lost", reply: Reply{Drop: true}, want: `on_http_call_response root 1 24 0; header 6 :status -> 0 "504"`, took: time.Second},
		{name: "reset", reply: Reply{Reset: true, Delay: time.Millisecond}, want: `on_http_call_response root 0 0 0; header 6 :status -> 2`, took: time.Millisecond},
		{name: "with trailers", reply: GRPCReplyOverHTTP([]byte("m"), 0, ""), want: `on_http_call_response root 1 6 1; header 6 :status -> 0 "200"`},
	} {
		t.Run(step.name, func(t *testing.T) {
			h := newHost(t, Config{HTTPCall: func(*Call) Reply { return step.reply }})
			s := h.Worker(0).Request(asked(waits...))
			transcript(h)
			h.Advance(5 * time.Second)
			if took := s.Outcome().At - s.Started(); s.Outcome().Kind != Continued || took != step.took {
				t.Errorf("%v after %v, want continued after %v", s.Outcome(), took, step.took)
			}
			checkLines(t, transcript(h)[:2], strings.ReplaceAll(step.want, "; ", "\n"))
			checkKinds(t, h)
		})
	}
}

func delayed(d time.Duration) Reply {
	r := StatusReply(200, "")
	r.Delay = d
	return r
}

// TestReplyToNobody: the client has left; the reply arrives all the same.
func TestReplyToNobody(t *testing.T) {
	h := newHost(t, Config{
		PluginConfig: []byte("reply: header 6 :status; buffer 4 0 9; effective gone"),
		HTTPCall: func(*Call) Reply {
			return Reply{Headers: Headers{{":status", "200"}}, Body: []byte("lease"), Delay: 20 * time.Millisecond}
		},
	})
	s := h.Worker(0).Request(asked("request", "remember gone; call svc /ask 1000; pause"))
	h.Advance(10 * time.Millisecond)
	s.Cancel()
	transcript(h)
	h.Advance(10 * time.Millisecond)
	checkLines(t, transcript(h), `
		on_http_call_response root 1 5 0
		header 6 :status -> 0 "200"
		buffer 4 0 9 -> 0 "lease"
		effective gone -> 2`)
	if s.Outcome().Kind != Cancelled || !s.Ended() || h.Worker(0).OpenStreams() != 0 {
		t.Errorf("%v, ended %v", s.Outcome(), s.Ended())
	}
	checkKinds(t, h)
}

// TestRepeatedReply: the same reply again, after the first was used up.
func TestRepeatedReply(t *testing.T) {
	h := newHost(t, Config{HTTPCall: func(*Call) Reply {
		r := StatusReply(200, "")
		r.Repeat = 2
		return r
	}})
	s := h.Worker(0).Request(asked("request", "call svc /ask 1000; pause", "reply", "header 6 :status"))
	transcript(h)
	h.Advance(0)
	checkLines(t, transcript(h), strings.Repeat("on_http_call_response root 1 0 0\nheader 6 :status -> 0 \"200\"\n", 3))
	s.Cancel()
}

// TestHeldCalls are answered when the test likes, once.
func TestHeldCalls(t *testing.T) {
	var held []*Call
	h := newHost(t, Config{HTTPCall: func(c *Call) Reply { held = append(held, c); return Reply{Drop: true} }})
	w := h.Worker(0)
	first, second := w.Request(asked(waits...)), w.Request(asked(waits...))
	h.Advance(500 * time.Millisecond)
	if !held[1].Respond(StatusReply(200, "")) {
		t.Error("a call that waits cannot be answered")
	}
	h.Advance(0)
	if second.Outcome().Kind != Continued || first.Outcome().Kind != Pending {
		t.Errorf("%v %v", first.Outcome(), second.Outcome())
	}
	if held[1].Respond(StatusReply(200, "")) || !held[1].Over() {
		t.Error("a call was answered twice")
	}
	h.Advance(500 * time.Millisecond)
	if held[0].Respond(StatusReply(200, "")) || first.Outcome().Kind != Continued {
		t.Errorf("a call was answered after its timeout; %v", first.Outcome())
	}
	checkKinds(t, h)
}

// TestHandlerMayUseTheHost: it runs when no guest does.
func TestHandlerMayUseTheHost(t *testing.T) {
	var h *Host
	var inner *Stream
	h = newHost(t, Config{Workers: 2, HTTPCall: func(*Call) Reply {
		if inner == nil {
			inner = h.Worker(0).Request(asked("request", "call svc /inner 1000; pause", "reply", "effective stream; reply 403 inner -1"))
		}
		return delayed(time.Millisecond)
	}})
	outer := h.Worker(0).Request(asked(waits...))
	h.After(time.Second, func() { outer.Cancel() })
	h.Advance(time.Millisecond)
	if inner.Outcome().Status != 403 || outer.Outcome().Kind != Continued {
		t.Errorf("inner %v, outer %v", inner.Outcome(), outer.Outcome())
	}
	h.Advance(time.Second)
	if !outer.Ended() {
		t.Error("After did not run")
	}
	checkKinds(t, h)
}

// TestOutstandingCallsAreBounded, as by a circuit breaker.
func TestOutstandingCallsAreBounded(t *testing.T) {
	h := newHost(t, Config{MaxCalls: 2})
	transcript(h)
	h.Worker(0).Request(asked("request", "call a /x 1000; grpc-call a s m 1000 x; call a /x 1000; grpc-stream a s m; grpc-cancel grpc; grpc-cancel 5; call a /x 1000"))
	checkLines(t, transcript(h)[2:7], `
		call a /x 1000 -> 0
		grpc-call a s m 1000 x -> 0
		call a /x 1000 -> 10
		grpc-stream a s m -> 10
		grpc-cancel grpc -> 2`)
	h.Advance(time.Second)
	if n := h.Worker(0).OutstandingCalls(); n != 0 {
		t.Errorf("%d calls outlived their timeouts", n)
	}
}

// TestClusters: unknown, down and up again.
func TestClusters(t *testing.T) {
	h := newHost(t, Config{Clusters: []string{"svc"}})
	h.SetClusterDown("svc", true)
	h.Worker(0).Request(asked("request", "call svc /x 1; call other /x 1; grpc-call svc s m 1 x; grpc-call other s m 1 x"))
	checkLines(t, transcript(h)[5:9], "call svc /x 1 -> 10\ncall other /x 1 -> 2\ngrpc-call svc s m 1 x -> 10\ngrpc-call other s m 1 x -> 4")
	h.SetClusterDown("svc", false)
	h.ClearLogs()
	h.Worker(0).Request(asked("request", "call svc /x 1"))
	checkLines(t, transcript(h)[2:3], "call svc /x 1 -> 0")
}

// TestGRPCStreamHandler hears the guest's messages and its end.
func TestGRPCStreamHandler(t *testing.T) {
	var heard []string
	var streams []*GRPCStream
	h := newHost(t, Config{GRPCStream: func(s *GRPCStream) {
		streams = append(streams, s)
		s.OnMessage = func(m []byte, end bool) {
			if end {
				m = append(m, " end"...)
			}
			heard = append(heard, string(m))
		}
		s.OnCancel = func() { heard = append(heard, "cancelled") }
	}})
	w := h.Worker(0)
	w.Request(asked("request", "grpc-stream svc s.S M; grpc-send grpc a 0; grpc-send grpc b 0; grpc-close grpc"))
	w.Request(asked("request", "grpc-stream svc s.S M; grpc-send grpc c 1; grpc-cancel grpc; grpc-send grpc d 0"))
	if diff := cmp.Diff([]string{"a", "b", " end", "c end", "cancelled"}, heard); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if streams[0].Over() || !streams[1].Over() || w.OutstandingCalls() != 1 {
		t.Errorf("over %v %v, %d outstanding", streams[0].Over(), streams[1].Over(), w.OutstandingCalls())
	}
	streams[1].Message([]byte("late"), 0)
	streams[0].Finish(0, "", nil, 0)
	streams[0].Finish(0, "", nil, 0)
	h.ClearLogs()
	h.Advance(time.Second)
	checkLines(t, transcript(h), "on_grpc_receive_trailing_metadata root\non_grpc_close root 0")
	if !streams[0].Over() || w.OutstandingCalls() != 0 {
		t.Error("a stream closed from both sides is not over")
	}
}

// TestHeldGRPCCall is answered later.
func TestHeldGRPCCall(t *testing.T) {
	var held *GRPCCall
	h := newHost(t, Config{GRPCCall: func(c *GRPCCall) GRPCReply { held = c; return GRPCReply{Drop: true} }})
	h.Worker(0).Request(asked("request", "grpc-call svc s.S M 1000 message", "grpc", "buffer 5 0 9"))
	if held.Service != "s.S" || held.Method != "M" || string(held.Message) != "message" || held.Metadata.Get("x-meta") != "data" || held.Timeout != time.Second {
		t.Errorf("the call: %+v", held)
	}
	transcript(h)
	if !held.Respond(GRPCReply{Message: []byte("answer")}) {
		t.Error("it does not wait")
	}
	h.Advance(0)
	checkLines(t, transcript(h), "on_grpc_receive root 6\nbuffer 5 0 9 -> 0 \"answer\"")
	if held.Respond(GRPCReply{}) || !held.Over() {
		t.Error("it was answered twice")
	}
}

// TestGRPCOverHTTP: what the host frames it can read, and nothing that is cut.
func TestGRPCOverHTTP(t *testing.T) {
	r := GRPCReplyOverHTTP([]byte("message"), 0, "")
	if m, ok := (&Call{Body: r.Body}).GRPCMessage(); !ok || string(m) != "message" {
		t.Errorf("%q %v", m, ok)
	}
	for _, body := range []string{"", "\x00\x00\x00\x00", "\x00\x00\x00\x00\x02a", "\x00\x00\x00\x00\x00a", "\x01\x00\x00\x00\x01a", "\x00\xff\xff\xff\xffa"} {
		if m, ok := (&Call{Body: []byte(body)}).GRPCMessage(); ok {
			t.Errorf("%q reads as %q", body, m)
		}
	}
	failed := GRPCReplyOverHTTP(nil, 14, "50% away")
	if len(failed.Body) != 0 || failed.Trailers.Get("grpc-status") != "14" || failed.Trailers.Get("grpc-message") != "50%25 away" {
		t.Errorf("%+v", failed)
	}
}
