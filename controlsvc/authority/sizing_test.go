package authority_test

import (
	"context"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// sized is a store that grants whatever is asked, or nothing, says how the key stands, and keeps what it was asked.
type sized struct {
	authority.Store

	state authority.State
	deny  bool
	asked []terms
}

// terms are those of one reserve.
type terms struct {
	Want, Least  int64
	TTL, Horizon time.Duration
}

func (s *sized) Reserve(_ context.Context, operations []authority.Reserve) []authority.Reserved {
	var results []authority.Reserved
	for _, o := range operations {
		s.asked = append(s.asked, terms{o.Want, o.Min, o.TTL, o.Horizon})
		r := authority.Reserved{State: s.state, Lease: "l", Units: o.Want, EndIn: o.TTL}
		if s.deny {
			r = authority.Reserved{State: s.state, Denied: true, Denial: authority.Denial{RetryAfter: time.Second}}
		}
		results = append(results, r)
	}
	return results
}

// strictly are the terms of a charge for paused requests alone.
func strictly(units, cost int64) []terms { return []terms{{Want: units, Least: cost}} }

// bucket is a rate whose token bucket holds so many.
func bucket(burst, units int64, window time.Duration) []limit.Rate {
	rates := per(units, window)
	rates[0].Burst = burst
	return rates
}

func per(units int64, window time.Duration) []limit.Rate {
	return []limit.Rate{{Units: units, Window: window}}
}

// TestSizing: what is asked of the store, for how a key stood last, for how many workers ask for it, and for what one of them
// wants. A row for each rule.
func TestSizing(t *testing.T) {
	t.Parallel()
	const ms, second, minute = time.Millisecond, time.Second, time.Minute
	thousand := per(1000, second)
	for _, row := range []struct {
		name  string
		rates []limit.Rate
		// free is what the store said that the last of the rates had left, ago before the ask. -1: nothing was said.
		free int64
		ago  time.Duration
		// others asked for the key as well, othersAgo before.
		others    int
		othersAgo time.Duration
		// What the worker wants: units for paused requests and on top, each request at a cost; 0: 1.
		paused, ahead, cost int64
		strict, deny, group bool
		// bucket says that it is a token bucket, and not a log.
		bucket bool
		// round is how long an answer takes the worker, wait the limit's max_wait.
		round, wait time.Duration
		want        []terms
	}{
		{name: "unknown, all is free", rates: thousand, free: -1, paused: 1, ahead: 1000, want: []terms{{500, 1, 500 * ms, 0}}},
		{name: "no more than is wanted", rates: thousand, free: 800, paused: 2, ahead: 5, want: []terms{{7, 1, 500 * ms, 0}}},
		{name: "half of an even share", rates: thousand, free: 800, others: 3, ahead: 1000, want: []terms{{100, 1, 500 * ms, 0}}},
		{name: "shorter with less free", rates: thousand, free: 400, ahead: 1000, want: []terms{{200, 1, 440 * ms, 0}}},
		{name: "just above a quarter", rates: thousand, free: 251, ahead: 1000, want: []terms{{125, 1, 350600 * time.Microsecond, 0}}},
		{name: "whole requests", rates: thousand, free: 800, others: 3, ahead: 1000, cost: 3, want: []terms{{99, 3, 500 * ms, 0}}},
		{name: "nothing on top", rates: thousand, free: 800, paused: 4, want: strictly(4, 1)},
		{name: "a share of less than is paused", rates: thousand, free: 300, others: 3, paused: 100, ahead: 50, want: strictly(100, 1)},
		{name: "in mode strict", rates: thousand, free: 800, paused: 4, ahead: 100, strict: true, want: strictly(4, 1)},
		{name: "more than the limit holds", rates: thousand, free: 800, paused: 1500, ahead: 1500, cost: 1500, want: strictly(1500, 1500)},

		{name: "a quarter, in batches", rates: thousand, free: 250, ahead: 1000, want: []terms{{102, 34, 200 * ms, 500 * ms}}},
		{name: "nothing free, a batch", rates: thousand, free: 0, others: 3, ahead: 1000, want: []terms{{9, 9, 200 * ms, 500 * ms}}},
		{name: "whole batches of what is free", rates: thousand, free: 240, others: 1, ahead: 1000, want: []terms{{51, 17, 200 * ms, 500 * ms}}},
		{name: "a batch of whole requests", rates: thousand, free: 0, others: 3, ahead: 1000, cost: 3, want: []terms{{9, 3 * 3, 200 * ms, 500 * ms}}},
		{name: "less than a batch is wanted", rates: thousand, free: 0, paused: 1, ahead: 4, want: []terms{{5, 5, 200 * ms, 500 * ms}}},
		{name: "no more than a request is wanted", rates: thousand, free: 0, paused: 1, want: strictly(1, 1)},
		{name: "a batch of two at least", rates: thousand, free: 0, others: 49, ahead: 9, want: []terms{{2, 2, 200 * ms, 500 * ms}}},
		{name: "under twenty requests a worker", rates: thousand, free: 0, others: 50, paused: 1, ahead: 9, want: strictly(1, 1)},
		{name: "under twenty dear requests a worker", rates: per(100, second), free: 0, paused: 6, ahead: 60, cost: 6, want: strictly(6, 6)},
		{
			name: "a denied batch, then without", rates: thousand, free: 0, others: 3, paused: 2, ahead: 90, deny: true,
			want: []terms{{9, 9, 200 * ms, 500 * ms}, {2, 1, 0, 0}},
		},
		{
			name: "beside another limit, not in batches", rates: thousand, free: 0, others: 3, paused: 2, ahead: 90, group: true,
			want: []terms{{9, 1, 200 * ms, 500 * ms}, {2, 1, 0, 0}},
		},

		{name: "a bucket of less than two requests", rates: bucket(3, 20, second), free: -1, paused: 2, ahead: 9, cost: 2, want: strictly(2, 2)},
		{name: "a bucket of less than two requests, empty", rates: bucket(3, 20, second), free: 0, paused: 2, ahead: 9, cost: 2, want: strictly(2, 2)},
		{name: "a bucket that fills within a lease", rates: bucket(79, 1000, second), free: -1, paused: 1, ahead: 99, want: strictly(1, 1)},
		{name: "half of a bucket", rates: bucket(80, 1000, second), free: -1, paused: 1, ahead: 99, want: []terms{{40, 1, 500 * ms, 0}}},
		{name: "a batch of half a bucket", rates: bucket(80, 4000, 4*second), free: 0, ahead: 999, want: []terms{{40, 40, 800 * ms, 2 * second}}},
		{name: "under twenty requests", rates: per(19, second), free: -1, paused: 1, ahead: 9, want: strictly(1, 1)},
		{name: "under twenty dear requests", rates: per(119, second), free: -1, paused: 6, ahead: 60, cost: 6, want: strictly(6, 6)},
		{name: "under twenty requests of another rate", rates: append(per(19, minute), per(1000, second)...), free: -1, paused: 1, ahead: 9, want: strictly(1, 1)},
		{name: "twenty requests", rates: per(20, second), free: -1, paused: 1, ahead: 4, want: []terms{{5, 1, 500 * ms, 0}}},
		{name: "a bucket of under twenty requests", rates: bucket(19, 20, minute), free: -1, paused: 1, ahead: 9, want: strictly(1, 1)},
		{name: "a few a worker in a minute", rates: per(59, minute), free: 50, others: 2, paused: 1, ahead: 3, want: []terms{{4, 1, 5 * second, 0}}},
		{name: "a few a worker in a longer window", rates: per(59, minute+ms), free: 50, others: 2, paused: 1, ahead: 3, want: strictly(1, 1)},
		{name: "more a worker in a longer window", rates: per(60, minute+ms), free: 50, others: 2, paused: 1, ahead: 3, want: []terms{{4, 1, 5 * second, 0}}},

		{
			name: "a full bucket, for a tenth of its burst", rates: bucket(1000, 1000, second), bucket: true, free: -1, paused: 1, ahead: 99,
			want: []terms{{100, 1, 100 * ms, 0}},
		},
		{
			name: "for as long as the bucket is not full", rates: bucket(1000, 1000, second), bucket: true, free: 799, ago: 30 * ms, ahead: 99,
			want: []terms{{99, 1, 170 * ms, 0}},
		},
		{name: "a small bucket that is full", rates: bucket(39, 60, minute), bucket: true, free: 39, ago: ms, paused: 1, ahead: 9, want: []terms{{10, 1, 3 * second, 0}}},
		{name: "a small bucket that is not", rates: bucket(39, 20, minute), bucket: true, free: 36, ago: second, paused: 1, ahead: 3, want: []terms{{4, 1, 5 * second, 0}}},
		{name: "longer than a lease gets there", rates: bucket(1000, 1000, second), bucket: true, free: -1, round: 81 * ms, paused: 1, ahead: 99, want: strictly(1, 1)},
		{
			name: "by the bucket that nothing is known of", rates: append(bucket(1000, 1000, second), bucket(6000, 6000, 10*second)...), bucket: true,
			free: 3000, ahead: 99, want: []terms{{99, 1, 100 * ms, 0}},
		},
		{name: "a bucket that nothing flows into", rates: bucket(100, 0, second), bucket: true, free: -1, paused: 1, ahead: 9, want: strictly(1, 1)},

		{name: "20 ms at least", rates: per(1000, 30*ms), free: 900, ahead: 100, want: []terms{{100, 1, 20 * ms, 0}}},
		{name: "20 ms at least beside the way", rates: per(1000, 30*ms), free: 900, ahead: 100, round: 30 * ms, want: []terms{{100, 1, 50 * ms, 0}}},
		{name: "a way of a second at most", rates: per(1000, 30*ms), free: 900, ahead: 100, round: time.Hour, want: []terms{{100, 1, 1020 * ms, 0}}},
		{name: "long enough as it is", rates: thousand, free: 800, paused: 2, ahead: 5, round: 30 * ms, want: []terms{{7, 1, 500 * ms, 0}}},
		{name: "for those who are held", rates: per(5, second), free: 0, paused: 1, wait: 500 * ms, want: []terms{{1, 1, 26 * ms, 500 * ms}}},
		{name: "for those who are held, and far", rates: per(5, second), free: 0, paused: 1, wait: 500 * ms, round: 60 * ms, want: []terms{{1, 1, 69 * ms, 500 * ms}}},
		{name: "two ticks where it starts later", rates: per(1000, 100*ms), free: 0, ahead: 100, want: []terms{{34, 34, 40 * ms, 50 * ms}}},
		{name: "5 s at most", rates: per(1000, minute), free: 900, ahead: 100, want: []terms{{100, 1, 5 * second, 0}}},
		{name: "5 s ahead at most", rates: per(1000, minute), free: 0, ahead: 100, want: []terms{{34, 34, 5 * second, 5 * second}}},
		{
			name: "by the rate that was the scarcest", rates: append(per(1000, second), per(6000, 20*second)...), free: 900, ahead: 1000,
			want: []terms{{402, 201, 4 * second, 5 * second}},
		},

		{name: "known for less than a window", rates: thousand, free: 0, ago: 999 * ms, ahead: 1000, want: []terms{{34, 34, 200 * ms, 500 * ms}}},
		{name: "known a window ago", rates: thousand, free: 0, ago: second, ahead: 1000, want: []terms{{500, 1, 500 * ms, 0}}},
		{name: "active within a window", rates: thousand, free: 800, others: 3, othersAgo: second, ahead: 1000, want: []terms{{100, 1, 500 * ms, 0}}},
		{name: "idle for a window", rates: thousand, free: 800, others: 3, othersAgo: 1001 * ms, ahead: 1000, want: []terms{{400, 1, 500 * ms, 0}}},
		{name: "active within 30 s", rates: per(1000, minute), free: 800, others: 3, othersAgo: 30 * second, ahead: 1000, want: []terms{{100, 1, 5 * second, 0}}},
		{name: "idle for 30 s", rates: per(1000, minute), free: 800, others: 3, othersAgo: 30*second + ms, ahead: 1000, want: []terms{{400, 1, 5 * second, 0}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			now, drawn := began, uint64(0)
			last := row.rates[len(row.rates)-1]
			store := &sized{state: authority.State{Rate: last, Remaining: max(0, row.free)}}
			a := authority.New(authority.Config{
				Store: store, Now: func() instant.Instant { return now }, Random: func() uint64 { drawn++; return drawn },
			})
			l := policy.Limit{Name: "hot", Rates: row.rates, Algorithm: limit.SlidingLog, Mode: limit.Lease}
			l.MaxWait = row.wait
			if row.bucket {
				l.Algorithm = limit.TokenBucket
			}
			if row.strict {
				l.Mode = limit.Strict
			}
			beside := policy.Limit{Name: "beside", Rates: row.rates, Algorithm: limit.SlidingLog, Mode: limit.Strict}
			a.SetPolicy(&policy.Policy{Version: "v", Domain: "shop", Limits: []policy.Limit{l, beside}})
			sync := func(worker uint64, asks ...wire.Ask) {
				t.Helper()
				if _, err := a.Sync(t.Context(), &wire.SyncRequest{WorkerID: worker, CallID: 1, Asks: asks, Round: row.round}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range row.others {
				sync(uint64(2+i), ask("hot", "k", 1, 1, 0))
			}
			now = now.Add(row.othersAgo - row.ago)
			if row.free >= 0 {
				sync(1, ask("hot", "k", 1, 1, 0))
			}
			now = now.Add(row.ago)
			store.asked, store.deny = nil, row.deny
			cost := max(1, row.cost)
			asks := []wire.Ask{ask("hot", "k", row.paused/cost, cost, 0)}
			asks[0].Want = (row.paused + row.ahead) / cost * cost
			if row.group {
				asks[0].Group = 1
				asks = append(asks, ask("beside", "k", row.paused/cost, cost, 1))
			}
			sync(1, asks...)
			if row.group && store.asked[0].TTL == 0 { // in the order of the keys
				store.asked[0], store.asked[1] = store.asked[1], store.asked[0]
			}
			equal(t, "asked of the store", store.asked, row.want)
		})
	}
}
