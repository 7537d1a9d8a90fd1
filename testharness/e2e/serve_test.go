package e2e

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"sluice/testharness/rig"
)

// policy is what all tests run under; each has limits of its own in it.
//
//go:embed policy.yaml
var policy string

// current is what is behind the control address now, for the next test to go on with.
var current running

type running struct {
	store   storeKind
	redis   *rig.Redis
	service *rig.Service
}

type storeKind int

const (
	nothing storeKind = iota
	onRedis
	onRedisBriskly // by a service that waits for it no longer than by default
	inMemory
)

func (r *running) stop() {
	if r.service != nil {
		r.service.Stop()
	}
	if r.redis != nil {
		r.redis.Stop()
	}
	*r = running{}
}

// serve sees to it that the service runs on such a store and that every worker has its policy.
func serve(t *testing.T, store storeKind) *running {
	t.Helper()
	if current.store != store || current.service.Ended() {
		current.stop()
		// Processes outlive the test that started them.
		if store != inMemory {
			redis, err := rig.StartRedis(context.Background(), os.Stderr)
			if err != nil {
				t.Fatal(err)
			}
			current.redis = redis
		}
		current.store = store
		if err := startService(fleet.control); err != nil {
			t.Fatal(err)
		}
	}
	awaitPolicy(t, "probe")
	t.Cleanup(func() {
		if t.Failed() && current.service != nil {
			t.Logf("the service printed:\n%s", last(current.service.Output(), 4000))
			for _, e := range fleet.envoys {
				t.Logf("an Envoy printed:\n%s", last(e.Output(), 4000))
			}
		}
	})
	return &current
}

func last(text string, most int) string {
	if len(text) > most {
		return "[…]" + text[len(text)-most:]
	}
	return text
}

// metric reads one of the current service's metrics.
func metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	value, err := current.service.Metric(t.Context(), name, labels...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// startService starts the current store's service at an address.
func startService(address string) error {
	file := filepath.Join(fleet.directory, "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(fleet.directory, "hash.key"), []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		return err
	}
	store := "memory"
	if current.store != inMemory {
		store = current.redis.URL() + "?read_timeout=5s&write_timeout=5s"
	}
	options := rig.ServiceOptions{Binary: fleet.sluice, Policy: file, Store: store, GRPC: address}
	if current.store != onRedisBriskly {
		options.Args = []string{"--call-timeout", callTimeout.String()}
	}
	service, err := rig.StartService(context.Background(), options)
	if err != nil {
		return err
	}
	current.service = service
	return nil
}

// reloadPolicy puts a text into the service's policy file and tells the service.
func reloadPolicy(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(fleet.directory, "policy.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(current.service.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// recoverWithin is how long the workers may take to find the service again: the breaker's longest pause, and what a busy
// machine adds.
const recoverWithin = time.Minute

// awaitPolicy waits until every worker limits probes by a policy whose limit for them has that name, and asks the service.
func awaitPolicy(t *testing.T, name string) {
	t.Helper()
	for _, address := range listeners() {
		headers := map[string]string{"x-probe": "probe"}
		if err := rig.AwaitFilter(t.Context(), address, headers, `"`+name+`"`, recoverWithin); err != nil {
			t.Fatal(err)
		}
	}
}
