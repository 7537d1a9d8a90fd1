package cli

import (
	"os"
	"strings"
	"testing"
	"time"

	"sluice/shared/instant"
)

// TestMain lets the test's own binary be the sluice command, in a process of its own, for tests with real processes: it
// is where its first argument names a subcommand.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		began := time.Now()
		os.Exit(Run(Process{
			Args: os.Args[1:], LookupEnv: os.LookupEnv, Stdout: os.Stdout, Stderr: os.Stderr,
			Now:   func() instant.Instant { return instant.FromTime(began).Add(time.Since(began)) },
			After: time.After, Left: time.Until,
		}))
	}
	os.Exit(m.Run())
}
