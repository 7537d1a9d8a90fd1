package admission

import (
	"sluice/shared/instant"
	"sluice/shared/lease"
	"sluice/shared/wire"
)

// NotAsked is the problem of a demand that the call did not ask for, since the leases in hand seemed to hold enough. It
// never stands on the wire.
const NotAsked wire.Problem = 255

// Answer spends what the store granted to a group of paused requests, which all need the same of the same keys.
type Answer struct {
	sent, received instant.Instant
	in             Input
	results        []wire.AskResult
	left           []int64
	// denied says that the store denied one of the demands, later that it granted one of them a lease that starts later.
	denied, later bool
	// again says that one of the requests has to ask anew, which those behind it must not pass.
	again bool
}

// Surplus is what nobody took of a grant, to be given back by a settle: the units of the lease beyond Unused were spent
// at the lease's own instant.
type Surplus struct {
	Demand int
	Lease  string
	Unused int64
}

// NewAnswer takes the store's answer to a call that was sent and received at instants of the worker's monotonic clock:
// one result for each of the input's demands, with the problem NotAsked for those that the leases in hand seemed to hold
// enough for. Leases among what was granted are held by their keys, for later requests too. What the store said of the keys stands from now on.
func NewAnswer(sent, received instant.Instant, in Input, results []wire.AskResult) *Answer {
	a := &Answer{sent: sent, received: received, in: in, results: results, left: make([]int64, len(results))}
	for i := range results {
		result := &results[i]
		if result.Problem == wire.NoProblem && (result.Units > 0 || result.Denied) {
			in.Demands[i].Key.hear(sent, received, in.Demands[i].Cost, result)
		}
		key := in.Demands[i].Key
		if result.EndIn > 0 && result.Units > 0 && result.Problem == wire.NoProblem {
			l := lease.New(result.Lease, result.Units, sent, received, result.StartIn, result.EndIn)
			if l.Over(received) { // before its answer came: it is as if it had not been asked for
				result.Problem = NotAsked
			}
			key.hold(l, received)
		} else {
			a.left[i] = max(0, result.Units)
		}
		a.denied = a.denied || result.Problem == wire.NoProblem && result.Denied
		a.later = a.later || result.StartIn > 0 && result.Units > 0
	}
	return a
}

// Hold takes the store's answer to an ask that no request waits for: a lease for those to come, or a denial.
func (k *Key) Hold(sent, received instant.Instant, result wire.AskResult) {
	NewAnswer(sent, received, Input{Demands: []Demand{{Key: k, Cost: k.rule.Limit.RequestCost()}}}, []wire.AskResult{result})
}

