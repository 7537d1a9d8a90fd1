package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

// Scenario is everything about one run but the seed of its chances.
type Scenario struct {
	Seed    uint64
	Workers int
	// Limits bind every request that carries their identity. All are keyed by the tenant, or by nothing.
	Limits []policy.Limit
	// Tenants share the load; the first ones have most of it.
	Tenants int
	// Load is the units asked for by all workers together, of the first limit's first rate.
	Load     float64
	Duration time.Duration
	Timeout  time.Duration
	// Bursts sends what Load asks for in a window at its beginning, all at once.
	Bursts bool
	// Tides has a quarter of the load in every second window, so that leases are left over when there is more.
	Tides  bool
	Faults Faults
	// Change is when the first limit's units are changed to ChangeTo; 0: never.
	Change   time.Duration
	ChangeTo int64
	// Paid is what the first limit's first rate holds for requests of the plan "paid", about half of every tenant's; 0: there
	// is no such plan. A window holds the larger of the two at most.
	Paid int64
	// Outage is when the first CutOff workers do not reach the service any more, for OutageFor; 0: never. CutOff 0: all.
	Outage, OutageFor time.Duration
	CutOff            int
	// Replicas of the service are in front of the store; 0: one. A worker's call goes to its own, or to any with the
	// probability Roam.
	Replicas int
	Roam     float64
	// HotAsks and BatchShare are as in branch.Config.
	HotAsks, BatchShare int64
	Mutation            Mutation
}

// Faults is what goes wrong. Probabilities are for each message or each operation; zero is a perfect world.
type Faults struct {
	// Delay is a message's least time on the way, Jitter the mean of what comes on top.
	Delay, Jitter time.Duration
	// Lose and Repeat are for each message between a worker and the service.
	Lose, Repeat float64
	// Slow makes a message take up to SlowBy longer, so that others overtake it.
	Slow   float64
	SlowBy time.Duration
	// StoreLose loses a store's operation: on the way there or, executed, on the way back.
	StoreLose float64
	// Drift is the largest rate error of the workers' clocks, in millionths.
	Drift int64
	// Crashes, Restarts, Partitions and Leavers are how often, on average, a worker's VM is reloaded, the service restarted,
	// a worker cut off, and a client leaves while it waits: each in a second.
	Crashes, Restarts, Partitions float64
	// Leave is the probability that a paused client leaves.
	Leave float64
}

// Mutation breaks one rule on purpose, to see that the judge notices.
type Mutation string

// The mutations.
const (
	// SpendFromSent starts a lease when its call was sent.
	SpendFromSent Mutation = "spend from sent"
	// EndFromReceipt ends a lease as if the store had answered when the answer came.
	EndFromReceipt Mutation = "end measured from receipt"
	// ScoreAtStart charges a lease at its start instead of its end.
	ScoreAtStart Mutation = "score at the start"
	// SettleTwice applies a settle each time that it arrives.
	SettleTwice Mutation = "settle applied twice"
	// ShortLife forgets a key a window and ten seconds after its last operation.
	ShortLife Mutation = "lifetime of window and ten seconds"
	// SameID grants a repeated reserve under the id of the first, over its charge.
	SameID Mutation = "a reused lease id"
	// NoDrift leaves out the margin for the drift of clocks.
	NoDrift Mutation = "no drift margin"
	// AgeTooLong tells the store that units were spent when they were not yet.
	AgeTooLong Mutation = "ages told too long"
	// OneMore admits one unit above the limit.
	OneMore Mutation = "one unit too many"
	// EarlyRelease lets a lease be spent at once that starts later.
	EarlyRelease Mutation = "a scheduled lease spent before its start"
	// Unrecorded acknowledges what workers admitted by themselves, and does not count it.
	Unrecorded Mutation = "admissions not recorded"
	// SubOutlives has a replica divide a lease for longer than it lasts.
	SubOutlives Mutation = "a lease divided for longer than it lasts"
	// SubOwnEnd has a sub-lease, and not its lease, last for three windows longer.
	SubOwnEnd Mutation = "a sub-lease outlives its lease"
	// SubUnits has the sub-leases of a lease come to more units than it.
	SubUnits Mutation = "sub-leases of more units than the lease"
	// HeldTwice adds the time for which a replica held a report to its ages once more.
	HeldTwice Mutation = "ages with the time held twice"
	// SettledEarly has a replica settle its lease before its sub-leases have ended.
	SettledEarly Mutation = "a lease settled before its sub-leases"
)

