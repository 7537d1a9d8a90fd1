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
	began := time.Now()
	for i := range 5 {
		a := ask(t, i%2, http.MethodGet, "/few", "x-tenant-id", "told")
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
	a := ask(t, 1, http.MethodGet, "/few", "x-tenant-id", "told")
	if took := time.Since(began); took > time.Second {
		t.Fatalf("six requests took %v: this machine is too slow to say what the answers should be", took)
	}
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
}

// TestRetryAfterIsHonoured: a client that waits exactly that long is admitted, and keeps being told the truth while it
// does not.
func TestRetryAfterIsHonoured(t *testing.T) {
	serve(t, onRedis)
	tenant := []string{"x-tenant-id", "patient"}
	if n := admitted(t, 5, http.MethodGet, "/few", tenant...); n != 5 {
		t.Fatalf("%d of 5 came through", n)
	}
	for range 3 {
		denied := ask(t, 0, http.MethodGet, "/few", tenant...)
		at := time.Now()
		seconds, err := strconv.Atoi(denied.header.Get("retry-after"))
		if denied.status != http.StatusTooManyRequests || err != nil {
			t.Fatalf("status %d, retry-after %q", denied.status, denied.header.Get("retry-after"))
		}
		time.Sleep(time.Until(at.Add(time.Duration(seconds) * time.Second)))
		if a := ask(t, 1, http.MethodGet, "/few", tenant...); a.status != http.StatusOK {
			t.Fatalf("status %d after the %d s it was told to wait", a.status, seconds)
		}
		// Until it is denied again.
		for range 5 {
			if ask(t, 1, http.MethodGet, "/few", tenant...).status == http.StatusTooManyRequests {
				break
			}
		}
	}
}
