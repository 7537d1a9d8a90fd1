package wasmhost

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMessages: what the upstream and the client get, with bodies and trailers,
// sent in parts.
func TestMessages(t *testing.T) {
	h := newHost(t, Config{})
	s := h.Worker(0).Send(Request{
		Headers: asked("body", "buffer 0 0 99", "trailers", "header 1 x-t; add 1 x-added y", "response-trailers", "header 3 x-r; replace 3 x-r 2"), Open: true,
	})
	s.SendBody([]byte("one,"), false)
	s.SendBody([]byte("two"), false)
	if up := s.Upstream(); string(up.Body) != "one,two" || up.End {
		t.Errorf("the upstream has %q, end %v", up.Body, up.End)
	}
	s.SendTrailers(Headers{{"X-T", "1"}})
	up := s.Upstream()
	up.Headers = up.Headers[:4]
	want := Message{Headers: asked(), Body: []byte("one,two"), Trailers: Headers{{"x-t", "1"}, {"x-added", "y"}}, End: true}
	if diff := cmp.Diff(want, up); diff != "" {
		t.Errorf("upstream (-want +got):\n%s", diff)
	}
	answer := Message{Headers: Headers{{":status", "200"}}, Body: []byte("body"), Trailers: Headers{{"x-r", "1"}}, End: true}
	s.Respond(answer)
	answer.Trailers = Headers{{"x-r", "2"}}
	if diff := cmp.Diff(answer, s.Response()); diff != "" {
		t.Errorf("client (-want +got):\n%s", diff)
	}
	checkLines(t, transcript(h)[3:], `
		on_context_create stream
		on_request_headers stream 0
		on_request_body stream 4 0
		buffer 0 0 99 -> 0 "one,"
		on_request_body stream 3 0
		buffer 0 0 99 -> 0 "two"
		on_request_trailers stream 1
		header 1 x-t -> 0 "1"
		add 1 x-added y -> 0
		on_response_headers stream 0
		on_response_body stream 4 0
		on_response_trailers stream 1
		header 3 x-r -> 0 "1"
		replace 3 x-r 2 -> 0
		on_log stream
		on_done stream
		on_delete stream`)
	// All over: nothing more happens.
	s.SendBody([]byte("x"), true)
	s.SendTrailers(nil)
	s.Respond(answer)
	s.Cancel()
	if got := s.RespondUpstream(answer.Headers); got.Get(":status") != "200" || len(transcript(h)) != 0 || s.Outcome().Kind != Continued {
		t.Errorf("after the end: %v %v", got, s.Outcome())
	}
	checkKinds(t, h)
}

// TestHeldParts: what is held back waits for the rest, and goes on in one piece.
func TestHeldParts(t *testing.T) {
	for _, step := range []struct {
		name    string
		scripts []string
		held    string // the body that the upstream has while the request is held
	}{
		{"headers", []string{"request", "pause; call a /x 0"}, ""},
		{"body", []string{"body", "pause; call a /x 0"}, ""},
		{"trailers", []string{"trailers", "pause; call a /x 0"}, "onetwo"},
	} {
		t.Run(step.name, func(t *testing.T) {
			h := newHost(t, Config{HTTPCall: func(*Call) Reply { return delayed(time.Second) }})
			s := h.Worker(0).Send(Request{Headers: asked(append(step.scripts, "reply", "effective stream; continue 0")...), Open: true})
			s.SendBody([]byte("one"), false)
			s.SendBody([]byte("two"), false)
			s.SendTrailers(Headers{{"x-t", "1"}})
			if step.name == "body" {
				// Trailers that pass take the held body along.
				if got := s.Upstream(); string(got.Body) != "onetwo" || !got.End {
					t.Errorf("the upstream has %q, end %v", got.Body, got.End)
				}
				return
			}
			if got := s.Upstream(); string(got.Body) != step.held || got.End || s.Outcome().Kind != Pending {
				t.Errorf("held, the upstream has %q, end %v; %v", got.Body, got.End, s.Outcome())
			}
			h.Advance(time.Second)
			got := s.Upstream()
			if string(got.Body) != "onetwo" || got.Trailers.Get("x-t") != "1" || !got.End || s.Outcome().Kind != Continued {
				t.Errorf("released, the upstream has %q, trailers %v, end %v; %v", got.Body, got.Trailers, got.End, s.Outcome())
			}
			checkKinds(t, h)
		})
	}
}

