package plugin_test

import (
	"sort"
	"strconv"
	"time"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// service is the naive twin of the control service and its store: every charge in a list, counted anew each time. Its
// clock is its own.
type service struct {
	policy  *policy.Policy
	charges map[wire.KeyRef][]*charge
	// storeDown makes every ask a problem of the store's, charged (the answer was lost) or not.
	storeDown, chargeAnyway bool
	// flaky, where it is set, says of an ask whether the store's answer is lost.
	flaky func() bool
	// deaf makes it acknowledge nothing.
	deaf          bool
	workers, rank uint32
	// heard are the Syncs that it executed.
	heard    []wire.SyncRequest
	recorded map[[2]uint64]bool
	leases   int
	// reported are the reports that it took, each once; lastReport is the last of each worker's.
	reported   []wire.Report
	lastReport map[uint64]uint64
}

// charge is an entry of the exact log.
type charge struct {
	worker, call uint64
	lease        string
	units        int64
	// leased are a lease's units when it was granted; 0 for a strict charge.
	leased  int64
	at      instant.Instant
	settled bool
}

func newService(p *policy.Policy) *service {
	return &service{policy: p, charges: map[wire.KeyRef][]*charge{}, recorded: map[[2]uint64]bool{}, lastReport: map[uint64]uint64{}}
}

// answer executes a call at an instant of the service's clock.
func (s *service) answer(now instant.Instant, call *fake.Call) fake.Reply {
	message, err := wire.Unframe(call.Body, wire.MaxMessageSize)
	if err != nil {
		panic("the filter's frame: " + err.Error())
	}
	path, _ := call.Header(":path")
	switch path {
	case "/sluice.v1.Control/GetPolicy":
		request, err := wire.ParseGetPolicyRequest(message)
		if err != nil {
			panic("the filter's GetPolicy: " + err.Error())
		}
		response := wire.GetPolicyResponse{Version: s.policy.Version}
		if request.Version != s.policy.Version {
			response.Policy = s.policy
		}
		return good(wire.AppendGetPolicyResponse(nil, &response))
	case "/sluice.v1.Control/Sync":
		request, err := wire.ParseSyncRequest(message)
		if err != nil {
			panic("the filter's Sync: " + err.Error())
		}
		response := s.sync(now, &request)
		return good(wire.AppendSyncResponse(nil, &response))
	}
	panic("the filter calls " + path)
}

// good is a gRPC answer of one message.
func good(message []byte) fake.Reply {
	return fake.Reply{
		Headers:  []host.Header{{":status", "200"}, {"content-type", "application/grpc"}},
		Trailers: []host.Header{{"grpc-status", "0"}},
		Content:  wire.AppendFrame(nil, message),
	}
}

func (s *service) sync(now instant.Instant, request *wire.SyncRequest) wire.SyncResponse {
	s.heard = append(s.heard, *request)
	response := wire.SyncResponse{PolicyVersion: s.policy.Version, Workers: s.workers, Rank: s.rank}
	if !s.storeDown && !s.deaf {
		s.reports(now, request, &response)
	}
	if r := request.Report; r != nil && !s.deaf {
		response.Reported = r.ID
		if r.ID > s.lastReport[request.WorkerID] {
			s.lastReport[request.WorkerID] = r.ID
			s.reported = append(s.reported, *r)
		}
	}
	for first := 0; first < len(request.Asks); {
		after := first + 1
		for request.Asks[first].Group != 0 && after < len(request.Asks) && request.Asks[after].Group == request.Asks[first].Group {
			after++
		}
		response.Results = append(response.Results, s.together(now, request, request.Asks[first:after])...)
		first = after
	}
	return response
}

func (s *service) reports(now instant.Instant, request *wire.SyncRequest, response *wire.SyncResponse) {
	for i, a := range request.Abandoned {
		response.Abandoned = append(response.Abandoned, uint32(i))
		for _, ref := range a.Keys {
			for _, c := range s.charges[ref] {
				if c.worker == request.WorkerID && c.call == a.CallID {
					c.units = 0
				}
			}
		}
	}
	for i, settle := range request.Settles {
		response.Settled = append(response.Settled, uint32(i))
		for _, c := range s.charges[settle.KeyRef] {
			if c.lease == settle.Lease && !c.settled {
				c.settled = true
				c.units = max(0, c.units-settle.Unused)
			}
		}
	}
	for i, r := range request.Records {
		response.Recorded = append(response.Recorded, uint32(i))
		id := [2]uint64{request.WorkerID, r.ID}
		if s.recorded[id] {
			continue
		}
		s.recorded[id] = true
		for _, use := range r.Uses {
			s.charges[r.KeyRef] = append(s.charges[r.KeyRef], &charge{units: use.Units, at: now.Add(-use.Age)})
		}
	}
}

// together decides asks of the same requests: each needs units of all of them.
func (s *service) together(now instant.Instant, request *wire.SyncRequest, asks []wire.Ask) []wire.AskResult {
	results := make([]wire.AskResult, len(asks))
	if s.storeDown {
		for i, ask := range asks {
			results[i].Problem = wire.StoreProblem
			if s.chargeAnyway {
				s.charge(now, request, ask, ask.Want)
			}
		}
		return results
	}
	if s.flaky != nil {
		lost := false
		for i, ask := range asks {
			if s.flaky() {
				lost = true
				results[i].Problem = wire.StoreProblem
				s.charge(now, request, ask, ask.Want)
			}
		}
		if lost {
			return results
		}
	}
	if l := s.limit(asks[0].Limit); len(asks) == 1 && l != nil && asks[0].Want > int64(asks[0].Waiting)*asks[0].Min {
		return []wire.AskResult{s.ahead(now, request, asks[0], l)}
	}
	grant := int64(asks[0].Waiting)
	fits := make([]int64, len(asks))
	for i, ask := range asks {
		l := s.limit(ask.Limit)
		if l == nil {
			results[i].Problem = wire.UnknownLimit
			fits[i] = grant
			continue
		}
		fits[i] = int64(asks[0].Waiting)
		for _, rate := range l.Rates {
			fits[i] = min(fits[i], max(0, rate.Units-s.count(ask.KeyRef, now, rate.Window))/ask.Min)
		}
		grant = min(grant, fits[i])
	}
	for i, ask := range asks {
		if results[i].Problem != wire.NoProblem {
			continue
		}
		l := s.limit(ask.Limit)
		if grant > 0 {
			results[i].Units = grant * ask.Min
			results[i].Lease = s.charge(now, request, ask, results[i].Units)
		}
		full := ask.Want == 0 && s.wait(ask, l, now) > 0
		if fits[i] < int64(ask.Waiting) || full {
			results[i].Denied = true
			results[i].Denial.RetryAfter = s.wait(ask, l, now)
			results[i].Denial.DenyFor = results[i].Denial.RetryAfter
		}
		rate := l.Rates[0]
		results[i].Limit, results[i].Window = rate.Units, rate.Window
		results[i].Remaining = max(0, rate.Units-s.count(ask.KeyRef, now, rate.Window))
		results[i].Reset = rate.Window
	}
	return results
}

// leaseFor is how long the twin's leases last.
const leaseFor = 500 * time.Millisecond

// ahead grants a lease of what is wanted, as far as it is free.
func (s *service) ahead(now instant.Instant, request *wire.SyncRequest, ask wire.Ask, l *policy.Limit) wire.AskResult {
	rate := l.Rates[0]
	free := max(0, rate.Units-s.count(ask.KeyRef, now, rate.Window))
	result := wire.AskResult{Limit: rate.Units, Window: rate.Window, Reset: rate.Window}
	if result.Units = min(ask.Want, free) / ask.Min * ask.Min; result.Units > 0 {
		result.Lease = s.charge(now.Add(leaseFor), request, ask, result.Units)
		result.EndIn = leaseFor
		all := s.charges[ask.KeyRef]
		all[len(all)-1].leased = result.Units
	}
	result.Remaining = free - result.Units
	if ask.Want-result.Units >= ask.Min {
		wait := s.wait(ask, l, now)
		result.Denied, result.Denial = true, wire.Denial{DenyFor: wait, RetryAfter: wait}
	}
	return result
}

func (s *service) charge(now instant.Instant, request *wire.SyncRequest, ask wire.Ask, units int64) string {
	s.leases++
	lease := "lease-" + strconv.Itoa(s.leases)
	s.charges[ask.KeyRef] = append(s.charges[ask.KeyRef], &charge{
		worker: request.WorkerID, call: request.CallID, lease: lease, units: units, at: now,
	})
	return lease
}

func (s *service) limit(name string) *policy.Limit {
	for i := range s.policy.Limits {
		if s.policy.Limits[i].Name == name {
			return &s.policy.Limits[i]
		}
	}
	return nil
}

// count is what was charged within (now − window, now].
func (s *service) count(ref wire.KeyRef, now instant.Instant, window time.Duration) int64 {
	var sum int64
	for _, c := range s.charges[ref] {
		if c.at > now.Add(-window) {
			sum += c.units
		}
	}
	return sum
}

// wait is how long it takes until one request fits, if nothing more is charged.
func (s *service) wait(ask wire.Ask, l *policy.Limit, now instant.Instant) time.Duration {
	times := []instant.Instant{now}
	for _, rate := range l.Rates {
		for _, c := range s.charges[ask.KeyRef] {
			times = append(times, c.at.Add(rate.Window))
		}
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	for _, at := range times {
		fits := at >= now
		for _, rate := range l.Rates {
			fits = fits && s.count(ask.KeyRef, at, rate.Window)+ask.Min <= rate.Units
		}
		if fits {
			return at.Sub(now)
		}
	}
	return 0
}
