package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// installing lets one goroutine of this process at a time install; apt has a lock of its own for the others.
var installing sync.Mutex

// findProgram finds a program on the PATH. Where it is not there Debian's package of it is installed, if that is possible.
func findProgram(ctx context.Context, log io.Writer, program, debian, what string) (string, error) {
	installing.Lock()
	defer installing.Unlock()
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	wanted := "there is no " + program + " on the PATH"
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return "", errors.New(wanted + ": install " + what + " (Debian: sudo apt-get install " + debian + ")")
	}
	fmt.Fprintf(log, "%s; installing it from Debian, once\n", wanted)
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	for _, args := range [][]string{
		{"update", "-q"},
		{"install", "-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", debian},
	} {
		// RUNLEVEL=1: it is wanted as a program, not as a running service.
		environment := []string{"RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive", apt}
		if err := runStep(ctx, log, "/usr/bin/env", append(environment, args...)...); err != nil {
			return "", fmt.Errorf("%s, and it could not be installed: %w", wanted, err)
		}
	}
	return exec.LookPath(program)
}
