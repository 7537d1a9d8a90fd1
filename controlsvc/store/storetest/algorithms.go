package storetest

import (
	"time"

	"sluice/controlsvc/store"
	"sluice/shared/limit"
	"sluice/testharness/oracle"
)

// expected is what the suite expects of one algorithm. Whatever is not here is expected of all.
type expected struct {
	algorithm limit.Algorithm
	// scenarios have the algorithm's answers.
	scenarios []scenario
	// oracle gives the limiter that says for each operation what the store must say.
	oracle func(rates ...oracle.Rate) limiter
	// most gives how many units may be spent within any interval as long as the rate's window.
	most func(rate limit.Rate) int64
	// late gives how much later a unit may come back than a window after its score. nil: it is not scores that count.
	late func(window time.Duration) time.Duration
	// flows says that units come back one by one, that a lease counts as spent at its end until it is settled, and that leases
	// are not told.
	flows bool
	// known is how many of the last charges may still be settled or taken back, at least, and at most twice as many; 0: all of
	// them, or as many strict ones as the algorithms know that count.
	known int
	// entries says that each charge is an entry of its own.
	entries bool
	// bound is how many entries a window may have at most, without those of grants that may come back; 0: no bound is known.
	bound int
}

// limiter is an oracle. Instants are since 1970.
type limiter interface {
	Reserve(now time.Duration, call string, want, least int64, ttl, horizon time.Duration) oracle.Grant
	Settle(number int, uses []oracle.Use, unused int64)
	Cancel(call string)
	Record(uses []oracle.Use)
	Reset()
	States(now time.Duration) []oracle.State
	Least(now time.Duration) oracle.State
}

func algorithms() []expected {
	return []expected{
		{
			algorithm: limit.SlidingLog,
			scenarios: scenarios(),
			oracle:    func(rates ...oracle.Rate) limiter { return oracle.New(rates...) },
			most:      func(rate limit.Rate) int64 { return rate.Units },
			late:      func(time.Duration) time.Duration { return 0 },
			entries:   true,
		},
		{
			algorithm: limit.SlidingBuckets,
			oracle:    func(rates ...oracle.Rate) limiter { return oracle.NewBuckets(limit.Buckets, rates...) },
			scenarios: bucketScenarios(),
			late:      limit.BucketWidth,
			most:      func(rate limit.Rate) int64 { return rate.Units },
			bound:     limit.Buckets + 1 + 6, // the first and the last are cut; and the sums
		},
		{
			algorithm: limit.SlidingWindowCounter,
			oracle:    func(rates ...oracle.Rate) limiter { return oracle.NewSlidingWindowCounter(rates...) },
			scenarios: slidingWindowCounterScenarios(),
			most:      func(rate limit.Rate) int64 { return 2 * rate.Units },
		},
		{
			algorithm: limit.FixedWindow,
			oracle:    func(rates ...oracle.Rate) limiter { return oracle.NewFixedWindow(rates...) },
			scenarios: fixedWindowScenarios(),
			most:      func(rate limit.Rate) int64 { return 2 * rate.Units },
		},
		{
			algorithm: limit.TokenBucket,
			oracle:    func(rates ...oracle.Rate) limiter { return oracle.NewTokenBucket(0, rates...) },
			scenarios: tokenBucketScenarios(),
			most:      func(rate limit.Rate) int64 { return 2 * rate.Units },
			flows:     true,
			known:     store.MostKnown / 2,
		},
	}
}
