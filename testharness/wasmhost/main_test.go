package wasmhost

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// echoWasm is testdata/echo as stock Go compiles it.
var echoWasm []byte

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "wasmhost")
	if err == nil {
		echoWasm, err = buildGuest(dir, "./testdata/echo")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot build the test's filter:", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func buildGuest(dir, pkg string) ([]byte, error) {
	out := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, msg)
	}
	return os.ReadFile(out)
}

// newHost loads the echo filter. A script of the plugin's goes into the
// configuration as "callback: commands".
func newHost(t testing.TB, cfg Config) *Host {
	t.Helper()
	h, err := New(context.Background(), echoWasm, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// asked is a GET with scripts for the filter, as pairs of callback and script.
func asked(scripts ...string) Headers {
	h := Headers{{":method", "GET"}, {":path", "/x"}, {":authority", "shop"}, {":scheme", "http"}}
	for i := 0; i+1 < len(scripts); i += 2 {
		h = append(h, [2]string{"x-on-" + scripts[i], scripts[i+1]})
	}
	return h
}

// transcript takes what the filter has logged since the last time.
func transcript(h *Host) []string {
	var out []string
	for _, e := range h.Logs() {
		out = append(out, e.Message)
	}
	h.ClearLogs()
	return out
}

func checkLines(t testing.TB, got []string, want string) {
	t.Helper()
	var lines []string
	for l := range strings.SplitSeq(want, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	if diff := cmp.Diff(lines, got); diff != "" {
		t.Errorf("transcript (-want +got):\n%s", diff)
	}
}

func checkKinds(t testing.TB, h *Host, want ...ViolationKind) {
	t.Helper()
	var got []ViolationKind
	for _, v := range h.Violations() {
		got = append(got, v.Kind)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s\n%v", diff, h.Violations())
	}
}
