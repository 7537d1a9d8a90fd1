package policytest

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"sluice/filter/host/fake"
)

// Proxies are real ones, with the service behind them, whose clocks nobody sets.
type Proxies interface {
	// SetPolicy comes back when every worker is under the policy.
	SetPolicy(text []byte) error
	// Do sends a request through the proxy that stands for a worker, and gives the answer: its status, headers and body.
	Do(worker int, r Request) (Answer, error)
	// Until waits until the time since the scenario's start.
	Until(at time.Duration)
}

// ErrVirtual is what RunOn's error wraps where a scenario has what only virtual proxies can do.
var ErrVirtual = errors.New("real proxies cannot be told to")

// RunOn runs the scenario's steps of its first so much time with real proxies, which take requests one after the other. What
// is expected of the time that an answer took, and of the number of calls, is not looked at.
func (s *Scenario) RunOn(p Proxies, first time.Duration) (Result, error) {
	r := &run{scenario: s}
	if err := p.SetPolicy(s.policies["policy.yaml"]); err != nil {
		return Result{}, err
	}
	for _, st := range s.steps {
		if st.at > first {
			break
		}
		p.Until(st.at)
		switch do := st.do.(type) {
		case newPolicy:
			if err := p.SetPolicy(s.policies[do.name]); err != nil {
				return r.result, err
			}
		case *requests:
			if do.request.From != "" || do.request.Properties != nil || do.leaves > 0 {
				return r.result, fmt.Errorf("%s:%d: %w set where a client is, what the proxy knows of it, or when it leaves", s.Name, st.line, ErrVirtual)
			}
			if err := r.sendOn(p, st, do); err != nil {
				return r.result, err
			}
		case asks:
		default:
			return r.result, fmt.Errorf("%s:%d: %w set the network or the clock", s.Name, st.line, ErrVirtual)
		}
	}
	return r.result, nil
}

func (r *run) sendOn(p Proxies, st step, do *requests) error {
	for i := range do.times {
		p.Until(st.at + time.Duration(i)*do.every)
		worker := do.worker
		if worker < 0 {
			worker = i % max(1, r.scenario.workers)
		}
		a, err := p.Do(worker, do.request)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", r.scenario.Name, st.line, err)
		}
		a.Fate = fake.Answered
		if a.Status == http.StatusOK {
			a.Fate = fake.Passed
		}
		r.result.Requests++
		for _, text := range do.expect[i].wrong(a) {
			r.wrong(st.line, fmt.Sprintf("request %d of %d at %v: %s", i+1, do.times, st.at, text))
		}
	}
	return nil
}
