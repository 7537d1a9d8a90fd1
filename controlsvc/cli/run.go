package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"sluice/controlsvc/admin"
	"sluice/controlsvc/authority"
	"sluice/controlsvc/overlay"
	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/replica"
	"sluice/controlsvc/rpc"
	"sluice/controlsvc/store"
	"sluice/controlsvc/store/branch"
	"sluice/controlsvc/telemetry"
	"sluice/controlsvc/traffic"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// Bounds on what callers may hold open.
const (
	maxGRPCConnections  = 4096
	maxHTTPConnections  = 64
	maxAdminConnections = 64
	maxHTTPHeaderBytes  = 16 << 10
)

// ballast is space that is never touched, so that it takes up addresses and no memory. The collector takes its pace from the
// heap, and that of a service is small beside what its calls throw away: without more it would run several times a second
// under load, for a tenth of all that a call costs.
const ballast = 64 << 20

// serving is a service that runs.
type serving struct {
	id        uint64 // of this replica, in this life
	options   options
	logger    *slog.Logger
	metrics   *telemetry.Metrics
	traffic   *traffic.Traffic
	denials   *telemetry.DenialLog
	tracing   *telemetry.Tracing
	authority *authority.Authority
	replica   *replica.Replica
	branch    *branch.Branch // nil where the store is in this process
	readiness *readiness
	store     authority.Store
	rpc       *rpc.Server
	http      *http.Server
	overlay   *overlay.Overlay
	admin     *admin.Server       // nil: none
	refusals  *telemetry.Repeated // of the dashboard; nil: it is not there
	reloads   reloads
}

