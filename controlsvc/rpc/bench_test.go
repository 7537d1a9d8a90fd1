package rpc_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/replica"
	"sluice/controlsvc/rpc"
	"sluice/controlsvc/store/memory"
	"sluice/shared/admission"
	"sluice/shared/instant"
)

// nobody is told nothing.
type nobody struct{}

func (nobody) Synced(codes.Code)                       {}
func (nobody) Shed()                                   {}
func (nobody) Answered(string, bool, admission.Source) {}
func (nobody) UnknownDomain()                          {}
func (nobody) Panicked()                               {}

// BenchmarkShouldRateLimit is a call from its bytes to the answer's, without a connection: of one hot key from a lease, of a key
// that is denied, and of 20,000 that ask the memory store each time, 64 at once.
func BenchmarkShouldRateLimit(b *testing.B) {
	for _, c := range []struct {
		name, rate, mode string
		keys             int
	}{{"hot", "1000000/s", "lease", 1}, {"denied", "1/h", "lease", 1}, {"many", "1000000/s", "strict", 20_000}} {
		b.Run(c.name, func(b *testing.B) {
			p, err := policyfile.Parse("policy.yaml", []byte("domain: shop\nlimits: [{name: all, descriptor: [{key: tenant}], rates: ["+
				c.rate+"], algorithm: sliding_log, mode: "+c.mode+"}]"))
			if err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			now := func() instant.Instant {
				return instant.Instant(time.Since(began).Microseconds() + 1_764_000_000_000_000)
			}
			a := authority.New(authority.Config{Store: memory.New(now, 100_000), Now: now, Random: rand.Uint64})
			a.SetPolicy(p)
			logger := slog.New(slog.DiscardHandler)
			r := replica.New(replica.Config{Authority: a, Now: now, Random: rand.Uint64, Logger: logger, Workers: 2})
			go r.Run(b.Context(), time.After)
			call := rpc.Bytes(rpc.Config{Authority: a, Observer: nobody{}, Logger: logger, Replica: r, Random: rand.Uint64})
			requests := make([][]byte, c.keys)
			for i := range requests {
				if requests[i], err = proto.Marshal(question("tenant=caller-" + strconv.Itoa(i))); err != nil {
					b.Fatal(err)
				}
			}
			b.SetParallelism(32)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := call(context.Background(), requests[rand.IntN(len(requests))]); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
