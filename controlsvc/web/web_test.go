package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/controlsvc/traffic"
	"sluice/controlsvc/web"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

const token = "a-token-of-the-operators"

func config(t *testing.T) web.Config {
	t.Helper()
	now := func() instant.Instant { return 1_764_000_000_000_000 }
	seen := traffic.New(traffic.Config{Now: now, Replica: 1})
	p := &policy.Policy{Domain: "shop", Version: "v1", Limits: []policy.Limit{{
		Name: "tenant", Rates: []limit.Rate{{Units: 10, Window: time.Second}}, Algorithm: limit.SlidingLog, Mode: limit.Lease,
	}}}
	seen.SetPolicy(p)
	seen.Reported(7, &wire.Report{ID: 1, Tallies: []wire.Tally{{Limit: "tenant", Window: time.Second, Result: wire.Denied, Count: 3}}})
	return web.Config{
		Snapshot: seen.Snapshot, Policy: func() *policy.Policy { return p }, Refused: func(...any) {}, Now: now, After: time.After, Done: make(chan struct{}),
	}
}

func get(t *testing.T, h http.Handler, path string, change func(*http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	r.Host = "127.0.0.1:9091"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// What the page is told has the policy's limits and what was reported of them.
func TestSnapshot(t *testing.T) {
	response := get(t, web.Handler(config(t)), "/snapshot", nil)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"domain":"shop","version":"v1","limits":[{"name":"tenant","rates":["10/s"],"algorithm":"sliding_log","mode":"lease","shadow":0}],` +
		`"traffic":{"range":"5m","at":`
	if !strings.HasPrefix(string(body), want) || !strings.Contains(string(body), `"total":{"admitted":0,"denied":3}`) {
		t.Errorf("%s", body)
	}
}

// What the page is told of now is the rate of the last seconds, whatever the range, and of a limit that is chosen.
func TestNow(t *testing.T) {
	const began instant.Instant = 1_764_000_000_000_000
	now := began
	c := config(t)
	c.Now = func() instant.Instant { return now }
	seen := traffic.New(traffic.Config{Now: c.Now, Replica: 1})
	seen.SetPolicy(c.Policy())
	c.Snapshot = seen.Snapshot
	type page struct {
		Now struct {
			Admitted float64 `json:"admitted"`
			Denied   float64 `json:"denied"`
			Near     float64 `json:"near"`
		} `json:"now"`
	}
	rates := func(query string) (told page) {
		response := get(t, web.Handler(c), "/snapshot?"+query, nil)
		defer response.Body.Close()
		if err := json.NewDecoder(response.Body).Decode(&told); err != nil {
			t.Fatal(err)
		}
		return told
	}
	for second := range 40 {
		want := float64(7)
		if second < 3 {
			want = 0 // nothing is known of whole seconds that have been reported
		}
		for _, query := range []string{"range=5m", "range=1h", "range=24h", "range=1h&limit=tenant"} {
			if got := rates(query).Now; second != 2 && (got.Denied != want || got.Admitted != 2*want || got.Near != 0) {
				t.Fatalf("%s after %d s: %+v; want %v denied a second, and twice as many admitted", query, second, got, want)
			}
		}
		seen.Reported(7, &wire.Report{ID: uint64(second + 1), Tallies: []wire.Tally{
			{Limit: "tenant", Window: time.Second, Result: wire.Denied, Count: 7}, {Limit: "tenant", Window: time.Second, Result: wire.Admitted, Count: 14},
		}})
		now = now.Add(time.Second)
	}
	now = now.Add(8 * time.Second)
	if got := rates("range=24h").Now; got.Denied != 0 || got.Admitted != 0 {
		t.Errorf("after 8 s without a request: %+v", got)
	}
}

// Whoever has no token sees the page that asks for it, and nothing of the traffic; a page of another site whose name leads to
// this machine sees nothing either.
func TestWhoMay(t *testing.T) {
	free, closed := config(t), config(t)
	closed.Token = token
	for _, c := range []struct {
		name        string
		config      web.Config
		path        string
		change      func(*http.Request)
		status      int
		says, never string
	}{
		{"free", free, "/", nil, 200, "Decisions", "password"},
		{"free, data", free, "/snapshot", nil, 200, `"domain":"shop"`, ""},
		{"free, by name", free, "/snapshot", func(r *http.Request) { r.Host = "localhost:9091" }, 200, `"domain":"shop"`, ""},
		{"free, IPv6", free, "/snapshot", func(r *http.Request) { r.Host = "[::1]:9091" }, 200, `"domain":"shop"`, ""},
		{"another site's name", free, "/snapshot", func(r *http.Request) { r.Host = "evil.test:9091" }, 403, "--admin-token-file", "shop"},
		{"another site's name, events", free, "/events", func(r *http.Request) { r.Host = "127.0.0.1.evil.test" }, 403, "--admin-token-file", "shop"},
		{"another site's name, the page", free, "/", func(r *http.Request) { r.Host = "evil.test" }, 403, "--admin-token-file", "password"},
		{"no token", closed, "/", nil, 200, "password", "Decisions"},
		{"no token, data", closed, "/snapshot", nil, 401, "token", "shop"},
		{"no token, events", closed, "/events", nil, 401, "token", "shop"},
		{"a wrong token", closed, "/snapshot", func(r *http.Request) { r.Header.Set("authorization", "Bearer x") }, 401, "", "shop"},
		{"a wrong cookie", closed, "/snapshot", func(r *http.Request) { r.Header.Set("cookie", "sluice_dashboard="+token) }, 401, "", "shop"},
		{"the token", closed, "/snapshot", func(r *http.Request) { r.Header.Set("authorization", "Bearer "+token) }, 200, `"domain":"shop"`, ""},
		{"a file", closed, "/assets/style.css", nil, 200, "color-scheme", ""},
		{"no such page", free, "/admin", nil, 404, "", "shop"},
		{"no way out", free, "/assets/../web.go", nil, 307, "", "package"},
	} {
		t.Run(c.name, func(t *testing.T) {
			response := get(t, web.Handler(c.config), c.path, c.change)
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != c.status || !strings.Contains(string(body), c.says) || c.never != "" && strings.Contains(string(body), c.never) {
				t.Errorf("%d %.200s", response.StatusCode, body)
			}
			if policy := response.Header.Get("content-security-policy"); !strings.HasPrefix(policy, "default-src 'self'") {
				t.Errorf("Content-Security-Policy %q", policy)
			}
		})
	}
}

// A browser that says the token is given a cookie that is not the token, and the cookie opens the dashboard.
func TestLogin(t *testing.T) {
	c := config(t)
	c.Token = token
	h := web.Handler(c)
	login := func(said string) *http.Response {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", strings.NewReader(url.Values{"token": {said}}.Encode()))
		r.Header.Set("content-type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	for _, wrong := range []string{"", "x", token + "x", strings.Repeat("x", 1<<20)} {
		response := login(wrong)
		response.Body.Close()
		if len(response.Cookies()) > 0 || response.Header.Get("location") != "/?wrong" {
			t.Errorf("%.20q: %v, to %s", wrong, response.Cookies(), response.Header.Get("location"))
		}
	}
	response := login(token)
	response.Body.Close()
	cookies := response.Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || strings.Contains(cookies[0].Value, token) {
		t.Fatalf("%v", cookies)
	}
	opened := get(t, h, "/snapshot", func(r *http.Request) { r.AddCookie(cookies[0]) })
	opened.Body.Close()
	if opened.StatusCode != http.StatusOK {
		t.Errorf("the cookie gives %d", opened.StatusCode)
	}
}

// Wrong tokens are told of, each, and who says too many is not listened to for a while, whatever comes then; others are, and so is
// who has signed in.
func TestTries(t *testing.T) {
	var now instant.Instant = 1_764_000_000_000_000
	refused := map[string]int{}
	c := config(t)
	c.Token, c.Now = token, func() instant.Instant { return now }
	c.Refused = func(attributes ...any) { refused[fmt.Sprint(attributes[1], " ", attributes[3])]++ }
	h := web.Handler(c)
	ask := func(from string, change func(*http.Request)) (int, string) {
		response := get(t, h, "/snapshot", func(r *http.Request) {
			r.RemoteAddr = from
			change(r)
		})
		response.Body.Close()
		return response.StatusCode, response.Header.Get("retry-after")
	}
	bearer := func(said string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("authorization", "Bearer "+said) }
	}
	login := func(from, said string) (string, []*http.Cookie) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", strings.NewReader(url.Values{"token": {said}}.Encode()))
		r.Header.Set("content-type", "application/x-www-form-urlencoded")
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		response := w.Result()
		response.Body.Close()
		return response.Header.Get("location"), response.Cookies()
	}
	_, signedIn := login("192.0.2.1:1", token)
	for range 5 {
		if code, _ := ask("192.0.2.1:1", bearer("x")); code != 401 {
			t.Fatal(code)
		}
		if to, _ := login("192.0.2.1:2", "x"); to != "/?wrong" {
			t.Fatal(to)
		}
	}
	for range 100 {
		if code, after := ask("192.0.2.1:3", bearer(token)); code != 429 || after != "6" {
			t.Fatal(code, after)
		}
		if to, _ := login("192.0.2.1:3", token); to != "/?later" {
			t.Fatal(to)
		}
	}
	if refused["bearer 192.0.2.1:1"] != 5 || refused["form 192.0.2.1:2"] != 5 || refused["bearer 192.0.2.1:3"] != 100 || refused["form 192.0.2.1:3"] != 100 {
		t.Errorf("%v", refused)
	}
	if code, _ := ask("192.0.2.1:1", func(r *http.Request) { r.AddCookie(signedIn[0]) }); code != 200 {
		t.Errorf("signed in: %d", code)
	}
	if code, _ := ask("192.0.2.2:1", bearer(token)); code != 200 {
		t.Errorf("another address: %d", code)
	}
	now = now.Add(6 * time.Second)
	if code, _ := ask("192.0.2.1:1", bearer(token)); code != 200 {
		t.Errorf("after the wait: %d", code)
	}
	// However many addresses try, what is kept of them is bounded; those for whom there is no room count together.
	for i := range 3000 {
		ask(fmt.Sprintf("198.18.%d.%d:1", i/250, i%250), bearer("x"))
	}
	if code, _ := ask("198.19.0.1:1", bearer(token)); code != 429 {
		t.Errorf("an address that there is no room for: %d", code)
	}
	now = now.Add(time.Minute)
	if code, _ := ask("198.19.0.1:1", bearer(token)); code != 200 {
		t.Errorf("a minute later: %d", code)
	}
	// Of IPv6 it is the network that counts.
	for i := range 10 {
		ask(fmt.Sprintf("[2001:db8::%d]:1", i), bearer("x"))
	}
	if code, _ := ask("[2001:db8::ffff]:1", bearer(token)); code != 429 {
		t.Errorf("of the same network: %d", code)
	}
}

// Pages are told again every second, only so many at a time, and their streams end with the service.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t)
		done := make(chan struct{})
		c.Done = done
		h := web.Handler(c)
		const most = 32
		type page struct {
			lines  chan string
			cancel context.CancelFunc
		}
		open := func() page {
			ctx, cancel := context.WithCancel(t.Context())
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/events?range=5m", http.NoBody)
			r.Host = "localhost"
			out, in := io.Pipe()
			w := &stream{PipeWriter: in, header: http.Header{}}
			p := page{lines: make(chan string, 100), cancel: cancel}
			go func() {
				h.ServeHTTP(w, r)
				in.Close()
			}()
			go func() {
				defer close(p.lines)
				for s := bufio.NewScanner(out); s.Scan(); {
					if s.Text() != "" {
						p.lines <- s.Text()
					}
				}
			}()
			return p
		}
		var pages []page
		for range most {
			pages = append(pages, open())
		}
		synctest.Wait()
		<-time.After(3*time.Second + time.Millisecond)
		for i, p := range pages {
			if n := len(p.lines); n != 4 {
				t.Fatalf("page %d was told %d times in 3 s", i, n)
			}
			if line := <-p.lines; !strings.HasPrefix(line, `data: {"domain":"shop"`) {
				t.Fatalf("page %d was told %.80q", i, line)
			}
		}
		if line := <-open().lines; !strings.Contains(line, "too many") {
			t.Errorf("one page more was told %.80q", line)
		}
		pages[0].cancel()
		<-time.After(2 * time.Second)
		if line := <-open().lines; !strings.HasPrefix(line, "data: ") {
			t.Errorf("a page in the place of one that has gone was told %.80q", line)
		}
		close(done)
		synctest.Wait()
		for _, p := range pages {
			for range p.lines { // until it is closed
			}
		}
	})
}

// stream is a connection that lets every write through at once.
type stream struct {
	*io.PipeWriter

	header http.Header
}

func (s *stream) Header() http.Header            { return s.header }
func (*stream) WriteHeader(int)                  {}
func (*stream) FlushError() error                { return nil }
func (*stream) SetWriteDeadline(time.Time) error { return nil }
