package policytest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/tools/txtar"
)

// Bounds on a scenario.
const (
	maxRequests = 100_000
	maxPlugin   = 64 << 10
)

// Scenario is one that was read.
type Scenario struct {
	// Name is the file's.
	Name string
	// About is the text before the files.
	About string

	workers    int
	plugin     string
	policyName string            // the file that the first policy is from
	policies   map[string][]byte // by name; with as many empty lines before them as stand before them in the file
	steps      []step
	requests   int
}

// step is one thing that happens.
type step struct {
	line int
	at   time.Duration
	do   action
}

// action is a requests, a network, a newPolicy, an asks or a stepWall.
type action any

// requests is a line that sends some.
type requests struct {
	worker  int // counted from 0; -1 is each in turn
	times   int
	every   time.Duration
	leaves  time.Duration // 0: never
	request Request
	expect  []expectation
}

type newPolicy struct{ name string }

type asks struct{ n int }

type stepWall struct{ by time.Duration }

// network changes one thing about it.
type network struct{ change func(*Network) }

// ReadScenario reads a scenario file, and the policy beside it where there is none in it.
func ReadScenario(file string) (*Scenario, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	beside := strings.TrimSuffix(file, filepath.Ext(file)) + ".yaml"
	policy, err := os.ReadFile(beside)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return parseScenario(file, text, beside, policy)
}

// ParseScenario reads a scenario; name is what mistakes are told of. Errors have the name and the line.
func ParseScenario(name string, text []byte) (*Scenario, error) {
	return parseScenario(name, text, "", nil)
}

// parseScenario takes the policy of the file beside it, which may be nil, where the scenario has none.
func parseScenario(name string, text []byte, beside string, policy []byte) (*Scenario, error) {
	archive := txtar.Parse(text)
	s := &Scenario{Name: name, policyName: name, About: strings.TrimSpace(string(archive.Comment)), policies: map[string][]byte{}}
	var script []byte
	first := 0
	line := 1 + bytes.Count(archive.Comment, []byte("\n"))
	for _, file := range archive.Files {
		line++ // its "-- NAME --"
		if file.Name == "requests" {
			script, first = file.Data, line
		} else {
			s.policies[file.Name] = append(bytes.Repeat([]byte("\n"), line-1), file.Data...)
		}
		line += bytes.Count(file.Data, []byte("\n"))
	}
	if s.policies["policy.yaml"] == nil && policy != nil {
		s.policies["policy.yaml"], s.policyName = policy, beside
	}
	if s.policies["policy.yaml"] == nil {
		return nil, fmt.Errorf("%s: no file policy.yaml in it; want a line \"-- policy.yaml --\" and the policy after it", name)
	}
	if first == 0 {
		return nil, fmt.Errorf("%s: no file requests in it; want a line \"-- requests --\" and what happens after it", name)
	}
	for i, text := range strings.Split(string(script), "\n") {
		if err := s.line(first+i, text); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, first+i, err)
		}
	}
	if s.requests == 0 {
		return nil, fmt.Errorf("%s:%d: no request is sent", name, first)
	}
	return s, nil
}

// line reads a line of the requests.
func (s *Scenario) line(number int, text string) error {
	if plugin, is := strings.CutPrefix(strings.TrimSpace(text), "plugin "); is {
		if s.plugin != "" || len(s.steps) > 0 || len(plugin) > maxPlugin {
			return fmt.Errorf("plugin stands once, before what happens, with at most %d bytes", maxPlugin)
		}
		s.plugin = strings.TrimSpace(plugin)
		return nil
	}
	before, after, expects := cutArrow(text)
	w, err := split(before, false)
	if err != nil || w.empty() {
		return err
	}
	if w.take("workers") {
		if s.workers != 0 || len(s.steps) > 0 {
			return fmt.Errorf("workers stands once, before what happens")
		}
		if s.workers, err = w.number("how many workers", 1, maxWorkers); err != nil {
			return err
		}
		return w.end()
	}
	if !w.take("at") {
		return fmt.Errorf("%q; want at, or first workers or plugin", w.rest[0].text)
	}
	at, err := w.duration("the time since the start")
	if err != nil {
		return err
	}
	if n := len(s.steps); n > 0 && at < s.steps[n-1].at {
		return fmt.Errorf("%v is before %v, the time of line %d; want times that never go back", at, s.steps[n-1].at, s.steps[n-1].line)
	}
	do, err := s.action(&w)
	if err != nil {
		return err
	}
	if r, is := do.(*requests); is {
		if !expects {
			return fmt.Errorf("want -> and what is expected after the request")
		}
		if s.requests += r.times; s.requests > maxRequests {
			return fmt.Errorf("more than %d requests", maxRequests)
		}
		if r.expect, err = parseExpectations(after, r.times); err != nil {
			return err
		}
	} else if expects {
		return fmt.Errorf("-> stands after a request only")
	}
	s.steps = append(s.steps, step{number, at, do})
	return w.end()
}

