// Package cli is the sluice command: its flags, and what each of its subcommands wires together.
package cli

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"sluice/shared/instant"
)

// Process is what the command has of the process that it runs in.
type Process struct {
	Args      []string
	LookupEnv func(name string) (string, bool)
	// Stdin is read where a file is called -; nil: there is nothing.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Now reads a clock that never steps back, in microseconds since 1970 or thereabouts.
	Now func() instant.Instant
	// After gives a channel that is sent to once the duration has passed.
	After func(time.Duration) <-chan time.Time
	// Left gives how long it is until a context's deadline; nil: what callers are held for does not end before their deadlines.
	Left func(deadline time.Time) time.Duration
}

// The codes that the command exits with, besides 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

// failure is an error of what was asked for, not of how.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// failed wraps what went wrong in doing what was asked for; nil stays nil.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return failure{err}
}

// Run does what the arguments say and gives the code to exit with: 0; 1 where it failed, with the reason on Stderr; 2
// where the arguments or the environment make no sense.
func Run(p Process) int {
	root := newRoot(p)
	root.SetArgs(p.Args)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	command, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	fmt.Fprintf(p.Stderr, "%s: %v\n", command.CommandPath(), err)
	if errors.As(err, new(failure)) {
		return exitFailed
	}
	fmt.Fprintf(p.Stderr, "Run '%s --help' for what it takes.\n", command.CommandPath())
	return exitUsage
}

func newRoot(p Process) *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "A distributed rate limiter for Envoy that never admits over the limit",
		Long: "Sluice is a distributed rate limiter for Envoy. Its filter, in every Envoy worker, asks this service for units;\n" +
			"the service holds the exact sliding window of every key, in memory or in Redis.\n\n" +
			"Every flag may also be given in the environment: --call-timeout is SLUICE_CALL_TIMEOUT. The flag wins.",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		// Runs before every subcommand.
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return fromEnvironment(c.Flags(), p.LookupEnv) },
	}
	root.AddCommand(newServe(p), newValidate(p), newSchema(p), newDemo(p), newExplain(p), newCompile(p), newTest(p), newSimulate(p),
		newReplay(p), newImport(p), newInspect(p), newReset(p), newOverride(p), newBlock(p), newAllow(p), newTop(p), newStatus(p), newVersion(p))
	return root
}

func newVersion(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which build this is",
		Args:  cobra.NoArgs,
		Run:   func(*cobra.Command, []string) { fmt.Fprintln(p.Stdout, "sluice", version()) },
	}
}

// version names the build: the module's version and the commit that it was made of, as far as the toolchain noted them.
func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text, revision, modified := build.Main.Version, "", ""
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			revision = " " + setting.Value
		case "vcs.modified":
			if setting.Value == "true" {
				modified = ", modified"
			}
		}
	}
	if text == "" {
		text = "(devel)"
	}
	return text + revision + modified + " " + build.GoVersion
}
