package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice/controlsvc/authority"
	"sluice/testharness/oracle"
	"sluice/testharness/rig"
)

// long says whether tests may take their time.
func long() bool { return os.Getenv("SLUICE_LONG") != "" }

// callDeadline is each call's. It is longer than in the service, for the machine may be busy.
const callDeadline = time.Second

// load is callers that reserve one unit after another, all on the same keys, until they are told to stop.
type load struct {
	store *Store
	keys  []authority.Key
	stop  chan struct{}
	wait  sync.WaitGroup
	began time.Time

	mu       sync.Mutex
	grants   []granted
	outcomes []outcome
	latest   time.Duration // the longest that any call took
}

// granted is a unit that was acknowledged.
type granted struct {
	key            int
	lease          string
	left, answered time.Duration // since the load began
}

// outcome is how a call ended, and when.
type outcome struct {
	key int
	at  time.Duration
	err error
}

func startLoad(s *Store, callers int, keys ...authority.Key) *load {
	l := &load{store: s, keys: keys, stop: make(chan struct{}), began: time.Now()}
	for caller := range callers {
		l.wait.Go(func() {
			ticker := time.NewTicker(2 * time.Millisecond)
			defer ticker.Stop()
			for call := 0; ; call++ {
				select {
				case <-l.stop:
					return
				case <-ticker.C:
				}
				l.call((caller+call)%len(keys), fmt.Sprintf("%d-%d", caller, call))
			}
		})
	}
	return l
}

func (l *load) call(key int, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	left := time.Since(l.began)
	out := l.store.Reserve(ctx, []authority.Reserve{{Key: l.keys[key], Call: name, Want: 1, Min: 1}})[0]
	answered := time.Since(l.began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = max(l.latest, answered-left)
	l.outcomes = append(l.outcomes, outcome{key, answered, out.Err})
	if out.Err == nil && out.Units > 0 {
		l.grants = append(l.grants, granted{key, out.Lease, left, answered})
	}
}

// end stops the callers, and checks that each call kept its deadline.
func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.wait.Wait()
	failed := 0
	for _, o := range l.outcomes {
		if o.err != nil {
			failed++
		}
	}
	t.Logf("%d calls, %d failed, %d units; the longest took %v", len(l.outcomes), failed, len(l.grants), l.latest.Round(time.Millisecond))
	// What is beyond is this machine's, which has other things to do. A call that knows of no deadline would wait for ever.
	if l.latest > callDeadline+20*time.Second {
		t.Errorf("a call took %v, with %v to its deadline", l.latest, callDeadline)
	}
}

// answers waits until a call for a key that was answered ended after an instant, and gives when.
func (l *load) answers(t *testing.T, key int, after time.Duration) time.Duration {
	t.Helper()
	var at time.Duration
	waitFor(t, "an answer", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, o := range l.outcomes {
			if o.key == key && o.at > after && o.err == nil {
				at = o.at
				return true
			}
		}
		return false
	})
	return at
}

// fails says whether a call failed for another reason than its deadline, which may come first on a busy machine.
func fails(err error) bool { return err != nil && !isTimeout(err) }

func (l *load) granted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.grants)
}

// judge counts, for each key, what was acknowledged, and what of that the store has no more. The windows are so long that
// nothing leaves them.
func (l *load) judge(t *testing.T, most int64) (over, lost int64) {
	t.Helper()
	for i, key := range l.keys {
		name := l.store.keysOf(key)[0]
		var units, gone int64
		for _, g := range l.grants {
			if g.key != i {
				continue
			}
			units++
			switch err := l.store.client.ZScore(t.Context(), name, g.lease).Err(); {
			case errors.Is(err, goredis.Nil):
				gone++
			case err != nil:
				t.Fatal(err)
			}
		}
		if units > most+gone {
			t.Errorf("%s: %d units were admitted of %d, and the store lost %d", key.Name, units, most, gone)
		}
		over, lost = over+max(0, units-most), lost+gone
	}
	t.Logf("%d units above the limits; %d acknowledged ones lost", over, lost)
	return over, lost
}

// full says whether a key is known to have nothing left.
func full(t *testing.T, s *Store, k authority.Key) bool {
	t.Helper()
	states, err := s.Peek(t.Context(), k)
	return err == nil && states[0].Remaining == 0
}

