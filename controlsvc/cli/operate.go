package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"sluice/controlsvc/admin"
	"sluice/controlsvc/telemetry"
	"sluice/shared/instant"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

// adminOff in the place of an address says that there is to be no admin API.
const adminOff = "off"

// openAdmin listens for the admin API, and gives what it asks of its callers; no listener where there is to be none.
func openAdmin(ctx context.Context, o options, grpcTLS *tls.Config, logger *slog.Logger) (net.Listener, admin.Config, error) {
	config := admin.Config{Logger: logger}
	if o.adminToken != "" {
		var err error
		if config.Token, err = admin.ReadToken(o.adminToken); err != nil {
			return nil, config, fmt.Errorf("--admin-token-file: %w", err)
		}
	}
	if o.admin == adminOff {
		return nil, config, nil
	}
	if grpcTLS != nil {
		config.TLS = grpcTLS.Clone()
		config.TLS.ClientAuth, config.TLS.ClientCAs = tls.NoClientCert, nil // the token says who may
	}
	if config.TLS == nil && !admin.Loopback(o.admin) {
		logger.Warn("the admin API's token travels in plain text: give --grpc-tls-cert", "admin", o.admin)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", o.admin)
	if err != nil {
		return nil, config, fmt.Errorf("--admin: %w", err)
	}
	return listener, config, nil
}

// whoMay says whom the admin API answers.
func whoMay(token string) string {
	if token == "" {
		return "without a token: everybody on this machine may use it"
	}
	return "with a token"
}

// serveAdmin makes the admin API's server, where there is to be one, and says whom it answers.
func (s *serving) serveAdmin(p Process, listener net.Listener, config admin.Config) {
	if listener == nil {
		return
	}
	fmt.Fprintf(p.Stdout, "sluice admin: %s, %s\n", listener.Addr(), whoMay(config.Token))
	began := p.Now()
	config.Authority, config.Overlay, config.Store, config.Now = s.authority, s.overlay, s.store, p.Now
	config.After = p.After
	config.Traffic = s.traffic.Snapshot
	config.Status = func() *adminv1.StatusResponse {
		now := p.Now()
		return &adminv1.StatusResponse{
			Version: version(), UpFor: uint64(now.Sub(began).Microseconds()), Reload: s.reloads.told(now),
			Store: &adminv1.Store{Name: storeName(s.options.store)},
		}
	}
	s.admin = admin.New(config)
}

// reloads is what came of reading the policy file again.
type reloads struct {
	mu      sync.Mutex
	results map[telemetry.ReloadResult]uint64
	problem string
	at      instant.Instant
}

func (r *reloads) note(result telemetry.ReloadResult, problem error, now instant.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.results == nil {
		r.results = make(map[telemetry.ReloadResult]uint64)
	}
	r.results[result]++
	r.problem, r.at = "", now
	if problem != nil {
		r.problem = problem.Error()
	}
}

func (r *reloads) told(now instant.Instant) *adminv1.Reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := &adminv1.Reload{
		Applied: r.results[telemetry.ReloadApplied], Unchanged: r.results[telemetry.ReloadUnchanged], Invalid: r.results[telemetry.ReloadInvalid],
		Problem: r.problem,
	}
	if len(r.results) > 0 {
		told.Age = uint64(now.Sub(r.at).Microseconds())
	}
	return told
}
