// Package demo is `sluice demo`: one limit that holds across two real Envoys, to be looked at.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"sluice/testharness/load"
	"sluice/testharness/rig"
)

// DefaultTraffic is how long traffic is sent where Config says nothing of it.
const DefaultTraffic = 20 * time.Second

// refreshEvery is how often the table is drawn on a terminal, and lineEvery how often elsewhere.
const (
	refreshEvery = 500 * time.Millisecond
	lineEvery    = 5 * time.Second
)

// maxFailed is the share of requests that may fail, neither let through nor refused for a limit, in a demo that succeeds.
const maxFailed = 0.01

// Config is how to run the demo.
type Config struct {
	// Executable is the sluice command, which is started again as the service.
	Executable string
	// Wasm is the filter; empty: sluice.wasm beside the executable.
	Wasm string
	// Envoy is the Envoy to run; empty: what can be found or installed.
	Envoy string
	// Store is what `sluice serve --store` takes; empty: memory.
	Store string
	// Traffic is how long traffic is sent; 0: DefaultTraffic.
	Traffic time.Duration
	// Outage is for how long the service is stopped amid the traffic, so that on_unavailable decides; 0: it is not.
	Outage time.Duration
	// Stay keeps everything up after the traffic, until the context ends.
	Stay bool
	// Seed makes the traffic's arrivals: the same for the same seed.
	Seed uint64
	// Out gets the table, and Progress what happens before it.
	Out, Progress io.Writer
	// Width is set where Out is a terminal, on which the table is drawn in place. It gives the number of columns, 0 where
	// that is not known.
	Width func() int
}

// Run runs the demo to its end, or the context's. Its error says what is missing, or that a limit did not hold.
func Run(ctx context.Context, config Config) error {
	config, err := config.complete(ctx)
	if err != nil {
		return err
	}
	fleet, err := startWithin(ctx, config)
	if err != nil {
		return err
	}
	defer fleet.stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fleet.watch(cancel)

	tally, err := sendTraffic(ctx, config, fleet)
	if err != nil {
		return err
	}
	verdict := tally.verdict()
	fmt.Fprintln(config.Out, tally.summary(verdict))
	if config.Stay && ctx.Err() == nil {
		fmt.Fprint(config.Out, hints(fleet, config.Executable))
		<-ctx.Done()
	}
	// What ended the context, where it was neither the traffic's end nor the user.
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return verdict
}

// startWithin starts the fleet. Until it is up it ends with the context; from then on only when it is stopped, so that the
// requests under way when the user has seen enough still get their answers.
func startWithin(ctx context.Context, config Config) (*fleet, error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, end)
	fleet, err := startFleet(life, config)
	if !release() {
		// Told to stop meanwhile, which ends what was started.
		if fleet != nil {
			fleet.stop()
		}
		return nil, errStopped
	}
	if err != nil {
		end()
		return nil, err
	}
	fleet.end = end
	return fleet, nil
}

// errStopped is that the demo was told to stop before it had begun.
var errStopped = errors.New("stopped before it was up")

func (c Config) complete(ctx context.Context) (Config, error) {
	if c.Store == "" {
		c.Store = "memory"
	}
	if c.Traffic == 0 {
		c.Traffic = DefaultTraffic
	}
	if c.Wasm == "" {
		c.Wasm = filepath.Join(filepath.Dir(c.Executable), "sluice.wasm")
	}
	var err error
	if c.Wasm, err = filepath.Abs(c.Wasm); err != nil {
		return c, err
	}
	if _, err := os.Stat(c.Wasm); err != nil {
		return c, fmt.Errorf("the filter is missing: %w; `make build` makes it, or say where it is with --wasm", err)
	}
	if c.Envoy == "" {
		venv, err := rig.EnvoyVenv(filepath.Dir(c.Executable))
		if err != nil {
			return c, err
		}
		if c.Envoy, err = rig.FindEnvoy(ctx, venv, c.Progress); err != nil {
			return c, fmt.Errorf("looking for an Envoy: %w", err)
		}
	}
	return c, nil
}

// sendTraffic sends the tenants' requests through both Envoys and shows the table meanwhile.
func sendTraffic(ctx context.Context, config Config, fleet *fleet) (*tally, error) {
	flows := traffic(config.Seed)
	tally := newTally()
	base, err := fleet.counts(ctx)
	if err != nil {
		return nil, err
	}
	if config.Outage > 0 {
		defer fleet.outage(ctx, config)()
	}
	screen := screen{out: config.Out, inPlace: config.Width != nil, width: config.Width}
	every := lineEvery
	if screen.inPlace {
		every = refreshEvery
	}
	err = load.Run(ctx, load.Options{
		Targets: fleet.listeners(), Flows: flows, For: config.Traffic, Timeout: 20 * time.Second,
		Observe: tally.observe,
		Every:   every,
		Progress: func(at time.Duration) {
			tally.elapsed = at
			tally.count(ctx, fleet, base)
			screen.draw(tally.table())
		},
	})
	if err != nil {
		return nil, err
	}
	// The filter tells Envoy what it counted with its next tick.
	fleet.settleCounts(ctx)
	tally.elapsed = max(tally.elapsed, tally.last)
	tally.count(ctx, fleet, base)
	screen.draw(tally.table())
	return tally, nil
}
