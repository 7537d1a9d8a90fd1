package replica_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/replica"
	"sluice/controlsvc/store/memory"
	"sluice/shared/instant"
)

var began = time.Now()

func now() instant.Instant {
	return instant.Instant(time.Since(began).Microseconds() + 1_764_000_000_000_000)
}

// running gives a replica on a store, and the authority whose policy says what it limits.
func running(tb testing.TB, store authority.Store, text string) (*replica.Replica, *authority.Authority) {
	tb.Helper()
	p, err := policyfile.Parse("policy.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	a := authority.New(authority.Config{Store: store, Now: now, Random: rand.Uint64})
	a.SetPolicy(p)
	r := replica.New(replica.Config{Authority: a, Now: now, Random: rand.Uint64, Logger: slog.New(slog.DiscardHandler), Workers: 2})
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, time.After)
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
		r.Stop()
	})
	return r, a
}

// BenchmarkDecide is a decision without what gRPC costs, 64 at once: of one hot key, and of 20,000.
func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name, mode string
		keys       int
	}{{"hot", "lease", 1}, {"many", "strict", 20_000}} {
		b.Run(c.name+"/"+c.mode, func(b *testing.B) {
			r, a := running(b, memory.New(now, 100_000),
				"domain: shop\nlimits: [{name: all, descriptor: [{key: tenant}], rates: [1000000/s], algorithm: sliding_log, mode: "+c.mode+"}]")
			keys := make([]string, c.keys)
			for i := range keys {
				keys[i] = "caller-" + strconv.Itoa(i)
			}
			b.SetParallelism(32)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				var decision replica.Decision
				demands := make([]replica.Demand, 1)
				for pb.Next() {
					demands[0] = replica.Demand{Key: keys[rand.IntN(len(keys))], Cost: 1}
					if err := r.Decide(b.Context(), a.Policy(), demands, &decision); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
