package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestPolicyChange: a changed policy is in force within seconds, with the counts of what did not change; an invalid one
// changes nothing.
func TestPolicyChange(t *testing.T) {
	serve(t, onRedis)
	defer reloadPolicy(t, policy)
	if n := admitted(t, 7, http.MethodGet, "/changing", "x-tenant-id", "a"); n != 5 {
		t.Fatalf("%d came through under 5/h", n)
	}
	head, tail, _ := strings.Cut(policy, "name: changing")
	changed := head + "name: changing" + strings.Replace(tail, "5/h", "8/h", 1)
	began := time.Now()
	reloadPolicy(t, changed)
	more := 0
	for more < 3 && time.Since(began) < recoverWithin {
		more += admitted(t, 1, http.MethodGet, "/changing", "x-tenant-id", "a")
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("3 more came through after %v", time.Since(began))
	if more != 3 {
		t.Fatalf("%d more came through under 8/h, want 3", more)
	}
	if n := admitted(t, 10, http.MethodGet, "/changing", "x-tenant-id", "a"); n != 0 {
		t.Errorf("%d came through beyond 8/h", n)
	}

	reloadPolicy(t, strings.Replace(changed, "8/h", "eight an hour", 1))
	deadline := time.Now().Add(recoverWithin)
	for !strings.Contains(current.service.Output(), "eight an hour") {
		if time.Now().After(deadline) {
			t.Fatal("the service does not say what is wrong with the policy")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if n := admitted(t, 12, http.MethodGet, "/changing", "x-tenant-id", "b"); n != 8 {
		t.Errorf("%d came through under 8/h, the last valid policy", n)
	}
}
