// Package pace is for tests that say how much comes through, or how soon, of real processes: they rest on a machine that may
// have other work.
package pace

import (
	"fmt"
	"testing"
	"time"
)

// How often Try tries, and of how many that fall short on a machine that keeps up it fails.
const (
	most   = 6
	enough = 3
)

// A machine keeps up with a trial where none of its timers was late by more than stallMost, and those that were late by more
// than stallLeast were so for no more than stallShare of the time.
const (
	stallLeast = 5 * time.Millisecond
	stallMost  = 50 * time.Millisecond
	stallShare = 0.05
)

// Trial is one try of a test.
type Trial struct {
	*testing.T

	// Name is the trial's own: a key that no other trial of the test has used.
	Name  string
	short []string
}

// Shortf notes what falls short of what is wanted, and may do so because the machine has other work. What must hold on any
// machine, such as a limit, is an error of the test instead, in each trial.
func (p *Trial) Shortf(format string, args ...any) {
	p.short = append(p.short, fmt.Sprintf(format, args...))
}

// Try tries until nothing falls short. The test fails when a machine that keeps up has fallen short three times, or at once
// with an error of its own. It is skipped where the machine hardly ever kept up: all was judged then but the pace.
func Try(t *testing.T, try func(p *Trial)) {
	t.Helper()
	trials(t, watchStalls, try)
}

func trials(t *testing.T, watch func() (end func() (keptUp bool, said string)), try func(p *Trial)) {
	t.Helper()
	fair := 0
	for number := 1; number <= most; number++ {
		p := &Trial{T: t, Name: fmt.Sprintf("%s-%d", t.Name(), number)}
		end := watch()
		try(p)
		keptUp, said := end()
		if t.Failed() || len(p.short) == 0 {
			return
		}
		t.Logf("trial %d falls short; %s: %q", number, said, p.short)
		if keptUp {
			fair++
		}
		if fair == enough {
			t.Fatalf("%d trials fell short on a machine that kept up with them: %q", fair, p.short)
		}
	}
	t.Skipf("this machine kept up with %d of %d trials: nothing is said of the pace", fair, most)
}

// watchStalls watches how late this machine's timers are, until it is asked.
func watchStalls() (end func() (keptUp bool, said string)) {
	const every = 2 * time.Millisecond
	stop, done := make(chan struct{}), make(chan struct{})
	began := time.Now()
	var longest, sum time.Duration
	go func() {
		defer close(done)
		for {
			slept := time.Now()
			select {
			case <-stop:
				return
			case <-time.After(every):
			}
			late := time.Since(slept) - every
			longest = max(longest, late)
			if late > stallLeast {
				sum += late
			}
		}
	}()
	return func() (bool, string) {
		close(stop)
		<-done
		took := time.Since(began)
		keptUp := longest <= stallMost && float64(sum) <= stallShare*float64(took)
		return keptUp, fmt.Sprintf("of %v it stood still for %v, at most for %v at a time", took.Round(time.Millisecond),
			sum.Round(time.Millisecond), longest.Round(time.Millisecond))
	}
}
