package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestNoIdentity: a request that does not say whose it is is under no limit, and is told of none.
func TestNoIdentity(t *testing.T) {
	serve(t, onRedis)
	if n := admitted(t, 12, http.MethodGet, "/three"); n != 12 {
		t.Errorf("%d of 12 came through", n)
	}
	if fields := rateFields(ask(t, 0, http.MethodGet, "/three")); len(fields) != 0 {
		t.Error(fields)
	}
}

// TestIdentities: each of these is a caller of its own, limited like any other.
func TestIdentities(t *testing.T) {
	serve(t, onRedis)
	long := strings.Repeat("x", 50_000)
	for name, tenant := range map[string]string{
		"slashes": "a/b/c", "one fewer": "a/b", "escapes": "a%2Fb", "braces": "{a}", "closing": "}", "spaces inside": "a b",
		"not UTF-8": "\xff\xfe\x80", "nearly the same": "\xff\xfe\x81", "its replacement": "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd",
		"long": long + "1", "as long": long + "2", "quotes": `"a":"b"`, "percent": "%", "tenant/three": "tenant/three",
	} {
		if n := admitted(t, 5, http.MethodGet, "/three", "x-tenant-id", tenant); n != 3 {
			t.Errorf("%s: %d came through under 3/h", name, n)
		}
	}
}

// TestOversized: Envoy itself refuses a head of more than 60 KiB, and the filter never sees it.
func TestOversized(t *testing.T) {
	serve(t, onRedis)
	a := ask(t, 0, http.MethodGet, "/three", "x-tenant-id", strings.Repeat("x", 64<<10))
	if a.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d, want 431", a.status)
	}
	if n := admitted(t, 1, http.MethodGet, "/three", "x-tenant-id", "after"); n != 1 {
		t.Error("nothing comes through any more")
	}
}

// TestRepeatedHeader: a header that is sent twice is one value, the two joined, so that neither chooses the caller alone.
func TestRepeatedHeader(t *testing.T) {
	serve(t, onRedis)
	if n := admitted(t, 5, http.MethodGet, "/three", "x-tenant-id", "one", "x-tenant-id", "two"); n != 3 {
		t.Errorf("%d came through under 3/h", n)
	}
	if n := admitted(t, 5, http.MethodGet, "/three", "x-tenant-id", "one"); n != 3 {
		t.Errorf("the first alone: %d came through under 3/h", n)
	}
}

// TestForgedAddress: with no trusted hop, X-Forwarded-For says nothing.
func TestForgedAddress(t *testing.T) {
	serve(t, onRedis)
	count := 0
	for _, forged := range []string{"1.2.3.4", "5.6.7.8", "9.9.9.9, 1.2.3.4", "::1", "nonsense"} {
		count += admitted(t, 1, http.MethodGet, "/address", "x-forwarded-for", forged)
	}
	if count != 3 {
		t.Errorf("%d came through under 3/h", count)
	}
}
