package admission

import (
	"slices"
	"time"

	"sluice/shared/instant"
	"sluice/shared/lease"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/slidinglog"
	"sluice/shared/wire"
)

// ReaskAfter bounds how long a local denial stands on what the store once said: a key may be reset and a limit raised.
const ReaskAfter = 5 * time.Second

// Key is what one worker knows of one key: what it spent itself, and what the store last said.
type Key struct {
	rule policy.Rule
	// ruled is when the key came under its limit; what was asked before then was asked under another.
	ruled instant.Instant
	// logs holds a log for each of the rule's rates, in their order; parked are those of other plans' windows.
	logs, parked []slidinglog.Log
	// known is what is known of the key under the plan that it is in, aside under the one that it was in before; nil where it has
	// never changed.
	known

	aside *known
	// claimed is units that requests are held for.
	claimed int64
	// retired holds leases that are over and not handed out by TakeRetired yet.
	retired []lease.Retired
	demand  demand
	// scarce: the last lease was scheduled.
	scarce bool
	// ttl is how long the last lease could be spent; 0 before the first.
	ttl time.Duration
	// fellBack is units admitted while the service was away, or in mode async, that TakeFallback has not handed out yet.
	fellBack int64
	// Untold is units that it has handed out and that the store has not been told of, as far as the worker knows, who keeps count.
	Untold int64
}

// known is what the store said and granted under one plan of the key's limit: of plans that take turns none is told, or spends,
// what was meant for another.
type known struct {
	plan string
	// heard is when the call was sent that the store last answered; nothing is denied locally on older grounds.
	heard    instant.Instant
	hasHeard bool
	denial   denial
	// state is how the key stood when the store last answered.
	state state
	// count is what is known of the global count, in mode async. Of what is set aside, joint says that units which are spent now
	// count in one of its windows too.
	count count
	joint bool
	// leases holds what the worker may spend of its own accord, now or later, in the order in which they start; at most
	// MaxLeases, or MaxHeldLeases.
	leases []*lease.Lease
}

// denial is one of the store's, which the worker repeats on its own until it ends.
type denial struct {
	until instant.Instant
	cost  int64 // requests of at least this cost are denied
	// earliest is what a client is told; retryAt when units are free at the latest, if nothing more is charged.
	earliest, retryAt instant.Instant
	never             bool
}

type state struct {
	rate      limit.Rate
	remaining int64
	emptyAt   instant.Instant
}

// NewKey gives the state of a key that nothing is known of. The rule's limit and rates are shared and never written to.
func NewKey(rule policy.Rule) *Key {
	k := &Key{}
	k.SetRule(0, rule)
	return k
}

// Limit gives the limit that the key is under.
func (k *Key) Limit() *policy.Limit { return k.rule.Limit }

// Rule gives what holds for the key.
func (k *Key) Rule() *policy.Rule { return &k.rule }

// SetRule puts the key under a changed limit, or another plan of it. Counts of the windows that stay are kept, and for plans
// that take turns those of each. What the store said holds for the plan that it was asked for: of two plans that take turns both
// are known, of a changed limit nothing is, and the store is asked again before anything is denied. Leases are spent by requests
// of the plan that they were charged by, as long as the limit is the same.
func (k *Key) SetRule(now instant.Instant, rule policy.Rule) {
	before := k.rule
	k.rule = rule
	share := slices.Equal(before.Rates, rule.Rates)
	switch turns := before.Plan != rule.Plan; {
	case before.Limit != rule.Limit:
		if k.aside != nil {
			k.aside.retireAll(&k.retired)
		}
		if turns && !share {
			k.retireAll(&k.retired)
		}
		k.known, k.aside = known{leases: k.leases, state: k.state}, nil
		k.ruled, k.parked = now, nil
	case turns:
		k.turn(share || k.rule.Limit.MaxWait > 0)
		k.aside.joint = slices.ContainsFunc(before.Rates, func(r limit.Rate) bool {
			return slices.ContainsFunc(rule.Rates, r.SameWindow)
		})
	}
	k.plan = rule.Plan
	k.setLogs()
	k.demand.width = min(max(k.shortest()/8, minDemandWidth), maxDemandWidth)
	if rule.Limit.Mode != limit.Lease {
		k.GiveBack()
	}
}

