package sim

import (
	"context"
	"strings"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/wire"
)

// flaws breaks one rule of the guarantee where the messages and the store's operations pass by. Without a mutation it
// changes nothing.
type flaws struct {
	mutation Mutation
	// settled counts the settles of each lease; bonus is what settles that were applied twice have freed, until when.
	settled map[string]int
	bonus   map[string][]freed
	// touched is each key's last grant; latest the last lease that was given out under a name.
	touched map[string]instant.Instant
	latest  map[string]string
	// own is the last lease of each key that a replica bought, and told when the first report of a sub-lease of it came.
	own  map[string]authority.Reserved
	told map[string]instant.Instant
}

type freed struct {
	units int64
	until instant.Instant
}

func newFlaws(m Mutation) *flaws {
	return &flaws{
		mutation: m, settled: map[string]int{}, bonus: map[string][]freed{},
		touched: map[string]instant.Instant{}, latest: map[string]string{},
		own: map[string]authority.Reserved{}, told: map[string]instant.Instant{},
	}
}

// request changes what the service reads.
func (f *flaws) request(r *wire.SyncRequest) {
	for i := range r.Settles {
		for j := range r.Settles[i].Uses {
			age := &r.Settles[i].Uses[j].Age
			switch f.mutation {
			case AgeTooLong:
				*age += 20 * time.Millisecond
			case NoDrift:
				*age = stretched(*age)
			}
		}
	}
}

// response changes what the worker reads; passed is the time since the call was sent.
func (f *flaws) response(r wire.SyncResponse, passed time.Duration) wire.SyncResponse {
	results := append([]wire.AskResult(nil), r.Results...)
	for i := range results {
		result := &results[i]
		if result.EndIn == 0 {
			continue
		}
		switch f.mutation {
		case SpendFromSent:
			result.StartIn = max(0, result.StartIn-passed)
		case EndFromReceipt:
			result.EndIn += passed
		case EarlyRelease:
			result.StartIn = 0
		case NoDrift:
			result.StartIn, result.EndIn = shrunk(result.StartIn), stretched(result.EndIn)
		}
	}
	r.Results = results
	return r
}

func longestWindow(rates []limit.Rate) time.Duration {
	longest := time.Duration(0)
	for _, rate := range rates {
		longest = max(longest, rate.Window)
	}
	return longest
}

// more gives the rates with so many units more.
func more(rates []limit.Rate, units int64) []limit.Rate {
	changed := append([]limit.Rate(nil), rates...)
	for i := range changed {
		changed[i].Units += units
	}
	return changed
}

func (f *flaws) reserve(
	ctx context.Context, store authority.Store, now instant.Instant, o authority.Reserve,
) authority.Reserved {
	const moment = time.Microsecond
	ttl := o.TTL
	switch f.mutation {
	case OneMore:
		o.Key.Rates = more(o.Key.Rates, 1)
	case ScoreAtStart:
		o.TTL = min(o.TTL, moment)
	case ShortLife:
		if last, is := f.touched[o.Key.Name]; is && now > last.Add(longestWindow(o.Key.Rates)) {
			_ = store.Reset(ctx, o.Key)
		}
	case SettleTwice:
		for _, b := range f.bonus[o.Key.Name] {
			if now < b.until {
				o.Key.Rates = more(o.Key.Rates, b.units)
			}
		}
	}
	r := store.Reserve(ctx, []authority.Reserve{o})[0]
	if r.Units == 0 {
		return r
	}
	f.touched[o.Key.Name] = now
	if isReplicas(o.Call) {
		f.own[o.Key.Name] = r
		delete(f.told, o.Key.Name)
	}
	switch f.mutation {
	case ScoreAtStart:
		r.EndIn += ttl - o.TTL
	case SubOutlives:
		if isReplicas(o.Call) {
			r.EndIn += longestWindow(o.Key.Rates)
		}
	case SameID:
		f.latest[o.Key.Name], r.Lease = r.Lease, "lease"
	}
	return r
}

func (f *flaws) settle(ctx context.Context, store authority.Store, now instant.Instant, o authority.Settle) error {
	switch f.mutation {
	case SameID:
		o.Lease = f.latest[o.Key.Name]
	case SettleTwice:
		if f.settled[o.Lease]++; f.settled[o.Lease] > 1 && o.Unused > 0 {
			until := now.Add(longestWindow(o.Key.Rates))
			f.bonus[o.Key.Name] = append(f.bonus[o.Key.Name], freed{o.Unused, until})
		}
	case HeldTwice:
		if told, is := f.told[o.Key.Name]; is && isReplicas(o.Lease) {
			for i := range o.Uses {
				o.Uses[i].Age += now.Sub(told)
			}
		}
	}
	return store.Settle(ctx, []authority.Settle{o})[0]
}

// isReplicas says whether a call, or the lease that it was granted, is a replica's own.
func isReplicas(name string) bool { return strings.Contains(name, ".b") }

// divided changes what a replica gives of a lease of its own.
func (f *flaws) divided(o *authority.Reserve, r *authority.Reserved) {
	switch {
	case f.mutation == SubUnits && r.Units < o.Want:
		r.Units++
	case f.mutation == SubOwnEnd && r.EndIn > 0:
		const windows = 3 // what is left over of it is spent when its charge has gone
		r.EndIn += windows * longestWindow(o.Key.Rates)
	}
}

// subSettled is a worker's report of a sub-lease, on its way to the replica.
func (f *flaws) subSettled(ctx context.Context, store authority.Store, now instant.Instant, o *authority.Settle) {
	own, is := f.own[o.Key.Name]
	if !is {
		return
	}
	if _, is := f.told[o.Key.Name]; !is {
		f.told[o.Key.Name] = now
	}
	if f.mutation == SettledEarly {
		// What is not reported yet is taken to be unused.
		_ = store.Settle(ctx, []authority.Settle{{Key: o.Key, Lease: own.Lease, Uses: o.Uses, Unused: own.Units}})
	}
}