func startSentinels(t *testing.T) *rig.RedisSentinels {
	t.Helper()
	set, err := rig.StartRedisSentinels(t.Context(), os.Stderr)
	if err != nil {
		t.Fatalf("this test needs Redis and Sentinels: %v", err)
	}
	t.Cleanup(set.Stop)
	return set
}

// failover makes the replica stand still for a while, in which the primary acknowledges what nobody else has; then the
// primary goes, and the replica takes over. It gives when, since the load began, the replica was the primary.
func failover(t *testing.T, set *rig.RedisSentinels, l *load, lag int, end func(*rig.Process)) (promoted time.Duration) {
	t.Helper()
	leave(t, set.Primary, set.Replica, l, lag, end)
	waitFor(t, "the replica to be the primary", func() bool {
		current, err := set.Current(t.Context())
		return err == nil && current == set.Replica.Address && isMaster(t, set.Replica)
	})
	return time.Since(l.began)
}

// leave ends a primary that has acknowledged so many units more than its replica has.
func leave(t *testing.T, primary, replica *rig.Redis, l *load, lag int, end func(*rig.Process)) {
	t.Helper()
	replica.Pause()
	if _, err := primary.Do(t.Context(), "client", "kill", "type", "replica"); err != nil {
		t.Fatal(err) // what is on its way to the replica would be there, too
	}
	before := l.granted()
	waitFor(t, "units that the replica lacks", func() bool { return l.granted() >= before+lag })
	end(primary.Process)
	replica.Resume()
}

func isMaster(t *testing.T, server *rig.Redis) bool {
	t.Helper()
	role, err := server.Do(t.Context(), "role")
	return err == nil && strings.HasPrefix(role, "master")
}

// The primary is killed, or stands still, under load, when it has acknowledged what its replica does not have: calls keep
// their deadlines, the store answers again once the replica is promoted, and what is admitted beyond the limit is no more
// than what was lost.
func TestSentinelFailover(t *testing.T) {
	ends := map[string]func(*rig.Process){"killed": (*rig.Process).Kill}
	if long() {
		ends["standing still"] = (*rig.Process).Pause
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			set := startSentinels(t)
			s := openConfig(t, Config{URL: set.URL()})
			const most = 400
			l := startLoad(s, 8, testKey("failover", strconv.Itoa(most)+"/1h"))
			waitFor(t, "load", func() bool { return l.granted() >= 100 })
			promoted := failover(t, set, l, 50, end)
			t.Logf("the first answer came %v after the failover", (l.answers(t, 0, promoted) - promoted).Round(time.Millisecond))
			waitFor(t, "the limit to be reached", func() bool { return full(t, s, l.keys[0]) })
			l.end(t)
			// Not all that was lost need be admitted again: what was taken for a call whose deadline came first is known to nobody.
			if _, lost := l.judge(t, most); lost == 0 {
				t.Error("nothing was lost: nothing was tested")
			}
		})
	}
}

// With WAIT nothing is acknowledged that the replica does not have, so nothing is lost, and nothing admitted over the limit.
func TestWaitForReplicas(t *testing.T) {
	t.Parallel()
	set := startSentinels(t)
	s := openConfig(t, Config{URL: set.URL(), WaitReplicas: 1, WaitTimeout: 20 * time.Millisecond})
	const most = 400
	l := startLoad(s, 8, testKey("wait", strconv.Itoa(most)+"/1h"))
	waitFor(t, "load", func() bool { return l.granted() >= 100 })
	set.Replica.Pause()
	out := s.Reserve(t.Context(), []authority.Reserve{{Key: testKey("wait/2", "10/1h"), Call: "a", Want: 1, Min: 1}})[0]
	if !errors.Is(out.Err, errNotReplicated) || !errors.Is(out.Err, authority.ErrUnavailable) {
		t.Errorf("without a replica: %+v", out)
	}
	if errs := s.Cancel(t.Context(), []authority.Cancel{{Key: testKey("wait/2", "10/1h"), Call: "a"}}); errs[0] != nil {
		t.Errorf("what was not granted is taken back: %v", errs[0])
	}
	failover(t, set, l, 0, (*rig.Process).Kill)
	// Nobody follows the new primary, so nothing is granted there; the store without WAIT takes what is left.
	l.end(t)
	rest := startLoad(open(t, set.URL()), 8, l.keys...)
	waitFor(t, "the limit to be reached", func() bool { return full(t, rest.store, l.keys[0]) })
	rest.end(t)
	l.grants, l.store = append(l.grants, rest.grants...), rest.store
	if over, lost := l.judge(t, most); lost != 0 || over != 0 {
		t.Errorf("%d lost, %d over", lost, over)
	}
}

