package rig

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helper, in the environment, makes the test binary itself the process that a test starts.
const helper = "SLUICE_RIG_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helper) {
	case "stubborn": // ignores SIGTERM
		_, _ = os.Stdout.WriteString("here\n")
		signal.Ignore(syscall.SIGTERM)
		select {}
	case "polite": // ends when it is asked to
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		_, _ = os.Stdout.WriteString("here\n")
		<-asked
		os.Exit(0)
	case "starter": // starts a process, says its number, and is then killed
		p, err := Start(context.Background(), Command{Path: "sleep", Args: []string{"1000"}})
		if err != nil {
			panic(err)
		}
		_, _ = os.Stdout.WriteString(strconv.Itoa(p.PID()) + "\n")
		select {}
	case "taken":
		_, _ = os.Stderr.WriteString("listen tcp 127.0.0.1:1: bind: address already in use\n")
		os.Exit(1)
	case "":
		os.Exit(m.Run())
	}
}

func startHelper(t *testing.T, what string, c Command) (*Process, error) {
	t.Helper()
	c.Name, c.Path, c.Env = what, os.Args[0], []string{helper + "=" + what}
	p, err := Start(t.Context(), c)
	if err == nil {
		t.Cleanup(p.Stop)
	}
	return p, err
}

func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestStopEndsWhatIgnoresIt(t *testing.T) {
	p, err := startHelper(t, "stubborn", Command{StopWithin: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "starts", func() bool { return strings.Contains(p.Output(), "here") })
	p.Stop()
	if !p.Ended() || running(p.PID()) {
		t.Error("still there")
	}
	p.Stop() // a second one does nothing
}

func TestStopEndsWhatIsPaused(t *testing.T) {
	p, err := startHelper(t, "polite", Command{StopWithin: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "starts", func() bool { return strings.Contains(p.Output(), "here") })
	p.Pause()
	began := time.Now()
	p.Stop()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v: SIGTERM did not reach it", took)
	}
	if p.endedHow().Error() != "exit status 0" {
		t.Errorf("did not end by itself: %v", p.endedHow())
	}
}

func TestStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := Start(ctx, Command{Path: "sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Error("still there")
	}
}

// TestNothingSurvivesUs: the starter is killed outright, and what it started goes with it.
func TestNothingSurvivesUs(t *testing.T) {
	p, err := startHelper(t, "starter", Command{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "starts", func() bool { return strings.HasSuffix(p.Output(), "\n") })
	child, err := strconv.Atoi(strings.TrimSpace(p.Output()))
	if err != nil {
		t.Fatal(err)
	}
	if !running(child) {
		t.Fatal("was never there")
	}
	// Only itself, not its group: the child is in a group of its own anyway.
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child is gone", func() bool { return !running(child) })
}

func TestStartErrors(t *testing.T) {
	never := func(context.Context) error { return errors.New("the door is shut") }
	if _, err := Start(t.Context(), Command{Path: "/nowhere/nothing"}); err == nil || !strings.Contains(err.Error(), "starting nothing") {
		t.Error(err)
	}
	_, err := Start(t.Context(), Command{Path: "sh", Args: []string{"-c", "echo went wrong; exit 3"}, Ready: never})
	if err == nil || !strings.Contains(err.Error(), "went wrong") || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	_, err = Start(t.Context(), Command{Path: "sleep", Args: []string{"1000"}, Ready: never, ReadyWithin: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "the door is shut") || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := startHelper(t, "taken", Command{Ready: never}); !errors.Is(err, ErrAddressInUse) {
		t.Error(err)
	}
}

func TestRetryBind(t *testing.T) {
	for _, test := range []struct {
		name  string
		fails []error
		calls int
		ok    bool
	}{
		{"at once", nil, 1, true},
		{"taken once", []error{ErrAddressInUse}, 2, true},
		{"something else", []error{errors.New("no")}, 1, false},
		{"always taken", []error{ErrAddressInUse, ErrAddressInUse, ErrAddressInUse, ErrAddressInUse, ErrAddressInUse}, portTries, false},
	} {
		calls := 0
		result, err := retryBind(t.Context(), func() (*int, error) {
			calls++
			if calls <= len(test.fails) {
				return &calls, test.fails[calls-1]
			}
			return &calls, nil
		})
		if calls != test.calls || (err == nil) != test.ok || (result != nil) != test.ok {
			t.Errorf("%s: %d calls, result %v, error %v", test.name, calls, result, err)
		}
	}
}

func TestFreePort(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("%d twice", port)
		}
		seen[port] = true
		listener, err := net.Listen("tcp", address(port))
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
	}
}

func TestTail(t *testing.T) {
	kept := newTail(10)
	for _, step := range []struct{ write, want string }{
		{"", ""},
		{"12345", "12345"},
		{"67890", "1234567890"},
		{"a", "[…]234567890a"},
		{strings.Repeat("x", 95) + "bcdef", "[…]xxxxxbcdef"},
	} {
		_, _ = kept.Write([]byte(step.write))
		if got := kept.String(); got != step.want {
			t.Errorf("after %q: %q, want %q", step.write, got, step.want)
		}
		if cap(kept.kept) > 1000 {
			t.Errorf("%d bytes held", cap(kept.kept))
		}
	}
}

func TestCheckout(t *testing.T) {
	root, err := Checkout(".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root + "/testharness/rig/checkout.go"); err != nil {
		t.Error(err)
	}
	if _, err := Checkout(t.TempDir()); err == nil {
		t.Error("found one where there is none")
	}
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Error("these tests need sleep and sh:", err)
	}
}
