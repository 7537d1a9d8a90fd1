package rpc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/replica"
	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

const (
	// maxDescriptors bounds the descriptors of one call.
	maxDescriptors = 64
	// maxPolicies is how often a call is begun anew because the policy has changed meanwhile.
	maxPolicies = 3
)

// rateLimits answers envoy.service.ratelimit.v3.RateLimitService, which Envoy's own rate limit filter asks.
//
//	another domain, or no descriptor that the policy has a limit for   OK
//	no descriptors at all                                              OK, with no statuses
//	hits_addend 0 of the call                                          one hit
//	hits_addend of a descriptor                                        instead of the call's; 0 only looks
//	limit of a descriptor                                              its rate instead of the limit's, with a count of its own
//	is_negative_hits                                                   such a descriptor is not looked at: OK
//	several descriptors                                                all or nothing, a denied call is charged nothing
//
// The limits of a call that its descriptors' limits replace are not looked at. The status of an unknown descriptor is OK,
// with no limit.
type rateLimits struct {
	authority *authority.Authority
	replica   *replica.Replica
	observer  Observer
	random    func() uint64
	compiling sync.Mutex
	compiled  atomic.Pointer[compiled]

	// info and handler are what every call hands to the interceptor.
	info    *grpc.UnaryServerInfo
	handler grpc.UnaryHandler
}

func newRateLimits(config Config) *rateLimits {
	s := &rateLimits{authority: config.Authority, replica: config.Replica, observer: config.Observer, random: config.Random}
	s.info = &grpc.UnaryServerInfo{Server: s, FullMethod: ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName}
	s.handler = s.answer
	return s
}

// compiled is a policy, and what finds the limits of its descriptors.
type compiled struct {
	policy      *policy.Policy
	descriptors *descriptors
}

// call is the space that one call needs.
type call struct {
	received received
	question question
	demands  []replica.Demand
	decision replica.Decision
	// of says which of the demands each descriptor is decided by; -1: by none.
	of []int
	// message, status and rate are what the answer is written in; header is writeHeader.
	message, status, rate []byte
	header                func(name, value string)
}

var callSpace = sync.Pool{New: func() any {
	c := new(call)
	c.received.parse, c.header = c.question.parse, c.writeHeader
	return c
}}

// release gives the space back. What was grown for one very long message is not kept.
func (c *call) release() {
	if cap(c.question.text) <= mostKept {
		callSpace.Put(c)
	}
}

// describe gives the service as it is registered; its descriptor, which reflection serves, is the generated one.
func (s *rateLimits) describe() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: ratelimitv3.RateLimitService_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: s.read()}},
		Metadata:    ratelimitv3.RateLimitService_ServiceDesc.Metadata,
	}
}

// read makes grpc's handler: it reads a call, and has it answered.
func (s *rateLimits) read() grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		c, _ := callSpace.Get().(*call)
		defer c.release()
		if err := decode(&c.received); err != nil {
			return nil, err
		}
		if err := c.received.err; err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		return interceptor(ctx, c, s.info, s.handler)
	}
}

// answer decides a call, and gives the answer's bytes.
func (s *rateLimits) answer(ctx context.Context, request any) (any, error) {
	c, _ := request.(*call)
	for range maxPolicies {
		in, err := s.inForce()
		if err != nil {
			return nil, err
		}
		if err := c.gather(in); err != nil {
			return nil, err
		}
		switch err := s.replica.Decide(ctx, in.policy, c.demands, &c.decision); {
		case errors.Is(err, replica.ErrPolicyChanged):
			continue
		case err != nil:
			return nil, status.FromContextError(err).Err()
		}
		if string(c.question.domain) != in.policy.Domain {
			s.observer.UnknownDomain()
		}
		s.observe(&c.decision)
		return c.response(s.random), nil
	}
	return nil, status.Error(codes.Unavailable, "the policy changes all the time")
}

// inForce gives the policy in force.
func (s *rateLimits) inForce() (*compiled, error) {
	p := s.authority.Policy()
	if p == nil {
		return nil, status.Error(codes.Unavailable, authority.ErrNoPolicy.Error())
	}
	if in := s.compiled.Load(); in != nil && in.policy == p {
		return in, nil
	}
	s.compiling.Lock()
	defer s.compiling.Unlock()
	if in := s.compiled.Load(); in != nil && in.policy == p {
		return in, nil
	}
	in := &compiled{policy: p, descriptors: newDescriptors(p)}
	s.compiled.Store(in)
	return in, nil
}

