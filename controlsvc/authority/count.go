package authority

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// maxPeeks is how many keys one call has looked at at once.
const maxPeeks = 16

// onlyCounts says whether an ask wants nothing but to be told how the key stands.
func onlyCounts(ask *wire.Ask) bool { return ask.Want == 0 && ask.Waiting == 0 && ask.Group == 0 }

// count answers the asks that only want to know how their keys stand: for the rate with the fewest units left, and where
// one request more would not be admitted with when it would.
func (a *Authority) count(ctx context.Context, book *ruleBook, call string, asks []wire.Ask, results []wire.AskResult) {
	if !slices.ContainsFunc(asks, func(ask wire.Ask) bool { return onlyCounts(&ask) }) {
		return
	}
	var peeks sync.WaitGroup
	slots := make(chan struct{}, maxPeeks)
	keys := make(map[int]Key)
	for i := range asks {
		ask := &asks[i]
		if !onlyCounts(ask) {
			continue
		}
		key, _, known := book.key(ask.KeyRef, ask.Plan)
		switch {
		case !known:
			results[i].Problem = wire.UnknownLimit
			continue
		case ask.Min < 1 || ask.Min > limit.MaxUnits || !policy.ValidKey(ask.Key):
			results[i].Problem = wire.InvalidAsk
			continue
		}
		keys[i] = key
		slots <- struct{}{}
		peeks.Go(func() {
			defer func() { <-slots }()
			states, err := a.config.Store.Peek(ctx, key)
			if err != nil || len(states) == 0 {
				results[i].Problem = wire.StoreProblem
				return
			}
			least := states[0]
			for _, s := range states[1:] {
				if s.Remaining < least.Remaining {
					least = s
				}
			}
			r := &results[i]
			r.Limit, r.Window, r.Remaining, r.Reset = least.Rate.Units, least.Rate.Window, least.Remaining, least.Reset
		})
	}
	peeks.Wait()
	a.whenFree(ctx, call, asks, keys, results)
}

// whenFree asks the store when a request more would be admitted, of the keys that have no room for it. What is granted
// after all, since room has come meanwhile, is given back.
func (a *Authority) whenFree(ctx context.Context, call string, asks []wire.Ask, keys map[int]Key, results []wire.AskResult) {
	var full []int
	var reserves []Reserve
	for i := range asks {
		if key, asked := keys[i]; asked && results[i].Problem == wire.NoProblem && results[i].Remaining < asks[i].Min {
			full = append(full, i)
			part := strconv.FormatUint(a.config.Random(), 36)
			reserves = append(reserves, Reserve{Key: key, Call: call, Part: part, Want: asks[i].Min, Min: asks[i].Min})
		}
	}
	if len(reserves) == 0 {
		return
	}
	var back []giveBack
	for n, reserved := range a.config.Store.Reserve(ctx, reserves) {
		r, o := &results[full[n]], &reserves[n]
		switch {
		case reserved.Err != nil:
			*r = wire.AskResult{Problem: wire.StoreProblem}
			back = append(back, giveBack{key: o.Key, call: o.Call, part: o.Part})
		case reserved.Units > 0:
			back = append(back, giveBack{key: o.Key, lease: reserved.Lease, unused: reserved.Units})
		case reserved.Denied:
			d := reserved.Denial
			r.Denied, r.Denial = true, wire.Denial{DenyFor: d.DenyFor, RetryAfter: d.RetryAfter, Never: d.Never}
		}
	}
	a.takeBack(ctx, back)
}
