package redis

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice/controlsvc/authority"
	"sluice/shared/limit"
)

func testKey(name string, rates ...string) authority.Key {
	k := authority.Key{Name: name, Algorithm: limit.SlidingLog}
	for _, text := range rates {
		r, err := limit.ParseRate(text)
		if err != nil {
			panic(err)
		}
		k.Rates = append(k.Rates, r)
	}
	return k
}

func reserve(t testing.TB, s authority.Store, r authority.Reserve) authority.Reserved {
	t.Helper()
	out := s.Reserve(t.Context(), []authority.Reserve{r})[0]
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	return out
}

func remaining(t testing.TB, s *Store, k authority.Key) int64 {
	t.Helper()
	states, err := s.Peek(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return states[0].Remaining
}

// A server that has lost its scripts gets them again, and no operation is executed twice for it.
func TestScriptsAreLost(t *testing.T) {
	s := open(t, startServer(t).URL())
	var reserves []authority.Reserve
	for i := range 20 {
		reserves = append(reserves, authority.Reserve{Key: testKey(fmt.Sprintf("key/%d", i%4), "100/1h"), Call: "a", Want: 1, Min: 1})
	}
	for range 3 {
		if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for i, out := range s.Reserve(t.Context(), reserves) {
			if out.Err != nil {
				t.Errorf("reserve %d: %v", i, out.Err)
			}
		}
	}
	if got := remaining(t, s, reserves[0].Key); got != 100-15 {
		t.Errorf("%d remain of 100 after 15", got)
	}
}

// On a cluster where one master has lost its scripts, only what went there is sent again.
func TestScriptsAreLostOnOneMaster(t *testing.T) {
	t.Parallel()
	s := open(t, startCluster(t))
	var reserves []authority.Reserve
	for i := range 60 {
		reserves = append(reserves, authority.Reserve{Key: testKey(fmt.Sprintf("key/%d", i), "100/1h"), Call: "a", Want: 1, Min: 1})
	}
	s.Reserve(t.Context(), reserves)
	var lost atomic.Bool
	err := s.eachServer(t.Context(), func(ctx context.Context, server *goredis.Client) error {
		if lost.Swap(true) {
			return server.ConfigResetStat(ctx).Err()
		}
		return server.ScriptFlush(ctx).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, out := range s.Reserve(t.Context(), reserves) {
		if out.Err != nil || out.State.Remaining != 98 {
			t.Errorf("reserve %d: %+v", i, out)
		}
	}
}

// everyOperation calls every operation, and gives how each failed.
func everyOperation(ctx context.Context, s *Store, k authority.Key) map[string]error {
	_, peek := s.Peek(ctx, k)
	_, connected := s.Connected(ctx, "shop", 1, time.Second)
	_, eviction := s.CheckEviction(ctx)
	_, inspect := s.Inspect(ctx, k, 1)
	_, overlay := s.Overlay(ctx, authority.Edit{Domain: "shop", Put: authority.Entry{Name: "a", ExpiresIn: time.Minute}})
	return map[string]error{
		"inspect":   inspect,
		"overlay":   overlay,
		"reserve":   s.Reserve(ctx, []authority.Reserve{{Key: k, Call: "a", Want: 1, Min: 1}})[0].Err,
		"settle":    s.Settle(ctx, []authority.Settle{{Key: k, Lease: "l:a::1:1"}})[0],
		"cancel":    s.Cancel(ctx, []authority.Cancel{{Key: k, Call: "a"}})[0],
		"record":    s.Record(ctx, []authority.Record{{Key: k, Call: "a", Uses: []authority.Use{{Units: 1}}}})[0],
		"peek":      peek,
		"reset":     s.Reset(ctx, k),
		"connected": connected,
		"ping":      s.Ping(ctx),
		"eviction":  eviction,
	}
}

// A server that stands still delays no call beyond its deadline. What it executes later costs capacity, until cancelled.
func TestServerStandsStill(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := open(t, server.URL())
	k := testKey("stalled", "10/1h")
	reserve(t, s, authority.Reserve{Key: k, Call: "before", Want: 1, Min: 1})
	server.Pause()
	const deadline = time.Second // within which the call has to be on its way
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	late := s.Reserve(ctx, []authority.Reserve{{Key: k, Call: "late", Want: 5, Min: 1}})[0]
	if !errors.Is(late.Err, authority.ErrUnavailable) {
		t.Errorf("with a deadline: %v", late.Err)
	}
	for name, err := range everyOperation(ctx, s, testKey("stalled/2", "10/1h")) {
		if !errors.Is(err, authority.ErrUnavailable) {
			t.Errorf("%s: %v, which is not %v", name, err, authority.ErrUnavailable)
		}
	}
	// A call that knew of no deadline would take as long as the store waits for an answer.
	if took := time.Since(began); took > deadline+20*time.Second {
		t.Errorf("the calls took %v, with %v to their deadline", took, deadline)
	}
	if err := openConfig(t, Config{URL: server.URL()}).Ping(t.Context()); !errors.Is(err, authority.ErrUnavailable) {
		t.Errorf("without a deadline: %v", err)
	}
	server.Resume()
	waitFor(t, "the server", func() bool { return s.Ping(t.Context()) == nil })
	waitFor(t, "the reserve that was on its way", func() bool { return remaining(t, s, k) == 10-1-5 })
	if err := s.Cancel(t.Context(), []authority.Cancel{{Key: k, Call: "late"}})[0]; err != nil {
		t.Error(err)
	}
	if got := remaining(t, s, k); got != 9 {
		t.Errorf("%d remain of 10 after 1 and what was cancelled", got)
	}
}

// A server that has gone is said to be so, at once; and when it comes back it is used again.
func TestServerIsGone(t *testing.T) {
	server := startServer(t)
	s := open(t, server.URL())
	reserve(t, s, authority.Reserve{Key: testKey("gone", "10/1h"), Call: "a", Want: 1, Min: 1})
	server.Kill()
	began := time.Now()
	for name, err := range everyOperation(t.Context(), s, testKey("gone", "10/1h")) {
		if !errors.Is(err, authority.ErrUnavailable) {
			t.Errorf("%s: %v, which is not %v", name, err, authority.ErrUnavailable)
		}
	}
	if took := time.Since(began); took > 20*time.Second { // a store that waits for an answer does so for longer
		t.Errorf("the calls took %v", took)
	}
}

// breaker is a connection that executes a script and breaks before the answer, while it is armed.
type breaker struct {
	net.Conn

	armed *atomic.Int64
	hit   atomic.Bool
}

func (b *breaker) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("evalsha")) && b.armed.Add(-1) >= 0 {
		b.hit.Store(true)
	}
	return b.Conn.Write(p)
}

func (b *breaker) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if b.hit.Load() && err == nil {
		b.Close()
		return 0, io.EOF
	}
	return n, err
}

