package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	sluicev1 "sluice/shared/proto/sluice/v1"
	"sluice/testharness/rig"
)

// within bounds everything that a test waits for.
const within = time.Minute

// start starts a service in a process of its own, which is stopped when the test ends.
func start(t *testing.T, options rig.ServiceOptions) *rig.Service {
	t.Helper()
	options.Binary = os.Args[0]
	// Where a test is not of it: on a busy machine a store may take longer than the default. The last one wins.
	options.Args = append([]string{"--call-timeout", "20s"}, options.Args...)
	if options.Policy == "" {
		options.Policy = write(t, goodPolicy)
	}
	service, err := rig.StartService(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Stop)
	return service
}

func startRedis(t *testing.T) *rig.Redis {
	t.Helper()
	redis, err := rig.StartRedis(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Stop)
	return redis
}

// patient gives the URL of a store that waits for as long as it is let: what bounds a call is the service.
func patient(redis *rig.Redis) string {
	return redis.URL() + "?read_timeout=1m&write_timeout=1m&dial_timeout=1m&pool_timeout=1m"
}

func connect(t *testing.T, address string, with credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(with))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

// worker calls a service as one worker would.
type worker struct {
	client sluicev1.ControlClient
	id     uint64
	calls  uint64
}

// ask asks for units of acme's under a limit, once.
func (w *worker) ask(t *testing.T, of string, units uint64) *sluicev1.AskResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	w.calls++
	response, err := w.client.Sync(ctx, &sluicev1.SyncRequest{
		WorkerId: w.id, CallId: w.calls, Active: true,
		Asks: []*sluicev1.Ask{{Limit: of, Key: "acme", Want: units, Min: 1, Waiting: uint32(units)}},
	})
	if err != nil {
		t.Fatalf("Sync: %v", err)
	}
	return response.GetResults()[0]
}

// get gives the answer of the service's HTTP side.
func get(t *testing.T, s *rig.Service, path string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.HTTP+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// eventually repeats a look until it gives nil.
func eventually(t *testing.T, look func() error) {
	t.Helper()
	deadline := time.After(within)
	for {
		err := look()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func healthIs(t *testing.T, connection *grpc.ClientConn, want healthv1.HealthCheckResponse_ServingStatus) {
	t.Helper()
	eventually(t, func() error {
		got, err := healthv1.NewHealthClient(connection).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "sluice.v1.Control"})
		if err == nil && got.GetStatus() != want {
			err = fmt.Errorf("health is %v; want %v", got.GetStatus(), want)
		}
		return err
	})
}

// end sends SIGTERM and waits for the exit.
func end(t *testing.T, s *rig.Service) {
	t.Helper()
	tell(t, s, syscall.SIGTERM)
	select {
	case <-s.Done():
	case <-time.After(within):
		t.Fatalf("it does not end; it printed:\n%s", s.Output())
	}
}

func tell(t *testing.T, s *rig.Service, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(s.PID(), signal); err != nil {
		t.Fatal(err)
	}
}

func TestServe(t *testing.T) {
	redis := startRedis(t)
	for name, store := range map[string]string{"memory": "memory", "redis": patient(redis)} {
		t.Run(name, func(t *testing.T) {
			service := start(t, rig.ServiceOptions{Store: store})
			says(t, service.Process, "sluice serves: grpc "+service.GRPC+", http "+service.HTTP+", domain shop, 2 limits, ")
			connection := connect(t, service.GRPC, insecure.NewCredentials())
			w := &worker{client: sluicev1.NewControlClient(connection), id: 1}
			if got := w.ask(t, "slow", 7); got.GetUnits() != 5 || got.GetDenial().GetRetryAfter() == 0 || got.GetDenial().GetRetryAfter() > 100e6 {
				t.Errorf("7 asked for under 5/100s: %v", got)
			}
			policy, err := w.client.GetPolicy(t.Context(), &sluicev1.GetPolicyRequest{})
			if err != nil || len(policy.GetPolicy().GetLimits()) != 2 {
				t.Errorf("policy: %v, %v", policy, err)
			}
			healthIs(t, connection, healthv1.HealthCheckResponse_SERVING)
			for _, path := range []string{"/healthz", "/readyz"} {
				if status, body := get(t, service, path); status != http.StatusOK {
					t.Errorf("%s: %d %s", path, status, body)
				}
			}
			_, metrics := get(t, service, "/metrics")
			contain(t, "metrics", metrics,
				`sluice_sync_total{code="OK"} 1`,
				`sluice_asked_total{limit="slow",result="admitted"} 5`,
				`sluice_asked_total{limit="slow",result="denied"} 2`,
				`sluice_asked_total{limit="tenant",result="denied"} 0`,
				`sluice_store_seconds_count{operation="reserve"} 1`,
				`sluice_policy_info{domain="shop",version="`+policy.GetVersion()+`"} 1`,
				"process_open_fds", "go_goroutines",
			)
			end(t, service)
			if service.Status() != 0 {
				t.Errorf("exit status %d; it printed:\n%s", service.Status(), service.Output())
			}
			says(t, service.Process, `"msg":"stopped"`)
		})
	}
}

// A Redis that may throw counts away is told of, and a password is not.
func TestRedisAtRiskIsWarnedOf(t *testing.T) {
	redis, err := rig.StartRedis(t.Context(), t.Output(), "--maxmemory-policy", "allkeys-lru", "--user", "sluice", "on", ">secret", "~*", "&*", "+@all")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Stop)
	service := start(t, rig.ServiceOptions{Store: "redis://sluice:secret@" + redis.Address + "/0"})
	says(t, service.Process, "the store puts limits at risk", "allkeys-lru")
	if strings.Contains(service.Output(), "secret") {
		t.Errorf("it prints a password:\n%s", service.Output())
	}
}

