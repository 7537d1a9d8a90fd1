package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/controlsvc/store/storetest"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/testharness/rig"
)

// startServer starts a Redis that ends with the test.
func startServer(t testing.TB, args ...string) *rig.Redis {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	server, err := rig.StartRedis(ctx, os.Stderr, args...)
	if err != nil {
		cancel()
		t.Fatalf("this test needs a Redis: %v", err)
	}
	t.Cleanup(func() {
		server.Stop()
		cancel()
	})
	return server
}

// open gives a store for a test of what is answered, not of when: on a machine that has other work too, a Redis may stand
// still for longer than the defaults wait. Where a test is of those it uses openConfig.
func open(t testing.TB, url string) *Store {
	t.Helper()
	const patience = 30 * time.Second
	return openConfig(t, Config{URL: url, DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience})
}

var began = time.Now()

func clock() instant.Instant { return instant.Instant(time.Since(began).Microseconds()) }

func openConfig(t testing.TB, config Config) *Store {
	t.Helper()
	config.Now, config.After = clock, time.After
	s, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The suite on the clock of Redis itself: what does not depend on the time.
func TestStore(t *testing.T) {
	server := startServer(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		t.Helper()
		s := open(t, server.URL())
		empty(t, s)
		return storetest.Harness{Store: s, Entries: s.entries(t), Lifetimes: s.lifetimes(t)}
	})
}

// The whole suite, with one command of the scripts replaced: they read the clock of a key that the test moves. All else is
// as it is shipped, on a real Redis.
func TestStoreWithClock(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		t.Helper()
		s := open(t, server.URL())
		empty(t, s)
		return s.withClock(t)
	})
}

func (s *Store) withClock(t *testing.T) storetest.Harness {
	t.Helper()
	const key, read, instead = "clock", "redis.call('TIME')", "redis.call('LRANGE', 'clock', '0', '1')"
	replaced := func(source string) string {
		if strings.Count(source, read) != 1 {
			t.Fatalf("a script reads the time %d times; want once", strings.Count(source, read))
		}
		return broken(strings.Replace(source, read, instead, 1))
	}
	clocked := newStore(s.client, replaced)
	now := storetest.Start.Microseconds()
	set := func() {
		ctx := context.Background()
		_, err := s.client.TxPipelined(ctx, func(p goredis.Pipeliner) error {
			p.Del(ctx, key)
			p.RPush(ctx, key, strconv.FormatInt(now/1_000_000, 10), strconv.FormatInt(now%1_000_000, 10))
			return nil
		})
		if err != nil {
			t.Fatalf("setting the clock: %v", err)
		}
	}
	set()
	advance := func(d time.Duration) {
		now += d.Microseconds()
		set()
	}
	return storetest.Harness{Store: clocked, Advance: advance, Entries: s.entries(t), Lifetimes: s.lifetimes(t)}
}