// After a change of primary nothing is granted for the quiet period, so that no window holds more than the limit, whatever
// was lost.
func TestQuietPeriod(t *testing.T) {
	t.Parallel()
	set := startSentinels(t)
	const most, window = 100, 2 * time.Second
	s := openConfig(t, Config{URL: set.URL(), QuietPeriod: window + 100*time.Millisecond})
	k := testKey("quiet", strconv.Itoa(most)+"/2s")
	waitFor(t, "the period after the start", func() bool {
		out := s.Reserve(t.Context(), []authority.Reserve{{Key: testKey("start", "1000000/1ms"), Call: "a", Want: 1, Min: 1}})[0]
		if out.Err != nil {
			t.Error(out.Err)
		}
		return out.Units == 1
	})
	l := startLoad(s, 4, k)
	waitFor(t, "load", func() bool { return l.granted() >= most })
	promoted := failover(t, set, l, 30, (*rig.Process).Kill)
	// Another replica of the service, which has seen nothing of it, is quiet too.
	late := openConfig(t, Config{URL: set.URL(), QuietPeriod: window + 100*time.Millisecond})
	var out authority.Reserved
	waitFor(t, "another replica's answer", func() bool { // a Sentinel may still name the old primary
		out = late.Reserve(t.Context(), []authority.Reserve{{Key: testKey("late", "10/2s"), Call: "a", Want: 1, Min: 1}})[0]
		return out.Err == nil
	})
	if !out.Denied || out.Denial.RetryAfter <= 0 || out.Denial.RetryAfter > window+100*time.Millisecond {
		t.Errorf("another replica grants: %+v", out)
	}
	before := l.granted()
	waitFor(t, "grants after the period", func() bool { return l.granted() >= before+most })
	l.end(t)
	var admitted []oracle.Interval
	var first time.Duration
	for _, g := range l.grants {
		admitted = append(admitted, oracle.Interval{Left: g.left, Answered: g.answered, Units: 1})
		if g.left > promoted && (first == 0 || g.answered < first) {
			first = g.answered
		}
	}
	if worst := oracle.WorstWindow(admitted, window); worst > most {
		t.Errorf("%d were admitted within one window of %d", worst, most)
	}
	t.Logf("the first grant came %v after the failover", (first - promoted).Round(time.Millisecond))
}

// A master of a cluster is lost under load. The same as with Sentinels, and the other masters' keys notice nothing.
func TestClusterFailover(t *testing.T) {
	if !long() {
		t.Skip("SLUICE_LONG=1 kills masters of a cluster of six")
	}
	for name, end := range map[string]func(*rig.Process){"killed": (*rig.Process).Kill, "standing still": (*rig.Process).Pause} {
		t.Run(name, func(t *testing.T) {
			cluster, err := rig.StartRedisCluster(t.Context(), os.Stderr, 3, true, "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cluster.Stop)
			s := openConfig(t, Config{URL: cluster.URL()})
			if _, err := cluster.Nodes[4].Do(t.Context(), "config", "set", "maxmemory-policy", "allkeys-lru"); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "a warning of the replica that throws keys away", func() bool { // the masters list it once it has a place
				warning, err := s.CheckEviction(t.Context())
				return err == nil && strings.Contains(warning, cluster.Nodes[4].Address)
			})
			const most = 150
			var keys []authority.Key
			var lost []int // the keys of the master that goes
			for i := range 9 {
				k := testKey("failover/"+strconv.Itoa(i), strconv.Itoa(most)+"/1h")
				if masterOf(t, s, k) == cluster.Nodes[0].Address {
					lost = append(lost, i)
				}
				keys = append(keys, k)
			}
			if len(lost) == 0 {
				t.Fatal("no key is on the master that goes")
			}
			l := startLoad(s, 8, keys...)
			waitFor(t, "load", func() bool { return l.granted() >= 200 })
			leave(t, cluster.Nodes[0], cluster.Nodes[3], l, 200, end)
			gone := time.Since(l.began)
			waitFor(t, "the replica to be a master, and others to know", func() bool {
				known, err := cluster.Nodes[1].Do(t.Context(), "cluster", "slots")
				return err == nil && isMaster(t, cluster.Nodes[3]) && strings.Contains(known, portOf(cluster.Nodes[3]))
			})
			promoted := time.Since(l.began)
			for _, key := range lost {
				t.Logf("the first answer for %s came %v after the failover, which took %v", keys[key].Name,
					(l.answers(t, key, promoted) - promoted).Round(time.Millisecond), (promoted - gone).Round(time.Millisecond))
			}
			waitFor(t, "the limits to be reached", func() bool {
				return !slices.ContainsFunc(keys, func(k authority.Key) bool { return !full(t, s, k) })
			})
			l.end(t)
			if _, lost := l.judge(t, most); lost == 0 {
				t.Error("nothing was lost: nothing was tested")
			}
			others, failed := 0, 0
			for _, o := range l.outcomes {
				if slices.Contains(lost, o.key) {
					continue
				}
				if others++; fails(o.err) {
					failed++
				}
			}
			if failed*100 > 5*others {
				t.Errorf("%d of %d calls failed that wanted a master that was there", failed, others)
			}
		})
	}
}

