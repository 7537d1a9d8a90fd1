package authority

import (
	"cmp"
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
	var keys []Key
	var of []int
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
		keys, of = append(keys, key), append(of, i)
	}
	var full []int
	var reserves []Reserve
	for n, states := range a.peek(ctx, keys) {
		r := &results[of[n]]
		if len(states) == 0 {
			r.Problem = wire.StoreProblem
			continue
		}
		least := slices.MinFunc(states, func(a, b State) int { return cmp.Compare(a.Remaining, b.Remaining) })
		r.Limit, r.Window, r.Remaining, r.Reset = least.Rate.Units, least.Rate.Window, least.Remaining, least.Reset
		if r.Remaining < asks[of[n]].Min {
			full = append(full, of[n])
			part := strconv.FormatUint(a.config.Random(), 36)
			reserves = append(reserves, Reserve{Key: keys[n], Call: call, Part: part, Want: asks[of[n]].Min, Min: asks[of[n]].Min})
		}
	}
	if len(full) > 0 {
		a.whenFree(ctx, full, reserves, results)
	}
}

// peek has the store tell how keys stand, each within its rates; nothing of those for which it did not answer.
func (a *Authority) peek(ctx context.Context, keys []Key) [][]State {
	all := make([][]State, len(keys))
	var peeks sync.WaitGroup
	slots := make(chan struct{}, maxPeeks)
	for i, key := range keys {
		slots <- struct{}{}
		peeks.Go(func() {
			defer func() { <-slots }()
			if states, err := a.config.Store.Peek(ctx, key); err == nil {
				all[i] = states
			}
		})
	}
	peeks.Wait()
	return all
}

// whenFree asks the store when a request more would be admitted, of asks whose keys have no room for it. What is granted after
// all, since room has come meanwhile, is given back.
func (a *Authority) whenFree(ctx context.Context, full []int, reserves []Reserve, results []wire.AskResult) {
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
