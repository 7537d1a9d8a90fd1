package e2e

import (
	"net/http"
	"testing"
)

// TestIdentitiesAndMatches: who shares a count, by what Envoy itself shows of a request.
func TestIdentitiesAndMatches(t *testing.T) {
	serve(t, onRedis)
	const acme = "Bearer e30.eyJzdWIiOiJhY21lIn0.x" // {"sub":"acme"}
	const free = -1
	for _, c := range []struct {
		about, path string
		headers     []string
		want        int // of 4
	}{
		{"a session", "/session", []string{"cookie", "a=1; sid=s1"}, 2},
		{"the same, in two fields", "/session", []string{"cookie", "a=1", "cookie", "sid=s1"}, 0},
		{"another session", "/session", []string{"cookie", "sid=s2"}, 2},
		{"a token", "/user", []string{"authorization", acme}, 2},
		{"two tokens, which Envoy joins", "/user", []string{"authorization", acme, "authorization", acme}, free},
		{"a token that is none", "/user", []string{"authorization", "Bearer ..."}, free},
		{"a region", "/region?x=1&region=eu+1", nil, 2},
		{"another spelling", "/region?%72egion=eu%201", nil, 0},
		{"an agent", "/agent", []string{"user-agent", "a"}, 2},
		{"another agent", "/agent", []string{"user-agent", "b"}, 2},
		{"a connection each", "/connection", nil, free},
		{"a caller by session", "/caller", []string{"cookie", "sid=s1", "authorization", acme}, 2},
		{"a caller by token", "/caller", []string{"authorization", acme}, 2},
		{"a route", "/routes/7", nil, 2},
		{"the same route", "/routes/8?x", nil, 0},
		{"another route", "/routes/new", nil, 2},
		{"no route", "/routes", nil, free},
		{"a template", "/templates/7/parts", nil, 2},
		{"no template", "/templates/7/parts/1", nil, free},
		{"a pattern", "/regex/123", nil, 2},
		{"not the pattern", "/regex/12345", nil, free},
		{"let off", "/regex/123", []string{"x-free", "1"}, free},
	} {
		want := c.want
		if want == free {
			want = 4
		}
		if n := admitted(t, 4, http.MethodGet, c.path, c.headers...); n != want {
			t.Errorf("%s: %d of 4 came through, want %d", c.about, n, want)
		}
	}
}
