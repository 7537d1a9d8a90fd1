// Package ratelimit runs Envoy with its own rate limit filter, no wasm, on the real service and a real Redis.
package ratelimit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/testharness/pace"
	"sluice/testharness/rig"
)

const policy = `
domain: shop
limits:
  - {name: tenant, descriptor: [{key: tenant}], rates: [3/h], mode: strict}
  - {name: burst, descriptor: [{key: tenant, value: burst}], rates: [10/h], mode: lease}
  - {name: joined, descriptor: [{key: a}, {key: b}], rates: [1/h], mode: strict}
  - {name: watched, descriptor: [{key: a}, {key: b, value: watched}], rates: [1/h], mode: strict, shadow: true}
  - {name: hot, descriptor: [{key: tenant, value: hot}], rates: [1000/s], mode: lease}
  - {name: line, descriptor: [{key: line}], rates: [1/100ms], max_wait: 500ms, on_unavailable: deny}
  - {name: bucket, descriptor: [{key: bucket}], rates: [1/100ms], algorithm: token_bucket, max_wait: 500ms, on_unavailable: deny}
  - {name: patient, descriptor: [{key: patient}], rates: [1/s], max_wait: 2s, on_unavailable: deny}
`

// How long the filter of each listener waits for the service.
const (
	longWait  = 2 * time.Second
	shortWait = 100 * time.Millisecond
)

var listeners = map[string]time.Duration{"long": longWait, "short": shortWait}

type object = map[string]any