func (s *Scenario) action(w *words) (action, error) {
	switch {
	case w.take("network"):
		return parseNetwork(w)
	case w.take("policy"):
		name, err := w.next("the name of a file in this archive")
		if err == nil && s.policies[name] == nil {
			err = fmt.Errorf("no file %q in this archive", name)
		}
		return newPolicy{name}, err
	case w.take("wall-clock"):
		back := w.take("back")
		if !back && !w.take("forward") {
			return nil, errors.New("want wall-clock forward TIME or back TIME")
		}
		d, err := w.duration("how far it steps")
		if back {
			d = -d
		}
		return stepWall{d}, err
	case w.take("asks"):
		n, err := w.number("how many calls have asked", 0, maxRequests)
		return asks{n}, err
	}
	return s.parseRequests(w)
}

func parseNetwork(w *words) (action, error) {
	const want = "delay TIME, away, loses calls, loses answers, silent or ok"
	text, err := w.next(want)
	if err != nil {
		return nil, err
	}
	switch text {
	case "delay":
		d, err := w.duration("how long a call and its answer take")
		return network{func(n *Network) { n.Delay = d }}, err
	case "away":
		return network{func(n *Network) { n.Away = true }}, nil
	case "silent":
		return network{func(n *Network) { n.Silent = true }}, nil
	case "ok":
		return network{func(n *Network) { *n = Network{Delay: n.Delay} }}, nil
	case "loses":
		switch {
		case w.take("calls"):
			return network{func(n *Network) { n.LosesCalls = true }}, nil
		case w.take("answers"):
			return network{func(n *Network) { n.LosesAnswers = true }}, nil
		}
	}
	return nil, fmt.Errorf("network %s; want %s", text, want)
}

func (s *Scenario) parseRequests(w *words) (action, error) {
	r := &requests{times: 1}
	var err error
	for {
		switch {
		case w.take("worker"):
			if w.take("*") {
				r.worker = -1
				continue
			}
			r.worker, err = w.number("the worker's number, or *", 1, max(1, s.workers))
			r.worker--
		case len(w.rest) > 1 && w.rest[1].text == "times" && !w.rest[1].quoted:
			r.times, err = w.number("how many times", 1, maxRequests)
			w.take("times")
		case w.take("every"):
			r.every, err = w.duration("the time between two")
		case w.take("from"):
			r.request.From, err = w.next("the client's address")
		case w.take("property"):
			err = parseProperty(w, &r.request)
		case w.take("leaves"):
			r.leaves, err = w.duration("how long the client waits")
			if err == nil && r.leaves == 0 {
				err = fmt.Errorf("leaves 0s; want more than nothing")
			}
		default:
			return r, parseRequest(w, &r.request)
		}
		if err != nil {
			return nil, err
		}
	}
}

func parseProperty(w *words, r *Request) error {
	path, err := w.next("the property's path, with slashes between its parts")
	if err != nil {
		return err
	}
	if r.Properties == nil {
		r.Properties = map[string]string{}
	}
	r.Properties[path], err = w.next("the value of " + path)
	return err
}

// parseRequest reads METHOD PATH [NAME: VALUE]… to the end.
func parseRequest(w *words, r *Request) error {
	var err error
	if r.Method, err = w.next("a request, or network, policy or asks"); err != nil {
		return err
	}
	if r.Method == "" || strings.ToUpper(r.Method) != r.Method {
		return fmt.Errorf("%q; want a method such as GET, or network, policy or asks", r.Method)
	}
	if r.Path, err = w.next("a path"); err != nil {
		return err
	}
	if !strings.HasPrefix(r.Path, "/") {
		return fmt.Errorf("%q; want a path that begins with /", r.Path)
	}
	for !w.empty() {
		name, _ := w.next("")
		name, colon := strings.CutSuffix(name, ":")
		if !colon || name == "" {
			return fmt.Errorf("%q; want a header's name with a colon, and its value after it", name)
		}
		value, err := w.next("the value of " + name)
		if err != nil {
			return err
		}
		r.Headers = append(r.Headers, Header{strings.ToLower(name), value})
	}
	return nil
}