// Mutations lists all.
func Mutations() []Mutation {
	return []Mutation{
		SpendFromSent, EndFromReceipt, ScoreAtStart, SettleTwice, ShortLife, SameID, NoDrift, AgeTooLong, OneMore, EarlyRelease,
		Unrecorded, SubOutlives, SubOwnEnd, SubUnits, HeldTwice, SettledEarly,
	}
}

// Draw makes a scenario out of a seed: every kind of limit and of fault, most of them in every run.
func Draw(seed uint64) Scenario {
	r := rand.New(rand.NewPCG(seed, 0xd4a3))
	pick := func(choices ...time.Duration) time.Duration { return choices[r.IntN(len(choices))] }
	s := Scenario{
		Seed: seed, Workers: 1 + r.IntN(4), Tenants: 1 + r.IntN(3),
		Load:     []float64{0.5, 1, 2, 5}[r.IntN(4)],
		Duration: 3 * time.Second,
		Timeout:  pick(20*time.Millisecond, 50*time.Millisecond, 200*time.Millisecond),
		Bursts:   r.IntN(4) == 0,
	}
	window := pick(100*time.Millisecond, 300*time.Millisecond, time.Second, 2*time.Second)
	units := int64(1 + r.IntN(40))
	quiet := r.IntN(3) == 0
	if quiet && r.IntN(2) == 0 { // leases last for seconds, so that clocks drift by milliseconds
		units += 20 * int64(s.Workers) // enough for leases where little is free
		window = 10 * time.Second
		s.Duration = 35 * time.Second
	}
	mode := []limit.Mode{limit.Strict, limit.Lease, limit.Lease}[r.IntN(3)]
	first := policy.Limit{
		Name: "tenant", Key: []uint32{0}, Rates: []limit.Rate{{Units: units, Window: window}},
		Algorithm: limit.SlidingLog, Mode: mode, OnUnavailable: limit.Deny,
	}
	if r.IntN(3) == 0 {
		first.Rates = append(first.Rates, limit.Rate{Units: units * 3, Window: 5 * window})
	}
	s.Limits = append(s.Limits, first)
	if r.IntN(3) == 0 {
		second := first
		second.Name, second.Key = "all", []uint32{1}
		second.Rates = []limit.Rate{{Units: 1 + units*int64(s.Tenants)/2, Window: pick(200*time.Millisecond, time.Second)}}
		second.Mode = []limit.Mode{limit.Strict, limit.Lease}[r.IntN(2)]
		s.Limits = append(s.Limits, second)
	}
	if r.IntN(4) == 0 {
		s.Change, s.ChangeTo = s.Duration/3+time.Duration(r.Int64N(int64(s.Duration/3))), 1+r.Int64N(2*units)
	}
	s.Faults = drawFaults(r)
	s.drawSpending(r)
	s.drawRoom()
	s.drawWaiting()
	s.drawPlan()
	if quiet { // a network that is next to nothing beside the drift of the clocks
		s.Faults.Delay, s.Faults.Jitter, s.Faults.Drift = 0, 20*time.Microsecond, 999
	}
	for i := range s.Limits {
		// Not where everything hangs on the drift: a bucket is longer than that.
		if r.IntN(2) == 0 && !quiet {
			s.Limits[i].Algorithm = limit.SlidingBuckets
		}
	}
	s.drawAlgorithm()
	s.drawReplicas()
	return s
}

