// Package web serves the dashboard: a page that shows live what all replicas of the service know of the traffic. All of it is
// embedded, so that it works without any other host.
package web

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
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
	// Refused is told of requests with a token, or a cookie for one, that is not it: how it was said, and the peer's address.
	Refused func(attributes ...any)
	Now     func() instant.Instant
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
	tries   tries
	// seal is what a cookie holds. It takes long to make, so that trying cookies is no way to try tokens.
	seal func() string

	mu     sync.Mutex
	events map[event]*made
}

// Handler gives the dashboard, whose paths are /, /assets/, /login, /snapshot and /events.
func Handler(config Config) http.Handler {
	d := &dashboard{config: config, streams: make(chan struct{}, maxStreams), events: make(map[event]*made)}
	d.seal = sync.OnceValue(func() string { return seal(config.Token) })
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

// cookie holds what is made of the token, so that the token itself lies in no browser.
const cookie = "sluice_dashboard"

// known tells those who may see the dashboard from those who may not.
func (d *dashboard) known(shown, hidden http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bearer, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case d.config.Token == "" && !namesThisMachine(r.Host):
			http.Error(w, elsewhere, http.StatusForbidden)
			return
		case d.config.Token == "":
		case is:
			if wait := d.try(r, bearer, "bearer"); wait > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
				http.Error(w, "too many wrong tokens came from this address", http.StatusTooManyRequests)
				return
			} else if wait < 0 {
				refuse(w, r)
				return
			}
		case !d.signedIn(r):
			hidden.ServeHTTP(w, r)
			return
		}
		shown.ServeHTTP(w, r)
	})
}

// elsewhere is said to who cannot be told from another site's page, and has no token to show.
const elsewhere = "Without --admin-token-file the dashboard answers only where it is called by a loopback address: " +
	"open http://127.0.0.1 (or localhost) with its port on the machine itself, or through a tunnel, or start the service with a token."

// signedIn says whether a request has the cookie for the token.
func (d *dashboard) signedIn(r *http.Request) bool {
	c, err := r.Cookie(cookie)
	if err != nil {
		return false
	}
	if !same(c.Value, d.seal()) {
		d.config.Refused("by", "cookie", "peer", r.RemoteAddr)
		return false
	}
	return true
}

// try compares a token: 0 where it is the service's, negative where it is not, else how long it has to wait to be looked at.
func (d *dashboard) try(r *http.Request, token, by string) time.Duration {
	peer, now := peerOf(r), d.config.Now()
	wait := d.tries.wait(peer, now)
	if wait == 0 && same(token, d.config.Token) {
		return 0
	}
	d.config.Refused("by", by, "peer", r.RemoteAddr)
	if wait > 0 {
		return wait
	}
	d.tries.wrong(peer, now)
	return -1
}

// login gives a browser that says the token a cookie for it.
func (d *dashboard) login(w http.ResponseWriter, r *http.Request) {
	if d.config.Token == "" {
		http.Error(w, elsewhere, http.StatusForbidden)
		return
	}
	const most = 2 << 10
	r.Body = http.MaxBytesReader(w, r.Body, most)
	if wait := d.try(r, r.PostFormValue("token"), "form"); wait != 0 {
		next := "/?wrong"
		if wait > 0 {
			next = "/?later"
		}
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // not Secure where the service itself speaks plain text
		Name: cookie, Value: d.seal(), Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func refuse(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "the dashboard asks for the admin token", http.StatusUnauthorized)
}

// seal is what stands for a token in a cookie, at every replica.
func seal(token string) string {
	const rounds = 100_000
	sum, err := pbkdf2.Key(sha256.New, token, []byte("sluice dashboard"), rounds, sha256.Size)
	if err != nil {
		panic(err) // only where the length is none
	}
	return hex.EncodeToString(sum)
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
	// Now is of the last seconds, whatever the range is.
	Now perSecond `json:"now"`
	// Every is how often the page is told, in seconds.
	Every float64 `json:"every"`
}

// perSecond is rates of requests.
type perSecond struct {
	Admitted float64 `json:"admitted"`
	Denied   float64 `json:"denied"`
	Near     float64 `json:"near"`
	// ShadowAdmitted and ShadowDenied are verdicts of limits in shadow, one for each limit that a request was under.
	ShadowAdmitted float64 `json:"shadow_admitted"`
	ShadowDenied   float64 `json:"shadow_denied"`
}

// nowOver is how many seconds the rates of now are of; they end reportsWithin before all replicas have told, for by then workers
// have reported. A replica that has not told for lostAfter is not waited for.
const (
	nowOver       = 5
	reportsWithin = 1
	lostAfter     = 10
)

// rateNow reads the rates of now from a snapshot of the last five minutes, whose steps are seconds.
func rateNow(t *traffic.Snapshot) perSecond {
	s := t.Series
	end := int64(max(t.Until, t.At-lostAfter)) - reportsWithin
	begin := max(s.From, end-nowOver, int64(math.Ceil(t.Since)))
	rate := func(counts []int64) float64 {
		var sum int64
		for at := begin - s.From; at < min(end-s.From, int64(len(counts))); at++ {
			sum += counts[at]
		}
		return float64(sum) / float64(max(1, end-begin))
	}
	return perSecond{
		Admitted: rate(s.Admitted), Denied: rate(s.Denied), Near: rate(s.Near),
		ShadowAdmitted: rate(s.ShadowAdmitted), ShadowDenied: rate(s.ShadowDenied),
	}
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
	s.Every = e.every().Seconds()
	latest := s.Traffic
	if e.of != traffic.FiveMinutes {
		latest = d.config.Snapshot(traffic.Query{Range: traffic.FiveMinutes, Limit: e.limit, Top: 1})
	}
	s.Now = rateNow(&latest)
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
