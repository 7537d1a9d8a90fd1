// Package admission decides whether a request may pass: on the spot where it can, else after the store's answer. It is
// pure: instants are passed in, nothing is read or sent, and what a worker knows of a key is in its Key.
//
//	request → Step → Admit | Deny            decided on the spot
//	               → Ask → … → Answer.Next   decided by the store's answer, or by Step with Away set
//	               → Hold → … → Step         decided when the lease that it waits for starts
//
// Under a limit with max_wait there is a third verdict, Hold: a lease in hand will serve the request in time, at an instant
// that is to come (hold.go).
//
// In strict mode every admission is the store's (or a fallback's, which says so); only denials are local, and never when
// the store would admit. In lease mode an admission may also spend a unit that the store has granted ahead.
package admission

import (
	"time"

	"sluice/shared/instant"
	"sluice/shared/limit"
)

// Demand is what a request needs of one key. Cost is at least 1.
type Demand struct {
	Key  *Key
	Cost int64
	// Ahead is units of the key's leases that requests before this one are held for.
	Ahead int64
	// Behind says that requests before this one are being asked for, which it must not pass.
	Behind bool
}

// Input is a request, and what the worker knows of the service.
type Input struct {
	// Demands holds one for each limit that binds the request, in the policy's order.
	Demands []Demand
	// Away says that the service does not answer: each limit's on_unavailable decides, and nothing is asked.
	Away bool
	// Again says that the request has been stepped before: its demand is known.
	Again bool
	// Patience is for how long the request may be held. It is read for limits with max_wait only.
	Patience Patience
	// Workers and Rank are the worker's place among the workers connected anywhere, as the service last told: its share of
	// L units is L / Workers, and one more where Rank < L mod Workers. Workers 0: never told; its share is the whole.
	Workers, Rank uint32
}

// Verdict is what becomes of a request.
type Verdict uint8

// The verdicts. Of several demands' the last in this order stands.
const (
	Admit Verdict = iota + 1
	// Hold: pause the request, behind those that are held already, and step it again after RetryAfter.
	Hold
	// Ask: pause the request and ask the store.
	Ask
	Deny
)

// Source says what a verdict rests on.
type Source uint8

// The sources of a verdict. Their numbers are on the wire: a new one comes last.
const (
	// FromPolicy: no limit binds the request, or it costs more than one of them holds at all.
	FromPolicy Source = iota + 1
	// FromLease: a leased unit that the worker held.
	FromLease
	// FromStore: the store's answer to a call made for this request.
	FromStore
	// FromDenial: an earlier denial of the store's that still stands.
	FromDenial
	// FromLog: what this worker alone spent fills the window.
	FromLog
	// FromCount: the global count as it was last told, in mode async.
	FromCount
	// FromFallback: the service is away, and on_unavailable decided.
	FromFallback
	// FromBlock: the caller is on a block list.
	FromBlock
	// FromAllow: the caller is on an allow list, and nothing else binds the request.
	FromAllow
	// FromNoPolicy: there is no policy yet.
	FromNoPolicy
)

// String gives the source's name in metrics and headers.
func (s Source) String() string {
	switch s {
	case FromPolicy:
		return "policy"
	case FromLease:
		return "lease"
	case FromStore:
		return "store"
	case FromDenial:
		return "denial"
	case FromLog:
		return "log"
	case FromCount:
		return "count"
	case FromFallback:
		return "fallback"
	case FromBlock:
		return "block"
	case FromAllow:
		return "allow"
	case FromNoPolicy:
		return "no_policy"
	}
	return "unknown"
}

// Output is a verdict, and what the client is told. With Ask nothing else holds.
type Output struct {
	Verdict Verdict
	Source  Source
	// Demand is the index of the demand whose limit the answer reports: of those that deny the one with the longest wait,
	// else the one with the smallest remaining share. -1 where nothing is known of any.
	Demand int
	// Rate is the rate that is reported, Remaining what is left of it, Reset when its window is empty again.
	Rate      limit.Rate
	Remaining int64
	Reset     time.Duration
	// RetryAfter is when the request could pass, for a denial, and when it is expected to, for Hold. 0 with Never: it costs
	// more than the limit holds.
	RetryAfter time.Duration
	Never      bool
	// Unavailable says that the request was denied because the service is away, not because it is over a limit.
	Unavailable bool
}