// TestHeldResponse is nil until the filter lets it go.
func TestHeldResponse(t *testing.T) {
	h := newHost(t, Config{HTTPCall: func(*Call) Reply { return delayed(time.Second) }})
	s := h.Worker(0).Request(asked("response", "pause; call a /x 0", "reply", "effective stream; add 2 x-late 1; continue 1"))
	if got := s.RespondUpstream(Headers{{":status", "200"}}); got != nil || s.Ended() {
		t.Errorf("a held response went: %v", got)
	}
	h.Advance(time.Second)
	if got := s.Response(); got.Headers.Get("x-late") != "1" || !got.End || !s.Ended() {
		t.Errorf("the response: %v", got)
	}
	checkKinds(t, h)
}

// TestNoUpstreamWithoutRelease: a request that is held or answered has none.
func TestNoUpstreamWithoutRelease(t *testing.T) {
	h := newHost(t, Config{})
	paused, answered := h.Worker(0).Request(asked("request", "pause")), h.Worker(0).Request(asked("request", "reply 429 no -1 retry-after=7"))
	for _, s := range []*Stream{paused, answered} {
		if s.Upstream().Headers != nil {
			t.Errorf("the upstream has a request that is %v", s.Outcome())
		}
		s.RespondUpstream(Headers{{":status", "200"}})
	}
	if paused.Response().Headers != nil {
		t.Error("a response passed a held request")
	}
	want := Outcome{Kind: LocalReply, At: time.Hour, Status: 429, Headers: Headers{{"retry-after", "7"}}, Body: "no", GRPCStatus: -1, Details: "echo details"}
	if diff := cmp.Diff(want, answered.Outcome()); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	wantResponse := Message{
		Headers: Headers{{":status", "429"}, {"retry-after", "7"}, {"content-length", "2"}, {"content-type", "text/plain"}},
		Body:    []byte("no"), End: true,
	}
	if diff := cmp.Diff(wantResponse, answered.Response()); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}

// TestLocalReplyToHEAD tells the length, and sends no body.
func TestLocalReplyToHEAD(t *testing.T) {
	h := newHost(t, Config{})
	head := asked("request", "reply 429 denied -1")
	head[0][1] = "HEAD"
	got := h.Worker(0).Request(head).Response()
	if got.Headers.Get("content-length") != "6" || len(got.Body) != 0 || !got.End {
		t.Errorf("%v", got)
	}
}

// TestGRPCStatusOfReplies: what an HTTP status becomes for a gRPC client.
func TestGRPCStatusOfReplies(t *testing.T) {
	h := newHost(t, Config{})
	for status, want := range map[string]string{
		"400": "13", "401": "16", "403": "7", "404": "12", "429": "14", "502": "14", "503": "14", "504": "14", "500": "2", "418": "2",
	} {
		request := append(asked("request", "reply "+status+" x -1"), [2]string{"content-type", "application/grpc+proto"})
		got := h.Worker(0).Request(request).Response()
		if got.Headers.Get("grpc-status") != want || got.Headers.Get(":status") != "200" {
			t.Errorf("status %s: %v, want grpc-status %s", status, got.Headers, want)
		}
	}
	notGRPC := append(asked("request", "reply 429 x 8"), [2]string{"content-type", "application/grpc-web"})
	if got := h.Worker(0).Request(notGRPC).Response(); got.Headers.Has("grpc-status") {
		t.Errorf("gRPC-Web is not gRPC: %v", got.Headers)
	}
}