// turn goes over to what is known under another plan. Leases stay where the plans share them: those of the same rates do, and
// those whose requests are held, for they wait in one line.
func (k *Key) turn(share bool) {
	next := known{}
	switch {
	case k.aside == nil:
		k.aside = &known{}
	case k.aside.plan == k.rule.Plan:
		next = *k.aside
	default:
		k.aside.retireAll(&k.retired)
	}
	if share {
		next.leases, k.leases = k.leases, next.leases
		next.state = k.state
	}
	*k.aside, k.known = k.known, next
}

// maxParked bounds the logs that are kept of windows that the rule does not have.
const maxParked = 16

// setLogs has a log for each of the rule's windows, the one that it had before where there is one.
func (k *Key) setLogs() {
	old, rates := k.logs, k.rule.Rates
	same := len(old) == len(rates)
	for i := 0; same && i < len(rates); i++ {
		same = old[i].Window() == rates[i].Window
	}
	if same {
		return
	}
	rest := slices.Concat(old, k.parked)
	k.logs, k.parked = make([]slidinglog.Log, len(rates)), nil
	for i, rate := range rates {
		k.logs[i] = slidinglog.New(rate.Window)
		for j := range rest {
			if rest[j].Window() == rate.Window {
				k.logs[i] = rest[j]
				rest = append(rest[:j], rest[j+1:]...)
				break
			}
		}
	}
	if len(rest) > 0 && len(k.rule.Limit.Plans)+len(k.rule.Limit.Overrides) > 0 {
		k.parked = rest[:min(len(rest), maxParked)]
	}
}

// spend notes units that this worker admitted.
func (k *Key) spend(at instant.Instant, units int64) {
	for i := range k.logs {
		k.logs[i].Add(at, units)
	}
}

// fallBackSpend notes units that on_unavailable admitted.
func (k *Key) fallBackSpend(at instant.Instant, units int64) {
	k.spend(at, units)
	k.fellBack += units
}

// TakeFallback hands out, once, the units that were admitted without the store: the caller records them there afterwards.
func (k *Key) TakeFallback() int64 {
	units := k.fellBack
	k.fellBack = 0
	return units
}

// hear takes what the store says of the key, in answer to an ask for requests of the cost each.
func (k *Key) hear(sent, received instant.Instant, cost int64, result *wire.AskResult) {
	k.state = state{
		rate:      limit.Rate{Units: result.Limit, Window: result.Window},
		remaining: result.Remaining,
		emptyAt:   received.Add(result.Reset),
	}
	if sent < k.ruled {
		return // it denies by what does not hold any more
	}
	k.heard, k.hasHeard = sent, true
	if result.StartIn == 0 {
		k.hasRoom(received, result.Units-k.fellBack-k.Untold)
	}
	if !result.Denied {
		if k.denial.cost <= cost {
			k.denial = denial{}
		}
		return
	}
	// The store denies from its execution on, which is not before the call was sent: counted from there, and by a slow
	// clock, the denial never outlasts the store's. The client's wait is counted from the later side for the same reason.
	next := denial{
		until:    sent.Add(min(lease.AtLeast(result.Denial.DenyFor), ReaskAfter)),
		cost:     cost,
		earliest: received.Add(result.Denial.Earliest()),
		retryAt:  received.Add(result.Denial.RetryAfter),
		never:    result.Denial.Never,
	}
	if result.Denial.Never {
		next.until = sent.Add(ReaskAfter)
	}
	if next.cost <= k.denial.cost || next.until > k.denial.until {
		k.denial = next
	}
}