// bootstrap has Envoy ask the service at an address, for a descriptor of x-a and x-b and one of each other header, as far as a
// request has them, and go on to the upstream.
func bootstrap(t *testing.T, service, upstream string) []byte {
	t.Helper()
	address := func(at string) object {
		host, port, err := net.SplitHostPort(at)
		if err != nil {
			t.Fatal(err)
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		return object{"socket_address": object{"address": host, "port_value": number}}
	}
	cluster := func(name, at string) object {
		return object{
			"name": name, "type": "STATIC", "connect_timeout": "1s",
			"load_assignment": object{"cluster_name": name, "endpoints": []any{object{
				"lb_endpoints": []any{object{"endpoint": object{"address": address(at)}}},
			}}},
		}
	}
	sluice := cluster("sluice", service)
	sluice["typed_extension_protocol_options"] = object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
		"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
		"explicit_http_config": object{"http2_protocol_options": object{}},
	}}
	header := func(name, key string) object {
		return object{"request_headers": object{"header_name": name, "descriptor_key": key}}
	}
	limits := []any{object{"actions": []any{header("x-a", "a"), header("x-b", "b")}}}
	for _, key := range []string{"tenant", "line", "bucket", "patient"} {
		limits = append(limits, object{"actions": []any{header("x-"+key, key)}})
	}
	manager := func(name string, wait time.Duration) object {
		return object{
			"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
			"stat_prefix": name,
			"route_config": object{"virtual_hosts": []any{object{
				"name": "all", "domains": []string{"*"}, "rate_limits": limits,
				"routes": []any{object{"match": object{"prefix": "/"}, "route": object{"cluster": "upstream"}}},
			}}},
			"http_filters": []any{
				object{"name": "envoy.filters.http.ratelimit", "typed_config": object{
					"@type":  "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
					"domain": "shop", "timeout": fmt.Sprintf("%gs", wait.Seconds()), "stat_prefix": name,
					"failure_mode_deny": true, "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
					"rate_limit_service": object{
						"transport_api_version": "V3", "grpc_service": object{"envoy_grpc": object{"cluster_name": "sluice"}},
					},
				}},
				object{"name": "envoy.filters.http.router", "typed_config": object{
					"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
				}},
			},
		}
	}
	var all []any
	for name, wait := range listeners {
		all = append(all, object{
			"name": name, "address": address(rig.Loopback + ":0"),
			"filter_chains": []any{object{"filters": []any{object{"name": "http", "typed_config": manager(name, wait)}}}},
		})
	}
	text, err := json.Marshal(object{
		"admin": object{"address": address(rig.Loopback + ":0")},
		"static_resources": object{
			"listeners": all,
			"clusters":  []any{sluice, cluster("upstream", upstream)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// fleet is what a test runs.
type fleet struct {
	envoy    *rig.Envoy
	redis    *rig.Redis
	upstream *upstream
}

func start(t *testing.T) *fleet {
	t.Helper()
	ctx := t.Context()
	directory := t.TempDir()
	sluice := filepath.Join(directory, "sluice")
	if output, err := exec.CommandContext(ctx, "go", "build", "-o", sluice, "sluice/controlsvc").CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	policyFile := filepath.Join(directory, "policy.yaml")
	if err := os.WriteFile(policyFile, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	redis, err := rig.StartRedis(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Stop)
	service, err := rig.StartService(ctx, rig.ServiceOptions{Binary: sluice, Policy: policyFile, Store: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Stop)
	venv, err := rig.EnvoyVenv(".")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := rig.FindEnvoy(ctx, venv, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	up := &upstream{began: time.Now()}
	server := httptest.NewServer(up)
	t.Cleanup(server.Close)
	e, err := rig.StartEnvoy(ctx, rig.EnvoyOptions{Binary: binary, Bootstrap: bootstrap(t, service.GRPC, server.Listener.Addr().String()), Concurrency: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return &fleet{envoy: e, redis: redis, upstream: up}
}

// get sends a request with headers such as "x-tenant=acme x-a=1" to the listener whose filter waits for long.
func (f *fleet) get(t *testing.T, headers string) (status int, header http.Header, body string) {
	t.Helper()
	return f.getAt(t, "long", headers)
}

func (f *fleet) getAt(t *testing.T, listener, headers string) (status int, header http.Header, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.envoy.Listener(listener)+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(headers) {
		name, value, _ := strings.Cut(field, "=")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, response.Header, string(text)
}

func TestThroughEnvoysOwnFilter(t *testing.T) {
	f := start(t)
	for _, step := range []struct {
		headers   string
		status    int
		remaining string // in Envoy's header
	}{
		{"x-tenant=acme", 200, "2"},
		{"x-tenant=acme x-a=1 x-b=2", 200, "0"},
		// The joined limit denies, and the tenant is charged nothing.
		{"x-tenant=acme x-a=1 x-b=2", 429, "0"},
		{"x-tenant=acme x-a=1 x-b=2", 429, "0"},
		{"x-tenant=acme", 200, "0"},
		{"x-tenant=acme", 429, "0"},
		// Values that hold an underscore are nobody else's.
		{"x-a=1_2 x-b=3", 200, "0"},
		{"x-a=1 x-b=2_3", 200, "0"},
		{"x-a=1_2 x-b=3", 429, "0"},
		// A value of any bytes is a caller, and leaves the other limits in force.
		{"x-a=\xff x-b=2", 200, "0"},
		{"x-a=\xff x-b=2", 429, "0"},
		{"x-a=\xfe x-b=2", 200, "0"},
		{"x-tenant=\xed\xa0\x80", 200, "2"},
		{"x-tenant=acme x-a=\xc3 x-b=2", 429, "0"},
		// Clients do not hear of a limit in shadow, whose window is full by the second time.
		{"x-tenant=other x-a=1 x-b=watched", 200, "2"},
		{"x-tenant=other x-a=1 x-b=watched", 200, "1"},
		// No descriptor, so that the service is not even asked.
		{"x-nobody=1", 200, ""},
	} {
		status, header, _ := f.get(t, step.headers)
		if status != step.status || header.Get("X-Ratelimit-Remaining") != step.remaining {
			t.Errorf("%s: %d with %s left, want %d with %s", step.headers, status, header.Get("X-Ratelimit-Remaining"), step.status, step.remaining)
		}
	}
	_, header, body := f.get(t, "x-tenant=acme")
	for name, want := range map[string]string{
		"Ratelimit-Policy": `"tenant";q=3;w=3600`, "X-Ratelimit-Limit": `3, 3;w=3600;name="tenant"`, "Content-Type": "application/json",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if wait, err := strconv.Atoi(header.Get("Retry-After")); err != nil || wait < 3000 || wait > 3600 {
		t.Errorf("Retry-After: %q, want about an hour", header.Get("Retry-After"))
	}
	if !strings.HasPrefix(body, `{"error":"rate_limited","message":"Over the limit of 3/h.`) {
		t.Errorf("body %q", body)
	}

	t.Run("never over from cold, 64 at once", func(t *testing.T) {
		var all sync.WaitGroup
		var mu sync.Mutex
		statuses := map[int]int{}
		for range 64 {
			all.Go(func() {
				status, _, _ := f.get(t, "x-tenant=burst")
				mu.Lock()
				defer mu.Unlock()
				statuses[status]++
			})
		}
		all.Wait()
		if statuses[200] != 10 || statuses[429] != 54 {
			t.Errorf("%v, want 10 admitted under 10/h and 54 denied", statuses)
		}
	})

	t.Run("held", func(t *testing.T) { pace.Try(t, f.held) })
	t.Run("held for no longer than Envoy waits", func(t *testing.T) { pace.Try(t, f.heldNoLonger) })

	t.Run("a Redis that stands still is answered for", func(t *testing.T) {
		f.redis.Pause()
		defer f.redis.Resume()
		// on_unavailable: local admits what this replica's own log has room for.
		for range 20 {
			if status, _, _ := f.get(t, "x-tenant=hot"); status != http.StatusOK {
				t.Errorf("%d, want 200: Envoy denies where the service does not answer in time", status)
			}
		}
	})
}
