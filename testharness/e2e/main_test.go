// Package e2e runs what users run: real Envoys with the real filter, the real service, a real Redis; and looks at it from
// the clients' side.
//
// An Envoy takes seconds to compile the filter, so all tests share two of them, with two workers each, and one address
// where they find the service. What is behind that address is each test's own business: it calls serve, or puts something
// else there. The tests run one after the other.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sluice/envoy"
	"sluice/testharness/rig"
)

// How large the shared fleet is.
const (
	envoyCount  = 2
	workerCount = 2
)

// fleet is what all tests share.
var fleet struct {
	directory    string // of the binaries and the policy
	sluice, wasm string
	envoyBinary  string
	envoys       []*rig.Envoy
	control      string // where the Envoys look for the service
	upstream     string
	upstreamHits hits
}

// How long a worker waits for the service, and the service for its store: longer than by default, for a machine that is
// busy would have workers decide by themselves, and come to other counts.
const (
	timeout     = time.Second
	callTimeout = 800 * time.Millisecond
)

// plugin is what the filter is told.
var plugin = map[string]any{"control_cluster": envoy.ControlCluster, "timeout_ms": int(timeout.Milliseconds())}

func TestMain(m *testing.M) {
	ctx, cancel := context.WithCancel(context.Background())
	status := 1
	if err := setUp(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "setting up the end-to-end tests:", err)
	} else {
		status = m.Run()
	}
	current.stop()
	for _, e := range fleet.envoys {
		if e != nil {
			e.Stop()
		}
	}
	cancel()
	os.RemoveAll(fleet.directory)
	os.Exit(status)
}

func setUp(ctx context.Context) (err error) {
	if fleet.directory, err = os.MkdirTemp("", "sluice-e2e-"); err != nil {
		return err
	}
	if err := build(ctx); err != nil {
		return err
	}
	venv, err := rig.EnvoyVenv(".")
	if err != nil {
		return err
	}
	if fleet.envoyBinary, err = rig.FindEnvoy(ctx, venv, os.Stderr); err != nil {
		return err
	}
	if fleet.control, err = rig.FreeAddress(); err != nil {
		return err
	}
	if fleet.upstream, err = startUpstream(); err != nil {
		return err
	}
	bootstrap, err := watching(envoy.Bootstrap{Upstream: fleet.upstream, Control: fleet.control, Wasm: fleet.wasm, Plugin: plugin})
	if err != nil {
		return err
	}
	fleet.envoys = make([]*rig.Envoy, envoyCount)
	failures := make([]error, envoyCount)
	var starting sync.WaitGroup
	for i := range fleet.envoys {
		starting.Go(func() {
			fleet.envoys[i], failures[i] = rig.StartEnvoy(ctx, rig.EnvoyOptions{
				Binary: fleet.envoyBinary, Bootstrap: bootstrap, Concurrency: workerCount,
			})
		})
	}
	starting.Wait()
	return errors.Join(failures...)
}

// build builds what is tested from the sources as they are now.
func build(ctx context.Context) error {
	fleet.sluice = filepath.Join(fleet.directory, "sluice")
	fleet.wasm = filepath.Join(fleet.directory, "sluice.wasm")
	for _, args := range [][]string{
		{"build", "-o", fleet.sluice, "sluice/controlsvc"},
		{"build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", fleet.wasm, "sluice/filter"},
	} {
		command := exec.CommandContext(ctx, "go", args...)
		command.Env = os.Environ()
		if args[1] == "-buildmode=c-shared" {
			command.Env = append(command.Env, "GOOS=wasip1", "GOARCH=wasm")
		}
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("go %v: %w:\n%s", args, err, output)
		}
	}
	return nil
}

// hits counts the requests that came through to the upstream, by path.
type hits struct {
	mu     sync.Mutex
	counts map[string]int64
}

func (h *hits) add(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts = map[string]int64{}
	}
	h.counts[path]++
}

func (h *hits) of(path string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[path]
}

func startUpstream() (string, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(rig.Loopback, "0"))
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fleet.upstreamHits.add(r.URL.Path)
		_, _ = io.WriteString(w, "hello\n")
	})}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), nil
}

func listeners() []string {
	var addresses []string
	for _, e := range fleet.envoys {
		addresses = append(addresses, e.Listener(envoy.Listener))
	}
	return addresses
}

// filterStats sums a counter of the filter's over all workers, as of its last tick.
func filterStats(t *testing.T, name string) int64 {
	t.Helper()
	var sum int64
	for _, e := range fleet.envoys {
		stats, err := e.Stats(t.Context(), "wasmcustom.sluice."+name)
		if err != nil {
			t.Fatal(err)
		}
		sum += stats["wasmcustom.sluice."+name]
	}
	return sum
}

// awaitFilterStat waits until a counter of the filter's has come to a number: it is told with a worker's tick.
func awaitFilterStat(t *testing.T, name string, want int64) {
	t.Helper()
	var got int64
	if err := until(recoverWithin, func() error {
		if got = filterStats(t, name); got < want {
			return fmt.Errorf("%s is %d, want %d", name, got, want)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