// Blocked is what becomes of a request that a block list names: of the limit with that index among those told to the
// client, or of the whole policy, -1.
func Blocked(demand int) Output {
	return Output{Verdict: Deny, Source: FromBlock, Demand: demand, Never: true}
}

// unavailableRetry is what a client is told to wait where a limit denies while the service is away.
const unavailableRetry = time.Second

// Step decides a request at an instant of the worker's monotonic clock. An admission has been spent and noted in the keys'
// logs; a denial charges nothing.
func Step(now instant.Instant, in Input) Output {
	if len(in.Demands) == 0 {
		return Output{Verdict: Admit, Source: FromPolicy, Demand: -1}
	}
	out := Output{Verdict: Admit, Demand: -1}
	lacking := false
	for i, d := range in.Demands {
		if !in.Again {
			d.Key.demand.add(now, d.Cost)
		}
		if d.Key.async() {
			if denied, is := d.denyCounted(now); is && !in.Away {
				denied.Demand = i
				out = Worse(out, denied)
			}
			continue
		}
		if !d.Lacks(now) {
			continue
		}
		lacking = true
		if one, is := d.lacks(now, in.Patience); is {
			one.Demand = i
			out = Worse(out, one)
		}
	}
	switch {
	case out.Verdict == Deny || out.Verdict == Hold:
		return out
	case lacking && !in.Away:
		return Output{Verdict: Ask, Demand: -1}
	}
	return spend(now, in)
}

// lacks gives what the worker knows of a demand that the leases do not hold units for now: that it is held or denied. False
// where the store has to be asked, which a request that is held for another limit does when that lets it pass; but one that
// this limit may hold asks first.
func (d Demand) lacks(now instant.Instant, p Patience) (Output, bool) {
	if out, is := d.hold(now, p); is {
		return out, true
	}
	if out, is := d.deny(now, p); is {
		return out, true
	}
	return Output{Verdict: Ask}, d.Key.MaxWait() > 0
}

// spend decides a request without the store: from the leases in hand, and by on_unavailable where they do not hold enough.
func spend(now instant.Instant, in Input) Output {
	out := Output{Verdict: Admit, Demand: -1}
	source := FromLease
	for i, d := range in.Demands {
		one := d.Key.report(now)
		one.Verdict, one.Source = Admit, FromLease
		one.Remaining += d.Key.Free(now) - d.Cost
		switch {
		case d.fallsBack(now, in.Away):
			one = d.fallBack(now, in.Workers, in.Rank)
			source = FromFallback
		case d.Key.async():
			one = d.admitCounted(now)
			source = max(source, FromCount)
		}
		one.Demand = i
		out = Worse(out, one)
	}
	if out.Verdict != Admit {
		return out
	}
	out.Source = source
	for _, d := range in.Demands {
		switch {
		case d.fallsBack(now, in.Away):
			d.Key.fallBackSpend(now, d.Cost)
		case d.Key.async():
			d.Key.spendCounted(now, d.Cost)
		default:
			d.Key.spendLeased(now, d.Cost)
		}
	}
	return out
}

// fallsBack says whether a request has to be decided by on_unavailable.
func (d Demand) fallsBack(now instant.Instant, away bool) bool {
	if d.Key.async() {
		return away
	}
	return d.Lacks(now)
}