// drawReplicas has several replicas in front of the store that hold leases of their own of nearly every key, by chances of its
// own.
func (s *Scenario) drawReplicas() {
	r := rand.New(rand.NewPCG(s.Seed, 0x5b1e))
	if r.IntN(3) == 0 {
		return
	}
	s.Replicas, s.HotAsks, s.BatchShare = 2+r.IntN(2), 4, 1+r.Int64N(6)
	s.Roam = []float64{0, 0, 0.05, 1}[r.IntN(4)]
	l := &s.Limits[0]
	exact := l.Algorithm == limit.SlidingLog || l.Algorithm == limit.SlidingBuckets
	if l.Mode == limit.Lease && exact && l.Rates[0].Window >= 300*time.Millisecond && s.Paid == 0 && r.IntN(3) > 0 {
		// Enough workers to divide a lease among, and enough units for them to lease where little is free.
		s.Workers += 2 + r.IntN(3)
		s.Duration = min(s.Duration, 4*l.Rates[0].Window)
		l.MaxWait, l.Rates = 0, slices.Clone(l.Rates)
		for i := range l.Rates {
			l.Rates[i].Units += 15 * l.RequestCost() * int64(s.Workers)
		}
		if s.Tides = r.IntN(2) == 0; s.Tides {
			s.Load, s.Bursts = max(s.Load, 2), false
		}
	}
}

// drawSpending gives some limits requests that cost more than a unit, and has some decided by the count.
func (s *Scenario) drawSpending(r *rand.Rand) {
	async := r.IntN(6) == 0
	for i := range s.Limits {
		l := &s.Limits[i]
		if async {
			l.Mode = limit.Async
		}
		most := l.Rates[0].Units
		for _, rate := range l.Rates {
			most = min(most, rate.Units)
		}
		if i == 0 && s.Change > 0 {
			most = min(most, s.ChangeTo)
		}
		if r.IntN(4) == 0 {
			l.Cost = min(most, 1+r.Int64N(4))
		}
	}
}

// drawRoom gives most limits enough units to be leased ahead of need, by chances of its own.
func (s *Scenario) drawRoom() {
	r := rand.New(rand.NewPCG(s.Seed, 0x200f))
	for i := range s.Limits {
		l := &s.Limits[i]
		if l.Mode != limit.Lease || r.IntN(4) == 0 {
			continue
		}
		l.Rates = slices.Clone(l.Rates)
		for j := range l.Rates {
			l.Rates[j].Units += 20 * l.RequestCost()
		}
	}
}

// drawWaiting has some limits hold their requests back. Its chances are its own: what else a seed stands for stays.
func (s *Scenario) drawWaiting() {
	r := rand.New(rand.NewPCG(s.Seed, 0x3a17))
	for i := range s.Limits {
		l := &s.Limits[i]
		if l.Mode != limit.Lease || r.IntN(3) == 0 {
			continue
		}
		most := min(2*l.Rates[0].Window, 2*time.Second)
		l.MaxWait = time.Duration(r.Int64N(int64(most))).Truncate(time.Microsecond)
	}
}

// drawPlan gives the first limit a plan that holds less or more, by chances of its own. Not where requests are held in their
// order: what is in turn under one plan is denied under the other.
func (s *Scenario) drawPlan() {
	r := rand.New(rand.NewPCG(s.Seed, 0x91a2))
	l := &s.Limits[0]
	if l.Mode == limit.Async || l.MaxWait > 0 || r.IntN(3) > 0 {
		return
	}
	s.Paid = max(l.RequestCost(), 1+r.Int64N(3*l.Rates[0].Units))
}

// longestWait is for how long a request may wait at most: until the last moment to be held, and for an answer then.
func (s *Scenario) longestWait() time.Duration {
	longest := time.Duration(0)
	for i := range s.Limits {
		longest = max(longest, s.Limits[i].MaxWait)
	}
	return longest + s.Timeout + maxTickDelay
}

func drawFaults(r *rand.Rand) Faults {
	some := func(p float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return p * r.Float64()
	}
	return Faults{
		Delay:     time.Duration(r.Int64N(int64(2 * time.Millisecond))),
		Jitter:    time.Duration(r.Int64N(int64(3 * time.Millisecond))),
		Lose:      some(0.2),
		Repeat:    some(0.2),
		Slow:      some(0.2),
		SlowBy:    time.Duration(r.Int64N(int64(150 * time.Millisecond))),
		StoreLose: some(0.1),
		Drift:     r.Int64N(1000),
		Crashes:   some(2), Restarts: some(2), Partitions: some(2),
		Leave: some(0.3),
	}
}

