package admission

import (
	"time"

	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/wire"
)

// In mode async nothing is asked for before a request is admitted. The worker goes by the global count as it was last told,
// less what it has admitted since; between two answers all workers together may admit too much (RATIONALE.md, async).

// Bounds on how long a worker admits by one count before it reports, and is told the next.
const (
	minRecount = 20 * time.Millisecond
	maxRecount = time.Second
)

// count is what a worker knows of what a key has left everywhere.
type count struct {
	known bool
	// heard is when the call was sent that told it; older than a window it tells nothing.
	heard instant.Instant
	// free is what was left, less what this worker has admitted that was not counted in it.
	free int64
	// freed is units that were full then and are free when the denial ends.
	freed int64
}

// admitted notes units that are not counted in it.
func (c *count) admitted(units int64) {
	c.free -= units
	c.freed -= units
}

// async says whether the key is decided by the count.
func (k *Key) async() bool { return k.rule.Limit.Mode == limit.Async }

// shortest gives the shortest window of the key's rates.
func (k *Key) shortest() time.Duration {
	window := k.rule.Rates[0].Window
	for _, rate := range k.rule.Rates {
		window = min(window, rate.Window)
	}
	return window
}

// RecountEvery is how often a key in mode async is reported and counted anew, while there is something to report.
func (k *Key) RecountEvery() time.Duration {
	return min(max(k.shortest()/20, minRecount), maxRecount)
}

// HoldCount takes the store's answer to an ask for how the key stands; uncounted is the units that this worker has admitted
// and that the store had not been told of when it answered.
func (k *Key) HoldCount(sent, received instant.Instant, uncounted int64, result *wire.AskResult) {
	if sent < k.ruled {
		return // of another rule
	}
	cost := k.rule.Limit.RequestCost()
	k.denial = denial{}
	k.hear(sent, received, cost, result)
	k.count = count{known: true, heard: sent, free: result.Remaining - uncounted}
	k.hasRoom(received, k.count.free)
	if d := result.Denial; result.Denied && !d.Never && d.DenyFor >= d.RetryAfter && d.RetryAfter <= ReaskAfter {
		k.count.freed = cost - uncounted
	}
}

// countFree gives how many units may be admitted as far as the worker knows.
func (k *Key) countFree(now instant.Instant) int64 {
	c := &k.count
	if c.known && now < c.heard.Add(k.shortest()) {
		if now >= k.denial.until {
			return max(c.free, c.freed)
		}
		return c.free
	}
	free := int64(limit.MaxUnits)
	for i, rate := range k.rule.Rates {
		free = min(free, rate.Units-k.logs[i].AtMost(now))
	}
	return free
}

// spendCounted admits units that nobody was asked for; TakeFallback hands them out to be reported.
func (k *Key) spendCounted(now instant.Instant, units int64) {
	k.count.admitted(units)
	if k.aside != nil && k.aside.joint {
		k.aside.count.admitted(units)
	}
	k.fallBackSpend(now, units)
}

// denyCounted gives the denial of a request in mode async; false where it is admitted.
func (d Demand) denyCounted(now instant.Instant) (Output, bool) {
	k := d.Key
	if out, is := d.deny(now, Patience{}); is {
		return out, true
	}
	free := k.countFree(now)
	if free >= d.Cost {
		return Output{}, false
	}
	out := k.countReport(now, free)
	out.Verdict, out.Source = Deny, FromCount
	out.RetryAfter = max(k.denial.retryAt.Sub(now), k.RecountEvery())
	return out, true
}

// admitCounted gives how the key stands once a request in mode async is admitted: what is spent now leaves a window later.
func (d Demand) admitCounted(now instant.Instant) Output {
	k := d.Key
	out := k.countReport(now, k.countFree(now)-d.Cost)
	out.Verdict, out.Source = Admit, FromCount
	if !k.count.known || k.rule.Limit.Algorithm.NeverOver() {
		out.Reset = max(out.Reset, out.Rate.Window)
	}
	return out
}

// countReport gives how the key stands as far as the worker knows, with so many units free.
func (k *Key) countReport(now instant.Instant, free int64) Output {
	out := k.report(now)
	if !k.count.known {
		out.Rate, out.Reset = k.rule.Rates[0], k.logs[0].EmptyIn(now)
	}
	out.Remaining = max(0, free)
	return out
}
