package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/testharness/rig"
)

// startDemo starts `sluice demo` with a mark in the environment of all that it starts.
func startDemo(t *testing.T, mark string, args ...string) *rig.Process {
	t.Helper()
	p, err := rig.Start(t.Context(), rig.Command{
		Path: fleet.sluice, Args: append([]string{"demo", "--envoy", fleet.envoyBinary}, args...),
		Env: []string{"SLUICE_E2E_MARK=" + mark}, StopWithin: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// marked gives the processes with the mark in their environment, by their names.
func marked(t *testing.T, mark string) map[int]string {
	t.Helper()
	found := map[int]string{}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(processes) == 0 {
		t.Fatal("no /proc to look for processes in:", err)
	}
	for _, directory := range processes {
		environment, err := os.ReadFile(directory + "/environ")
		if err != nil || !strings.Contains(string(environment), "SLUICE_E2E_MARK="+mark+"\x00") {
			continue // gone meanwhile, or another's
		}
		name, _ := os.ReadFile(directory + "/comm")
		pid, _ := strconv.Atoi(filepath.Base(directory))
		found[pid] = strings.TrimSpace(string(name))
	}
	return found
}

func until(within time.Duration, holds func() error) error {
	deadline := time.Now().Add(within)
	for {
		err := holds()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func allRunning(t *testing.T, _ *rig.Process) func() error {
	return func() error {
		count := map[string]int{}
		for _, name := range marked(t, filepath.Base(t.Name())) {
			count[name]++
		}
		if count["sluice"] < 2 || count["envoy"] < 2 {
			return fmt.Errorf("running: %v", count)
		}
		return nil
	}
}

func showsTraffic(_ *testing.T, p *rig.Process) func() error {
	return func() error {
		if !strings.Contains(p.Output(), "decided without a call") {
			return errors.New("no traffic yet")
		}
		return nil
	}
}

func noneLeft(t *testing.T, mark string) func() error {
	return func() error {
		if left := marked(t, mark); len(left) > 0 {
			return fmt.Errorf("left over: %v", left)
		}
		return nil
	}
}

// TestDemo: it ends by itself with exit status 0, shows what it should, and leaves nothing behind.
func TestDemo(t *testing.T) {
	t.Parallel()
	p := startDemo(t, "demo", "--seconds", "3")
	ended, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	select {
	case <-p.Done():
	case <-ended.Done():
		t.Fatalf("it does not end; it printed:\n%s", p.Output())
	}
	t.Log(p.Output())
	for _, want := range []string{
		"acme", "globex", "initech", "POST /v1/reports", "POST /v1/orders", "of 5/s", "of 100/s", "of 10/s", "of 600/m",
		"decided without a call:", "Every window held",
	} {
		if !strings.Contains(p.Output(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if status := p.Status(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if err := until(recoverWithin, noneLeft(t, "demo")); err != nil {
		t.Error(err)
	}
}

// TestDemoStops: Ctrl-C in the midst of the traffic stops everything, in order; and a kill of the command alone, while it
// still starts things, leaves nothing either.
func TestDemoStops(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		signal syscall.Signal
		when   func(t *testing.T, p *rig.Process) func() error
		status int
	}{
		{"interrupted", syscall.SIGINT, showsTraffic, 0},
		{"killed", syscall.SIGKILL, allRunning, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := startDemo(t, test.name)
			if err := until(5*time.Minute, test.when(t, p)); err != nil {
				t.Fatalf("%v; it printed:\n%s", err, p.Output())
			}
			if err := syscall.Kill(p.PID(), test.signal); err != nil {
				t.Fatal(err)
			}
			select {
			case <-p.Done():
			case <-time.After(2 * time.Minute):
				t.Fatal("it does not end")
			}
			if err := until(recoverWithin, noneLeft(t, test.name)); err != nil {
				t.Error(err)
			}
			if p.Status() != test.status {
				t.Errorf("exit status %d; it printed:\n%s", p.Status(), p.Output())
			}
		})
	}
}

// TestDemoSaysWhatIsWrong: a Redis that is not there.
func TestDemoSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	nowhere, err := rig.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	p := startDemo(t, "nowhere", "--seconds", "1", "--store", "redis://"+nowhere+"/0")
	select {
	case <-p.Done():
	case <-time.After(5 * time.Minute):
		t.Fatal("it does not end")
	}
	if p.Status() != 1 || !strings.Contains(p.Output(), nowhere) {
		t.Errorf("status %d, and:\n%s", p.Status(), p.Output())
	}
}