// Smaller gives scenarios that are a little simpler than this one, for shrinking a failure.
func (s Scenario) Smaller() []Scenario {
	var all []Scenario
	change := func(f func(*Scenario)) {
		smaller := s
		smaller.Limits = append([]policy.Limit(nil), s.Limits...)
		f(&smaller)
		if fmt.Sprint(smaller) != fmt.Sprint(s) {
			all = append(all, smaller)
		}
	}
	change(func(s *Scenario) { s.Duration /= 2 })
	change(func(s *Scenario) { s.Duration = s.Duration * 3 / 4 })
	change(func(s *Scenario) { s.Limits = s.Limits[:1] })
	change(func(s *Scenario) { s.Limits[0].Rates = s.Limits[0].Rates[:1] })
	change(func(s *Scenario) { s.Limits[0].Algorithm = limit.SlidingLog })
	change(func(s *Scenario) { s.Workers = max(1, s.Workers-1) })
	change(func(s *Scenario) { s.Tenants = max(1, s.Tenants-1) })
	change(func(s *Scenario) { s.Change, s.ChangeTo = 0, 0 })
	change(func(s *Scenario) { s.Paid = 0 })
	for i := range s.Limits {
		change(func(s *Scenario) { s.Limits[i].MaxWait = 0 })
	}
	change(func(s *Scenario) { s.Outage, s.OutageFor, s.CutOff = 0, 0, 0 })
	change(func(s *Scenario) { s.Replicas = min(s.Replicas, 2) })
	change(func(s *Scenario) { s.Replicas = 0 })
	change(func(s *Scenario) { s.Roam = 0 })
	change(func(s *Scenario) { s.OutageFor /= 2 })
	change(func(s *Scenario) { s.Bursts = false })
	change(func(s *Scenario) { s.Tides = false })
	change(func(s *Scenario) { s.Load /= 2 })
	change(func(s *Scenario) { s.Faults.Lose = 0 })
	change(func(s *Scenario) { s.Faults.Repeat = 0 })
	change(func(s *Scenario) { s.Faults.Slow, s.Faults.SlowBy = 0, 0 })
	change(func(s *Scenario) { s.Faults.StoreLose = 0 })
	change(func(s *Scenario) { s.Faults.Drift = 0 })
	change(func(s *Scenario) { s.Faults.Crashes = 0 })
	change(func(s *Scenario) { s.Faults.Restarts = 0 })
	change(func(s *Scenario) { s.Faults.Partitions = 0 })
	change(func(s *Scenario) { s.Faults.Leave = 0 })
	change(func(s *Scenario) { s.Faults.Jitter = 0 })
	return all
}

// String gives the scenario on one line, for a failure's report.
func (s Scenario) String() string {
	var limits []string
	for _, l := range s.Limits {
		var rates []string
		for _, rate := range l.Rates {
			rates = append(rates, rate.String())
		}
		one := fmt.Sprintf("%s %s %v %v", l.Name, strings.Join(rates, "+"), l.Algorithm, l.Mode)
		if l.MaxWait > 0 {
			one += fmt.Sprintf(" max_wait %v", l.MaxWait)
		}
		limits = append(limits, one)
	}
	return fmt.Sprintf("seed %d: %d workers, %d tenants, load %g for %v, timeout %v, bursts %v, tides %v, [%s], paid %d, change %v to %d, outage of %d at %v for %v, "+
		"%d replicas, roam %g, hot from %d, batches of 1/%d, faults %+v, mutation %q",
		s.Seed, s.Workers, s.Tenants, s.Load, s.Duration, s.Timeout, s.Bursts, s.Tides, strings.Join(limits, "; "), s.Paid, s.Change, s.ChangeTo,
		s.CutOff, s.Outage, s.OutageFor, s.Replicas, s.Roam, s.HotAsks, s.BatchShare, s.Faults, s.Mutation)
}

// Shrink makes a failing scenario smaller as long as it fails, and gives what the smallest one breaks.
func Shrink(s Scenario) (smallest Scenario, violations []string) {
	violations = Run(s).Violations
	const attempts = 200
	for range attempts {
		smaller, why := firstFailing(s.Smaller())
		if why == nil {
			break
		}
		s, violations = smaller, why
	}
	return s, violations
}

func firstFailing(all []Scenario) (Scenario, []string) {
	for _, s := range all {
		if result := Run(s); len(result.Violations) > 0 {
			return s, result.Violations
		}
	}
	return Scenario{}, nil
}
