package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice/controlsvc/authority"
)

// Whoever shares a pipeline with others gets the answer to its own question: each of many callers counts on keys of its own,
// and what remains says how often it was executed.
func TestCallersShareAPipeline(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) string{
		"one server": func(t *testing.T) string { return startServer(t).URL() },
		"a cluster":  startCluster,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, start(t))
			pipelines := countPipelines(s)
			const callers, calls = 64, 20
			var wait sync.WaitGroup
			for caller := range callers {
				wait.Go(func() {
					for call := int64(1); call <= calls; call++ {
						reserves := make([]authority.Reserve, 1+caller%3)
						for i := range reserves {
							key := testKey(fmt.Sprintf("caller/%d/%d", caller, i), strconv.Itoa(1000+caller)+"/1h")
							reserves[i] = authority.Reserve{Key: key, Call: strconv.FormatInt(call, 10), Want: 1, Min: 1}
						}
						for i, out := range s.Reserve(t.Context(), reserves) {
							if out.Err != nil || out.Units != 1 || out.State.Remaining != int64(1000+caller)-call {
								t.Errorf("caller %d, call %d, reserve %d: %+v", caller, call, i, out)
							}
						}
					}
				})
			}
			wait.Wait()
			if got := pipelines.Load(); got > callers*calls/2 {
				t.Errorf("%d pipelines for %d calls of %d callers at once: nobody shared one", got, callers*calls, callers)
			}
			remaining(t, s, testKey("caller/0/0", "1000/1h")) // it may be the first that needs its script
			before := pipelines.Load()
			remaining(t, s, testKey("caller/0/0", "1000/1h"))
			if got := pipelines.Load() - before; got != 1 {
				t.Errorf("%d pipelines for one call alone", got)
			}
		})
	}
}

// countPipelines counts the pipelines that a store sends, at each of its servers.
func countPipelines(s *Store) *atomic.Int64 {
	var n atomic.Int64
	switch client := s.client.(type) {
	case *goredis.Client:
		client.AddHook(pipelineCounter{&n})
	case *goredis.ClusterClient:
		client.OnNewNode(func(node *goredis.Client) { node.AddHook(pipelineCounter{&n}) })
	}
	return &n
}

type pipelineCounter struct{ n *atomic.Int64 }

func (pipelineCounter) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (pipelineCounter) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (c pipelineCounter) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		c.n.Add(1)
		return next(ctx, commands)
	}
}

// While a server stands still: the calls that got no place on a pipeline end at their deadlines too, and are never sent.
func TestCallsThatWaitInVain(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := open(t, server.URL())
	k := testKey("waits", "1000/1h")
	reserve(t, s, authority.Reserve{Key: k, Call: "before", Want: 1, Min: 1})
	server.Pause()
	const flight, callers = 5 * time.Second, 50
	began := time.Now()
	var wait sync.WaitGroup
	ask := func(ctx context.Context, caller int) {
		wait.Go(func() {
			out := s.Reserve(ctx, []authority.Reserve{{Key: k, Call: strconv.Itoa(caller), Want: 1, Min: 1}})[0]
			if !errors.Is(out.Err, authority.ErrUnavailable) {
				t.Errorf("the server stands still, and the call gives %+v", out)
			}
		})
	}
	l := s.lanes.get("")
	idle := func(flying, queued int) func() bool {
		return func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.flying == flying && l.queued == queued
		}
	}
	waitFor(t, "the flight before to be over", idle(0, 0))
	first, cancel := context.WithTimeout(t.Context(), flight)
	defer cancel()
	for caller := range maxFlights { // one after the other, or they would share a flight
		ask(first, caller)
		waitFor(t, "one of the first to be under way", idle(caller+1, 0))
	}
	others, end := context.WithCancel(t.Context())
	for caller := range callers {
		ask(others, maxFlights+caller)
	}
	waitFor(t, "the others to wait", idle(maxFlights, callers))
	patient := make(chan authority.Reserved, 1)
	go func() { // it is on the next pipeline, on which the others would have been
		patient <- s.Reserve(t.Context(), []authority.Reserve{{Key: k, Call: "patient", Want: 1, Min: 1}})[0]
	}()
	waitFor(t, "all to wait", idle(maxFlights, callers+1))
	end() // a deadline that can wait until all are there
	wait.Wait()
	// A call that knew of no deadline would take as long as the store waits for an answer.
	if took := time.Since(began); took > flight+20*time.Second {
		t.Errorf("the calls took %v, with %v to the last of their deadlines", took, flight)
	}
	server.Resume()
	waitFor(t, "the server", func() bool { return s.Ping(t.Context()) == nil })
	<-patient // whether it got through in time is not the point
	waitFor(t, "the calls that were under way", idle(0, 0))
	// Only those flights had been sent that were under way, each with one call, and the patient one.
	if got := remaining(t, s, k); got < 999-maxFlights-1 {
		t.Errorf("%d remain of 1000: %d of %d calls that had ended were sent", got, 999-got, callers)
	}
}

