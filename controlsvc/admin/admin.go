// Package admin is what an operator asks of a service, and tells it to do: sluice.admin.v1.Admin, on a listener of its own. The
// filters' calls, however many, do not hold it up, and who may reach it is a question of its own.
package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/overlay"
	"sluice/controlsvc/telemetry"
	"sluice/controlsvc/traffic"
	"sluice/shared/instant"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

// Config says how a Server answers. Authority, Overlay, Store, Now, After, Logger, Traffic and Status have to be set.
type Config struct {
	Authority *authority.Authority
	Overlay   *overlay.Overlay
	Store     authority.Store
	// Now reads a clock that never steps back.
	Now func() instant.Instant
	// After gives a channel that is sent to once the duration has passed.
	After  func(time.Duration) <-chan time.Time
	Logger *slog.Logger
	// Traffic gives what all replicas know of the traffic.
	Traffic func(traffic.Query) traffic.Snapshot
	// Status gives what the process knows of itself: version, up_for, reload and store.name.
	Status func() *adminv1.StatusResponse
	// Token is what every call has to bring; empty: none.
	Token string
	// CallTimeout bounds each call; 0: DefaultCallTimeout.
	CallTimeout time.Duration
	// TLS is nil for plain text.
	TLS *tls.Config
}

const (
	// DefaultAddress is where a service listens, and where a client asks.
	DefaultAddress = "127.0.0.1:9093"
	// DefaultCallTimeout is longer than a filter would wait: people do.
	DefaultCallTimeout = 2 * time.Second

	maxMessageBytes = 64 << 10
	maxHeaderBytes  = 16 << 10
	// maxStreams bounds the calls that one connection may have open.
	maxStreams     = 16
	connectTimeout = 5 * time.Second
)

// Server is a server that has not been started.
type Server struct {
	adminv1.UnimplementedAdminServer

	config Config
	token  [sha256.Size]byte
	// refusals are the calls without the token.
	refusals *telemetry.Repeated
	grpc     *grpc.Server
}

// New gives a server.
func New(config Config) *Server {
	if config.CallTimeout <= 0 {
		config.CallTimeout = DefaultCallTimeout
	}
	s := &Server{config: config, token: sha256.Sum256([]byte(config.Token)), refusals: telemetry.NewRefusals(config.Logger, config.After, "admin API")}
	options := []grpc.ServerOption{
		grpc.UnaryInterceptor(s.guard),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(connectTimeout),
	}
	if config.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config.TLS)))
	}
	s.grpc = grpc.NewServer(options...)
	adminv1.RegisterAdminServer(s.grpc, s)
	return s
}

// Serve answers calls until Stop; nil after a Stop.
func (s *Server) Serve(listener net.Listener) error { return s.grpc.Serve(listener) }

// Stop cuts off what is under way: nobody's request depends on it.
func (s *Server) Stop() {
	s.grpc.Stop()
	s.refusals.Flush()
}

// guard stands before every call: it asks for the token, bounds how long the call takes, turns a panic into an error of the one
// call, and notes what was done or was not.
func (s *Server) guard(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	if !s.allowed(ctx) {
		s.refusals.Note("method", info.FullMethod, "peer", peerOf(ctx))
		return nil, status.Error(codes.Unauthenticated, "the service asks for its admin token, and the call brought none or another one")
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.CallTimeout)
	defer cancel()
	ctx, noted := withNotes(ctx)
	defer func() {
		if cause := recover(); cause != nil {
			s.config.Logger.Error("a call panicked", "method", info.FullMethod, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error")
		}
		if action := actionOf(request); action != "" {
			s.audit(ctx, action, noted, err)
		}
	}()
	return handler(ctx, request)
}

// allowed says whether a call brings the token. How long that takes tells nothing of the token.
func (s *Server) allowed(ctx context.Context) bool {
	if s.config.Token == "" {
		return true
	}
	given := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(given) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	sum := sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "bearer") && subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1
}

func peerOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return "unknown"
}
