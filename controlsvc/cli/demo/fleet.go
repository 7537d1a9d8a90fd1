package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sluice/envoy"
	"sluice/testharness/rig"
)

//go:embed policy.yaml
var policy []byte

// How large the fleet is.
const (
	envoys  = 2
	workers = 2
)

// The bounds on how long starting may take.
const (
	serviceReadyWithin = 15 * time.Second
	filterReadyWithin  = time.Minute
)

// fleet is everything that runs: two Envoys in front of an upstream, and the service.
type fleet struct {
	directory string
	upstream  *http.Server
	service   *rig.Service
	log       *os.File // what the service prints; nil before it starts
	envoys    []*rig.Envoy
	end       context.CancelFunc
}

// startFleet starts all of it and waits until every worker limits requests. Where it fails, nothing is left running.
func startFleet(ctx context.Context, config Config) (_ *fleet, err error) {
	f := &fleet{}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	if f.directory, err = os.MkdirTemp("", "sluice-demo-"); err != nil {
		return nil, err
	}
	policyFile := filepath.Join(f.directory, "policy.yaml")
	if err := os.WriteFile(policyFile, policy, 0o600); err != nil {
		return nil, err
	}
	upstream, err := f.startUpstream(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(config.Progress, "starting the service, in front of", storeName(config.Store))
	if f.log, err = os.Create(filepath.Join(f.directory, "service.log")); err != nil {
		return nil, err
	}
	f.service, err = rig.StartService(ctx, rig.ServiceOptions{
		Log:    f.log,
		Binary: config.Executable, Policy: policyFile, Store: config.Store, ReadyWithin: serviceReadyWithin,
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(config.Progress, "the dashboard: http://%s/\nfor commands: --address %s\nthe service's log: %s\n",
		f.service.HTTP, f.service.Admin, f.log.Name())
	fmt.Fprintf(config.Progress, "starting %d Envoys with %d workers each, which takes some seconds: %s\n", envoys, workers, config.Envoy)
	if err := f.startEnvoys(ctx, config, upstream); err != nil {
		return nil, err
	}
	fmt.Fprintln(config.Progress, "asking them as tenant probe until every worker decides; the dashboard counts that as well")
	for _, address := range f.listeners() {
		if err := rig.AwaitFilter(ctx, address, map[string]string{"x-tenant-id": "probe"}, "", filterReadyWithin); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func storeName(store string) string {
	if store == "memory" {
		return "its embedded memory store"
	}
	return "Redis"
}

// startUpstream serves what is protected, in this process.
func (f *fleet) startUpstream(ctx context.Context) (address string, err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(rig.Loopback, "0"))
	if err != nil {
		return "", fmt.Errorf("starting the upstream: %w", err)
	}
	f.upstream = &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("content-type", "text/plain")
			_, _ = io.WriteString(w, "hello from the upstream\n")
		}),
	}
	go func() { _ = f.upstream.Serve(listener) }()
	return listener.Addr().String(), nil
}

// startEnvoys starts them side by side, for each compiles the filter, which takes seconds.
func (f *fleet) startEnvoys(ctx context.Context, config Config, upstream string) error {
	bootstrap, err := envoy.Bootstrap{Upstream: upstream, Control: f.service.GRPC, Wasm: config.Wasm}.JSON()
	if err != nil {
		return err
	}
	started := make([]*rig.Envoy, envoys)
	failures := make([]error, envoys)
	var starting sync.WaitGroup
	for i := range started {
		starting.Go(func() {
			options := rig.EnvoyOptions{Binary: config.Envoy, Bootstrap: bootstrap, Concurrency: workers}
			started[i], failures[i] = rig.StartEnvoy(ctx, options)
		})
	}
	starting.Wait()
	for _, e := range started {
		if e != nil {
			f.envoys = append(f.envoys, e)
		}
	}
	return errors.Join(failures...)
}

// outage stops the service amid the traffic for as long as the demo is to show what happens then: it is there and does not
// answer. What it gives has it go on at once, and returns when it does.
func (f *fleet) outage(ctx context.Context, config Config) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	await := func(d time.Duration) {
		until, done := context.WithTimeout(ctx, d)
		defer done()
		<-until.Done()
	}
	go func() {
		defer close(over)
		if await((config.Traffic - config.Outage) / 2); ctx.Err() != nil {
			return
		}
		fmt.Fprintf(config.Progress, "the service is stopped for %v: on_unavailable decides\n", config.Outage)
		f.service.Pause()
		defer f.service.Resume()
		await(config.Outage)
	}()
	return func() { cancel(); <-over }
}

// watch ends the demo when one of its processes ends.
func (f *fleet) watch(cancel context.CancelCauseFunc) {
	watched := map[string]*rig.Process{"the service": f.service.Process}
	for i, e := range f.envoys {
		watched[fmt.Sprintf("Envoy %d", i+1)] = e.Process
	}
	for name, process := range watched {
		go func() {
			<-process.Done()
			cancel(fmt.Errorf("%s ended by itself; it printed:\n%s", name, process.Output()))
		}()
	}
}

// stop stops everything; it returns when all of it has gone.
func (f *fleet) stop() {
	for _, e := range f.envoys {
		e.Stop()
	}
	if f.service != nil {
		f.service.Stop()
	}
	if f.upstream != nil {
		_ = f.upstream.Close()
	}
	if f.end != nil {
		f.end()
	}
	if f.log != nil {
		f.log.Close()
	}
	if f.directory != "" {
		_ = os.RemoveAll(f.directory)
	}
}

func (f *fleet) listeners() []string {
	addresses := make([]string, 0, len(f.envoys))
	for _, e := range f.envoys {
		addresses = append(addresses, e.Listener(envoy.Listener))
	}
	return addresses
}

// counts sums the filters' counters over all workers.
func (f *fleet) counts(ctx context.Context) (counts, error) {
	var sum counts
	for _, e := range f.envoys {
		stats, err := e.Stats(ctx, filterPrefix)
		if err != nil {
			return sum, err
		}
		sum = sum.add(countsOf(stats))
	}
	return sum, nil
}

// settleCounts waits until the filters' counters stand still, for they come with a tick; a second at most.
func (f *fleet) settleCounts(ctx context.Context) {
	rig.AwaitStill(ctx, time.Second, func() any { c, _ := f.counts(ctx); return c })
}