// A server that stands still does not hold up those who want another.
func TestOneMasterStandsStill(t *testing.T) {
	t.Parallel()
	const within = 20 * time.Second
	cluster := startNodes(t, 3, "--cluster-require-full-coverage", "no")
	s := open(t, cluster.URL())
	byServer := map[string]string{} // a key of each
	for i := 0; len(byServer) < 3; i++ {
		name := "spread/" + strconv.Itoa(i)
		node, err := s.client.(*goredis.ClusterClient).MasterForKey(t.Context(), "sluice:{"+name+"}")
		if err != nil {
			t.Fatal(err)
		}
		byServer[node.Options().Addr] = name
		reserve(t, s, authority.Reserve{Key: testKey(name, "100000/1h"), Call: "a", Want: 1, Min: 1})
	}
	still := cluster.Nodes[0]
	still.Pause()
	defer still.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var hang sync.WaitGroup
	var returned atomic.Int64
	for range 10 {
		hang.Go(func() {
			out := s.Reserve(ctx, []authority.Reserve{{Key: testKey(byServer[still.Address], "100000/1h"), Call: "b", Want: 1, Min: 1}})[0]
			if returned.Add(1); !errors.Is(out.Err, authority.ErrUnavailable) {
				t.Errorf("of the server that stands still: %+v", out)
			}
		})
	}
	l, err := s.laneOf(ctx, s.client.(*goredis.ClusterClient), "sluice:{"+byServer[still.Address]+"}")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "those that hang", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.flying > 0
	})
	for address, name := range byServer {
		if address == still.Address {
			continue
		}
		for range 20 {
			reserve(t, s, authority.Reserve{Key: testKey(name, "100000/1h"), Call: "c", Want: 1, Min: 1})
		}
	}
	if n := returned.Load(); n > 0 {
		t.Errorf("%d calls of the server that stands still ended before those of the others", n)
	}
	hang.Wait()
}

func TestQueueIsBounded(t *testing.T) {
	s := &Store{}
	l := &lane{flying: maxFlights}
	full := newFreight(t.Context(), l, make([]invocation, maxWaiting)...)
	s.join(full, true)
	for _, size := range []int{1, maxWaiting} {
		f := newFreight(t.Context(), l, make([]invocation, size)...)
		s.join(f, true)
		if _, errs := f.result(t.Context()); !errors.Is(errs[0], errBusy) || len(errs) != size {
			t.Errorf("%d operations more than there is room for: %v", size, errs[0])
		}
	}
	if batch, over := l.board(); len(batch) != 1 || len(over) != 0 || l.queued != 0 {
		t.Errorf("%d and %d boarded, %d operations are left", len(batch), len(over), l.queued)
	}
	if err := explain(errBusy); !errors.Is(err, authority.ErrUnavailable) {
		t.Errorf("%v, which is not %v", err, authority.ErrUnavailable)
	}
}

// What batching is worth: calls at once, each of one strict unit on one of many keys, with a pipeline for each call beside
// the store as it is. redis-µs is what Redis itself spends, own-µs what its caller does.
func BenchmarkAtOnce(b *testing.B) {
	s := open(b, startServer(b).URL())
	for _, concurrency := range []int{1, 16, 64, 256} {
		for _, way := range []struct {
			name string
			run  func(context.Context, []invocation) ([][]int64, []error)
		}{{"apart", s.execute}, {"batched", s.run}} {
			b.Run(fmt.Sprintf("%d/%s", concurrency, way.name), func(b *testing.B) {
				var next, caller atomic.Int64
				before, own := redisCPU(b, s), ownCPU(b)
				b.ReportAllocs()
				b.ResetTimer()
				var wait sync.WaitGroup
				for range concurrency {
					wait.Go(func() {
						key := testKey(fmt.Sprintf("%s/%d/%d", way.name, concurrency, caller.Add(1)), "1000000/100ms")
						for next.Add(1) <= int64(b.N) {
							if _, errs := way.run(b.Context(), []invocation{s.invokeOne(key)}); errs[0] != nil {
								b.Error(errs[0])
								return
							}
						}
					})
				}
				wait.Wait()
				b.StopTimer()
				b.ReportMetric(float64((redisCPU(b, s)-before).Microseconds())/float64(b.N), "redis-µs/op")
				b.ReportMetric(float64((ownCPU(b)-own).Microseconds())/float64(b.N), "own-µs/op")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}

func (s *Store) invokeOne(key authority.Key) invocation {
	return s.invokeReserve(&authority.Reserve{Key: key, Call: "a", Want: 1, Min: 1}, key.Rates)
}

// redisCPU is what a server has spent so far.
func redisCPU(b *testing.B, s *Store) time.Duration {
	b.Helper()
	info, err := s.client.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var sum float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(strings.TrimSpace(infoField(info, name)), 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second))
}

// ownCPU is what this process has spent so far.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