// Two replicas on one Redis share one window.
func TestReplicasShareAWindow(t *testing.T) {
	redis := startRedis(t)
	var workers []*worker
	for i := range 2 {
		service := start(t, rig.ServiceOptions{Store: patient(redis)})
		workers = append(workers, &worker{client: sluicev1.NewControlClient(connect(t, service.GRPC, insecure.NewCredentials())), id: uint64(i + 1)})
	}
	total := uint64(0)
	for range 5 {
		for _, w := range workers {
			total += w.ask(t, "slow", 1).GetUnits()
		}
	}
	if total != 5 {
		t.Errorf("%d units granted by two replicas; want 5", total)
	}
}

// While Redis is stopped, not dead: every call is answered in time, and the service says that it is not ready. Afterwards all
// is as before, and the calls that failed meanwhile have charged nothing.
func TestRedisThatHangs(t *testing.T) {
	redis := startRedis(t)
	const timeout = time.Second
	service := start(t, rig.ServiceOptions{Store: patient(redis), Args: []string{"--call-timeout", timeout.String()}})
	connection := connect(t, service.GRPC, insecure.NewCredentials())
	w := &worker{client: sluicev1.NewControlClient(connection), id: 1}
	if got := w.ask(t, "slow", 2); got.GetUnits() != 2 {
		t.Fatalf("before: %v", got)
	}
	healthIs(t, connection, healthv1.HealthCheckResponse_SERVING)

	redis.Pause()
	t.Cleanup(redis.Resume)
	// Generous, for the machine may be busy; a call without a deadline would take as long as the store is let.
	const soon = timeout + 20*time.Second
	for range 2 {
		began := time.Now()
		if got := w.ask(t, "slow", 1); got.GetProblem() != sluicev1.AskResult_PROBLEM_STORE {
			t.Errorf("while Redis hangs: %v; want PROBLEM_STORE", got)
		}
		if took := time.Since(began); took > soon {
			t.Errorf("a call took %v while Redis hung; want about %v", took, timeout)
		}
	}
	began := time.Now()
	status, body := get(t, service, "/readyz")
	if took := time.Since(began); status != http.StatusServiceUnavailable || took > soon {
		t.Errorf("readyz after %v: %d %s; want 503 within about %v", took, status, body, timeout)
	}
	contain(t, "the reason", body, "the store does not answer within 1s")
	if status, _ := get(t, service, "/healthz"); status != http.StatusOK {
		t.Errorf("healthz: %d; the process lives", status)
	}
	healthIs(t, connection, healthv1.HealthCheckResponse_NOT_SERVING)

	redis.Resume()
	eventually(t, func() error {
		if status, body := get(t, service, "/readyz"); status != http.StatusOK {
			return fmt.Errorf("readyz: %d %s", status, body)
		}
		return nil
	})
	healthIs(t, connection, healthv1.HealthCheckResponse_SERVING)
	eventually(t, func() error {
		owed, err := service.Metric(t.Context(), "sluice_owed_charges")
		if err == nil && owed != 0 {
			err = fmt.Errorf("%v charges are still owed", owed)
		}
		return err
	})
	if got := w.ask(t, "slow", 4); got.GetUnits() != 3 {
		t.Errorf("afterwards: %v; want 3 units, what the 2 before left of 5", got)
	}
}

