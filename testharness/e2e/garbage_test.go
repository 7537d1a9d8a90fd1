package e2e

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/testharness/rig"
)

// garbage are ways to answer a call wrongly.
var garbage = []struct {
	name   string
	answer func(w http.ResponseWriter, r *http.Request, random *rand.Rand)
}{
	{"random bytes", func(w http.ResponseWriter, _ *http.Request, random *rand.Rand) {
		respond(w, noise(random, random.IntN(2000)), "0")
	}},
	{"a frame of random bytes", func(w http.ResponseWriter, _ *http.Request, random *rand.Rand) {
		content := noise(random, random.IntN(200))
		respond(w, append([]byte{0, 0, 0, 0, byte(len(content))}, content...), "0")
	}},
	{"a frame longer than what follows", func(w http.ResponseWriter, _ *http.Request, _ *rand.Rand) {
		respond(w, []byte{0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3}, "0")
	}},
	{"a compressed frame", func(w http.ResponseWriter, _ *http.Request, _ *rand.Rand) { respond(w, []byte{1, 0, 0, 0, 0}, "0") }},
	{"an empty message", func(w http.ResponseWriter, _ *http.Request, _ *rand.Rand) { respond(w, []byte{0, 0, 0, 0, 0}, "0") }},
	{"nothing", func(w http.ResponseWriter, _ *http.Request, _ *rand.Rand) { respond(w, nil, "0") }},
	{"no status", func(w http.ResponseWriter, _ *http.Request, _ *rand.Rand) { respond(w, []byte{0, 0, 0, 0, 0}, "") }},
	{"a status that is none", func(w http.ResponseWriter, _ *http.Request, _ *rand.Rand) { respond(w, nil, "\"zero\"") }},
	{"a page", func(w http.ResponseWriter, _ *http.Request, _ *rand.Rand) {
		w.Header().Set("content-type", "text/html")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "<h1>It works!</h1>")
	}},
	{"ten megabytes", func(w http.ResponseWriter, _ *http.Request, random *rand.Rand) {
		w.Header().Set("content-type", "application/grpc")
		block := noise(random, 64<<10)
		for range 160 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}},
	{"no end", func(w http.ResponseWriter, r *http.Request, _ *rand.Rand) {
		w.Header().Set("content-type", "application/grpc")
		_, _ = w.Write([]byte{0, 0, 0, 0, 9})
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}},
	{"a broken stream", func(http.ResponseWriter, *http.Request, *rand.Rand) { panic(http.ErrAbortHandler) }},
}

func noise(random *rand.Rand, length int) []byte {
	b := make([]byte, length)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func respond(w http.ResponseWriter, body []byte, status string) {
	w.Header().Set("content-type", "application/grpc")
	if status != "" {
		w.Header().Set("trailer", "grpc-status")
	}
	_, _ = w.Write(body)
	if status != "" {
		w.Header().Set("grpc-status", status)
	}
}

// babbler answers on the control address: policies from the real service, calls for units with garbage.
type babbler struct {
	server *http.Server

	mu     sync.Mutex
	random *rand.Rand
	next   int
	said   map[string]int
}

func startBabbler(t *testing.T, address, real string) *babbler {
	t.Helper()
	var unencrypted http.Protocols
	unencrypted.SetUnencryptedHTTP2(true)
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: real})
	forward.Transport = &http.Transport{Protocols: &unencrypted}
	b := &babbler{random: rand.New(rand.NewPCG(1, 2)), said: map[string]int{}}
	b.server = &http.Server{Protocols: &unencrypted, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/GetPolicy") {
			forward.ServeHTTP(w, r)
			return
		}
		b.babble(w, r)
	})}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = b.server.Serve(listener) }()
	return b
}

// babble gives one garbage after the other.
func (b *babbler) babble(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	kind := garbage[b.next%len(garbage)]
	random := rand.New(rand.NewPCG(b.random.Uint64(), 0))
	b.next++
	b.said[kind.name]++
	b.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body)
	kind.answer(w, r, random)
}

// TestGarbage: a service that speaks nonsense is a service that is away: no request hangs, each limit does what was chosen
// for that, and when the real one is back all is as before.
func TestGarbage(t *testing.T) {
	serve(t, onRedis)
	current.service.Stop()
	elsewhere, err := rig.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	if err := startService(elsewhere); err != nil {
		t.Fatal(err)
	}
	defer current.stop() // the next test finds nothing, and starts its own
	b := startBabbler(t, fleet.control, elsewhere)
	const settled, atLeast = timeout + 1500*time.Millisecond, timeout + 2500*time.Millisecond
	began := time.Now()
	for round := 0; time.Since(began) < atLeast || len(b.heard()) < len(garbage) && time.Since(began) < recoverWithin; round++ {
		checkAway(t, round, time.Since(began) > settled)
	}
	t.Logf("after %v: %v", time.Since(began), b.heard())
	if missing := len(garbage) - len(b.heard()); missing > 0 {
		t.Errorf("%d kinds of garbage were never asked for", missing)
	}
	b.server.Close()
	checkRawGarbage(t)

	current.service.Stop()
	if err := startService(fleet.control); err != nil {
		t.Fatal(err)
	}
	awaitRecovery(t, "/deny", "babbled")
	for _, e := range fleet.envoys {
		if e.Ended() {
			t.Fatal("an Envoy has gone:", last(e.Output(), 4000))
		}
		if strings.Contains(e.Output(), "Wasm VM failed") {
			t.Error("the filter trapped:", last(e.Output(), 4000))
		}
	}
}

func (b *babbler) heard() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.said)
}

// checkAway sends a request under each choice; one is to come back, and as chosen.
func checkAway(t *testing.T, round int, settled bool) {
	t.Helper()
	for _, choice := range choices {
		a := ask(t, round%envoyCount, http.MethodGet, "/"+choice, "x-tenant-id", "babble")
		ok := a.status == http.StatusOK
		switch {
		case !settled && a.status != http.StatusBadGateway:
		case choice == "allow" && ok, choice == "deny" && a.status == http.StatusServiceUnavailable:
		case choice == "local" && (ok || a.status == http.StatusTooManyRequests):
		default:
			t.Errorf("%s: status %d", choice, a.status)
		}
	}
}

// checkRawGarbage: not even HTTP/2.
func checkRawGarbage(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", fleet.control)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = connection.Write(bytes.Repeat([]byte("HTTP/1.0 200 OK\r\n\xff\x00"), 100))
			connection.Close()
		}
	}()
	for began := time.Now(); time.Since(began) < 500*time.Millisecond; {
		checkAway(t, 0, true)
	}
}

// awaitRecovery waits until every worker asks the service again: requests under a limit that denies without it come through.
func awaitRecovery(t *testing.T, path, tenant string) {
	t.Helper()
	deadline := time.Now().Add(recoverWithin)
	for inARow := 0; inARow < 20; {
		switch ask(t, inARow%envoyCount, http.MethodGet, path, "x-tenant-id", tenant).status {
		case http.StatusOK, http.StatusTooManyRequests:
			inARow++
		default:
			inARow = 0
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come through any more", path)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
