package main

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"sluice/testharness/rig"
)

func TestReadWrk(t *testing.T) {
	const head = "Running 2s test\n  1 threads and 64 connections\n"
	for _, test := range []struct {
		name, output string
		want         outcome
		wrong        string
	}{
		{"plain", head + "  41234 requests in 2.10s, 5.50MB read\nRequests/sec: 1.0\n", outcome{41234, 0, 2100 * time.Millisecond}, ""},
		{
			"refused", head + "  7 requests in 1.00m, 5.50MB read\n  Non-2xx or 3xx responses: 6\n",
			outcome{7, 6, time.Minute},
			"",
		},
		{"errors", head + "  7 requests in 1.00s, 1B read\n  Socket errors: connect 0, read 3, write 0, timeout 0\n", outcome{}, "read 3"},
		{"nothing", head, outcome{}, "no total"},
		{"none", head + "  0 requests in 1.00s, 1B read\n", outcome{}, "0 requests"},
	} {
		got, err := readWrk(test.output)
		if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %v", test.name, err)
		}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestParseStat(t *testing.T) {
	const text = "42 (a name) with) R 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 3 0"
	got, err := parseStat(text)
	if err != nil || got != 3*time.Second {
		t.Errorf("%v, %v; want 3s", got, err)
	}
	if _, err := parseStat("42 (short) R 1"); err == nil {
		t.Error("nothing is missing from a short line")
	}
	if spent, err := cpuTime(os.Getpid()); err != nil || spent < 0 {
		t.Error(spent, err)
	}
	if bytes, err := residentBytes(os.Getpid()); err != nil || bytes < 1<<20 {
		t.Error(bytes, err)
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(test.values); got != test.want {
			t.Errorf("%v: %v, want %v", test.values, got, test.want)
		}
	}
}

// TestTable: a machine that is twice as slow in one round changes neither ratios nor differences' meaning.
func TestTable(t *testing.T) {
	all := []contender{{name: plainName}, {name: leaseName, service: &rig.Process{}}, {name: globalName, service: &rig.Process{}}}
	samples := make([][]sample, len(all))
	for _, slow := range []float64{1, 2, 1} {
		for i, s := range []sample{
			{perSecond: 1000, envoy: 40 * time.Microsecond},
			{perSecond: 900, envoy: 48 * time.Microsecond, service: time.Microsecond},
			{perSecond: 450, envoy: 90 * time.Microsecond, service: 30 * time.Microsecond},
		} {
			s.perSecond /= slow
			samples[i] = append(samples[i], s)
		}
	}
	got := table(all, samples)
	for _, want := range []string{"| 900 | 0.90 | 2.00 | 0 | 0 | 48.0 | 1.0 |  | +9.0 |", "| 1000 | 1.00 | 2.22 |"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if said := verdict(all, samples); strings.Contains(said, "missed") || strings.Count(said, ": met") != 3 {
		t.Error(said)
	}
	samples[1] = samples[2]
	if said := verdict(all, samples); strings.Count(said, "missed") != 3 {
		t.Error(said)
	}
}

// TestBootstraps: Envoy takes what is measured, and with and without an upstream.
func TestBootstraps(t *testing.T) {
	venv, err := rig.EnvoyVenv(".")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := rig.FindEnvoy(t.Context(), venv, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := upstreamBootstrap()
	if err != nil {
		t.Fatal(err)
	}
	to := addresses{
		upstream: "127.0.0.1:1", global: "127.0.0.1:4", control: map[string]string{onMemory: "127.0.0.1:2", onRedis: "127.0.0.1:3"},
	}
	// Validation loads the filter, and any will do that does nothing.
	empty := t.TempDir() + "/empty.wasm"
	if err := os.WriteFile(empty, emptyWasm, 0o600); err != nil {
		t.Fatal(err)
	}
	measured, err := measuredBootstrap(to, filterCode{wasm: empty, plugin: object{"max_keys": 100}}, false)
	if err != nil {
		t.Fatal(err)
	}
	direct, err := measuredBootstrap(to, filterCode{wasm: empty}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, bootstrap := range [][]byte{upstream, measured, direct} {
		if err := rig.ValidateBootstrap(t.Context(), rig.EnvoyOptions{Binary: binary, Bootstrap: bootstrap}); err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{`"max_keys":100`, `"control_cluster":"sluice-memory"`, `"vm_id":"sluice-redis"`, "LocalRateLimit", "v3.RateLimit"} {
		if !strings.Contains(string(measured), want) {
			t.Errorf("no %s in %s", want, measured)
		}
	}
}

// emptyWasm is a module with hardly anything in it: what says that it speaks proxy-wasm 0.2.1, a malloc that has nothing to
// give, and a memory.
var emptyWasm = []byte("\x00asm\x01\x00\x00\x00\x01\x09\x02`\x00\x00`\x01\x7f\x01\x7f\x03\x03\x02\x00\x01\x05\x03\x01\x00\x01\x07-\x03\x17proxy_abi_version_0_2_1\x00\x00\x06malloc\x00\x01\x06memory\x02\x00\x0a\x09\x02\x02\x00\x0b\x04\x00A\x00\x0b")

func TestAnswerOK(t *testing.T) {
	address, err := rig.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- answerOK(ctx, address) }()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	answer, err := ratelimit.NewRateLimitServiceClient(connection).ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{}, grpc.WaitForReady(true))
	if err != nil || answer.GetOverallCode() != ratelimit.RateLimitResponse_OK {
		t.Errorf("%v, %v", answer, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestOwnClosedLoop: what stands in for wrk counts answers by their status.
func TestOwnClosedLoop(t *testing.T) {
	listener, err := net.Listen("tcp", rig.Loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				buffer := make([]byte, 4096)
				for {
					if _, err := connection.Read(buffer); err != nil {
						return
					}
					if _, err := connection.Write([]byte("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	got, err := ownClosedLoop(t.Context(), listener.Addr().String(), "/denial", 100*time.Millisecond)
	if err != nil || got.requests == 0 || got.refused != got.requests {
		t.Errorf("%+v, %v", got, err)
	}
}
