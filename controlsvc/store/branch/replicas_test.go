package branch_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/replica"
	"sluice/controlsvc/store/branch"
	"sluice/controlsvc/store/redis"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/testharness/oracle"
	servers "sluice/testharness/rig"
)

// asked counts what a replica is asked for, and how many sub-leases it gives.
type asked struct {
	authority.Store

	reserves, subs *atomic.Int64
}

func (a asked) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	a.reserves.Add(int64(len(operations)))
	results := a.Store.Reserve(ctx, operations)
	for i := range results {
		if a.subs != nil && strings.HasPrefix(results[i].Lease, "sub:") {
			a.subs.Add(1)
		}
	}
	return results
}

// TestReplicasOnRedis has two replicas, on one Redis and the real clock, divide leases of a key among four workers each, who
// want far more than there is. No window holds more than the limit, as the callers see it, and Redis is asked less often
// than the replicas.
func TestReplicasOnRedis(t *testing.T) {
	const units, window, workers, leastSubs = 200, 200 * time.Millisecond, 4, 5
	server, err := servers.StartRedis(t.Context(), os.Stderr)
	if err != nil {
		t.Fatalf("this test needs a Redis: %v", err)
	}
	t.Cleanup(server.Stop)
	p, err := policyfile.Parse("policy.yaml", []byte("domain: shop\nlimits: [{name: all, descriptor: [{key: a}], rates: [200/200ms], on_unavailable: deny}]"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	now := func() instant.Instant { return instant.Instant(time.Since(began).Microseconds() + 1) }
	var atReplicas, atRedis, subs atomic.Int64
	var everybody []*replica.Replica
	for range 2 {
		store, err := redis.Open(redis.Config{URL: server.URL() + "?read_timeout=20s&write_timeout=20s"})
		if err != nil {
			t.Fatal(err)
		}
		b := branch.New(branch.Config{Store: asked{store, &atRedis, nil}, Now: now, Replica: rand.Uint64(), HotAsks: 4})
		a := authority.New(authority.Config{Store: asked{b, &atReplicas, &subs}, Now: now, Random: rand.Uint64})
		a.SetPolicy(p)
		stop := running(func(ctx context.Context) { b.Run(ctx, time.After) })
		t.Cleanup(func() {
			stop()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		for range workers {
			r := replica.New(replica.Config{Authority: a, Now: now, Random: rand.Uint64, Logger: slog.New(slog.DiscardHandler), Timeout: time.Second})
			stop := running(func(ctx context.Context) { r.Run(ctx, time.After) })
			t.Cleanup(func() {
				stop()
				r.Stop()
			})
			everybody = append(everybody, r)
		}
	}
	// However long a busy machine takes to get there.
	admitted := flood(t, everybody, p, func(admitted int) bool {
		passed := time.Since(began)
		return passed > time.Minute ||
			passed > 3*window && subs.Load() >= leastSubs && admitted >= units && atRedis.Load() < atReplicas.Load()
	})
	if worst := oracle.WorstWindow(admitted, window); worst > units || len(admitted) < units {
		t.Errorf("%d requests were admitted, %d within one window; want at least %d, and at most %d within one", len(admitted), worst, units, units)
	}
	t.Logf("%d admitted, %d asks of the replicas and %d of Redis, %d sub-leases", len(admitted), atReplicas.Load(), atRedis.Load(), subs.Load())
	if subs.Load() < leastSubs || atRedis.Load() >= atReplicas.Load() {
		t.Errorf("%d sub-leases; %d asks of Redis for %d of the replicas", subs.Load(), atRedis.Load(), atReplicas.Load())
	}
}

// running runs something until it is stopped.
func running(run func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { run(ctx) })
	return func() {
		cancel()
		wait.Wait()
	}
}

// flood has each of the workers decide request after request of one key, until it is enough, and gives those admitted.
func flood(t *testing.T, everybody []*replica.Replica, p *policy.Policy, enough func(admitted int) bool) (admitted []oracle.Interval) {
	t.Helper()
	began := time.Now()
	var mu sync.Mutex
	var callers sync.WaitGroup
	for _, r := range everybody {
		callers.Go(func() {
			var d replica.Decision
			timer := time.NewTimer(0)
			for {
				mu.Lock()
				end := enough(len(admitted))
				mu.Unlock()
				if end {
					return
				}
				left := time.Since(began)
				err := r.Decide(t.Context(), p, []replica.Demand{{Key: "one", Cost: 1}}, &d)
				answered := time.Since(began)
				switch {
				case err != nil:
					t.Error(err)
					return
				case d.Verdict == admission.Admit:
					mu.Lock()
					admitted = append(admitted, oracle.Interval{Left: left, Answered: answered, Units: 1})
					mu.Unlock()
				default:
					timer.Reset(time.Millisecond)
					<-timer.C
				}
			}
		})
	}
	callers.Wait()
	return admitted
}