// A window that holds too many grants refuses more, and nothing is charged.
func TestPageThatIsFull(t *testing.T) {
	s := open(t, startServer(t).URL())
	h := s.withClock(t)
	k := authority.Key{Name: "full", Algorithm: limit.SlidingBuckets, Rates: []limit.Rate{{Units: 1000, Window: time.Hour}}}
	r := authority.Reserve{Key: k, Call: "call", Want: 2, Min: 2, TTL: time.Second}
	reserve(t, h.Store, r)
	grants := s.keysOf(k)[1]
	pages, err := s.client.HGetAll(t.Context(), grants).Result()
	if err != nil || len(pages) != 1 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	const levels, fullPage, mostBytes = 6, 1460, 8 << 20
	for field, grant := range pages {
		first, _ := strconv.ParseInt(strings.TrimPrefix(field, "1:"), 10, 64)
		now := float64(storetest.Start.Microseconds()) / float64(time.Hour.Microseconds())
		for level := 1; level <= levels; level++ {
			number := int64(math.Floor(now * math.Pow(4, float64(level))))
			if level == 1 && number != first {
				t.Fatalf("the page is %s, want 1:%d", field, number)
			}
			bytes := fullPage
			if level == levels {
				bytes = mostBytes
			}
			full := strings.Repeat(grant, 1+bytes/len(grant))
			if err := s.client.HSet(t.Context(), grants, fmt.Sprintf("%d:%d", level, number), full).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := h.Store.Reserve(t.Context(), []authority.Reserve{r})[0]; !errors.Is(got.Err, errRefused) || got.Units > 0 {
		t.Errorf("granted %d, %v; want an error", got.Units, got.Err)
	}
	states, err := h.Store.Peek(t.Context(), k)
	if err != nil || states[0].Remaining != 998 {
		t.Errorf("%v remain, %v; want 998", states, err)
	}
}

// What a token bucket's list says of another level than the bucket has, as where something else has charged it, or where one of
// them was lost, takes nothing back.
func TestAListThatIsNotOfItsBucket(t *testing.T) {
	s := open(t, startServer(t).URL())
	k := authority.Key{Name: "a", Algorithm: limit.TokenBucket, Rates: []limit.Rate{{Units: 10, Window: limit.MaxWindow}}}
	lives := s.keysOf(k)
	remains := func(what string, want int64) {
		t.Helper()
		if errs := s.Cancel(t.Context(), []authority.Cancel{{Key: k, Call: "a"}}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		states, err := s.Peek(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if got := states[0].Remaining; got != want {
			t.Errorf("%s: %d remain, want %d", what, got, want)
		}
	}
	charge := func(call string) {
		t.Helper()
		if out := s.Reserve(t.Context(), []authority.Reserve{{Key: k, Call: call, Want: 3, Min: 3}})[0]; out.Err != nil || out.Units != 3 {
			t.Fatalf("%+v", out)
		}
	}
	charge("a")
	remains("both are there", 10)
	charge("a")
	s.client.HIncrBy(t.Context(), lives[0], "full", limit.MaxWindow.Microseconds()/10)
	remains("something else has charged it", 6)
	charge("b")
	remains("something else has charged it in between", 3)
	s.client.Del(t.Context(), lives[0])
	remains("the bucket is lost", 10)
	s.client.Del(t.Context(), lives...)
	charge("a")
	s.client.Del(t.Context(), lives[1])
	remains("the list is lost", 7)
}

// The charges of a sliding log are what counts, whatever has become of their account, and whoever comes next.
func TestAnAccountThatIsWrong(t *testing.T) {
	s := open(t, startServer(t).URL())
	for _, wrong := range []struct {
		name, text string // of no text: it is gone
	}{
		{name: "gone"},
		{"of another shape", "what is this?"},
		{"of nothing", strings.Repeat("\x00", 48)},
	} {
		for _, ttl := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprintf("%s, %v", wrong.name, ttl), func(t *testing.T) {
				k := testKey(wrong.name+ttl.String(), "3/1m")
				for call, granted := range []int64{1, 1, 1, 0} {
					out := reserve(t, s, authority.Reserve{Key: k, Call: strconv.Itoa(call), Want: 1, Min: 1, TTL: ttl})
					if out.Units != granted || out.State.Remaining != max(0, 2-int64(call)) {
						t.Errorf("call %d was granted %d, with %d left", call, out.Units, out.State.Remaining)
					}
					account := s.keysOf(k)[1]
					if err := s.client.Del(t.Context(), account).Err(); err != nil {
						t.Fatal(err)
					}
					if wrong.text == "" {
						continue
					}
					if err := s.client.Set(t.Context(), account, wrong.text, time.Minute).Err(); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

func empty(t *testing.T, s *Store) {
	t.Helper()
	err := s.eachServer(t.Context(), func(ctx context.Context, server *goredis.Client) error { return server.FlushAll(ctx).Err() })
	if err != nil {
		t.Fatalf("emptying Redis: %v", err)
	}
}

// keysOf names what a key's windows are kept in.
func (s *Store) keysOf(key authority.Key) []string {
	i := s.invoke("", key, store.Windows(key.Rates))
	names := make([]string, i.args[atCount].(int))
	for n := range names {
		names[n] = i.args[atKeys+n].(string)
	}
	return names
}

func (s *Store) entries(t *testing.T) func(authority.Key) []int {
	return func(key authority.Key) []int {
		t.Helper()
		windows := store.Windows(key.Rates)
		entries := make([]int, len(windows))
		keys := s.keysOf(key)
		for i, name := range keys {
			var n int64
			var err error
			switch {
			case key.Algorithm == limit.SlidingBuckets && i%2 == 0:
				n = s.buckets(t, name)
			case key.Algorithm == limit.SlidingBuckets:
				n = s.grants(t, name)
			case i%2 == 0:
				n, err = s.client.ZCard(t.Context(), name).Result()
			}
			if err != nil {
				t.Fatal(err)
			}
			entries[i/2] += int(n)
		}
		return entries
	}
}

// buckets counts the buckets in a state of sliding_buckets. See sliding_buckets.lua: of eight numbers and the buckets' format.
func (s *Store) buckets(t *testing.T, key string) int64 {
	t.Helper()
	const format, head = 8 * 8, 8*8 + len("<I2I4I0")
	state, err := s.client.Get(t.Context(), key).Bytes()
	if errors.Is(err, goredis.Nil) {
		return 0
	}
	if err != nil || len(state) < head {
		t.Fatalf("a state of %d bytes: %v", len(state), err)
	}
	size := int(state[format+2]-'0') + int(state[format+4]-'0') + int(state[format+6]-'0')
	return int64((len(state) - head) / size)
}

// grants counts the grants in a count's pages. See grants.lua: each has two colons behind its numbers.
func (s *Store) grants(t *testing.T, key string) (count int64) {
	t.Helper()
	pages, err := s.client.HVals(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	const numbers = 7 + 5 + 7
	for _, page := range pages {
		for ; page != ""; count++ {
			_, rest, _ := strings.Cut(page[numbers:], ":")
			_, page, _ = strings.Cut(rest, ":")
		}
	}
	return count
}

func (s *Store) lifetimes(t *testing.T) func(authority.Key) []time.Duration {
	return func(key authority.Key) []time.Duration {
		t.Helper()
		windows := store.Windows(key.Rates)
		lifetimes := make([]time.Duration, len(windows))
		keys := s.keysOf(key)
		for i, name := range keys {
			life, err := s.client.PTTL(t.Context(), name).Result()
			if err != nil {
				t.Fatal(err)
			}
			if life == -1 { // go-redis' word for a key that is there, without an end
				t.Errorf("%s lives for ever", name)
			}
			if at := i * len(windows) / len(keys); life > 0 && (lifetimes[at] == 0 || life < lifetimes[at]) {
				lifetimes[at] = life
			}
		}
		return lifetimes
	}
}

// The suite on a cluster of three masters, on their own clocks.
func TestStoreOnCluster(t *testing.T) {
	t.Parallel()
	url := startCluster(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		t.Helper()
		s := open(t, url)
		empty(t, s)
		return storetest.Harness{Store: s, Entries: s.entries(t), Lifetimes: s.lifetimes(t)}
	})
}

// startNodes starts a cluster of so many masters, which ends with the test; tests that may take long give each a replica.
func startNodes(t *testing.T, masters int, args ...string) *rig.RedisCluster {
	t.Helper()
	cluster, err := rig.StartRedisCluster(t.Context(), os.Stderr, masters, long(), args...)
	if err != nil {
		t.Fatalf("this test needs a Redis Cluster: %v", err)
	}
	t.Cleanup(cluster.Stop)
	return cluster
}

func startCluster(t *testing.T) (url string) {
	t.Helper()
	return startNodes(t, 3).URL()
}

// waitFor polls a real process.
func waitFor(t *testing.T, what string, reached func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(time.Minute)
	for !reached() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
