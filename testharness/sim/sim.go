package sim

import (
	"slices"
	"strconv"
	"time"

	"sluice/shared/instant"
	"sluice/shared/policy"
)

// Figures is what a run came to.
type Figures struct {
	Requests, Admitted, Denied, Waited int64
	// ByWorker is Admitted of each worker, Longest the longest that a request waited until it was admitted.
	ByWorker []int64
	Longest  time.Duration
	// Calls counts executions of Sync at the service, StoreCalls of reserves at the store.
	Calls, StoreCalls int64
	// StoreOperations counts the reserves, settles and cancels that the store has executed.
	StoreOperations int64
	// SubLeases counts what was granted out of leases that the replicas hold.
	SubLeases int64
	// Possible is how many requests the exact limiter admits, with nothing between it and the requests.
	Possible int64
	// Worst is the fullest window of those that the guarantee is for, as a share of its limit; WorstBeyond that of the others: in
	// mode async, and where workers decide by themselves while the service is away.
	Worst, WorstBeyond float64
}

// CallsPerRequest is Calls ÷ Requests.
func (f Figures) CallsPerRequest() float64 { return share(f.Calls, f.Requests) }

// WaitedShare is the share of the requests that waited for an answer.
func (f Figures) WaitedShare() float64 { return share(f.Waited, f.Requests) }

// AdmittedShare is Admitted ÷ Possible.
func (f Figures) AdmittedShare() float64 { return share(f.Admitted, f.Possible) }

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// Result is what a run came to, and what it broke.
type Result struct {
	Figures Figures
	// Violations says what was seen against the guarantee, at most ten of them; empty where it held.
	Violations []string
}

// run is one scenario under way.
type run struct {
	scenario Scenario
	world    *world
	services []*service
	workers  []*worker
	judge    *judge
	figures  Figures
	exact    map[boundKey]*exactLog
	behinds  map[lifeKey]*behind
	shares   map[boundKey][]shareInForce
	// late is when requests were decided whose answer did not come in time.
	late []instant.Instant
	// began is when the traffic did.
	began   instant.Instant
	changed bool
	watch   watched
	// lives are the workers', by the ids that they call themselves; restarted says that the service was.
	lives     map[uint64]*life
	restarted bool
	// quiet says that nothing goes wrong any more.
	quiet bool
}

// Run plays a scenario. The same scenario gives the same result.
func Run(s Scenario) Result { return RunWatched(s, Watch{}) }

// RunWatched plays a scenario and tells of it meanwhile.
func RunWatched(s Scenario, w Watch) Result {
	r := &run{scenario: s, world: newWorld(s.Seed), lives: map[uint64]*life{}, exact: map[boundKey]*exactLog{}, behinds: map[lifeKey]*behind{}, shares: map[boundKey][]shareInForce{}, watch: watched{Watch: w}}
	r.judge = &judge{run: r, spent: map[boundKey][]instant.Instant{}}
	store := r.newStore()
	for range max(1, s.Replicas) {
		r.services = append(r.services, r.newService(store))
	}
	r.figures.ByWorker = make([]int64, s.Workers)
	for i := range s.Workers {
		r.workers = append(r.workers, r.newWorker(i))
	}
	const settled = 300 * time.Millisecond // the workers have their policy
	r.world.runUntil(r.world.now.Add(settled))
	r.began = r.world.now
	r.traffic()
	r.troubles()
	r.play(s.Duration)
	r.world.runUntil(r.world.now.Add(s.longestWait()))
	r.everybodyAnswered()
	r.judge.approximate()
	figures := r.figures
	if s.Seed%toldEvery == 0 {
		r.everythingTold()
	}
	return Result{Figures: figures, Violations: r.judge.violations}
}

func (r *run) everybodyAnswered() {
	for _, w := range r.workers {
		for _, s := range w.streams {
			if r.world.now.Sub(s.arrived) > r.scenario.longestWait() {
				r.judge.complain("a request of worker %d waits since %v", w.number, s.arrived.Sub(origin))
			}
		}
	}
}

// paidPlan is the plan that some requests are in.
const paidPlan = "paid"

