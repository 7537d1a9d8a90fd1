package rpc

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/replica"
	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/ratefields"
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
	ratelimitv3.UnimplementedRateLimitServiceServer

	authority *authority.Authority
	replica   *replica.Replica
	observer  Observer
	random    func() uint64
	compiling sync.Mutex
	compiled  atomic.Pointer[compiled]
}

// compiled is a policy, and what finds the limits of its descriptors.
type compiled struct {
	policy      *policy.Policy
	descriptors *descriptors
}

// call is the space that one call needs.
type call struct {
	demands  []replica.Demand
	decision replica.Decision
	// of says which of the demands each descriptor is decided by; -1: by none.
	of []int
}

var callSpace = sync.Pool{New: func() any { return new(call) }}

// ShouldRateLimit decides a call.
func (s *rateLimits) ShouldRateLimit(ctx context.Context, request *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	if n := len(request.GetDescriptors()); n > maxDescriptors {
		return nil, status.Errorf(codes.InvalidArgument, "descriptors: %d, want at most %d", n, maxDescriptors)
	}
	c, _ := callSpace.Get().(*call)
	defer callSpace.Put(c)
	for range maxPolicies {
		in, err := s.inForce()
		if err != nil {
			return nil, err
		}
		if err := c.gather(in, request); err != nil {
			return nil, err
		}
		switch err := s.replica.Decide(ctx, in.policy, c.demands, &c.decision); {
		case errors.Is(err, replica.ErrPolicyChanged):
			continue
		case err != nil:
			return nil, status.FromContextError(err).Err()
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
func (c *call) gather(in *compiled, request *ratelimitv3.RateLimitRequest) error {
	all := request.GetDescriptors()
	c.demands, c.of = c.demands[:0], c.of[:0]
	replaces := false
	for _, d := range all {
		c.of = append(c.of, -1)
		if request.GetDomain() != in.policy.Domain || d.GetIsNegativeHits() {
			continue
		}
		n, key, found := in.descriptors.find(d.GetEntries())
		if !found {
			continue
		}
		l := &in.policy.Limits[n]
		replaces = replaces || len(l.Replaces) > 0
		cost := hits(request, d, l)
		own, err := ownRate(d.GetLimit())
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

// ownRate reads a rate that a descriptor brings; 0 for none.
func ownRate(l *commonv3.RateLimitDescriptor_RateLimitOverride) (limit.Rate, error) {
	if l == nil {
		return limit.Rate{}, nil
	}
	times := int64(1)
	if m := l.GetUnitMultiplier(); m != nil {
		times = int64(m.GetValue())
	}
	unit, known := units[l.GetUnit()]
	if !known || times < 1 || times > int64(limit.MaxWindow/unit) {
		return limit.Rate{}, status.Errorf(codes.InvalidArgument, "a descriptor's limit: %v times %v is no window, want one of up to %v",
			times, l.GetUnit(), limit.MaxWindow)
	}
	return limit.Rate{Units: int64(l.GetRequestsPerUnit()), Window: time.Duration(times) * unit}, nil
}

// mostUnits is more than any limit holds.
const mostUnits = limit.MaxUnits + 1

// hits gives how many units a descriptor spends.
func hits(request *ratelimitv3.RateLimitRequest, d *commonv3.RateLimitDescriptor, l *policy.Limit) int64 {
	n := uint64(max(1, request.GetHitsAddend()))
	if own := d.GetHitsAddend(); own != nil {
		n = own.GetValue()
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

func (c *call) response(random func() uint64) *ratelimitv3.RateLimitResponse {
	d := &c.decision
	response := &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}
	add := func(name, value string) {
		response.ResponseHeadersToAdd = append(response.ResponseHeadersToAdd, &corev3.HeaderValue{Key: name, Value: value})
	}
	if d.Verdict != admission.Admit {
		response.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
		d.RetryAfter += ratefields.Jitter(d.Limits, d.Output, random)
		body, contentType := ratefields.Body(d.Limits, d.Output)
		response.RawBody = []byte(body)
		add("content-type", contentType)
	}
	ratefields.Each(d.Limits, d.Output, add)
	response.Statuses = make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, 0, len(c.of))
	for _, at := range c.of {
		one := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK}
		if at >= 0 && d.Standings[at].Told != nil {
			standing(one, &d.Standings[at])
		}
		response.Statuses = append(response.Statuses, one)
	}
	return response
}

// standing tells how a limit stands. Nothing is known of one in shadow whose decision nobody has waited for.
func standing(one *ratelimitv3.RateLimitResponse_DescriptorStatus, s *replica.Standing) {
	if s.Over {
		one.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	rate := s.Rate
	if rate.Window == 0 {
		rate = s.Told.Rates[0]
	} else {
		one.LimitRemaining = uint32(min(max(s.Remaining, 0), math.MaxUint32))
		one.DurationUntilReset = durationpb.New(s.Reset)
	}
	unit, multiplier := unitOf(rate.Window)
	one.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{
		Name: s.Told.Limit.Name, RequestsPerUnit: uint32(min(rate.Units, math.MaxUint32)), Unit: unit,
	}
	if multiplier > 1 {
		one.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(multiplier)
	}
}

// unitOf gives a window as so many of Envoy's units, the largest that divides it; of part of a second there is none.
func unitOf(window time.Duration) (unit ratelimitv3.RateLimitResponse_RateLimit_Unit, multiplier uint32) {
	for _, u := range []struct {
		unit ratelimitv3.RateLimitResponse_RateLimit_Unit
		span time.Duration
	}{
		{ratelimitv3.RateLimitResponse_RateLimit_WEEK, 7 * 24 * time.Hour},
		{ratelimitv3.RateLimitResponse_RateLimit_DAY, 24 * time.Hour},
		{ratelimitv3.RateLimitResponse_RateLimit_HOUR, time.Hour},
		{ratelimitv3.RateLimitResponse_RateLimit_MINUTE, time.Minute},
		{ratelimitv3.RateLimitResponse_RateLimit_SECOND, time.Second},
	} {
		if window%u.span == 0 {
			return u.unit, uint32(window / u.span)
		}
	}
	return ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN, 0
}
