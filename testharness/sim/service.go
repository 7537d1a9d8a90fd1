package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/filter/host"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// service is the control service: the real authority on a real store, behind a network.
type service struct {
	run       *run
	store     *faultyStore
	authority *authority.Authority
	policy    *policy.Policy
}

const storeKeys = 10_000

func (r *run) newService() *service {
	s := &service{run: r}
	now := func() instant.Instant { return r.world.now }
	s.store = &faultyStore{Store: memory.New(now, storeKeys), run: r, flaws: newFlaws(r.scenario.Mutation)}
	s.policy = r.scenario.policy(0)
	s.restart()
	return s
}

// restart is a new process on the same store.
func (s *service) restart() {
	s.authority = authority.New(authority.Config{
		Observer: told{run: s.run}, Store: s.store, Random: s.run.world.random.Uint64, Now: func() instant.Instant { return s.run.world.now },
	})
	s.authority.SetPolicy(s.policy)
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
	strict   map[boundKey]int64
	response *wire.SyncResponse
}

// execute runs a call at this instant; nil where the service cannot answer it.
func (s *service) execute(path string, body []byte) *answered {
	message, err := wire.Unframe(body, wire.MaxMessageSize)
	if err != nil {
		s.run.judge.complain("a worker frames what cannot be read: %v", err)
		return nil
	}
	switch path {
	case "/sluice.v1.Control/GetPolicy":
		return s.getPolicy(message)
	case "/sluice.v1.Control/Sync":
		return s.sync(message)
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

func (s *service) sync(message []byte) *answered {
	request, err := wire.ParseSyncRequest(message)
	if err != nil {
		s.run.judge.complain("a worker sends a Sync with %v", err)
		return nil
	}
	s.run.figures.Calls++
	s.run.arrived(&request)
	s.store.flaws.request(&request)
	response, err := s.authority.Sync(context.Background(), &request)
	if err != nil {
		s.run.judge.complain("a worker's Sync is refused: %v", err)
		return nil
	}
	a := &answered{executed: s.run.world.now, strict: map[boundKey]int64{}, response: response}
	for i, result := range response.Results {
		if result.EndIn == 0 {
			a.strict[boundKey{request.Asks[i].Limit, request.Asks[i].Key}] += result.Units
		}
	}
	return a
}

// send puts a worker's call on the network, and its answer on the way back.
func (r *run) send(w *worker, life int, id host.CallID, path string, body []byte) {
	sent := r.world.now
	copies := 1
	if r.world.chance(r.scenario.Faults.Repeat) {
		copies++
	}
	for range copies {
		r.transmit(w, func() {
			a := r.service.execute(path, body)
			if a == nil {
				return
			}
			r.transmit(w, func() {
				if a.response != nil {
					flawed := r.service.store.flaws.response(*a.response, r.world.now.Sub(sent))
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

// transmit delivers one message between a worker and the service, or does not.
func (r *run) transmit(w *worker, deliver func()) {
	f := r.scenario.Faults
	if !r.quiet && (r.world.chance(f.Lose) || r.world.now < w.cutUntil || r.out(w)) {
		return
	}
	delay := f.Delay + r.world.spread(f.Jitter)
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
