package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/filter/host"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// service is a replica of the control service: the real authority on its branch of a real store, behind a network.
type service struct {
	run       *run
	store     *faultyStore
	clock     clock
	branch    *watchedBranch
	authority *authority.Authority
	policy    *policy.Policy
	// life counts the restarts.
	life int
}

const storeKeys = 10_000

func (r *run) newStore() *faultyStore {
	now := func() instant.Instant { return r.world.now }
	return &faultyStore{Store: memory.New(now, storeKeys), run: r, flaws: newFlaws(r.scenario.Mutation)}
}

func (r *run) newService(store *faultyStore) *service {
	s := &service{run: r, store: store, clock: clock{world: r.world}}
	if r.scenario.Replicas > 1 {
		s.clock.draw(r.scenario.Faults.Drift)
	}
	s.policy = r.scenario.policy(0)
	s.restart()
	return s
}

// restart is a new process on the same store.
func (s *service) restart() {
	s.life++
	s.branch = s.newBranch()
	s.authority = authority.New(authority.Config{
		Observer: told{run: s.run}, Store: s.branch, Random: s.run.world.random.Uint64, Now: s.clock.now,
	})
	s.authority.SetPolicy(s.policy)
	s.tick(s.life)
}

func (s *service) setPolicy(p *policy.Policy) {
	s.policy = p
	s.authority.SetPolicy(p)
}

// answered is the service's answer to one execution of a call.
type answered struct {
	body []byte
	// policy is set in the answer to GetPolicy.
	policy *policy.Policy
	// executed is when; strict holds what was granted as strict charges, spent at that instant.
	executed instant.Instant
	strict   map[boundKey][]strictly
	response *wire.SyncResponse
}

// strictly is units that are spent at an instant, by requests of a plan.
type strictly struct {
	at    instant.Instant
	units int64
	paid  bool
}

// execute runs a call at this instant; nil where the service cannot answer it.
func (s *service) execute(path string, body []byte, in stay) *answered {
	message, err := wire.Unframe(body, wire.MaxMessageSize)
	if err != nil {
		s.run.judge.complain("a worker frames what cannot be read: %v", err)
		return nil
	}
	switch path {
	case "/sluice.v1.Control/GetPolicy":
		return s.getPolicy(message)
	case "/sluice.v1.Control/Sync":
		return s.sync(message, in)
	}
	s.run.judge.complain("a worker calls %q", path)
	return nil
}

func (s *service) getPolicy(message []byte) *answered {
	request, err := wire.ParseGetPolicyRequest(message)
	if err != nil {
		s.run.judge.complain("a worker asks for a policy with %v", err)
		return nil
	}
	a := &answered{executed: s.run.world.now, policy: s.policy}
	response := wire.GetPolicyResponse{Version: s.policy.Version}
	if request.Version != s.policy.Version {
		response.Policy = s.policy
	}
	a.body = wire.AppendFrame(nil, wire.AppendGetPolicyResponse(nil, &response))
	return a
}

func (s *service) sync(message []byte, in stay) *answered {
	request, err := wire.ParseSyncRequest(message)
	if err != nil {
		s.run.judge.complain("a worker sends a Sync with %v", err)
		return nil
	}
	s.run.figures.Calls++
	s.run.arrived(&request)
	s.store.flaws.request(&request)
	s.begin(in)
	response, err := s.authority.Sync(context.Background(), &request)
	s.end()
	if err != nil {
		s.run.judge.complain("a worker's Sync is refused: %v", err)
		return nil
	}
	a := &answered{executed: s.run.world.now, strict: map[boundKey][]strictly{}, response: response}
	for i, result := range response.Results {
		if ask := &request.Asks[i]; result.EndIn == 0 && result.Units > int64(ask.Waiting)*ask.Min {
			s.run.judge.complain("%d units that are no lease for %d requests of %d that wait", result.Units, ask.Waiting, ask.Min)
		}
		if result.EndIn == 0 && result.Units > 0 {
			k := boundKey{request.Asks[i].Limit, request.Asks[i].Key}
			at := s.branch.strictAt[strictKey{policy.StoreName(s.policy.Domain, k.limit, k.key), s.units(&request.Asks[i])}]
			a.strict[k] = append(a.strict[k], strictly{at, result.Units, request.Asks[i].Plan == paidPlan})
		}
	}
	return a
}

// units are those of the first rate that an ask is answered by.
func (s *service) units(ask *wire.Ask) int64 {
	i := slices.IndexFunc(s.policy.Limits, func(l policy.Limit) bool { return l.Name == ask.Limit })
	rule := s.policy.Limits[i].Rule(ask.Plan, ask.Key)
	return rule.Rates[0].Units
}

