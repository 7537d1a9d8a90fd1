package wasmhost

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/testharness/rig"
)

// TestRealEnvoy plays the same cases in a real Envoy, and compares with the
// transcripts that TestLikeEnvoy goes by. With -update it writes them.
func TestRealEnvoy(t *testing.T) {
	envoy := startEnvoy(t, startUpstream(t))
	recorded := readTranscripts(t)
	got := map[string]string{"configure": firstConfiguration(envoy)}
	for _, c := range likeCases {
		got[c.name] = c.runInEnvoy(t, envoy, recorded[c.name])
		// Calls have their time, and clients leave when theirs is over: on a machine that is busy another order may come of it.
		for try := 1; !*update && got[c.name] != recorded[c.name] && try < 5; try++ {
			t.Logf("%s, once more: (-recorded +now):\n%s", c.name, cmp.Diff(recorded[c.name], got[c.name]))
			settleEnvoy(t, envoy)
			got[c.name] = c.runInEnvoy(t, envoy, recorded[c.name])
		}
	}
	if *update {
		writeTranscripts(t, got)
		return
	}
	for name, want := range recorded {
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got[name], "\n")); diff != "" {
			t.Errorf("%s (-recorded +now):\n%s", name, diff)
		}
	}
}

func writeTranscripts(t *testing.T, got map[string]string) {
	t.Helper()
	var b strings.Builder
	names := []string{"configure"}
	for _, c := range likeCases {
		names = append(names, c.name)
	}
	for _, name := range names {
		fmt.Fprintf(&b, "=== %s\n%s\n\n", name, got[name])
	}
	if err := os.WriteFile(transcriptsFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// startUpstream serves HTTP/1.1 and HTTP/2 on one port, HOST:PORT.
func startUpstream(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: http.HandlerFunc(serveUpstream), Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// takeTime is for real processes, which know no other clock.
func takeTime(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func serveUpstream(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	text := fmt.Sprintf("%s %s %d", r.Method, r.URL, len(body))
	w.Header()["Date"] = nil
	switch r.URL.Path {
	case "/slow", "/grpc.Test/Slow":
		takeTime(r.Context(), slowTakes)
	case "/half":
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		takeTime(r.Context(), 50*time.Millisecond)
		panic(http.ErrAbortHandler)
	case "/grpc.Test/Ok":
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "grpc-status, x-trail")
		_, _ = w.Write([]byte{0, 0, 0, 0, 2, 'o', 'k'})
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set("X-Trail", "t")
		return
	case "/grpc.Test/Bad":
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "7")
		w.WriteHeader(http.StatusOK)
		return
	}
	w.Header().Set("X-Up", "yes")
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = io.WriteString(w, text)
}

func startEnvoy(t *testing.T, upstreamPort int) *rig.Envoy {
	t.Helper()
	venv, err := rig.EnvoyVenv(".")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := rig.FindEnvoy(t.Context(), venv, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	wasm := filepath.Join(t.TempDir(), "echo.wasm")
	if err := os.WriteFile(wasm, echoWasm, 0o600); err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile("testdata/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bootstrap := strings.NewReplacer(
		"{{wasm}}", wasm, "{{port}}", strconv.Itoa(upstreamPort), "{{config}}", strconv.Quote(likeConfig),
	).Replace(string(template))
	envoy, err := rig.StartEnvoy(t.Context(), rig.EnvoyOptions{Binary: binary, Bootstrap: []byte(bootstrap), Concurrency: 1, LogLevel: "info"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(envoy.Stop)
	return envoy
}

var wasmLog = regexp.MustCompile(`(?m)wasm log[^:]*: (.*)$`)

func guestLines(output string) []string {
	var out []string
	for _, m := range wasmLog.FindAllStringSubmatch(output, -1) {
		out = append(out, m[1])
	}
	return out
}

// firstConfiguration is what the first of the instances logged: Envoy has several.
func firstConfiguration(envoy *rig.Envoy) string {
	var out []string
	for i, line := range guestLines(envoy.Output()) {
		if i > 0 && line == "on_context_create root" {
			break
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// runInEnvoy sends the request, and waits until as much is logged as is expected,
// or, to record it anew, until nothing more is.
func (c likeCase) runInEnvoy(t *testing.T, envoy *rig.Envoy, expected string) string {
	t.Helper()
	before := len(envoy.Output())
	answer := c.ask(t, envoy.Listener("in"))
	if *update {
		settleEnvoy(t, envoy)
	}
	lines := strings.Count(expected, "\n") // The last is the client's.
	for waited := 0; !*update && waited < 1000 && len(guestLines(envoy.Output()[before:])) < lines; waited++ {
		takeTime(t.Context(), 10*time.Millisecond)
	}
	output := envoy.Output()
	if len(output) < before {
		t.Fatalf("%s: Envoy's output is more than is kept of it", c.name)
	}
	return strings.Join(append(guestLines(output[before:]), answer), "\n")
}

// settleEnvoy waits until whatever was asked before has been answered and logged.
func settleEnvoy(t *testing.T, envoy *rig.Envoy) {
	t.Helper()
	takeTime(t.Context(), 2*slowTakes)
	rig.AwaitStill(t.Context(), 5*time.Second, func() any { return envoy.Output() })
}

func (c likeCase) ask(t *testing.T, address string) string {
	t.Helper()
	h := c.headers()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	if c.leaves {
		ctx, cancel = context.WithTimeout(t.Context(), leavesAfter)
	}
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, h.Get(":method"), "http://"+address+c.target(), strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = h.Get(":authority")
	for _, p := range h {
		if p[0][0] != ':' && p[0] != "content-length" {
			r.Header.Set(p[0], p[1])
		}
	}
	response, err := (&http.Transport{DisableKeepAlives: false, DisableCompression: true}).RoundTrip(r)
	if err != nil {
		return "client: nothing"
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	m := Message{Headers: Headers{{":status", strconv.Itoa(response.StatusCode)}}, Body: body}
	for name, values := range response.Header {
		for _, v := range values {
			m.Headers.add(name, v)
		}
	}
	return clientLine(m)
}