// AtOnce gives how many requests there are units for that no lease holds.
func (a *Answer) AtOnce() int64 {
	least := int64(0)
	for i, left := range a.left {
		if n := left / a.in.Demands[i].Cost; n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// Next decides the next of the group's requests: one that was paused before the call was sent and whose deadline has not
// passed, and that may be held for as long as p says. It is admitted where every demand has units, or a fallback where the store had a problem; nothing
// is spent for a request that any demand denies. Hold: a lease serves it later. Ask: a lease that should have served it is
// gone, or what was granted was enough for requests before it only, and it has to be asked for anew.
func (a *Answer) Next(p Patience) Output {
	out := Output{Verdict: Admit, Source: FromPolicy, Demand: -1}
	again := false
	for i := range a.in.Demands {
		if a.results[i].Problem == wire.UnknownLimit {
			continue // the policy in force has no such limit
		}
		one := a.decide(i, p)
		one.Demand = i
		if one.Verdict == Ask && a.in.Demands[i].Key.MaxWait() == 0 {
			again = true // but not before the others let it pass
			continue
		}
		source := max(out.Source, one.Source)
		out = Worse(out, one)
		if out.Verdict == Admit {
			out.Source = source // a fallback among the store's answers makes it a fallback
		}
	}
	switch {
	case a.again && out.Verdict != Deny && a.waits():
		return Output{Verdict: Ask, Demand: -1}
	case out.Verdict == Hold:
		for i := range a.in.Demands {
			a.in.Demands[i].Ahead += a.in.Demands[i].Cost
		}
	case out.Verdict == Ask || out.Verdict == Admit && again:
		a.again = true
		return Output{Verdict: Ask, Demand: -1}
	case out.Verdict == Admit:
		a.spend()
	}
	return out
}

// waits says whether one of the limits holds requests back.
func (a *Answer) waits() bool {
	for _, d := range a.in.Demands {
		if d.Key.MaxWait() > 0 {
			return true
		}
	}
	return false
}

func (a *Answer) spend() {
	for i, d := range a.in.Demands {
		switch {
		case a.results[i].Problem == wire.UnknownLimit:
		case d.Key.async():
			d.Key.spendCounted(a.received, d.Cost)
		case a.left[i] >= d.Cost:
			a.left[i] -= d.Cost
			// Logged when the call was sent: the store charged it later than that, so it counts there at least as long.
			d.Key.spend(a.sent, d.Cost)
		case !d.Lacks(a.received):
			d.Key.spendLeased(a.received, d.Cost)
		default:
			d.Key.fallBackSpend(a.received, d.Cost)
		}
	}
}

// answered says whether the store decided the demand. One without units, denial or problem was rolled back for another of
// the group: it is decided where another one denies, and open where another one had a problem.
func (a *Answer) answered(i int) bool {
	r := &a.results[i]
	return r.Problem == wire.NoProblem && (r.Units > 0 || r.Denied || a.denied)
}

func (a *Answer) decide(i int, p Patience) Output {
	d, result := a.in.Demands[i], &a.results[i]
	if d.Key.async() {
		if denied, is := d.denyCounted(a.received); is {
			return denied
		}
		return d.admitCounted(a.received)
	}
	out := d.Key.report(a.received)
	out.Verdict, out.Source = Admit, FromStore
	held := d.Key.Free(a.received) - d.Ahead
	switch {
	case a.left[i] >= d.Cost:
		out.Remaining += a.left[i] - d.Cost
		return out
	case held >= d.Cost:
		out.Remaining += held - d.Cost
		if result.Problem == NotAsked {
			out.Source = FromLease
		}
		return out
	}
	later, is := d.hold(a.received, p)
	if is {
		return later
	}
	switch {
	case result.Problem == NotAsked: // its lease has been spent or is over since the call was sent
		return Output{Verdict: Ask}
	case result.Problem == wire.NoProblem && result.Units == 0 && !result.Denied && a.later:
		return Output{Verdict: Ask} // taken back, for another limit lets the requests pass later
	case result.Units > 0 && later.Verdict != Hold && d.Key.waits(a.received, p, result.Denial.RetryAfter):
		return Output{Verdict: Ask} // the next units are free in time too
	case !a.answered(i):
		return d.fallBack(a.received, a.in.Workers, a.in.Rank)
	}
	if in, is := d.startsIn(a.received); is { // units that may be spent later
		out.Verdict, out.Source, out.Remaining, out.RetryAfter = Deny, FromLease, 0, in
		return out
	}
	// One that lacks units without a denial of its own denies too, with no wait to tell: the one that denies is reported.
	out.Verdict = Deny
	out.RetryAfter, out.Never = max(result.Denial.Earliest(), later.RetryAfter), result.Denial.Never
	return out
}

// Surplus gives what is left, to be given back, once every request of the group has been decided. A second call gives nothing.
func (a *Answer) Surplus() []Surplus {
	var all []Surplus
	for i, left := range a.left {
		if left > 0 && a.results[i].Lease != "" {
			all = append(all, Surplus{Demand: i, Lease: a.results[i].Lease, Unused: left})
			k := a.in.Demands[i].Key
			k.denial = denial{} // what is given back may be had again
			if k.aside != nil {
				k.aside.denial = denial{}
			}
		}
		a.left[i] = 0
	}
	return all
}