// gather finds the limits of a call's descriptors. Descriptors of one key are one demand, of what they need together.
func (c *call) gather(in *compiled) error {
	q := &c.question
	c.demands, c.of = c.demands[:0], c.of[:0]
	replaces := false
	for i := range q.descriptors {
		d := &q.descriptors[i]
		c.of = append(c.of, -1)
		if string(q.domain) != in.policy.Domain || d.negative {
			continue
		}
		n, key, found := in.descriptors.find(in.policy, q.of(d))
		if !found {
			continue
		}
		l := &in.policy.Limits[n]
		replaces = replaces || len(l.Replaces) > 0
		cost := q.cost(d, l)
		own, err := d.own()
		if err != nil {
			return err
		}
		at := slices.IndexFunc(c.demands, func(d replica.Demand) bool { return d.Limit == n && d.Key == key && d.Own == own })
		if at < 0 {
			at = len(c.demands)
			c.demands = append(c.demands, replica.Demand{Limit: n, Key: key, Own: own})
		}
		c.demands[at].Cost = min(c.demands[at].Cost+cost, mostUnits)
		c.of[len(c.of)-1] = at
	}
	if replaces {
		c.replace(in.policy)
	}
	return nil
}

// units are Envoy's, by their numbers in envoy.type.v3; a month has 30 days, and a year 365.
var units = map[typev3.RateLimitUnit]time.Duration{
	typev3.RateLimitUnit_SECOND: time.Second, typev3.RateLimitUnit_MINUTE: time.Minute, typev3.RateLimitUnit_HOUR: time.Hour,
	typev3.RateLimitUnit_DAY: 24 * time.Hour, typev3.RateLimitUnit_MONTH: 30 * 24 * time.Hour, typev3.RateLimitUnit_YEAR: 365 * 24 * time.Hour,
}

// own gives the rate that a descriptor brings; 0 for none.
func (d *descriptor) own() (limit.Rate, error) {
	if !d.limited {
		return limit.Rate{}, nil
	}
	times := int64(1)
	if d.rate.multiplied {
		times = int64(uint32(d.rate.multiplier))
	}
	named := typev3.RateLimitUnit(d.rate.unit)
	unit, known := units[named]
	if !known || times < 1 || times > int64(limit.MaxWindow/unit) {
		return limit.Rate{}, status.Errorf(codes.InvalidArgument, "a descriptor's limit: %v times %v is no window, want one of up to %v",
			times, named, limit.MaxWindow)
	}
	return limit.Rate{Units: int64(d.rate.units), Window: time.Duration(times) * unit}, nil
}

// mostUnits is more than any limit holds.
const mostUnits = limit.MaxUnits + 1

// cost gives how many units a descriptor spends.
func (q *question) cost(d *descriptor, l *policy.Limit) int64 {
	n := uint64(max(1, q.hits))
	if d.counted {
		n = d.hits
	}
	return min(int64(min(n, mostUnits))*l.RequestCost(), mostUnits)
}

// replace takes out the demands whose limits other ones stand in the place of.
func (c *call) replace(p *policy.Policy) {
	moved := make([]int, len(c.demands))
	var kept []replica.Demand
	for i, d := range c.demands {
		moved[i] = -1
		if !slices.ContainsFunc(c.demands, func(other replica.Demand) bool {
			return slices.Contains(p.Limits[other.Limit].Replaces, uint32(d.Limit))
		}) {
			moved[i] = len(kept)
			kept = append(kept, d)
		}
	}
	c.demands = append(c.demands[:0], kept...)
	for i, at := range c.of {
		if at >= 0 {
			c.of[i] = moved[at]
		}
	}
}

// observe counts what became of a call, once for each of its limits.
func (s *rateLimits) observe(d *replica.Decision) {
	for i := range d.Standings {
		st := &d.Standings[i]
		if st.Told != nil && (st.Over || d.Verdict == admission.Admit) {
			s.observer.Answered(st.Told.Limit.Name, st.Over, d.Source)
		}
	}
}
