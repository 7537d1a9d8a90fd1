// Command sluice is the control service and its tools. This file gives it a clock and the process's own streams, and
// nothing else.
package main

import (
	"os"
	"time"

	"sluice/controlsvc/cli"
	"sluice/shared/instant"
)

func main() {
	// One reading of the wall clock; from there the monotonic one leads, which no operator sets back.
	began := time.Now()
	origin := instant.FromTime(began)
	os.Exit(cli.Run(cli.Process{
		Args:      os.Args[1:],
		LookupEnv: os.LookupEnv,
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		Now:       func() instant.Instant { return origin.Add(time.Since(began)) },
		After:     time.After,
		Left:      time.Until,
	}))
}