// A service may start before its Redis does: it says that it is not ready, until it is.
func TestRedisThatComesLater(t *testing.T) {
	addresses := make([]string, 3)
	for i := range addresses {
		var err error
		if addresses[i], err = rig.FreeAddress(); err != nil {
			t.Fatal(err)
		}
	}
	service := &rig.Service{GRPC: addresses[0], HTTP: addresses[1]}
	var err error
	service.Process, err = rig.Start(t.Context(), rig.Command{
		Path: os.Args[0],
		Args: []string{
			"serve", "--policy", write(t, goodPolicy), "--grpc", service.GRPC, "--http", service.HTTP, "--admin", "off", "--store", "redis://" + addresses[2] + "/0",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Stop)
	connection := connect(t, service.GRPC, insecure.NewCredentials())
	healthIs(t, connection, healthv1.HealthCheckResponse_NOT_SERVING)
	if status, body := get(t, service, "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("readyz without a Redis: %d %s", status, body)
	}
	_, port, _ := strings.Cut(addresses[2], ":")
	redis, err := rig.Start(t.Context(), rig.Command{
		Path: "redis-server", Args: []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", t.TempDir()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Stop)
	healthIs(t, connection, healthv1.HealthCheckResponse_SERVING)
	w := &worker{client: sluicev1.NewControlClient(connection), id: 1}
	if got := w.ask(t, "slow", 1); got.GetUnits() != 1 {
		t.Errorf("with a Redis that came later: %v", got)
	}
}

func TestReload(t *testing.T) {
	file := write(t, goodPolicy)
	service := start(t, rig.ServiceOptions{Policy: file, Store: "memory"})
	w := &worker{client: sluicev1.NewControlClient(connect(t, service.GRPC, insecure.NewCredentials())), id: 1}
	version := func() string {
		policy, err := w.client.GetPolicy(t.Context(), &sluicev1.GetPolicyRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return policy.GetVersion()
	}
	first := version()
	rewrite := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rewrite("limits: [")
	says(t, service.Process, "the policy stays as it was")
	if version() != first {
		t.Error("an invalid policy changed the one in force")
	}
	eventually(t, func() error {
		n, err := service.Metric(t.Context(), "sluice_policy_last_reload_successful")
		if err == nil && n != 0 {
			err = fmt.Errorf("with an invalid file the last reload is told as %v; want 0", n)
		}
		return err
	})
	rewrite(strings.Replace(goodPolicy, "5/100s", "6/100s", 1))
	eventually(t, func() error {
		if version() == first {
			return fmt.Errorf("the new policy is not in force; it printed:\n%s", service.Output())
		}
		return nil
	})
	if got := w.ask(t, "slow", 7); got.GetUnits() != 6 {
		t.Errorf("under the new policy: %v; want 6 units", got)
	}
	// A signal asks for the same, where nobody tells of changes.
	tell(t, service, syscall.SIGHUP)
	says(t, service.Process, "the policy is as it was")
}

// stuckCall makes a call that the service does not answer for long, and returns when it is under way.
func stuckCall(t *testing.T, args ...string) (service *rig.Service, ended <-chan error) {
	t.Helper()
	redis := startRedis(t)
	service = start(t, rig.ServiceOptions{Store: patient(redis), Args: append([]string{"--call-timeout", "30s"}, args...)})
	connection := connect(t, service.GRPC, insecure.NewCredentials())
	healthIs(t, connection, healthv1.HealthCheckResponse_SERVING)
	redis.Pause()
	t.Cleanup(redis.Resume)
	result := make(chan error, 1)
	go func() {
		_, err := sluicev1.NewControlClient(connection).Sync(t.Context(), &sluicev1.SyncRequest{
			WorkerId: 1, CallId: 1, Asks: []*sluicev1.Ask{{Limit: "slow", Key: "acme", Want: 1, Min: 1, Waiting: 1}},
		})
		result <- err
	}()
	eventually(t, func() error {
		calls, err := service.Metric(t.Context(), "sluice_in_flight")
		if err == nil && calls == 0 {
			err = fmt.Errorf("no call is under way")
		}
		return err
	})
	return service, result
}

func TestStopIsBounded(t *testing.T) {
	service, ended := stuckCall(t, "--shutdown-timeout", "300ms")
	end(t, service)
	if service.Status() != 1 {
		t.Errorf("exit status %d; want 1", service.Status())
	}
	says(t, service.Process, "calls under way were cut off after 300ms")
	if err := <-ended; err == nil {
		t.Error("the call was answered, though its store hangs")
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	service, _ := stuckCall(t, "--shutdown-timeout", "10m")
	tell(t, service, syscall.SIGTERM)
	says(t, service.Process, `"msg":"stopping"`)
	if status, body := get(t, service, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") {
		t.Errorf("readyz while it stops: %d %s", status, body)
	}
	end(t, service)
	if service.Status() != -1 {
		t.Errorf("exit status %d; want the signal's", service.Status())
	}
}
