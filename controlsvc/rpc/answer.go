package rpc

import (
	"math"
	"slices"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"sluice/controlsvc/replica"
	"sluice/shared/admission"
	"sluice/shared/ratefields"
)

// response gives the bytes of a RateLimitResponse, written by hand so that an answer makes no garbage but itself.
func (c *call) response(random func() uint64) mem.BufferSlice {
	d := &c.decision
	over := d.Verdict != admission.Admit
	c.message = appendNumber(c.message[:0], 1, codeOf(over))
	for _, at := range c.of {
		switch {
		case at >= 0 && d.Standings[at].Told != nil:
			c.standing(&d.Standings[at])
		case at >= 0: // the limit does not bind this key
			c.status = appendNumber(appendNumber(c.status[:0], 1, codeOf(false)), 3, math.MaxUint32)
		default:
			c.status = appendNumber(c.status[:0], 1, codeOf(false))
		}
		c.message = appendBytes(c.message, 2, c.status)
	}
	if over {
		d.RetryAfter += ratefields.Jitter(d.Limits, d.Output, random)
		body, contentType := ratefields.Body(d.Limits, d.Output)
		c.message = appendBytes(c.message, 5, body)
		c.writeHeader("content-type", contentType)
	}
	ratefields.Each(d.Limits, d.Output, c.header)
	return mem.BufferSlice{mem.SliceBuffer(slices.Clone(c.message))}
}

func codeOf(over bool) uint64 {
	if over {
		return uint64(ratelimitv3.RateLimitResponse_OVER_LIMIT)
	}
	return uint64(ratelimitv3.RateLimitResponse_OK)
}

// writeHeader writes a HeaderValue among response_headers_to_add.
func (c *call) writeHeader(name, value string) {
	h := appendBytes(c.status[:0], 1, name)
	h = appendBytes(h, 2, value)
	c.status, c.message = h, appendBytes(c.message, 3, h)
}

// standing writes a DescriptorStatus. Of what nothing is known of it has no limit: Envoy would tell its client that none of
// it is left. Nor of a limit in shadow, for clients are not to hear of that.
func (c *call) standing(s *replica.Standing) {
	b := appendNumber(c.status[:0], 1, codeOf(s.Over))
	if s.Rate.Window != 0 && !s.Told.Shadow {
		unit, multiplier := unitOf(s.Rate.Window)
		r := appendNumber(c.rate[:0], 1, uint64(min(s.Rate.Units, math.MaxUint32)))
		r = appendNumber(r, 2, uint64(unit))
		r = appendBytes(r, 3, s.Told.Limit.Name)
		if multiplier > 1 {
			r = protowire.AppendTag(r, 4, protowire.BytesType)
			r = protowire.AppendVarint(r, uint64(1+protowire.SizeVarint(uint64(multiplier))))
			r = appendNumber(r, 1, uint64(multiplier))
		}
		b = appendBytes(b, 2, r)
		b = appendNumber(b, 3, uint64(min(max(s.Remaining, 0), math.MaxUint32)))
		r = appendNumber(r[:0], 1, uint64(ratefields.Seconds(s.Reset))) // Envoy cuts parts of a second off
		b = appendBytes(b, 4, r)
		c.rate = r
	}
	c.status = b
}

// appendNumber writes a field unless it is 0.
func appendNumber(b []byte, number protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
}

// appendBytes writes a text or a message, empty or not.
func appendBytes[T string | []byte](b []byte, number protowire.Number, content T) []byte {
	b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.BytesType), uint64(len(content)))
	return append(b, content...)
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
