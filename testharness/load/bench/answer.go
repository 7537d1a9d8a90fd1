package main

import (
	"context"
	"fmt"
	"net"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// answerCommand has this program be the service that Envoy's own global filter asks: its second argument is the address.
const answerCommand = "answer-ok"

// alwaysOK answers every question with OK at once: the least that any service behind Envoy's global filter can cost.
type alwaysOK struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

func (alwaysOK) ShouldRateLimit(_ context.Context, r *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	statuses := make([]*ratelimit.RateLimitResponse_DescriptorStatus, len(r.GetDescriptors()))
	for i := range statuses {
		statuses[i] = &ratelimit.RateLimitResponse_DescriptorStatus{Code: ratelimit.RateLimitResponse_OK}
	}
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK, Statuses: statuses}, nil
}

// answerOK serves until the context ends.
func answerOK(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening for Envoy's global filter: %w", err)
	}
	server := grpc.NewServer()
	ratelimit.RegisterRateLimitServiceServer(server, alwaysOK{})
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(listener)
}
