package wasmhost

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/envoy-transcripts.txt with what the real Envoy does")

const transcriptsFile = "testdata/envoy-transcripts.txt"

// How long the upstream takes for /slow, and when a client leaves that leaves.
const (
	slowTakes   = 600 * time.Millisecond
	leavesAfter = 150 * time.Millisecond
)

// readTranscripts reads blocks that begin with "=== name".
func readTranscripts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(transcriptsFile)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, block := range strings.Split("\n"+string(text), "\n=== ")[1:] {
		name, lines, _ := strings.Cut(block, "\n")
		out[name] = strings.TrimSpace(lines)
	}
	return out
}

// clientLine shows a response without what only Envoy's codecs add.
func clientLine(m Message) string {
	var shown []string
	for _, p := range m.Headers {
		switch p[0] {
		case ":status", "date", "server", "x-envoy-upstream-service-time", "connection", "transfer-encoding":
			continue
		case "content-length":
			if p[1] == "0" {
				continue
			}
		}
		shown = append(shown, p[0]+"="+p[1])
	}
	slices.Sort(shown)
	return fmt.Sprintf("client: %s %q %q", m.Headers.Get(":status"), shown, m.Body)
}

// upstreamHost answers calls and requests as the real upstream of the other test.
type upstreamHost struct{}

func upstreamMessage(method, path string, length int) Message {
	body := fmt.Sprintf("%s %s %d", method, path, length)
	return Message{Headers: Headers{
		{":status", "200"}, {"content-length", strconv.Itoa(len(body))}, {"content-type", "text/plain"}, {"x-up", "yes"},
	}, Body: []byte(body)}
}

func (u *upstreamHost) call(c *Call) Reply {
	m := upstreamMessage(c.Headers.Get(":method"), c.Headers.Get(":path"), len(c.Body))
	r := Reply{Headers: m.Headers, Body: m.Body, Delay: time.Millisecond}
	switch c.Headers.Get(":path") {
	case "/slow":
		r.Delay = slowTakes
	case "/half":
		r.Reset = true
	}
	return r
}

func (u *upstreamHost) grpc(c *GRPCCall) GRPCReply {
	switch c.Method {
	case "Bad":
		return GRPCReply{Status: 7, StatusMessage: "no way", Delay: time.Millisecond}
	case "Slow":
		return GRPCReply{Delay: slowTakes}
	}
	return GRPCReply{Message: []byte("ok"), Delay: time.Millisecond}
}

func (u *upstreamHost) stream(s *GRPCStream) {
	s.Metadata(Headers{{":status", "200"}, {"content-type", "application/grpc"}}, time.Millisecond)
	if s.Method == "Bad" {
		s.Finish(7, "no way", nil, time.Millisecond)
		return
	}
	s.Message([]byte("ok"), time.Millisecond)
	s.Finish(0, "", Headers{{"grpc-status", "0"}, {"x-trail", "t"}}, time.Millisecond)
}

func (c likeCase) target() string {
	if c.path == "" {
		return "/x"
	}
	return c.path
}

func (c likeCase) headers() Headers {
	h := Headers{{":method", "GET"}, {":path", c.target()}, {":authority", "shop"}, {":scheme", "http"}}
	if c.body != "" {
		h[0][1] = "POST"
		h = append(h, [2]string{"content-length", strconv.Itoa(len(c.body))})
	}
	if c.grpc {
		h = append(h, [2]string{"content-type", "application/grpc"})
	}
	return append(h, asked(c.scripts...)[4:]...)
}

// runHere plays the case: the upstream is as quick as in the other test.
func (c likeCase) runHere(h *Host) string {
	h.ClearLogs()
	w := h.Worker(0)
	s := w.Send(Request{Headers: c.headers(), Open: c.body != ""})
	if c.body != "" {
		s.SendBody([]byte(c.body), false)
		s.SendBody(nil, true)
	}
	upstreamTakes := time.Duration(0)
	if c.path == "/slow" {
		upstreamTakes = slowTakes
	}
	h.Advance(0) // Queues are quicker than the upstream.
	const step = 10 * time.Millisecond
	for waited := time.Duration(0); waited < 3*time.Second && !s.Ended(); waited += step {
		if up := s.Upstream(); up.End && waited >= upstreamTakes {
			m := upstreamMessage(up.Headers.Get(":method"), up.Headers.Get(":path"), len(up.Body))
			s.RespondHeaders(m.Headers, false)
			s.RespondBody(m.Body, false)
			s.RespondBody(nil, true)
		}
		h.Advance(step)
		if c.leaves && waited >= leavesAfter {
			s.Cancel()
		}
	}
	answer := "client: nothing"
	if r := s.Response(); r.End {
		answer = clientLine(r)
	}
	h.Advance(3 * time.Second)
	return strings.Join(append(transcript(h), answer), "\n")
}

func likeHost(t *testing.T) *Host {
	u := &upstreamHost{}
	h := newHost(t, Config{
		PluginName: "echo-name", RootID: "echo-root", VMID: "echo-vm", VMConfig: []byte("vmconf"), PluginConfig: []byte(likeConfig),
		Clusters: []string{"up", "g", "empty-one"}, HTTPCall: u.call, GRPCCall: u.grpc, GRPCStream: u.stream,
		Properties: []Property{
			StringProperty("gold", "metadata", "filter_metadata", "my.ns", "tier"),
			NumberProperty(3, "metadata", "filter_metadata", "my.ns", "n"),
			BoolProperty(true, "metadata", "filter_metadata", "my.ns", "b"),
			StringProperty("v", "metadata", "filter_metadata", "my.ns", "sub", "k"),
		},
	})
	h.SetClusterDown("empty-one", true)
	return h
}

// TestLikeEnvoy: this host comes to the transcripts that Envoy came to.
func TestLikeEnvoy(t *testing.T) {
	want := readTranscripts(t)
	h := likeHost(t)
	if diff := cmp.Diff(want["configure"], strings.Join(transcript(h), "\n")); diff != "" {
		t.Errorf("configure (-Envoy +here):\n%s", diff)
	}
	for _, c := range likeCases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(strings.Split(want[c.name], "\n"), strings.Split(c.runHere(h), "\n")); diff != "" {
				t.Errorf("(-Envoy +here):\n%s", diff)
			}
		})
	}
}
