package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice/controlsvc/cli/demo"
)

// maxDemoSeconds bounds --seconds: a day.
const maxDemoSeconds = 24 * 60 * 60

// newDemo makes `sluice demo`. Besides SLUICE_… it takes what is customary: DEMO_SECONDS, DEMO_OUTAGE, and REDIS_URL for the
// store.
func newDemo(p Process) *cobra.Command {
	var (
		config          demo.Config
		seconds, outage int
	)
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show one limit that holds across two Envoys",
		Long: "Demo starts a service, two Envoys with two workers each and a small upstream, all on free ports of the loopback; sends\n" +
			"traffic as three tenants, one of them far over its limit; and shows what came through. It gets an Envoy from PyPI where\n" +
			"there is none on the PATH. Then it stays up, to be tried, until Ctrl-C; with --seconds, or DEMO_SECONDS in the\n" +
			"environment, it ends after that, with exit status 0 only if no window ever held more than its limit.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := customary(p, c, &config, &seconds, &outage); err != nil {
				return err
			}
			config.Traffic = time.Duration(seconds) * time.Second
			config.Outage = time.Duration(outage) * time.Second
			config.Stay = seconds == 0
			config.Out, config.Progress = p.Stdout, p.Stderr
			config.Width = terminalWidth(p.Stdout)
			var err error
			if config.Executable, err = os.Executable(); err != nil {
				return failed(fmt.Errorf("the command does not know where it is: %w", err))
			}
			ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer release()
			return failed(demo.Run(ctx, config))
		},
	}
	f := command.Flags()
	f.IntVar(&seconds, "seconds", 0, "send traffic for so many seconds and end; 0: send for 20 s and stay up. Also DEMO_SECONDS")
	f.IntVar(&outage, "outage", 0, "stop the service for so many seconds amid the traffic, to see what happens then. Also DEMO_OUTAGE")
	f.StringVar(&config.Store, "store", "", "where the windows are: memory, or redis://HOST:PORT/DB as a `URL`. Also REDIS_URL (default memory)")
	f.StringVar(&config.Wasm, "wasm", "", "`FILE` with the filter (default sluice.wasm beside this command)")
	f.StringVar(&config.Envoy, "envoy", "", "`FILE` with the Envoy to run (default the one on the PATH, or the wheel from PyPI)")
	f.Uint64Var(&config.Seed, "seed", 1, "`N` that the traffic's arrivals are drawn from")
	return command
}

// terminalWidth gives what asks a terminal for its width; nil where out is none.
func terminalWidth(out io.Writer) func() int {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return func() int {
		width, _, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return 0
		}
		return width
	}
}

// customary takes DEMO_SECONDS, DEMO_OUTAGE and REDIS_URL where neither a flag nor its own variable was given.
func customary(p Process, c *cobra.Command, config *demo.Config, seconds, outage *int) error {
	for _, of := range []struct {
		variable, flag string
		into           *int
	}{{"DEMO_SECONDS", "seconds", seconds}, {"DEMO_OUTAGE", "outage", outage}} {
		if text, _ := p.LookupEnv(of.variable); text != "" && !c.Flags().Changed(of.flag) {
			n, err := strconv.Atoi(text)
			if err != nil {
				return fmt.Errorf("%s=%q in the environment: want a whole number of seconds", of.variable, text)
			}
			*of.into = n
		}
	}
	if *seconds < 0 || *seconds > maxDemoSeconds {
		return errors.New("--seconds (DEMO_SECONDS): want 0 to " + strconv.Itoa(maxDemoSeconds))
	}
	traffic := *seconds
	if traffic == 0 {
		traffic = int(demo.DefaultTraffic / time.Second)
	}
	if *outage < 0 || *outage > traffic/2 {
		return fmt.Errorf("--outage (DEMO_OUTAGE): want 0 to %d, half of the traffic's seconds", traffic/2)
	}
	if url, _ := p.LookupEnv("REDIS_URL"); url != "" && !c.Flags().Changed("store") {
		config.Store = url
	}
	return nil
}
