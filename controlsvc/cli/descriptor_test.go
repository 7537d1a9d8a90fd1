package cli

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/credentials/insecure"

	"sluice/testharness/rig"
)

// monitor hears every command that comes to a Redis from now on; what it gives ends the hearing, and tells them all.
func monitor(t *testing.T, redis *rig.Redis) (heard func() string) {
	t.Helper()
	connect := func() net.Conn {
		connection, err := net.Dial("tcp", redis.Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { connection.Close() })
		if err := connection.SetDeadline(time.Now().Add(2 * within)); err != nil {
			t.Fatal(err)
		}
		return connection
	}
	listening := connect()
	lines := bufio.NewReader(listening)
	fmt.Fprint(listening, "MONITOR\r\n")
	if line, err := lines.ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatalf("MONITOR: %q, %v", line, err)
	}
	return func() string {
		const last = "the last one"
		fmt.Fprintf(connect(), "ECHO %q\r\n", last)
		var all strings.Builder
		for !strings.Contains(all.String(), last) {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			all.WriteString(line)
		}
		return all.String()
	}
}

// What a policy hashes of a descriptor is in no name and no command of Redis, no log, no metric, and nothing that is shown.
func TestHashedDescriptor(t *testing.T) {
	file := write(t, `
domain: shop
hash_key: {file: hash_key}
limits:
  - {name: api-key, descriptor: [{key: api_key, hash: true}, {key: user, prefix: user-, hash: true}, {key: zone}], rates: [1/h], mode: strict}
`)
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "hash_key"), []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := startRedis(t)
	heard := monitor(t, redis)
	s := start(t, rig.ServiceOptions{Store: patient(redis), Policy: file})
	client := ratelimitv3.NewRateLimitServiceClient(connect(t, s.GRPC, insecure.NewCredentials()))
	came := map[string]string{}
	defer func() {
		end(t, s)
		came["log"], came["Redis"] = s.Output(), heard()
		for what, text := range came {
			if strings.Contains(text, "mallory") || strings.Contains(text, "trudy") {
				t.Errorf("%s tells what is hashed:\n%s", what, text)
			}
		}
	}()
	ask := func(want ratelimitv3.RateLimitResponse_Code, key, user string) {
		t.Helper()
		answer, err := client.ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{Domain: "shop", Descriptors: []*commonv3.RateLimitDescriptor{{
			Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "api_key", Value: key}, {Key: "user", Value: user}, {Key: "zone", Value: "west"}},
		}}})
		if err != nil || answer.GetOverallCode() != want {
			t.Fatalf("%s, %s: %v, %v; want %v", key, user, answer, err, want)
		}
		came["answer"] += answer.String()
	}
	const ok, over = ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OVER_LIMIT
	ask(ok, "sk-mallory", "user-mallory")
	ask(over, "sk-mallory", "user-mallory")
	ask(ok, "sk-trudy", "user-mallory") // another caller
	ask(over, "sk-trudy", "user-mallory")

	says(t, s.Process, `"msg":"denied"`)
	eventually(t, func() error {
		if came["top"] = does(t, s, "top"); strings.Count(came["top"], "/west ") < 2 {
			return fmt.Errorf("top does not tell both callers:\n%s", came["top"])
		}
		return nil
	})
	byValue := []string{"--limit", "api-key", "--identity", "sk-mallory", "--identity", "user-mallory", "--identity", "west"}
	came["inspect"] = does(t, s, append([]string{"inspect"}, byValue...)...)
	_, key, _ := strings.Cut(came["inspect"], "key ")
	key, _, _ = strings.Cut(key, ":")
	parts := strings.Split(key, "/")
	if len(parts) != 3 {
		t.Fatalf("the key is %q", key)
	}
	if again := does(t, s, "inspect", "--limit", "api-key", "--identity", parts[0], "--identity", "user-mallory", "--identity", "west"); !strings.Contains(again, key) {
		t.Errorf("by the hash of the first value: %s", again)
	}
	for _, raw := range []string{"api-key/sk-mallory/" + parts[1] + "/west", "api-key/" + parts[0] + "/user-mallory/west"} {
		code, stdout, stderr := operate(t, s, "reset", raw)
		if came["mistake"] += stdout + stderr; code == 0 || !strings.Contains(stderr, "want ## and 64 digits of hex") {
			t.Errorf("reset %s: code %d: %s", raw, code, stderr)
		}
	}
	came["reset"] = does(t, s, "reset", "api-key/"+key)
	if told := does(t, s, append([]string{"inspect"}, byValue...)...); !strings.Contains(told, "1/h   0 ") {
		t.Errorf("after the reset: %s", told)
	}
	_, came["metrics"] = get(t, s, "/metrics")
	for _, what := range []string{"top", "inspect", "reset"} {
		if !strings.Contains(came[what], key) {
			t.Errorf("%s lacks the key %s:\n%s", what, key, came[what])
		}
	}
}
