package rpc

import (
	"math"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"sluice/controlsvc/replica"
	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/ratefields"
)

// generated is the answer to a call, made of the generated messages.
func generated(c *call) *ratelimitv3.RateLimitResponse {
	d := &c.decision
	r := &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}
	add := func(name, value string) {
		r.ResponseHeadersToAdd = append(r.ResponseHeadersToAdd, &corev3.HeaderValue{Key: name, Value: value})
	}
	if d.Verdict != admission.Admit {
		r.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
		body, contentType := ratefields.Body(d.Limits, d.Output)
		r.RawBody = []byte(body)
		add("content-type", contentType)
	}
	ratefields.Each(d.Limits, d.Output, add)
	for _, at := range c.of {
		one := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK}
		r.Statuses = append(r.Statuses, one)
		if at < 0 {
			continue
		}
		if d.Standings[at].Told == nil {
			one.LimitRemaining = math.MaxUint32
			continue
		}
		s := &d.Standings[at]
		if s.Over {
			one.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
		}
		if s.Told.Shadow || s.Rate.Window == 0 {
			continue
		}
		one.LimitRemaining = uint32(min(max(s.Remaining, 0), math.MaxUint32))
		one.DurationUntilReset = durationpb.New((s.Reset + time.Second - time.Nanosecond).Truncate(time.Second))
		unit, multiplier := unitOf(s.Rate.Window)
		one.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{
			Name: s.Told.Limit.Name, RequestsPerUnit: uint32(min(s.Rate.Units, math.MaxUint32)), Unit: unit,
		}
		if multiplier > 1 {
			one.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(multiplier)
		}
	}
	return r
}

// What is written by hand is what protobuf reads, whatever was decided, in space that was used before.
func TestAnswersAreReadByProtobuf(t *testing.T) {
	rate := rapid.Custom(func(t *rapid.T) limit.Rate {
		window := rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, 2 * time.Second, 90 * time.Second, time.Hour, 21 * 24 * time.Hour})
		return limit.Rate{Units: rapid.Int64Range(0, limit.MaxUnits).Draw(t, "units"), Window: window.Draw(t, "window")}
	})
	rapid.Check(t, func(t *rapid.T) {
		c, _ := callSpace.New().(*call)
		for range 2 {
			d := &c.decision
			*d, c.of = replica.Decision{Output: admission.Output{Demand: -1}}, nil
			for range rapid.IntRange(0, 3).Draw(t, "standings") {
				s := replica.Standing{
					Over: rapid.Bool().Draw(t, "over"), Rate: rate.Draw(t, "rate"), Remaining: rapid.Int64Range(-1, limit.MaxUnits).Draw(t, "remaining"),
					Reset: time.Duration(rapid.Int64Range(0, int64(limit.MaxWindow)).Draw(t, "reset")),
				}
				if rapid.Bool().Draw(t, "told") {
					own := rate.Draw(t, "own")
					own.Window = max(own.Window, time.Second)
					l := &policy.Limit{Name: rapid.StringMatching(`[a-z]{1,200}`).Draw(t, "name"), Rates: []limit.Rate{own}}
					s.Told = ratefields.New(&policy.Policy{}, l.Rule("", ""))
					s.Told.Shadow = rapid.Bool().Draw(t, "shadow")
					d.Limits = append(d.Limits, s.Told)
				}
				d.Standings = append(d.Standings, s)
			}
			for range rapid.IntRange(0, 4).Draw(t, "descriptors") {
				c.of = append(c.of, rapid.IntRange(-1, len(d.Standings)-1).Draw(t, "at"))
			}
			if len(d.Limits) > 0 {
				d.Demand, d.Rate = rapid.IntRange(0, len(d.Limits)-1).Draw(t, "demand"), rate.Draw(t, "rate")
			}
			if rapid.Bool().Draw(t, "denied") {
				d.Verdict = admission.Deny
			}
			want := generated(c)
			var got ratelimitv3.RateLimitResponse
			if err := proto.Unmarshal(c.response(func() uint64 { return 0 }).Materialize(), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		}
	})
}
