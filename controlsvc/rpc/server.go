// Package rpc is the service's gRPC face: sluice.v1.Control for the filter, envoy.service.ratelimit.v3 for Envoy's own,
// health and reflection for operators. It bounds what a caller can make the service do.
package rpc

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	protobuf "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/replica"
	"sluice/shared/admission"
	sluicev1 "sluice/shared/proto/sluice/v1"
	"sluice/shared/wire"
)

// Observer is told what the server did. Its methods are called by many goroutines at once and must not wait.
type Observer interface {
	// Synced counts calls of Sync by their outcome.
	Synced(code codes.Code)
	// Shed counts calls that were refused because too many were under way.
	Shed()
	// Answered counts calls of ShouldRateLimit, once for each of their limits that denied, or under which they were admitted.
	Answered(limit string, denied bool, source admission.Source)
	// UnknownDomain counts calls of ShouldRateLimit for another domain than the policy's, under none of whose limits they are.
	UnknownDomain()
	// Panicked counts calls that panicked, which is a bug.
	Panicked()
}

// Config says how a Server answers. Authority, Observer and Logger have to be set.
type Config struct {
	Authority *authority.Authority
	Observer  Observer
	Logger    *slog.Logger
	// Replica decides what Envoy's own rate limit filter asks, within a time of its own; nil: nobody answers that. Random draws
	// what Retry-After is lengthened by.
	Replica *replica.Replica
	Random  func() uint64
	// CallTimeout bounds each other call, the store's part of it included; 0: DefaultCallTimeout.
	CallTimeout time.Duration
	// MaxInFlight is how many calls may be under way; one more is refused with RESOURCE_EXHAUSTED. 0: DefaultMaxInFlight.
	MaxInFlight int
	// Trace makes spans of calls; nil: nobody does.
	Trace stats.Handler
	// TLS is nil for plain text.
	TLS *tls.Config
}

const (
	// DefaultCallTimeout leaves a worker that waits 200 ms the time to decide by itself.
	DefaultCallTimeout = 100 * time.Millisecond
	// DefaultMaxInFlight is some ten times what a store that answers within a millisecond keeps busy.
	DefaultMaxInFlight = 1024

	// streamsPerConnection bounds the calls that one connection may have open, shed ones included. A worker has a
	// connection of its own, and few calls under way.
	streamsPerConnection = 256
	// handlers is how many goroutines wait for calls to answer, and have grown stacks for it; of more calls at once each has a
	// goroutine of its own.
	handlers = 64
	// maxHeaderBytes bounds a call's headers.
	maxHeaderBytes = 16 << 10
	// connectTimeout is how long a new connection may take to say who it is.
	connectTimeout = 5 * time.Second
)

// Server is a gRPC server that has not been started.
type Server struct {
	config Config
	grpc   *grpc.Server
	guard  *guard
	health *health.Server
}

// New gives a server whose health is NOT_SERVING until SetServing says otherwise.
func New(config Config) *Server {
	if config.CallTimeout <= 0 {
		config.CallTimeout = DefaultCallTimeout
	}
	if config.MaxInFlight <= 0 {
		config.MaxInFlight = DefaultMaxInFlight
	}
	s := &Server{config: config, health: health.NewServer()}
	s.guard = &guard{
		observer: config.Observer, logger: config.Logger, timeout: config.CallTimeout, slots: make(chan struct{}, config.MaxInFlight),
	}
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.guard.unary),
		grpc.StreamInterceptor(s.guard.stream),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(protobuf.Name)}),
		grpc.MaxRecvMsgSize(wire.MaxMessageSize),
		grpc.MaxSendMsgSize(wire.MaxMessageSize),
		grpc.MaxConcurrentStreams(streamsPerConnection),
		grpc.NumStreamWorkers(handlers),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(connectTimeout),
		// Envoy pings an HTTP/2 upstream when it is told to, at intervals of a second and more, also between calls.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		// A peer that has gone without a word is found out, so that its connection does not stay for ever.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}
	if config.Trace != nil {
		options = append(options, grpc.StatsHandler(config.Trace))
	}
	if config.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config.TLS)))
	}
	s.grpc = grpc.NewServer(options...)
	c := &control{authority: config.Authority}
	s.grpc.RegisterService(describe(c, config.Observer), c)
	if config.Replica != nil {
		r := newRateLimits(config)
		s.grpc.RegisterService(r.describe(), r)
	}
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.SetServing(false)
	return s
}

// SetServing says what grpc.health.v1 answers, for the server as a whole and for sluice.v1.Control.
func (s *Server) SetServing(serving bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthv1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	s.health.SetServingStatus(sluicev1.Control_ServiceDesc.ServiceName, status)
	if s.config.Replica != nil {
		s.health.SetServingStatus(ratelimitv3.RateLimitService_ServiceDesc.ServiceName, status)
	}
}

// InFlight is how many calls are under way.
func (s *Server) InFlight() int { return len(s.guard.slots) }

// Serve answers calls until Stop; nil after a Stop.
func (s *Server) Serve(listener net.Listener) error { return s.grpc.Serve(listener) }

// Stop refuses new calls and waits for those under way, until the context ends; then it cuts them off and returns
// the context's error, though their handlers may go on for as long as a call may take.
func (s *Server) Stop(ctx context.Context) error {
	s.health.Shutdown()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		// It closes the connections at once, and then waits for handlers; what those wait for, the store, does not always
		// notice that nobody wants its answer any more.
		go s.grpc.Stop()
		return ctx.Err()
	}
}