// TestReset is the filter closing the stream.
func TestReset(t *testing.T) {
	h := newHost(t, Config{})
	s := h.Worker(0).Request(asked("request", "close 0; pause"))
	if s.Outcome().Kind != Closed || !s.Ended() || s.Response().Headers != nil {
		t.Errorf("%v, response %v", s.Outcome(), s.Response())
	}
	s = h.Worker(0).Request(asked("response", "close 1; pause"))
	s.RespondUpstream(Headers{{":status", "200"}})
	if s.Outcome().Kind != Closed || !s.Ended() || s.Response().Headers != nil {
		t.Errorf("%v, response %v", s.Outcome(), s.Response())
	}
	checkKinds(t, h)
}

// TestProperties: the Host's, the stream's own, and what follows from it.
func TestProperties(t *testing.T) {
	h := newHost(t, Config{
		PluginName: "p", RootID: "r", VMID: "v",
		PluginConfig: []byte("configure: prop node id; prop xds cluster_name; prop plugin_name; prop source address"),
		Properties: []Property{
			StringProperty("n1", "node", "id"), StringProperty("up", "xds", "cluster_name"), IntProperty(7, "a", "b"), StringProperty("host", "own"),
			BoolProperty(false, "connection", "mtls"), NumberProperty(1, "a", "c"),
		},
	})
	checkLines(t, transcript(h)[3:], `
		prop node id -> 0 "n1"
		prop xds cluster_name -> 1
		prop plugin_name -> 0 "p"
		prop source address -> 1`)
	s := h.Worker(0).Send(Request{
		Headers: asked("request", "prop own; prop source address; prop source port; prop connection_id; prop connection id; prop connection mtls; prop a b; prop a; prop xds cluster_name; prop plugin_root_id; prop plugin_vm_id; set-prop said x"),
		Source:  "[2001:db8::1]:4242", ConnectionID: 9, Properties: []Property{StringProperty("mine", "own")},
	})
	nine, port := `"\t\x00\x00\x00\x00\x00\x00\x00"`, `"\x92\x10\x00\x00\x00\x00\x00\x00"`
	checkLines(t, transcript(h)[2:], strings.Join([]string{
		`prop own -> 0 "mine"`, `prop source address -> 0 "[2001:db8::1]:4242"`, `prop source port -> 0 ` + port,
		`prop connection_id -> 0 ` + nine, `prop connection id -> 0 ` + nine, `prop connection mtls -> 0 "\x00"`,
		`prop a b -> 0 "\a\x00\x00\x00\x00\x00\x00\x00"`,
		`prop a -> 0 "\x02\x00\x00\x00\x01\x00\x00\x00\b\x00\x00\x00\x01\x00\x00\x00\b\x00\x00\x00b\x00\a\x00\x00\x00\x00\x00\x00\x00\x00c\x00\x00\x00\x00\x00\x00\x00\xf0?\x00"`,
		`prop xds cluster_name -> 0 "up"`, `prop plugin_root_id -> 0 "r"`, `prop plugin_vm_id -> 0 "v"`, `set-prop said x -> 0`,
	}, "\n"))
	if v, ok := s.Property("said"); !ok || string(v) != "x" {
		t.Errorf("what the guest set: %q %v", v, ok)
	}
	h.Worker(0).Request(asked("request", "prop own; prop said; prop source address; prop connection_id")).Cancel()
	checkLines(t, transcript(h)[2:6], `
		prop own -> 0 "host"
		prop said -> 1
		prop source address -> 0 "127.0.0.1:50000"
		prop connection_id -> 0 "\x01\x00\x00\x00\x00\x00\x00\x00"`)
}

// TestEffectiveContext holds for the rest of the callback, and no longer.
func TestEffectiveContext(t *testing.T) {
	h := newHost(t, Config{PluginConfig: []byte("configure: tick 10\ntick: header 0 :path; effective it; header 0 :path; prop source address; effective 0; header 0 :path; effective it")})
	h.Worker(0).Request(asked("request", "remember it; pause"))
	transcript(h)
	h.Advance(20 * time.Millisecond)
	checkLines(t, transcript(h), strings.Repeat(`
		on_tick root
		header 0 :path -> 2
		effective it -> 0
		header 0 :path -> 0 "/x"
		prop source address -> 0 "127.0.0.1:50000"
		effective 0 -> 0
		header 0 :path -> 2
		effective it -> 0`, 2))
}