// send puts a worker's call on the network, and its answer on the way back.
func (r *run) send(w *worker, life int, id host.CallID, path string, body []byte) {
	sent := r.world.now
	copies := 1
	if r.world.chance(r.scenario.Faults.Repeat) {
		copies++
	}
	for range copies {
		to, in := r.replicaFor(w), r.drawStay()
		r.transmit(w, in.before, func() {
			a := to.execute(path, body, in)
			if a == nil {
				return
			}
			r.transmit(w, in.after, func() {
				if a.response != nil {
					flawed := to.store.flaws.response(*a.response, r.world.now.Sub(sent))
					a.body = wire.AppendFrame(nil, wire.AppendSyncResponse(nil, &flawed))
				}
				w.callEnded(life, id, a)
			})
		})
	}
}

// out says whether the outage cuts a worker off at this instant.
func (r *run) out(w *worker) bool {
	s, at := &r.scenario, r.world.now
	return s.OutageFor > 0 && at >= r.began.Add(s.Outage) && at < r.began.Add(s.Outage+s.OutageFor) &&
		(s.CutOff == 0 || w.number < s.CutOff)
}

// replicaFor is the replica that a worker's call goes to: its own, or any.
func (r *run) replicaFor(w *worker) *service {
	if r.world.chance(r.scenario.Roam) {
		return r.services[r.world.random.IntN(len(r.services))]
	}
	return r.services[w.number%len(r.services)]
}

// transmit delivers one message between a worker and the service, or does not. Later is what it takes beyond the network.
func (r *run) transmit(w *worker, later time.Duration, deliver func()) {
	f := r.scenario.Faults
	if !r.quiet && (r.world.chance(f.Lose) || r.world.now < w.cutUntil || r.out(w)) {
		return
	}
	delay := later + f.Delay + r.world.spread(f.Jitter)
	if !r.quiet && r.world.chance(f.Slow) {
		delay += r.world.between(0, f.SlowBy)
	}
	r.world.after(delay, deliver)
}

// faultyStore loses operations on their way to the store, or their answers; and, mutated, it has flaws.
type faultyStore struct {
	authority.Store

	run   *run
	flaws *flaws
}

var errLost = fmt.Errorf("lost on the way: %w", authority.ErrUnavailable)

// fate says whether an operation is executed and whether its answer comes. The authority calls the store from several
// goroutines, so the chance is drawn from the operation and not from the world's sequence.
func (s *faultyStore) fate(kind, name string) (executed, told bool) {
	lose := s.run.scenario.Faults.StoreLose
	if lose == 0 {
		return true, true
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %s %s", s.run.scenario.Seed, s.run.world.now, kind, name)
	draw := float64(h.Sum64()>>11) / (1 << 53)
	return draw >= lose/2, draw >= lose
}

func (s *faultyStore) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	results := make([]authority.Reserved, len(operations))
	for i, o := range operations {
		executed, told := s.fate("reserve", o.Call+o.Key.Name)
		if executed {
			results[i] = s.flaws.reserve(ctx, s.Store, s.run.world.now, o)
			s.run.figures.StoreCalls++
			s.run.figures.StoreOperations++
		}
		if !told {
			results[i] = authority.Reserved{Err: errLost}
		}
	}
	return results
}

func (s *faultyStore) Settle(ctx context.Context, operations []authority.Settle) []error {
	errs := make([]error, len(operations))
	for i, o := range operations {
		executed, told := s.fate("settle", o.Lease+o.Key.Name)
		if executed {
			errs[i] = s.flaws.settle(ctx, s.Store, s.run.world.now, o)
			s.run.figures.StoreOperations++
		}
		if !told {
			errs[i] = errLost
		}
	}
	return errs
}

func (s *faultyStore) Cancel(ctx context.Context, operations []authority.Cancel) []error {
	errs := make([]error, len(operations))
	for i, o := range operations {
		executed, told := s.fate("cancel", o.Call+o.Key.Name)
		if executed {
			errs[i] = s.Store.Cancel(ctx, []authority.Cancel{o})[0]
			s.run.figures.StoreOperations++
		}
		if !told {
			errs[i] = errLost
		}
	}
	return errs
}

func (s *faultyStore) Record(ctx context.Context, operations []authority.Record) []error {
	errs := make([]error, len(operations))
	for i, o := range operations {
		executed, told := s.fate("record", o.Call+o.Key.Name)
		if executed && s.run.scenario.Mutation != Unrecorded {
			errs[i] = s.Store.Record(ctx, []authority.Record{o})[0]
		}
		if !told {
			errs[i] = errLost
		}
	}
	return errs
}

// Peek is called by several goroutines at once.
func (s *faultyStore) Peek(ctx context.Context, key authority.Key) ([]authority.State, error) {
	if _, told := s.fate("peek", key.Name); !told {
		return nil, errLost
	}
	return s.Store.Peek(ctx, key)
}

// maxDrift is what a worker's margins have to cover, in millionths.
const maxDrift = 1000

// stretched is a duration as it would be told to cancel a worker's margin.
func stretched(d time.Duration) time.Duration {
	return d + d*(maxDrift+100)/1_000_000 + 2*time.Microsecond
}

func shrunk(d time.Duration) time.Duration {
	return max(0, d-d*(maxDrift+100)/1_000_000-2*time.Microsecond)
}
