package rpc

import (
	"context"

	"google.golang.org/grpc/encoding"
	protobuf "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"sluice/controlsvc/authority"
	"sluice/shared/wire"
)

// Answer is a call of Sync without a connection.
func Answer(ctx context.Context, a *authority.Authority, request *wire.SyncRequest) (*wire.SyncResponse, error) {
	return (&control{authority: a}).sync(ctx, request)
}

// Bytes gives ShouldRateLimit without a connection: from a request's bytes to an answer's.
func Bytes(config Config) func(ctx context.Context, body []byte) (mem.BufferSlice, error) {
	g := &guard{observer: config.Observer, logger: config.Logger, timeout: DefaultCallTimeout, slots: make(chan struct{}, DefaultMaxInFlight)}
	s := newRateLimits(config)
	c := codec{encoding.GetCodecV2(protobuf.Name)}
	handle := s.describe().Methods[0].Handler
	return func(ctx context.Context, body []byte) (mem.BufferSlice, error) {
		answer, err := handle(s, ctx, func(into any) error { return c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(body)}, into) }, g.unary)
		if err != nil {
			return nil, err
		}
		return c.Marshal(answer)
	}
}
