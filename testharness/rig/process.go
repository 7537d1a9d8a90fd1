// Package rig runs real processes on the loopback for the end-to-end tests and for the demo: Envoy, Redis, the service.
//
// Every process is the leader of a group of its own, so that Ctrl-C reaches only the one that started it, which then
// stops them in order; and where the system can (Linux), the kernel kills them when their starter dies, however it dies.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The bounds on a process's life where its Command names none.
const (
	DefaultReadyWithin = time.Minute
	DefaultStopWithin  = 5 * time.Second
	// pollEvery is how often a readiness probe is repeated.
	pollEvery = 20 * time.Millisecond
	// outputLimit is how much of what a process prints is kept, the last of it.
	outputLimit = 256 << 10
)

// ErrAddressInUse is what Start's error wraps where the process said that its port was taken meanwhile.
var ErrAddressInUse = errors.New("address already in use")

// Command is a process to start.
type Command struct {
	// Name is what errors call it; empty: the base name of Path.
	Name string
	Path string
	Args []string
	// Env is added to the starter's own environment.
	Env []string
	Dir string
	// Ready says whether the process can be used; nil: as soon as it runs. It is repeated until it gives nil, and gets a
	// context that ends with ReadyWithin.
	Ready func(ctx context.Context) error
	// ReadyWithin bounds the time until Ready gives nil; 0: DefaultReadyWithin.
	ReadyWithin time.Duration
	// StopWithin is how long Stop waits between SIGTERM and SIGKILL; 0: DefaultStopWithin.
	StopWithin time.Duration
	// Log is written what the process prints, beside what Output keeps; nil: nothing.
	Log io.Writer
}

// Process is a started process. Its methods may be called by several goroutines.
type Process struct {
	name       string
	command    *exec.Cmd
	output     *tail
	stopWithin time.Duration

	ended chan struct{} // closed once the process has ended and been waited for
	err   error         // how it ended; valid once ended is closed

	stopping sync.Once
}

// Start starts a command and waits until it is ready. It is stopped when ctx ends. The error of a process that ended, or
// was not ready in time, carries the last of what it printed.
func Start(ctx context.Context, c Command) (*Process, error) {
	if c.Name == "" {
		c.Name = filepath.Base(c.Path)
	}
	if c.ReadyWithin == 0 {
		c.ReadyWithin = DefaultReadyWithin
	}
	if c.StopWithin == 0 {
		c.StopWithin = DefaultStopWithin
	}
	p := &Process{
		name: c.Name, command: exec.Command(c.Path, c.Args...), output: newTail(outputLimit),
		stopWithin: c.StopWithin, ended: make(chan struct{}),
	}
	p.command.Dir = c.Dir
	p.command.Env = append(os.Environ(), c.Env...)
	var to io.Writer = p.output
	if c.Log != nil {
		to = io.MultiWriter(p.output, c.Log)
	}
	p.command.Stdout, p.command.Stderr = to, to
	p.command.SysProcAttr = attributes()
	// A child of the process that outlives it may hold its output open; it is not waited for.
	p.command.WaitDelay = time.Second
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	if err := p.waitReady(ctx, c); err != nil {
		p.Stop()
		return nil, err
	}
	context.AfterFunc(ctx, p.Stop)
	return p, nil
}

func (p *Process) waitReady(ctx context.Context, c Command) error {
	if c.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.ReadyWithin)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		err := c.Ready(ctx)
		if err == nil && !p.Ended() {
			return nil
		}
		select {
		case <-p.ended:
			if strings.Contains(strings.ToLower(p.Output()), ErrAddressInUse.Error()) {
				return fmt.Errorf("%s: %w", p.name, ErrAddressInUse)
			}
			return fmt.Errorf("%s ended before it was ready: %w; it printed:\n%s", p.name, p.endedHow(), p.Output())
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready (%w): %w; it printed:\n%s", p.name, ctx.Err(), err, p.Output())
		case <-ticker.C:
		}
	}
}

func (p *Process) endedHow() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// PID is the process's number, and its group's.
func (p *Process) PID() int { return p.command.Process.Pid }

// Output is the last of what the process printed, on both of its streams.
func (p *Process) Output() string { return p.output.String() }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.ended }

// Status is the exit status of a process that has ended by itself, -1 of any other.
func (p *Process) Status() int {
	if !p.Ended() {
		return -1
	}
	return p.command.ProcessState.ExitCode()
}

// Ended says whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Stop ends the process and returns when it has gone: SIGTERM, and SIGKILL once its StopWithin is over. A process that was
// paused is continued, for it could not end otherwise.
func (p *Process) Stop() {
	p.stopping.Do(func() {
		if p.Ended() {
			return // its number may be another process's by now
		}
		p.signal(syscall.SIGTERM)
		p.signal(syscall.SIGCONT)
		timer := time.NewTimer(p.stopWithin)
		defer timer.Stop()
		select {
		case <-p.ended:
		case <-timer.C:
		}
		// Also where it has ended: what it started and left behind is in its group.
		p.signal(syscall.SIGKILL)
	})
	<-p.ended
}

// Kill ends the process at once, as a crash would, and returns when it has gone.
func (p *Process) Kill() {
	if !p.Ended() {
		p.signal(syscall.SIGKILL)
	}
	<-p.ended
}

// Pause stops the process's execution (SIGSTOP): its sockets stay open and nothing answers on them.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on (SIGCONT).
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

// signal goes to the whole group. A group that has gone is no error: that is what Stop wants.
func (p *Process) signal(s syscall.Signal) { _ = syscall.Kill(-p.PID(), s) }
