package policytest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sluice/testharness/filterrun"
)

// Result is what came of a scenario.
type Result struct {
	// Wrong has a line for each thing that was not as expected, with file and line; the first 100 of them.
	Wrong []string
	// Requests were sent, Asks calls asked for units, within Took of virtual time.
	Requests, Asks int
	Took           time.Duration
}

// Passed says whether all was as expected.
func (r Result) Passed() bool { return len(r.Wrong) == 0 }

const maxWrong = 100

// RunFile runs a scenario file with a filter. The error is for one that cannot be run; what is not as expected is in the
// Result.
func RunFile(ctx context.Context, file string, wasm []byte) (Result, error) {
	s, err := ReadScenario(file)
	if err != nil {
		return Result{}, err
	}
	return s.Run(ctx, func(seed uint64) filterrun.Runner { return filterrun.NewWasm(ctx, wasm, seed) })
}

// run is a scenario that is running.
type run struct {
	scenario *Scenario
	fleet    *Fleet
	sent     []sent
	until    time.Duration // when the last request that is planned comes
	result   Result
}

// sent is a request that was sent, and what is expected of it.
type sent struct {
	line, number, of, worker int
	at                       time.Duration
	exchange                 *Exchange
	expect                   expectation
}

// Run runs the scenario with workers that newRunner makes.
func (s *Scenario) Run(ctx context.Context, newRunner func(seed uint64) filterrun.Runner) (Result, error) {
	fleet, err := Start(ctx, Config{
		Policy: s.policies["policy.yaml"], PolicyName: s.policyName, Workers: s.workers, Plugin: s.plugin, NewRunner: newRunner,
	})
	if err != nil {
		return Result{}, err
	}
	defer fleet.Close()
	r := &run{scenario: s, fleet: fleet}
	for _, st := range s.steps {
		at := st.at
		fleet.Advance(at - fleet.Now())
		if err := r.do(st); err != nil {
			return r.result, err
		}
	}
	fleet.Advance(max(0, r.until-fleet.Now()))
	fleet.Finish()
	for _, x := range r.sent {
		for _, text := range x.expect.wrong(x.exchange.Answer()) {
			which := ""
			if x.of > 1 {
				which = fmt.Sprintf("request %d of %d ", x.number+1, x.of)
			}
			r.wrong(x.line, fmt.Sprintf("%sat %v on worker %d: %s", which, x.at, x.worker+1, text))
		}
	}
	for _, text := range fleet.Problems() {
		r.result.Wrong = append(r.result.Wrong, s.Name+": "+text)
	}
	r.result.Requests, r.result.Asks, r.result.Took = len(r.sent), fleet.Service().Asks(), fleet.Now()
	return r.result, nil
}

func (r *run) wrong(line int, text string) {
	if len(r.result.Wrong) < maxWrong {
		r.result.Wrong = append(r.result.Wrong, fmt.Sprintf("%s:%d: %s", r.scenario.Name, line, text))
	}
}

func (r *run) do(st step) error {
	switch do := st.do.(type) {
	case network:
		n := r.fleet.network
		do.change(&n)
		r.fleet.SetNetwork(n)
	case stepWall:
		for _, runner := range r.fleet.runners {
			runner.StepWall(do.by)
		}
	case newPolicy:
		return r.fleet.SetPolicy(r.scenario.Name, r.scenario.policies[do.name])
	case asks:
		r.fleet.Advance(0)
		if n := r.fleet.Service().Asks(); n != do.n {
			r.wrong(st.line, fmt.Sprintf("%d calls have asked for units, want %d", n, do.n))
		}
	case *requests:
		r.until = max(r.until, st.at+time.Duration(do.times-1)*do.every)
		for i := range do.times {
			send := func() { r.send(st, do, i) }
			if do.every == 0 {
				send()
			} else {
				r.fleet.after(time.Duration(i)*do.every, send)
			}
		}
	}
	return nil
}

func (r *run) send(st step, do *requests, i int) {
	worker := do.worker
	if worker < 0 {
		worker = i % len(r.fleet.runners)
	}
	x := r.fleet.Send(worker, do.request)
	r.sent = append(r.sent, sent{
		line: st.line, number: i, of: do.times, worker: worker, at: r.fleet.Now(), exchange: x, expect: do.expect[i],
	})
	if do.leaves > 0 {
		r.fleet.after(do.leaves, func() { r.fleet.Leave(x) })
	}
}

// String tells the result in a few words.
func (r Result) String() string {
	if !r.Passed() {
		return strings.Join(r.Wrong, "\n")
	}
	return fmt.Sprintf("%d requests, %d asks, %v", r.Requests, r.Asks, r.Took)
}
