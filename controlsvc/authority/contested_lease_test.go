package authority_test

import (
	"context"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// tapped tells of every reserve that the store has executed, before the authority hears of it.
type tapped struct {
	authority.Store

	executed func(operations []authority.Reserve)
}

func (s *tapped) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	out := s.Store.Reserve(ctx, operations)
	s.executed(operations)
	return out
}

// TestAContestedLeaseIsToldAsGranted: a request needs a lease of A, and B, which denies only because somebody else holds
// what is about to be rolled back. What is told under the lease's name must be what the store charged under it: units of a
// second attempt, a strict charge, would be spent when they no longer may.
func TestAContestedLeaseIsToldAsGranted(t *testing.T) {
	const window = 10 * time.Second
	now := began
	of := func(name string, mode limit.Mode, units int64) policy.Limit {
		return policy.Limit{
			Name: name, Rates: []limit.Rate{{Units: units, Window: window}},
			Algorithm: limit.SlidingLog, Mode: mode, OnUnavailable: limit.Deny,
		}
	}
	clock := func() instant.Instant { return now }
	store := &tapped{Store: memory.New(clock, 1000), executed: func([]authority.Reserve) {}}
	drawn := uint64(0)
	a := authority.New(authority.Config{Store: store, Now: clock, Random: func() uint64 { drawn++; return drawn }})
	a.SetPolicy(&policy.Policy{Version: "v", Domain: "shop", Limits: []policy.Limit{
		of("A", limit.Lease, 20), of("B", limit.Strict, 1), of("C", limit.Strict, 0),
	}})
	sync := func(worker, call uint64, asks ...wire.Ask) *wire.SyncResponse {
		response, err := a.Sync(t.Context(), &wire.SyncRequest{WorkerID: worker, CallID: call, Asks: asks})
		if err != nil {
			t.Error(err)
			return &wire.SyncResponse{Results: make([]wire.AskResult, len(asks))}
		}
		return response
	}
	sync(1, 1, ask("A", "k", 10, 1, 0)) // half of A is spent
	now = now.Add(time.Millisecond)

	// Worker 2 takes B's unit, which it will give back, for C denies; worker 1 asks in between.
	taken, denied := make(chan struct{}), make(chan struct{})
	first := true
	store.executed = func(operations []authority.Reserve) {
		switch {
		case operations[0].Call[0] == '2':
			close(taken)
			<-denied
		case first:
			first = false
			close(denied)
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		sync(2, 1, ask("B", "k", 1, 1, 1), ask("C", "k", 1, 1, 1))
	}()
	<-taken
	wanted := ask("A", "k", 1, 1, 1)
	wanted.Want = 10
	results := sync(1, 2, wanted, ask("B", "k", 1, 1, 1)).Results
	<-over
	store.executed = func([]authority.Reserve) {}

	spent := results[0].Units
	now = now.Add(results[0].EndIn)
	settle := wire.Settle{KeyRef: wire.KeyRef{Limit: "A", Key: "k"}, Lease: results[0].Lease, Uses: []wire.Use{{Units: spent}}}
	if _, err := a.Sync(t.Context(), &wire.SyncRequest{WorkerID: 1, CallID: 3, Settles: []wire.Settle{settle}}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(window - results[0].EndIn + time.Millisecond) // the first ten have left the window, the lease's have not
	if more := sync(3, 1, ask("A", "k", 20, 1, 0)).Results[0].Units; spent == 0 || spent+more > 20 {
		t.Errorf("%d units spent of a lease, and %d more granted within the same %v; 20 are allowed", spent, more, window)
	}
}
