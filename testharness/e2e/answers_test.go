package e2e

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// rateFields are an answer's header fields about its limits.
func rateFields(a answer) map[string]string {
	fields := map[string]string{}
	for name, values := range a.header {
		name = strings.ToLower(name)
		if strings.Contains(name, "ratelimit") || name == "retry-after" {
			fields[name] = strings.Join(values, " and ")
		}
	}
	return fields
}

// TestAnswers: what a client is told when it comes through, and when it does not; through either Envoy the same count.
func TestAnswers(t *testing.T) {
	serve(t, onRedis)
	// What is told are whole seconds, so that it is the same for all that comes within one.
	for try := range 20 {
		if answers(t, "told-"+strconv.Itoa(try)) {
			return
		}
	}
	t.Skip("six requests have taken more than a second, 20 times: this machine is too slow to say what the answers should be")
}

// answers asks six times for a tenant, and looks at the answers where the last came within a second of the first.
func answers(t *testing.T, tenant string) bool {
	t.Helper()
	began := time.Now()
	var all []answer
	for i := range 6 {
		all = append(all, ask(t, i%2, http.MethodGet, "/few", "x-tenant-id", tenant))
	}
	if took := time.Since(began); took > time.Second {
		t.Logf("six requests took %v", took)
		return false
	}
	for i, a := range all[:5] {
		want := map[string]string{
			"ratelimit-policy": `"few";q=5;w=2`, "ratelimit": `"few";r=` + strconv.Itoa(4-i) + `;t=2`,
		}
		if a.status != http.StatusOK || a.body != "hello\n" {
			t.Fatalf("%d: status %d, %q", i, a.status, a.body)
		}
		if diff := cmp.Diff(want, rateFields(a)); diff != "" {
			t.Errorf("%d: %s", i, diff)
		}
	}
	a := all[5]
	if a.status != http.StatusTooManyRequests {
		t.Fatalf("the sixth: %d", a.status)
	}
	want := map[string]string{
		"ratelimit-policy": `"few";q=5;w=2`, "ratelimit": `"few";r=0;t=2`, "retry-after": "2",
	}
	if diff := cmp.Diff(want, rateFields(a)); diff != "" {
		t.Error(diff)
	}
	if kind := a.header.Get("content-type"); kind != "application/json" {
		t.Errorf("content-type %q", kind)
	}
	body := a.json(t)
	if body["error"] != "rate_limited" || body["limit"] != "few" || body["retry_after"] != 2.0 || body["message"] == "" || len(body) != 4 {
		t.Errorf("body %v", body)
	}
	return true
}

// TestRetryAfterIsHonoured: a client that waits exactly that long is admitted, and is told the truth when it is denied again.
func TestRetryAfterIsHonoured(t *testing.T) {
	serve(t, onRedis)
	tenant := []string{"x-tenant-id", "patient"}
	for range 2 {
		var denied answer
		// More than five, where the first of them have left the window meanwhile.
		for try := 0; denied.status != http.StatusTooManyRequests; try++ {
			if denied = ask(t, 0, http.MethodGet, "/few", tenant...); try == 100 {
				t.Skip("a hundred requests have taken more than forty seconds: this machine is too slow to be denied any")
			}
		}
		at := time.Now()
		seconds, err := strconv.Atoi(denied.header.Get("retry-after"))
		if err != nil {
			t.Fatalf("retry-after %q", denied.header.Get("retry-after"))
		}
		time.Sleep(time.Until(at.Add(time.Duration(seconds) * time.Second)))
		if a := ask(t, 1, http.MethodGet, "/few", tenant...); a.status != http.StatusOK {
			t.Fatalf("status %d after the %d s it was told to wait", a.status, seconds)
		}
	}
}