// deny gives the denial that the worker knows the store would give; false where there is none, or where the request may wait
// for as long as it takes.
func (d Demand) deny(now instant.Instant, p Patience) (Output, bool) {
	k := d.Key
	if i := k.tooLarge(d.Cost); i >= 0 {
		return Output{
			Verdict: Deny, Source: FromPolicy, Rate: k.rule.Rates[i], Never: true,
			Remaining: k.left(now, i), Reset: k.emptyIn(now, i),
		}, true
	}
	if in, is := d.startsIn(now); is {
		out := k.report(now)
		out.Verdict, out.Source, out.Remaining, out.RetryAfter = Deny, FromLease, 0, in
		return out, true
	}
	if k.standing(now, d.Cost) {
		out := k.report(now)
		out.Verdict, out.Source = Deny, FromDenial
		out.RetryAfter, out.Never = max(0, k.denial.earliest.Sub(now)), k.denial.never
		if out.Never || !k.waits(now, p, max(0, k.denial.retryAt.Sub(now))) {
			return out, true
		}
	}
	if wait := k.loggedOut(now, d.Cost); wait > 0 {
		i := k.least(now)
		return Output{
			Verdict: Deny, Source: FromLog, Rate: k.rule.Rates[i], Remaining: k.left(now, i), Reset: k.emptyIn(now, i), RetryAfter: wait,
		}, !k.waits(now, p, wait)
	}
	return Output{}, false
}

// report gives how the key stood when the store last answered.
func (k *Key) report(now instant.Instant) Output {
	return Output{Rate: k.state.rate, Remaining: k.state.remaining, Reset: max(0, k.state.emptyAt.Sub(now))}
}

// fallBack decides by on_unavailable, and spends nothing.
func (d Demand) fallBack(now instant.Instant, workers, rank uint32) Output {
	k := d.Key
	out := Output{Verdict: Admit, Source: FromFallback, Remaining: limit.MaxUnits}
	for i, rate := range k.rule.Rates {
		share := rate
		if k.rule.Limit.OnUnavailable == limit.Local {
			share.Units = Share(rate.Units, workers, rank)
		}
		log := &k.logs[i]
		one := Output{Verdict: Admit, Source: FromFallback, Rate: share, Reset: rate.Window} // of what is spent now
		left := share.Units - log.AtMost(now)
		one.Remaining = max(0, left-d.Cost)
		switch {
		case k.rule.Limit.OnUnavailable == limit.Deny:
			one.Verdict, one.Unavailable, one.RetryAfter, one.Reset = Deny, true, unavailableRetry, log.EmptyIn(now)
			one.Remaining = 0
		case k.rule.Limit.OnUnavailable == limit.Local && left < d.Cost:
			one.Verdict, one.Remaining, one.Reset = Deny, max(0, left), log.EmptyIn(now)
			one.RetryAfter = log.FallsTo(share.Units-d.Cost, now, 0)
			// A cost above the share may still pass when the service is back.
			one.RetryAfter = max(one.RetryAfter, unavailableRetry)
		}
		out = Worse(out, one)
	}
	return out
}

// Share gives a worker's part of a limit for the time that the service is away: whole numbers, whose sum over the ranks
// 0 to workers − 1 is units. Workers 0 (never told): the whole.
func Share(units int64, workers, rank uint32) int64 {
	if workers == 0 {
		return units
	}
	share := units / int64(workers)
	if int64(rank) < units%int64(workers) {
		share++
	}
	return share
}

// Worse gives of two verdicts the one that stands: a denial before an ask, that before being held, that before an admission;
// of denials the one that is for ever, else the longer wait; of admissions the smaller remaining share. The first where equal.
func Worse(a, b Output) Output {
	switch {
	case a.Verdict > b.Verdict:
		return a
	case a.Verdict < b.Verdict:
		return b
	case a.Verdict == Deny || a.Verdict == Hold:
		if !a.Never && (b.Never || b.RetryAfter > a.RetryAfter) {
			return b
		}
		return a
	case a.Rate.Units == 0:
		return b
	case b.Rate.Units == 0:
		return a
	}
	// a.Remaining/a.Units > b.Remaining/b.Units, without dividing; doubles are close enough for a report.
	if float64(a.Remaining)*float64(b.Rate.Units) > float64(b.Remaining)*float64(a.Rate.Units) {
		return b
	}
	return a
}