// breakerHook puts breakers into a client's connections.
type breakerHook struct{ armed *atomic.Int64 }

func (h breakerHook) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &breaker{Conn: c, armed: h.armed}, nil
	}
}
func (breakerHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (breakerHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// An answer that is lost with its connection makes no client ask again: the units would be charged twice, and one charge
// known to nobody.
func TestConnectionBreaks(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) string{
		"one server": func(t *testing.T) string { return startServer(t).URL() },
		"a cluster":  startCluster,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, start(t))
			var armed atomic.Int64
			switch client := s.client.(type) {
			case *goredis.Client:
				client.AddHook(breakerHook{&armed})
			case *goredis.ClusterClient:
				client.OnNewNode(func(node *goredis.Client) { node.AddHook(breakerHook{&armed}) })
			}
			k, other := testKey("broken", "100/1h"), testKey("broken/2", "100/1h")
			reserve(t, s, authority.Reserve{Key: k, Call: "first", Want: 1, Min: 1})
			armed.Store(1)
			outs := s.Reserve(t.Context(), []authority.Reserve{
				{Key: k, Call: "broken", Want: 10, Min: 10}, {Key: k, Call: "broken", Part: "2", Want: 10, Min: 10},
			})
			for _, out := range outs {
				if !errors.Is(out.Err, authority.ErrUnavailable) {
					t.Errorf("the answer was lost, and the reserve gave %+v", out)
				}
			}
			if armed.Load() >= 1 {
				t.Fatal("no connection was broken")
			}
			if got := remaining(t, s, k); got != 79 {
				t.Errorf("%d remain of 100 after 1 and 2 × 10", got)
			}
			reserve(t, s, authority.Reserve{Key: other, Call: "after", Want: 1, Min: 1})
		})
	}
}

