package main

import (
	"context"
	"fmt"
	"net"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

// floorCommand has this program be the floor of a rate limit service: its second argument is the address.
const floorCommand = "answer-floor"

// floor reads the same requests as a service and answers with a message such as its, which is always the same one.
type floor struct {
	ratelimit.UnimplementedRateLimitServiceServer
	answer *ratelimit.RateLimitResponse
}

func (f floor) ShouldRateLimit(context.Context, *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	return f.answer, nil
}

func newFloor() floor {
	return floor{answer: &ratelimit.RateLimitResponse{
		OverallCode: ratelimit.RateLimitResponse_OK,
		Statuses: []*ratelimit.RateLimitResponse_DescriptorStatus{{
			Code: ratelimit.RateLimitResponse_OK, LimitRemaining: 999_983, DurationUntilReset: durationpb.New(987_654_000),
			CurrentLimit: &ratelimit.RateLimitResponse_RateLimit{Name: "hot", RequestsPerUnit: 1_000_000, Unit: ratelimit.RateLimitResponse_RateLimit_SECOND},
		}},
		ResponseHeadersToAdd: []*corev3.HeaderValue{
			{Key: "ratelimit-policy", Value: `"hot";q=1000000;w=1`}, {Key: "ratelimit", Value: `"hot";r=999983;t=1`},
		},
	}}
}

// answerFloor serves until the context ends.
func answerFloor(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening as the floor: %w", err)
	}
	server := grpc.NewServer()
	ratelimit.RegisterRateLimitServiceServer(server, newFloor())
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(listener)
}
