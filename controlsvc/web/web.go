// Package web serves the dashboard: a page that shows live what all replicas of the service know of the traffic. All of it is
// embedded, so that it works without any other host.
package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"sluice/controlsvc/traffic"
	"sluice/shared/instant"
	"sluice/shared/policy"
)

//go:embed assets
var embedded embed.FS

// Config is what a dashboard shows, and whom.
type Config struct {
	// Snapshot gives what is known of the traffic. It is called at most once a second for each range and limit.
	Snapshot func(traffic.Query) traffic.Snapshot
	// Policy gives the policy in force.
	Policy func() *policy.Policy
	// Token is what a browser has to say before it is shown anything but the page that asks for it. Empty: nothing, and only
	// requests that name this machine are answered, so that no other site's page can ask in a browser's name.
	Token string
	Now   func() instant.Instant
	// After gives a channel that is sent to once the duration has passed.
	After func(time.Duration) <-chan time.Time
	// Done is closed when the service stops, which ends what pages follow.
	Done <-chan struct{}
}

// maxStreams bounds the pages that are kept up to date at a time. One more is told to come back.
const maxStreams = 32

// dashboard answers for the page and what it asks for.
type dashboard struct {
	config  Config
	streams chan struct{}

	mu     sync.Mutex
	events map[event]*made
}

// Handler gives the dashboard, whose paths are /, /assets/, /login, /snapshot and /events.
func Handler(config Config) http.Handler {
	d := &dashboard{config: config, streams: make(chan struct{}, maxStreams), events: make(map[event]*made)}
	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	page := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, assets, name) }
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", d.known(page("index.html"), page("login.html")))
	mux.Handle("GET /snapshot", d.known(http.HandlerFunc(d.snapshot), http.HandlerFunc(refuse)))
	mux.Handle("GET /events", d.known(http.HandlerFunc(d.follow), http.HandlerFunc(refuse)))
	mux.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(assets)))
	mux.HandleFunc("POST /login", d.login)
	return guarded(mux)
}

// guarded has browsers keep to this page's own files, and keep the page to themselves.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; form-action 'self'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// cookie holds the hash of the token, so that the token itself lies in no browser.
const cookie = "sluice_dashboard"

// known tells those who may see the dashboard from those who may not.
func (d *dashboard) known(shown, hidden http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.allowed(r) {
			shown.ServeHTTP(w, r)
		} else {
			hidden.ServeHTTP(w, r)
		}
	})
}

func (d *dashboard) allowed(r *http.Request) bool {
	if d.config.Token == "" {
		return namesThisMachine(r.Host)
	}
	if bearer, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is {
		return same(bearer, d.config.Token)
	}
	c, err := r.Cookie(cookie)
	return err == nil && same(c.Value, seal(d.config.Token))
}

// login gives a browser that says the token a cookie for it.
func (d *dashboard) login(w http.ResponseWriter, r *http.Request) {
	const most = 2 << 10
	r.Body = http.MaxBytesReader(w, r.Body, most)
	if d.config.Token == "" || !same(r.PostFormValue("token"), d.config.Token) {
		http.Redirect(w, r, "/?wrong", http.StatusSeeOther)
		return
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // not Secure where the service itself speaks plain text
		Name: cookie, Value: seal(d.config.Token), Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func refuse(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "the dashboard asks for the admin token", http.StatusUnauthorized)
}

// seal is what stands for a token in a cookie.
func seal(token string) string {
	sum := sha256.Sum256([]byte("sluice dashboard\x00" + token))
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 2*len(sum))
	for _, b := range sum {
		out = append(out, digits[b>>4], digits[b&15])
	}
	return string(out)
}

// same compares in a time that tells nothing of either.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// namesThisMachine says whether a request was meant for the loopback. A page of another site can have its name lead there, but
// not change the name that the browser sends.
func namesThisMachine(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

func (d *dashboard) snapshot(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(d.event(eventOf(r))) //nolint:gosec // JSON, with <, > and & escaped; who has gone needs no answer
}

// seen is what the page shows.
type seen struct {
	Domain  string           `json:"domain"`
	Version string           `json:"version"`
	Limits  []inForce        `json:"limits"`
	Traffic traffic.Snapshot `json:"traffic"`
}

// inForce is a limit of the policy in force.
type inForce struct {
	Name      string   `json:"name"`
	Rates     []string `json:"rates"`
	Algorithm string   `json:"algorithm"`
	Mode      string   `json:"mode"`
	// Shadow is the percentage of its keys that are in shadow.
	Shadow uint32 `json:"shadow"`
}

// maxLimits is how many limits of the policy the page names.
const maxLimits = 500

func (d *dashboard) see(e event) []byte {
	s := seen{Limits: []inForce{}, Traffic: d.config.Snapshot(traffic.Query{Range: e.of, Limit: e.limit})}
	if p := d.config.Policy(); p != nil {
		s.Domain, s.Version = p.Domain, p.Version
		for i := range p.Limits[:min(len(p.Limits), maxLimits)] {
			l := &p.Limits[i]
			one := inForce{Name: l.Name, Rates: []string{}, Algorithm: l.Algorithm.String(), Mode: l.Mode.String(), Shadow: l.Shadow}
			for _, rate := range l.Rates {
				one.Rates = append(one.Rates, rate.String())
			}
			s.Limits = append(s.Limits, one)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return []byte("{}") // numbers and names only: it has no way to fail
	}
	return text
}