// serve runs the service until the process is told to stop.
func serve(ctx context.Context, p Process, o options, level slog.Level) (err error) {
	logger := telemetry.NewLogger(p.Stderr, level)
	loaded, err := policyfile.Load(o.policy)
	if err != nil {
		return err
	}
	tlsConfig, err := o.tls.load()
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	grpcListener, err := listen.Listen(ctx, "tcp", o.grpc)
	if err != nil {
		return fmt.Errorf("--grpc: %w", err)
	}
	defer grpcListener.Close()
	httpListener, err := listen.Listen(ctx, "tcp", o.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	defer httpListener.Close()
	adminListener, adminConfig, err := openAdmin(ctx, o, tlsConfig, logger)
	if err != nil {
		return err
	}
	if adminListener != nil {
		defer adminListener.Close()
	}
	raw, err := openStore(p, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()

	s, err := newServing(ctx, p, o, logger, raw)
	if err != nil {
		return err
	}
	s.authority = s.newAuthority(p)
	s.overlay = overlay.New(overlay.Config{Store: s.store, Timeout: o.callTimeout, Now: p.Now, Logger: logger, InForce: s.setPolicy})
	s.overlay.SetFile(loaded)
	if err := s.overlay.Poll(ctx); err != nil {
		logger.Warn("the policy is the file's alone until the store answers: overrides and lists that operators set are not known", "why", err.Error())
	}
	s.readiness = newReadiness(s, p, raw.warning)
	s.replica = replica.New(replica.Config{
		Authority: s.authority, Now: p.Now, Random: rand.Uint64, Logger: logger, Workers: runtime.GOMAXPROCS(0),
		Timeout: o.callTimeout * 3 / 4,              // its limits' on_unavailable decides before the call's deadline does
		Left:    p.Left, MaxHeld: o.maxInFlight / 2, // the rest is for those that nothing holds
	})
	s.rpc = rpc.New(rpc.Config{
		Authority: s.authority, Observer: s.metrics, Logger: logger, Replica: s.replica, Random: rand.Uint64,
		CallTimeout: o.callTimeout, MaxInFlight: o.maxInFlight, TLS: tlsConfig, Trace: s.tracing.Server(),
	})
	s.metrics.Traffic(s.traffic.Now)
	s.metrics.Overlay(s.overlay.Health)
	s.metrics.Watch(s.authority.Owed, s.rpc.InFlight)
	closing := make(chan struct{})
	s.http = &http.Server{
		Handler:           newHandler(s.readiness, s.metrics.Handler(), s.dashboard(p, httpListener.Addr(), adminConfig.Token, closing)),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHTTPHeaderBytes,
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	s.http.RegisterOnShutdown(func() { close(closing) })
	s.serveAdmin(p, adminListener, adminConfig)
	fmt.Fprintf(p.Stdout, "sluice serves: grpc %s, http %s, domain %s, %s, policy version %s, store %s\n",
		grpcListener.Addr(), httpListener.Addr(), loaded.Domain, count(len(loaded.Limits), "limit", "limits"), s.authority.Policy().Version, storeName(o.store))
	return s.run(ctx, p, listeners{
		grpc: netutil.LimitListener(grpcListener, maxGRPCConnections), http: netutil.LimitListener(httpListener, maxHTTPConnections), admin: adminListener,
	})
}

// listeners are what a service answers on; admin may be nil.
type listeners struct{ grpc, http, admin net.Listener }

// newAuthority gives the authority: on a branch of a store that is elsewhere, and on one in this process itself.
func (s *serving) newAuthority(p Process) *authority.Authority {
	config := authority.Config{Store: s.store, Now: p.Now, Random: rand.Uint64, Observer: observer{s.metrics, s.traffic, s.denials}}
	if s.options.store != memoryStore {
		s.branch = branch.New(branch.Config{Store: s.store, Now: p.Now, Replica: s.id})
		config.Store, config.Together = s.branch, together
	}
	return authority.New(config)
}

// together runs the parts of a call at once, so that they share a round trip to the store.
func together(parts []func()) {
	var all sync.WaitGroup
	for _, part := range parts {
		all.Go(part)
	}
	all.Wait()
}

// newServing gives a service with all that looks at it, and its store as it is looked at.
func newServing(ctx context.Context, p Process, o options, logger *slog.Logger, raw opened) (*serving, error) {
	telemetry.LogSpanErrors(logger, p.After)
	tracing, err := telemetry.StartTracing(ctx, p.LookupEnv)
	if err != nil {
		return nil, err
	}
	s := &serving{
		id: rand.Uint64(), options: o, logger: logger, metrics: telemetry.NewMetrics(), tracing: tracing,
	}
	s.traffic = traffic.New(traffic.Config{Now: p.Now, Replica: s.id})
	s.denials = s.metrics.DenialLog(logger, p.Now, o.denialLog)
	s.store = s.metrics.Store(raw.Store, p.Now, s.traffic.Stored, tracing)
	return s, nil
}

// run answers on all listeners until a signal, or until one of them fails, and stops gracefully.
func (s *serving) run(ctx context.Context, p Process, on listeners) error {
	if _, paced := p.LookupEnv("GOGC"); !paced {
		defer runtime.KeepAlive(make([]byte, ballast))
	}
	stopped, release := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer release()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	changed := make(chan struct{}, 1)

	attended, cancel := context.WithCancel(stopped)
	defer cancel()
	failures := make(chan error, 3)
	var all sync.WaitGroup
	all.Go(func() { failures <- s.rpc.Serve(on.grpc) })
	all.Go(func() {
		err := s.http.Serve(on.http)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		failures <- err
	})
	if s.admin != nil {
		all.Go(func() { failures <- s.admin.Serve(netutil.LimitListener(on.admin, maxAdminConnections)) })
	}
	all.Go(func() { s.overlay.Run(attended, p.After) })
	deciding, decided := context.WithCancel(context.WithoutCancel(ctx)) // until nobody asks any more
	defer decided()
	all.Go(func() { s.denials.Run(deciding) })
	all.Go(func() { s.replica.Run(deciding, p.After) })
	if s.options.store != memoryStore { // which has no other replica
		all.Go(func() { s.traffic.Share(attended, s.store, s.logger, p.After) })
		all.Go(func() { s.branch.Run(deciding, p.After) })
	}
	all.Go(func() { s.readiness.attend(attended, p.After, s.rpc.SetServing) })
	all.Go(func() {
		err := policyfile.Watch(attended, s.options.policy, p.After, func() {
			select {
			case changed <- struct{}{}:
			default: // a change that has not been read yet stands for this one too
			}
		})
		if err != nil {
			s.logger.Warn("changes of the policy file go unnoticed; send SIGHUP after each", "why", err.Error())
		}
	})

	var err error
	for waiting := true; waiting; {
		select {
		case <-hangup:
			s.reload(p.Now())
		case <-changed:
			s.reload(p.Now())
		case <-stopped.Done():
			waiting = false
		case err = <-failures:
			waiting = false
		}
	}
	release() // from here on a signal has its default effect
	cancel()
	s.readiness.stopping.Store(true)
	s.logger.Info("stopping", "within", s.options.shutdownTimeout.String())
	cut := s.stop(context.WithoutCancel(ctx))
	decided()
	if cut != nil {
		return errors.Join(err, cut)
	}
	all.Wait()
	s.logger.Info("stopped")
	return err
}

// stop ends both servers within the bound, then pays the store what it is owed.
func (s *serving) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.shutdownTimeout)
	defer cancel()
	var err error
	if s.admin != nil {
		s.admin.Stop()
	}
	if cut := s.rpc.Stop(ctx); cut != nil {
		err = fmt.Errorf("calls under way were cut off after %v", s.options.shutdownTimeout)
	}
	s.replica.Stop()
	if s.branch != nil {
		s.branch.Stop(ctx)
	}
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	if s.refusals != nil {
		s.refusals.Flush()
	}
	if s.authority.Owed() > 0 {
		s.readiness.repay(ctx)
	}
	if untold := s.tracing.Stop(ctx); untold != nil {
		s.logger.Warn("spans were not sent", "why", untold.Error())
	}
	return err
}

// setPolicy puts a policy in force.
func (s *serving) setPolicy(p *policy.Policy) {
	before := s.authority.Policy()
	s.metrics.Policy(p) // first, so that what is decided under it has its series
	s.traffic.SetPolicy(p)
	s.denials.SetPolicy(p)
	s.authority.SetPolicy(p)
	telemetry.AuditPolicy(s.logger, before, p)
}

// observer has the authority seen by the metrics and by what people look at.
type observer struct {
	*telemetry.Metrics

	traffic *traffic.Traffic
	denials *telemetry.DenialLog
}

func (o observer) Called(call authority.Call) {
	o.Metrics.Called(call.Asks)
	o.traffic.Called(call)
}

func (o observer) Leased(worker uint64, limit, lease string, units int64, endIn time.Duration) {
	o.traffic.Leased(worker, limit, lease, units, endIn)
}

func (o observer) Settled(limit, lease string, unused int64) {
	grant, named := store.ParseGrant(lease) // a sub-lease's name says nothing
	if !named || grant.Kind == store.Lease {
		o.traffic.Settled(limit, lease, grant.Units, unused)
	}
}

func (o observer) Reported(worker uint64, report *wire.Report) {
	o.Metrics.Reported(report)
	o.traffic.Reported(worker, report)
	o.denials.Reported(worker, report)
}

// reload puts what the policy file says now in force; a file that is invalid changes nothing.
func (s *serving) reload(now instant.Instant) {
	loaded, err := policyfile.Load(s.options.policy)
	result := telemetry.ReloadApplied
	switch {
	case err != nil:
		result = telemetry.ReloadInvalid
		s.logger.Error("the policy stays as it was, for the file is invalid", "file", s.options.policy, "why", err.Error())
	case loaded.Version == s.overlay.State().File.Version:
		result = telemetry.ReloadUnchanged
		s.logger.Info("the policy is as it was", "version", loaded.Version)
	default:
		s.overlay.SetFile(loaded)
	}
	s.metrics.Reloaded(result)
	s.reloads.note(result, err, now)
}