// The account of a window is worth what the members behind it are: lost, or too small, it is made anew; without members it
// is nothing.
func TestAccountsThatLie(t *testing.T) {
	s := open(t, startServer(t).URL())
	ctx := t.Context()
	// write says that the account is of so many units, of which so many are leased, and so many members.
	write := func(units, leased, size, latest float64) func(_, account string) error {
		return func(_, account string) error {
			var b []byte
			for _, n := range []float64{units, leased, size, latest, 0, 0} {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(n))
			}
			return s.client.Set(ctx, account, b, 0).Err()
		}
	}
	for name, c := range map[string]struct {
		harm func(charges, account string) error
		want int64
	}{
		"gone":                 {func(_, account string) error { return s.client.Del(ctx, account).Err() }, 4},
		"empty":                {func(_, account string) error { return s.client.Set(ctx, account, "", 0).Err() }, 4},
		"garbage":              {func(_, account string) error { return s.client.Set(ctx, account, "x", 0).Err() }, 4},
		"too small":            {write(1, 0, 2, 0), 4},
		"negative":             {write(-7, 0, 2, 0), 4},
		"no number":            {write(math.NaN(), 0, 2, 0), 4},
		"leases without units": {write(6, 99, 2, 0), 4},
		"of members before":    {write(3, 0, 1, 0), 4},
		"charges gone":         {func(charges, _ string) error { return s.client.Del(ctx, charges).Err() }, 10},
		"both gone":            {func(charges, account string) error { return s.client.Del(ctx, charges, account).Err() }, 10},
	} {
		k := testKey("lies/"+name, "10/1h")
		reserve(t, s, authority.Reserve{Key: k, Call: "a", Want: 3, Min: 1})
		reserve(t, s, authority.Reserve{Key: k, Call: "b", Want: 3, Min: 1, TTL: time.Minute})
		keys := s.keysOf(k)
		if err := c.harm(keys[0], keys[1]); err != nil {
			t.Fatal(err)
		}
		if got := reserve(t, s, authority.Reserve{Key: k, Call: "c", Want: 20, Min: 1}); got.Units != c.want || !got.Denied {
			t.Errorf("%s: %+v; want %d units", name, got, c.want)
		}
	}
	// Too much costs capacity, until somebody is denied who should not be.
	k := testKey("lies/too much", "10/1h")
	reserve(t, s, authority.Reserve{Key: k, Call: "a", Want: 3, Min: 1})
	if err := write(1000, 0, 1, float64(time.Now().Add(time.Hour).UnixMicro()))("", s.keysOf(k)[1]); err != nil {
		t.Fatal(err)
	}
	reserve(t, s, authority.Reserve{Key: k, Call: "b", Want: 1, Min: 1})
	if got := reserve(t, s, authority.Reserve{Key: k, Call: "c", Want: 20, Min: 1}); got.Units != 7 {
		t.Errorf("an account of too much, after a denial: %+v; want 7 units", got)
	}
}

// A key that holds too much is refused with an error, not silently forgotten.
func TestFull(t *testing.T) {
	s := open(t, startServer(t).URL())
	k := testKey("full", "10/1h")
	uses := make([]authority.Use, 4000)
	for i := range uses {
		uses[i].Units = limit.MaxUnits
	}
	for range 2 {
		err := s.Record(t.Context(), []authority.Record{{Key: k, Call: "a", Uses: uses}})[0]
		if err != nil && (errors.Is(err, authority.ErrUnavailable) || !errors.Is(err, errRefused)) {
			t.Errorf("a record of too much: %v", err)
		}
		if full := remaining(t, s, k) == 0; !full {
			t.Error("something remains")
		}
	}
	if err := s.Record(t.Context(), []authority.Record{{Key: k, Call: "a", Uses: uses}})[0]; !errors.Is(err, errRefused) {
		t.Errorf("a record of too much: %v, which is not %v", err, errRefused)
	}
}

func TestCheckEviction(t *testing.T) {
	s := open(t, startServer(t).URL())
	if warning, err := s.CheckEviction(t.Context()); warning != "" || err != nil {
		t.Errorf("noeviction: %q, %v", warning, err)
	}
	if err := s.client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if warning, err := s.CheckEviction(t.Context()); !strings.Contains(warning, "allkeys-lru") || err != nil {
		t.Errorf("allkeys-lru: %q, %v", warning, err)
	}
}

// Names are told apart by the account. Where it is lost, and the next grant of the same call falls into the same
// microsecond, the charge that is there already is not overwritten: nothing is granted.
func TestNameIsTaken(t *testing.T) {
	s := open(t, startServer(t).URL())
	h := s.withClock(t)
	k := testKey("twice", "10/1h", "20/2h")
	r := authority.Reserve{Key: k, Call: "a", Want: 4, Min: 4, TTL: time.Minute}
	for range 2 {
		if out := h.Store.Reserve(t.Context(), []authority.Reserve{r})[0]; out.Err != nil || out.Units != 4 {
			t.Fatalf("%+v", out)
		}
		keys := s.keysOf(k)
		if err := s.client.Del(t.Context(), keys[1], keys[3]).Err(); err != nil {
			t.Fatal(err)
		}
		if out := h.Store.Reserve(t.Context(), []authority.Reserve{r})[0]; !errors.Is(out.Err, errRefused) || out.Units != 0 {
			t.Errorf("the name is taken: %+v", out)
		}
		if err := s.client.Del(t.Context(), keys[0]).Err(); err != nil {
			t.Fatal(err)
		}
		if out := h.Store.Reserve(t.Context(), []authority.Reserve{r})[0]; !errors.Is(out.Err, errRefused) || out.Units != 0 {
			t.Errorf("the name is taken in the second window: %+v", out)
		}
		states, err := h.Store.Peek(t.Context(), k)
		if err != nil || states[0].Remaining != 10 || states[1].Remaining != 16 {
			t.Errorf("%+v, %v", states, err)
		}
		if err := h.Store.Reset(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
	}
}