// hasRoom takes it that so many units may be spent now, beyond those that the store was not told of. Where there would be more than
// the limit in a window together with what this worker has spent, the store does not know of that any more: the key was reset. Then
// its log is not gone by either. Not so where windows may hold more, around a boundary or while a bucket fills.
func (k *Key) hasRoom(now instant.Instant, units int64) {
	if units <= 0 || !k.rule.Limit.Algorithm.NeverOver() {
		return
	}
	for i, rate := range k.rule.Rates {
		if k.logs[i].AtLeast(now, lease.Drift(rate.Window)) > rate.Units-units {
			k.logs, k.parked = nil, nil
			k.setLogs()
			return
		}
	}
}

// standing says whether the store's last denial still holds for a request of the cost.
func (k *Key) standing(now instant.Instant, cost int64) bool {
	return k.hasHeard && now < k.denial.until && cost >= k.denial.cost
}

// loggedOut says for how long the worker's own log of one of the rates alone denies a request of the cost, and the longest where
// several do, for at most as long as the store has been heard within ReaskAfter; 0 where none does.
//
// What a worker spent after some instant of its own clock, the store has charged at a later instant still, so that it
// counts in the store at least as long: the store would deny as well. Not so where units come back before a window is over,
// at the boundary of fixed windows or out of a bucket that fills again.
func (k *Key) loggedOut(now instant.Instant, cost int64) (wait time.Duration) {
	if !k.rule.Limit.Algorithm.NeverOver() || !k.hasHeard || now >= k.heard.Add(ReaskAfter) {
		return 0
	}
	for i, rate := range k.rule.Rates {
		if k.logs[i].AtLeast(now, lease.Drift(rate.Window)) > rate.Units-cost {
			falls := min(k.logs[i].FallsTo(rate.Units-cost, now, 0)+k.bucket(i), k.emptyIn(now, i))
			wait = max(wait, falls, time.Microsecond)
		}
	}
	return wait
}

// least gives the rate of which the smallest share is left, which is told as the store does.
func (k *Key) least(now instant.Instant) (at int) {
	rates := k.rule.Rates
	for i := 1; i < len(rates); i++ {
		if float64(k.left(now, i))*float64(rates[at].Units) < float64(k.left(now, at))*float64(rates[i].Units) {
			at = i
		}
	}
	return at
}

// bucket is by how much units of a rate may come back later than a window after they were spent: with their bucket.
func (k *Key) bucket(i int) time.Duration {
	if k.rule.Limit.Algorithm != limit.SlidingBuckets {
		return 0
	}
	return limit.BucketWidth(k.rule.Rates[i].Window)
}

// emptyIn gives when a rate's window is empty again, as far as the worker knows: as the store said where that covers what the worker
// has spent since.
func (k *Key) emptyIn(now instant.Instant, i int) time.Duration {
	own := k.logs[i].EmptyIn(now)
	if told := k.state.emptyAt.Sub(now); k.state.rate.SameWindow(k.rule.Rates[i]) && told >= own {
		return max(0, told)
	}
	if own > 0 {
		own += k.bucket(i)
	}
	return own
}

// left gives what a rate has left, as far as the worker knows: by what it spent itself, and by what the store said as long as
// that may hold.
func (k *Key) left(now instant.Instant, i int) int64 {
	left := k.rule.Rates[i].Units - k.logs[i].AtMost(now)
	if k.state.rate.SameWindow(k.rule.Rates[i]) && now < k.state.emptyAt {
		left = min(left, k.state.remaining+k.Free(now))
	}
	return max(0, left)
}

// tooLarge gives a rate that a request of the cost could never meet; -1 for none.
func (k *Key) tooLarge(cost int64) int {
	for i, rate := range k.rule.Rates {
		if cost > rate.Most() {
			return i
		}
	}
	return -1
}