func masterOf(t *testing.T, s *Store, k authority.Key) string {
	t.Helper()
	node, err := s.client.(*goredis.ClusterClient).MasterForKey(t.Context(), s.keysOf(k)[0])
	if err != nil {
		t.Fatal(err)
	}
	return node.Options().Addr
}

func portOf(server *rig.Redis) string {
	_, port, _ := strings.Cut(server.Address, ":")
	return port
}

// Slots are moved from one master to another under load, with the keys in them and with keys that come to be meanwhile: no
// unit is lost or admitted too many, and calls do not fail.
func TestResharding(t *testing.T) {
	moved := 200
	if long() {
		moved = 4000
	}
	cluster := startNodes(t, 3)
	s := open(t, cluster.URL())
	const most = 100_000
	var keys []authority.Key
	var names []string
	for i := 0; len(keys) < 8; i++ {
		name := "reshard/" + strconv.Itoa(i)
		slot, err := s.client.ClusterKeySlot(t.Context(), "sluice:{"+name+"}").Result()
		if err != nil {
			t.Fatal(err)
		}
		if slot < int64(moved) || len(keys) < 2 {
			keys, names = append(keys, testKey(name, strconv.Itoa(most)+"/1h")), append(names, name)
		}
	}
	l := startLoad(s, 8, keys...)
	// A brace ends the hash tag, so that these are in the same slots.
	stop, done := make(chan struct{}), make(chan struct{})
	fresh, failed := 0, 0
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for ; ; fresh++ {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
			k := testKey(names[fresh%len(names)]+"}"+strconv.Itoa(fresh), "10/1h")
			if out := s.Reserve(ctx, []authority.Reserve{{Key: k, Call: "a", Want: 1, Min: 1}})[0]; fails(out.Err) {
				failed++
			}
			cancel()
		}
	}()
	waitFor(t, "load", func() bool { return l.granted() >= 200 })
	began := time.Since(l.began)
	if err := cluster.Reshard(t.Context(), cluster.Nodes[0], cluster.Nodes[1], moved); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d slots were moved in %v", moved, (time.Since(l.began) - began).Round(time.Millisecond))
	close(stop)
	<-done
	l.end(t)
	if over, lost := l.judge(t, most); lost != 0 || over != 0 {
		t.Errorf("%d lost, %d over", lost, over)
	}
	for _, o := range l.outcomes {
		if fails(o.err) {
			failed++
		}
	}
	t.Logf("%d calls failed of %d", failed, len(l.outcomes)+fresh)
	if failed*100 > 5*(len(l.outcomes)+fresh) { // a slot may take longer to move than a call is repeated
		t.Errorf("%d calls failed of %d; want at most 5 %%", failed, len(l.outcomes)+fresh)
	}
	if masterOf(t, s, keys[7]) != cluster.Nodes[1].Address {
		t.Error("the slots were not moved")
	}
}
