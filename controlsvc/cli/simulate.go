package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice/controlsvc/cli/simulate"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// newSimulate makes `sluice simulate`.
func newSimulate(p Process) *cobra.Command {
	config := simulate.Config{
		Limit: limit.Rate{Units: 1000, Window: time.Second}, Mode: limit.Lease, Load: 2, Out: p.Stdout, Now: p.Now,
	}
	var mode, algorithm, output string
	command := &cobra.Command{
		Use:   "simulate",
		Short: "Say what a limit would do under a load",
		Long: "Simulate plays workers, the service and its store in virtual time, with the code that serve and the filter run, and says\n" +
			"how many calls a request cost, how many requests waited, and how much was admitted of what the exact limiter admits.\n" +
			"Nothing is sent anywhere. The same flags give the same figures. It exits with 1 where a window held more than its\n" +
			"limit, which is a defect of Sluice, and says with which seed.",
		Example: "  sluice simulate --workers 16 --limit 1000/1s --load 2x --rtt 1ms\n" +
			"  sluice simulate --limit 100/10s --mode strict --bursts --duration 2m --plot strict.svg",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			config.Mode, config.JSON = limit.Lease, output == "json"
			if err := checkSimulation(&config, mode, algorithm, output); err != nil {
				return err
			}
			config.Progress = terminal(p.Stderr)
			return failed(simulate.Run(config))
		},
	}
	f := command.Flags()
	f.IntVar(&config.Workers, "workers", 4, "how many Envoy worker threads there are in all, 1 to "+strconv.Itoa(simulate.MaxWorkers))
	f.Var(&rateFlag{&config.Limit}, "limit", "the limit, as a `RATE` such as 10/s, 1000/1s or 100/24h")
	f.StringVar(&mode, "mode", "lease", "the limit's mode: lease or strict")
	f.StringVar(&algorithm, "algorithm", "auto", "how units are counted: auto, or the name of an algorithm")
	f.DurationVar(&config.MaxWait, "max-wait", 0, "for how long a request may be held until units are free, in mode lease: 0s to "+policy.MaxMaxWait.String())
	f.Var(&factorFlag{&config.Load}, "load", "what each tenant asks for, as a `SHARE` of its limit such as 2x, 0.5x or 80%")
	f.IntVar(&config.Tenants, "tenants", 1, "how many tenants there are, each with a limit of its own, 1 to "+strconv.Itoa(simulate.MaxTenants))
	f.DurationVar(&config.Duration, "duration", 10*time.Second, "how much virtual time there is traffic, 1ms to 8760h")
	f.DurationVar(&config.RTT, "rtt", time.Millisecond, "the least round trip from a worker to the service, up to 10s")
	f.DurationVar(&config.Jitter, "jitter", 0, "what a round trip takes on top of that, in the mean, up to 10s")
	f.DurationVar(&config.Timeout, "timeout", 200*time.Millisecond, "how long a worker waits for an answer, 1ms to 10s")
	f.Var(&factorFlag{&config.Loss}, "loss", "the `SHARE` of messages that are lost, such as 1% or 0.01, below 100%")
	f.BoolVar(&config.Bursts, "bursts", false, "send all that a window's load is at its beginning, instead of evenly")
	f.Uint64Var(&config.Seed, "seed", 1, "`N` that all chances are drawn from")
	f.StringVar(&config.Plot, "plot", "", "`FILE`, an .svg or a .png, to draw the admissions and the sliding window into")
	f.StringVarP(&output, "output", "o", "table", "how the figures are written: table or json")
	return command
}

