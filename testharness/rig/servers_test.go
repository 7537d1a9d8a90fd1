package rig

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sluice/envoy"
)

func findEnvoy(t *testing.T) string {
	t.Helper()
	venv, err := EnvoyVenv(".")
	if err != nil {
		t.Fatal(err)
	}
	path, err := FindEnvoy(t.Context(), venv, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVersion(t *testing.T) {
	for output, want := range map[string]string{
		"envoy  version: 9e55/1.40.0/Clean/RELEASE/BoringSSL":     "",
		"envoy  version: 9e55/1.33.0/Modified/DEBUG/BoringSSL":    "",
		"envoy  version: 9e55/2.0.1-dev/Clean/RELEASE/BoringSSL":  "",
		"envoy  version: 9e55/1.32.9/Clean/RELEASE/BoringSSL":     "1.32",
		"envoy  version: 9e55/0.99.0/Clean/RELEASE/BoringSSL":     "0.99",
		"Envoy, a program for counting the hairs of a cat's tail": "does not say",
	} {
		err := versionSuffices(output)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", output, err)
		}
	}
}

// TestFindEnvoySaysWhatIsMissing: with nothing on the PATH, the error says what to install.
func TestFindEnvoySaysWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := FindEnvoy(t.Context(), filepath.Join(t.TempDir(), "venv"), io.Discard)
	for _, want := range []string{"no envoy on the PATH", "no python3", "apt-get install python3-venv"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestFindEnvoySaysWhatFailed: a Python without venv, as Debian has it without python3-venv.
func TestFindEnvoySaysWhatFailed(t *testing.T) {
	bin := t.TempDir()
	const script = "#!/bin/sh\necho 'ensurepip is not available' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	_, err := FindEnvoy(t.Context(), filepath.Join(t.TempDir(), "venv"), io.Discard)
	for _, want := range []string{"could not make a venv", "python3-venv", "ensurepip is not available"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestRedisMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := StartRedis(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Error(err)
	}
}

func TestRedis(t *testing.T) {
	redis, err := StartRedis(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Stop()
	if redis.URL() != "redis://"+redis.Address+"/0" {
		t.Error(redis.URL())
	}
	redis.Pause()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ping(ctx, redis.Address); err == nil {
		t.Error("answered while paused")
	}
	redis.Resume()
	if err := ping(t.Context(), redis.Address); err != nil {
		t.Error(err)
	}
}

func TestEnvoyPassesRequestsOn(t *testing.T) {
	binary := findEnvoy(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer upstream.Close()
	bootstrap, err := envoy.Bootstrap{Upstream: upstream.Listener.Addr().String(), NoFilter: true}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := StartEnvoy(t.Context(), EnvoyOptions{Binary: binary, Bootstrap: bootstrap})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Stop()
	body, err := adminGet(t.Context(), proxy.Listener(envoy.Listener), "/")
	if err != nil || string(body) != "hello" {
		t.Errorf("%q, %v", body, err)
	}
	stats, err := proxy.Stats(t.Context(), "http.ingress.downstream_rq_2xx")
	if err != nil {
		t.Fatal(err)
	}
	if stats["http.ingress.downstream_rq_2xx"] != 1 {
		t.Error(stats)
	}
	if command, err := os.Readlink("/proc/" + strconv.Itoa(proxy.PID()) + "/exe"); err != nil || filepath.Base(command) != "envoy" {
		t.Errorf("the process is %s (%v), not Envoy itself", command, err)
	}
}

// TestEnvoyRefuses: a bootstrap that Envoy does not take is an error with Envoy's own words.
func TestEnvoyRefuses(t *testing.T) {
	binary := findEnvoy(t)
	options := EnvoyOptions{Binary: binary, Bootstrap: []byte(`{"no_such_field": 1}`)}
	if _, err := StartEnvoy(t.Context(), options); err == nil || !strings.Contains(err.Error(), "no_such_field") {
		t.Error(err)
	}
	if err := ValidateBootstrap(t.Context(), options); err == nil || !strings.Contains(err.Error(), "no_such_field") {
		t.Error(err)
	}
}

func TestSumMetric(t *testing.T) {
	const text = "# HELP a b\na 1\nab 2\nb{x=\"1\",y=\"2\"} 3\nb{x=\"2\",y=\"2\"} 4.5\nbad x\n"
	for _, test := range []struct {
		name, contains string
		want           float64
		ok             bool
	}{
		{"a", "", 1, true},
		{"b", "", 7.5, true},
		{"b", `x="1"`, 3, true},
		{"b", `x="9"`, 0, true},
		{"c", "", 0, false},
		{"bad", "", 0, false},
	} {
		var substrings []string
		if test.contains != "" {
			substrings = []string{test.contains}
		}
		got, err := sumMetric(text, test.name, substrings...)
		if got != test.want || (err == nil) != test.ok {
			t.Errorf("%s %s: %v, %v", test.name, test.contains, got, err)
		}
	}
}
