package authority_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/shared/instant"
	"sluice/shared/wire"
)

// away is a store that is a round trip away.
type away struct {
	authority.Store

	round time.Duration
}

func (a away) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	<-time.After(a.round)
	return a.Store.Reserve(ctx, operations)
}

func (a away) Settle(ctx context.Context, operations []authority.Settle) []error {
	<-time.After(a.round)
	return a.Store.Settle(ctx, operations)
}

func (a away) Cancel(ctx context.Context, operations []authority.Cancel) []error {
	<-time.After(a.round)
	return a.Store.Cancel(ctx, operations)
}

func (a away) Record(ctx context.Context, operations []authority.Record) []error {
	<-time.After(a.round)
	return a.Store.Record(ctx, operations)
}

// What a call reports costs one round trip together, and what it asks for another, which finds what was given back.
func TestTheReportsOfACallShareARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const round = 40 * time.Millisecond
		now := func() instant.Instant { return instant.FromTime(time.Now()) }
		a := authority.New(authority.Config{
			Store: away{memory.New(now, 100), round}, Now: now, Random: rand.Uint64,
			Together: func(parts []func()) {
				var all sync.WaitGroup
				for _, part := range parts {
					all.Go(part)
				}
				all.Wait()
			},
		})
		a.SetPolicy(testPolicy())
		slow := wire.KeyRef{Limit: "slow", Key: "x"}
		call := func(id uint64, trips int, more wire.SyncRequest) *wire.SyncResponse {
			t.Helper()
			more.WorkerID, more.CallID = 1, id
			began := time.Now()
			response, err := a.Sync(t.Context(), &more)
			if took := time.Since(began); err != nil || took != time.Duration(trips)*round {
				t.Errorf("call %d took %v, %v; want %d round trips", id, took, err, trips)
			}
			return response
		}
		asks := []wire.Ask{{KeyRef: slow, Want: 5, Min: 5, Waiting: 1}}
		taken := call(1, 1, wire.SyncRequest{Asks: asks})
		kept := call(2, 1, wire.SyncRequest{Asks: []wire.Ask{{KeyRef: slow, Want: 1, Min: 1, Waiting: 1}}})
		response := call(3, 2, wire.SyncRequest{
			Asks: asks, Abandoned: []wire.Abandoned{{CallID: 1, Keys: []wire.KeyRef{slow}}},
			Settles: []wire.Settle{{KeyRef: slow, Lease: kept.Results[0].Lease, Unused: 1}},
			Records: []wire.Record{{KeyRef: slow, ID: 1, Uses: []wire.Use{{Units: 2}}}},
		})
		if taken.Results[0].Units != 5 || response.Results[0].Units != 5 || response.Results[0].Remaining != 0 {
			t.Errorf("%+v and then %+v; want 5 of 7 units, and 5 again beside the 2 that were reported", taken.Results[0], response.Results[0])
		}
		if len(response.Abandoned) != 1 || len(response.Settled) != 1 || len(response.Recorded) != 1 {
			t.Errorf("%+v; want all reports acknowledged", response)
		}
	})
}