// checkSimulation says, all at once, which flags make no sense.
func checkSimulation(c *simulate.Config, mode, algorithm, output string) error {
	var all []error
	complain := func(flag, format string, args ...any) {
		all = append(all, fmt.Errorf("--%s (%s): "+format, append([]any{flag, variable(flag)}, args...)...))
	}
	within := func(flag string, value, least, most time.Duration) {
		if value < least || value > most {
			complain(flag, "%v: want %v to %v", value, least, most)
		}
	}
	switch m, _ := limit.ParseMode(mode); m {
	case limit.Lease, limit.Strict:
		c.Mode = m
	default:
		complain("mode", "%q: want lease or strict", mode)
	}
	if a, ok := limit.ParseAlgorithm(algorithm); ok || algorithm == "auto" {
		c.Algorithm = a
	} else {
		complain("algorithm", "%q: want auto, sliding_log, sliding_buckets, sliding_window_counter, fixed_window or token_bucket", algorithm)
	}
	if c.Workers < 1 || c.Workers > simulate.MaxWorkers {
		complain("workers", "%d: want 1 to %d", c.Workers, simulate.MaxWorkers)
	}
	if c.Tenants < 1 || c.Tenants > simulate.MaxTenants {
		complain("tenants", "%d: want 1 to %d", c.Tenants, simulate.MaxTenants)
	}
	if c.Limit.Units < 1 {
		complain("limit", "%v: want at least one unit", c.Limit)
	}
	if c.Load <= 0 {
		complain("load", "%g: want more than 0, such as 2x", c.Load)
	}
	if c.Loss >= 1 {
		complain("loss", "%g: want 0 to below 1, such as 1%%", c.Loss)
	}
	if c.MaxWait > 0 && c.Mode != limit.Lease {
		complain("max-wait", "%v: want mode lease, not %v", c.MaxWait, c.Mode)
	}
	within("max-wait", c.MaxWait, 0, policy.MaxMaxWait)
	within("duration", c.Duration, time.Millisecond, 365*24*time.Hour)
	within("rtt", c.RTT, 0, 10*time.Second)
	within("jitter", c.Jitter, 0, 10*time.Second)
	within("timeout", c.Timeout, time.Millisecond, 10*time.Second)
	if output != "table" && output != "json" {
		complain("output", "%q: want table or json", output)
	}
	if _, ok := simulate.PlotFormat(c.Plot); c.Plot != "" && !ok {
		complain("plot", "%q: want a file that ends in %s", c.Plot, strings.Join(simulate.PlotFormats, " or "))
	}
	if n := c.Requests(); len(all) == 0 && n > simulate.MaxRequests {
		complain("duration", "these are %.3g requests: want at most %d; a shorter one, less load or fewer tenants", n, simulate.MaxRequests)
	}
	return errors.Join(all...)
}

// terminal gives out where it is a terminal, else nil.
func terminal(out io.Writer) io.Writer {
	if file, isFile := out.(*os.File); isFile && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

// rateFlag is a flag that takes a rate.
type rateFlag struct{ rate *limit.Rate }

func (f *rateFlag) String() string {
	if f.rate == nil {
		return ""
	}
	return f.rate.String()
}

func (f *rateFlag) Set(text string) error {
	rate, err := limit.ParseRate(text)
	if err != nil {
		return err
	}
	*f.rate = rate
	return nil
}

func (*rateFlag) Type() string { return "rate" }

// factorFlag is a flag that takes a number from 0: 2, 2x, 2× or 200%.
type factorFlag struct{ factor *float64 }

func (f *factorFlag) String() string {
	if f.factor == nil {
		return ""
	}
	return strconv.FormatFloat(*f.factor, 'g', -1, 64)
}

func (f *factorFlag) Set(text string) error {
	number, of := strings.TrimSpace(text), 1.0
	if before, found := strings.CutSuffix(number, "%"); found {
		number, of = before, 100
	} else {
		number = strings.TrimSuffix(strings.TrimSuffix(number, "x"), "×")
	}
	const most = 1e6
	factor, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(factor) || factor < 0 || factor/of > most {
		return errors.New("want a number from 0 to 1000000 such as 2x, 0.5 or 1%")
	}
	*f.factor = factor / of
	return nil
}

func (*factorFlag) Type() string { return "share" }
