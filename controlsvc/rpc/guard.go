package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"sluice/controlsvc/authority"
	sluicev1 "sluice/shared/proto/sluice/v1"
)

// guard stands before every call: it bounds how many are under way and how long each takes, and turns a panic into an
// error of the one call.
type guard struct {
	observer Observer
	logger   *slog.Logger
	timeout  time.Duration
	slots    chan struct{}
}

func (g *guard) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	if info.FullMethod == sluicev1.Control_Sync_FullMethodName {
		defer func() { g.observer.Synced(status.Code(err)) }()
	}
	defer g.recovered(info.FullMethod, &err)
	if info.FullMethod == healthv1.Health_Check_FullMethodName {
		return handler(ctx, request) // busy is not ill
	}
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	default:
		g.observer.Shed()
		return nil, status.Errorf(codes.ResourceExhausted, "%d calls are under way; try another replica", cap(g.slots))
	}
	if info.FullMethod == ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName {
		return handler(ctx, request) // the replica bounds how long it waits, without a timer for each call
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.timeout, authority.ErrStoreTime)
	defer cancel()
	return handler(ctx, request)
}

// stream guards health watches and reflection, which live long and cost nothing while they wait.
func (g *guard) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer g.recovered(info.FullMethod, &err)
	return handler(server, stream)
}

func (g *guard) recovered(method string, err *error) {
	if cause := recover(); cause != nil {
		g.observer.Panicked()
		g.logger.Error("a call panicked", "method", method, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "internal error")
	}
}
