// Package simulate is `sluice simulate`: what a limit does under a load, found out in virtual time, with the real filter, the
// real authority and a real store.
package simulate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"

	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/testharness/sim"
)

// Config is what to simulate and where to say what came of it.
type Config struct {
	// Limit is each tenant's, in Mode: Strict or Lease.
	Limit limit.Rate
	Mode  limit.Mode
	// Algorithm is how units are counted; 0: as a policy's auto would have it.
	Algorithm limit.Algorithm
	// MaxWait is for how long a request may be held, in mode Lease; 0: not at all.
	MaxWait time.Duration
	// Workers is how many filters there are, each in its own Envoy worker thread; each request comes to one of them by chance.
	Workers int
	Tenants int
	// Load is what each tenant asks for, as a share of its limit.
	Load float64
	// Bursts sends what Load asks for in a window within the first fiftieth of it, instead of evenly.
	Bursts   bool
	Duration time.Duration
	// RTT is the least time from a worker to the service and back, Jitter the mean of what comes on top, Timeout how long a
	// worker waits. The way from the service to the store takes no time.
	RTT, Jitter, Timeout time.Duration
	// Loss is the share of messages that are lost, 0 to 1.
	Loss float64
	// Seed is what all chances are drawn from: the same one gives the same run.
	Seed uint64

	// JSON writes the report as JSON instead of a table.
	JSON bool
	// Plot is the file to draw into, an .svg or a .png; empty: none.
	Plot string
	Out  io.Writer
	// Progress is where a run that takes long says how far it is; nil: nowhere.
	Progress io.Writer
	// Now reads a clock that never steps back.
	Now func() instant.Instant
}

// Bounds on a simulation, which remembers every admission.
const (
	MaxRequests = 20_000_000
	MaxWorkers  = 1024
	MaxTenants  = 1000
)

// Requests is how many requests there will be, about.
func (c *Config) Requests() float64 {
	windows := float64(c.Duration) / float64(c.Limit.Window)
	return c.Load * float64(c.Limit.Units) * float64(c.Tenants) * windows
}

// ErrBroken is what Run wraps where the simulation saw a window that was too full, or a request that was answered twice or
// never: a defect of Sluice.
var ErrBroken = errors.New("the guarantee was broken")

// Run plays the scenario and writes its report and its plot.
func Run(c Config) error { return c.run(c.scenario()) }

func (c *Config) run(scenario sim.Scenario) (err error) {
	watch := sim.Watch{Passed: c.progress()}
	var draw func() error
	if c.Plot != "" {
		file, err := os.Create(c.Plot) // before the run, which may be long
		if err != nil {
			return fmt.Errorf("the plot: %w", err)
		}
		defer file.Close()
		record := newRecord(c.Limit, c.Duration)
		watch.Spent, watch.Window = record.spent, record.window
		draw = func() error { return errors.Join(c.plot(record, file), file.Close()) }
	}
	result := sim.RunWatched(scenario, watch)
	if draw != nil {
		if err := draw(); err != nil {
			return fmt.Errorf("the plot: %w", err)
		}
	}
	if err := c.report(result).write(c); err != nil {
		return err
	}
	if n := len(result.Violations); n > 0 {
		return fmt.Errorf("%w, with seed %d: %s", ErrBroken, c.Seed, result.Violations[0])
	}
	return nil
}

func (c *Config) algorithm() limit.Algorithm {
	if c.Algorithm == 0 {
		return limit.Auto([]limit.Rate{c.Limit})
	}
	return c.Algorithm
}

// scenario is the configuration as the simulation takes it.
func (c *Config) scenario() sim.Scenario {
	algorithm := c.algorithm()
	return sim.Scenario{
		Seed: c.Seed, Workers: c.Workers, Tenants: c.Tenants, Load: c.Load, Bursts: c.Bursts,
		Duration: c.Duration, Timeout: c.Timeout,
		Limits: []policy.Limit{{
			Name: "tenant", Key: []uint32{0}, Rates: []limit.Rate{c.Limit},
			Algorithm: algorithm, Mode: c.Mode, OnUnavailable: limit.Deny, MaxWait: c.MaxWait,
		}},
		Faults: sim.Faults{Delay: c.RTT / 2, Jitter: c.Jitter / 2, Lose: c.Loss},
	}
}

// progress draws a bar once a run has taken a while; nil where there is nowhere to draw it.
func (c *Config) progress() func(time.Duration) {
	if c.Progress == nil {
		return nil
	}
	const patience = 500 * time.Millisecond
	began := c.Now()
	var bar *progressbar.ProgressBar
	return func(passed time.Duration) {
		if bar == nil {
			if c.Now().Sub(began) < patience || passed >= c.Duration {
				return
			}
			bar = progressbar.NewOptions64(int64(c.Duration),
				progressbar.OptionSetWriter(c.Progress), progressbar.OptionSetDescription("simulating "+c.Duration.String()),
				progressbar.OptionSetWidth(30), progressbar.OptionSetElapsedTime(false), progressbar.OptionClearOnFinish())
		}
		_ = bar.Set64(int64(passed)) // there is nobody to tell that a bar cannot be drawn
	}
}