// policy gives the scenario's policy, with the changed units where change is 1.
func (s Scenario) policy(change int) *policy.Policy {
	p := &policy.Policy{
		Version: "v" + strconv.Itoa(change), Domain: "shop",
		Identities: []policy.Identity{
			{Name: "tenant", Source: policy.FromHeader, Header: "x-tenant-id"},
			{Name: "host", Source: policy.FromHeader, Header: ":authority"},
		},
		Limits: append([]policy.Limit(nil), s.Limits...),
	}
	if change > 0 {
		p.Limits[0].Rates = slices.Clone(p.Limits[0].Rates)
		p.Limits[0].Rates[0].Units = s.ChangeTo
	}
	if s.Paid > 0 {
		paid := slices.Clone(p.Limits[0].Rates)
		paid[0].Units = s.Paid
		p.Identities = append(p.Identities, policy.Identity{Name: "tier", Source: policy.FromHeader, Header: "x-tier"})
		p.Limits[0].Plans, p.Limits[0].PlanBy = []policy.Exception{{Name: paidPlan, Rates: paid}}, 2
	}
	return p
}

// keyOf gives the identity values of a request as its key under a limit has them.
func keyOf(l policy.Limit, tenant string) string {
	if l.Key[0] == 1 {
		return "shop"
	}
	return tenant
}

// traffic brings requests at random instants, or in bursts at the beginning of each window; with tides a quarter of
// them in every second window.
func (r *run) traffic() {
	const calm = 4
	s := r.scenario
	rate := s.Limits[0].Rates[0]
	end := r.world.now.Add(s.Duration)
	perTenant := s.Load * float64(rate.Units) / float64(s.Limits[0].RequestCost())
	for i := range s.Tenants {
		tenant := "tenant" + strconv.Itoa(i)
		deliver := func() { r.workers[r.world.random.IntN(len(r.workers))].arrive(tenant) }
		pause := time.Duration(float64(rate.Window) / perTenant)
		var next func()
		if s.Bursts {
			next = func() {
				if r.world.now >= end {
					return
				}
				for range int(perTenant + 0.5) {
					r.world.after(r.world.between(0, rate.Window/50), deliver)
				}
				r.world.after(rate.Window, next)
			}
		} else {
			next = func() {
				if r.world.now >= end {
					return
				}
				if !s.Tides || r.world.now.Sub(origin)/(rate.Window/2)%4 >= 2 || r.world.random.IntN(calm) == 0 {
					deliver()
				}
				r.world.after(r.world.spread(pause), next)
			}
		}
		r.world.after(r.world.spread(pause), next)
	}
}

// troubles schedules what happens to whole machines.
func (r *run) troubles() {
	f := r.scenario.Faults
	often := func(perSecond float64, happen func()) {
		if perSecond <= 0 {
			return
		}
		mean := time.Duration(float64(time.Second) / perSecond)
		var next func()
		next = func() {
			if r.quiet {
				return
			}
			happen()
			r.world.after(r.world.spread(mean), next)
		}
		r.world.after(r.world.spread(mean), next)
	}
	someone := func() *worker { return r.workers[r.world.random.IntN(len(r.workers))] }
	often(f.Crashes, func() { someone().reload() })
	often(f.Restarts, func() {
		r.restarted = true
		one := 0
		if len(r.services) > 1 {
			one = r.world.random.IntN(len(r.services))
		}
		r.services[one].restart()
	})
	often(f.Partitions, func() { someone().cutUntil = r.world.now.Add(r.world.between(0, time.Second)) })
	if r.scenario.Change > 0 {
		r.world.after(r.scenario.Change, func() {
			r.changed = true
			for _, one := range r.services {
				one.setPolicy(r.scenario.policy(1))
			}
		})
	}
}

// exactLog is what the ideal limiter admitted under one key.
type exactLog struct{ admitted []instant.Instant }

// ideal lets the exact limiter decide a request at its arrival.
func (r *run) ideal(s *stream) {
	now := r.world.now
	for _, k := range s.bound {
		log := r.exact[k]
		if log == nil {
			log = &exactLog{}
			r.exact[k] = log
		}
		for i, rate := range r.rates(k.limit) {
			most := rate.Units
			if i == 0 && r.changed && k.limit == r.scenario.Limits[0].Name {
				most = r.scenario.ChangeTo
			}
			room := most - r.cost(k.limit)
			n := int64(len(log.admitted))
			if room < 0 || n > room && log.admitted[n-room-1] > now.Add(-rate.Window) {
				return
			}
		}
	}
	r.figures.Possible++
	for _, k := range s.bound {
		log := r.exact[k]
		for range r.cost(k.limit) {
			log.admitted = append(log.admitted, now)
		}
	}
}
