package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice/testharness/load"
	"sluice/testharness/rig"
)

// contender is one of those that are compared.
type contender struct {
	name     string
	listener string
	path     string
	status   int
	// service and store are the processes that it works with; nil: none.
	service, store *rig.Process
}

// The contenders that the others are compared with, and the one that the targets are about.
const (
	plainName  = "no filter"
	globalName = "Envoy's global ratelimit, service answers OK at once"
	leaseName  = "Sluice, `lease`, on Redis"
)

func (f *fleet) contenders() []contender {
	if f.matchings != nil {
		all := make([]contender, len(matchings))
		for i, m := range matchings {
			all[i] = m.contender(f.matchings[i].Process)
		}
		return all
	}
	memory, redis := f.memory.Process, f.onRedis.Process
	return []contender{
		{name: plainName, listener: noFilter, path: "/plain", status: http.StatusOK},
		{name: "Envoy's local_ratelimit", listener: localFilter, path: "/local", status: http.StatusOK},
		{name: leaseName, listener: onRedis, path: "/lease", status: http.StatusOK, service: redis, store: f.redis.Process},
		{name: "Sluice, `lease`, on memory", listener: onMemory, path: "/lease", status: http.StatusOK, service: memory},
		{name: "Sluice, `strict`, on memory", listener: onMemory, path: "/strict", status: http.StatusOK, service: memory},
		{name: "Sluice, `strict`, on Redis", listener: onRedis, path: "/strict", status: http.StatusOK, service: redis, store: f.redis.Process},
		{name: globalName, listener: globalFilter, path: "/global", status: http.StatusOK, service: f.global},
		{name: "Sluice, a standing denial (429)", listener: onRedis, path: "/denial", status: http.StatusTooManyRequests, service: redis, store: f.redis.Process},
	}
}

// sample is what one contender did in one round.
type sample struct {
	perSecond           float64
	envoy, service, kv  time.Duration // CPU time for each request; kv is Redis'
	typical, nearly     time.Duration // the 50th and the 99th percentile of the open loop
	unexpected, missing int64         // answers with another status, requests without an answer
}

func (s sample) cpu() time.Duration { return s.envoy + s.service + s.kv }

// measure has one contender's turn: a closed loop for what it can do and what that costs, then an open loop at a rate that
// is the same for all, for how long an answer takes.
func (f *fleet) measure(ctx context.Context, c contender, o options, closed closedLoop) (sample, error) {
	target := f.measured.Listener(c.listener)
	before, err := f.cpuTimes(c)
	if err != nil {
		return sample{}, err
	}
	did, err := closed(ctx, target, c.path, o.lasts)
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", c.name, err)
	}
	after, err := f.cpuTimes(c)
	if err != nil {
		return sample{}, err
	}
	per := func(i int) time.Duration { return (after[i] - before[i]) / time.Duration(did.requests) }
	s := sample{perSecond: float64(did.requests) / did.took.Seconds(), envoy: per(0), service: per(1), kv: per(2), unexpected: did.refused}
	if c.status != http.StatusOK {
		s.unexpected = did.requests - did.refused
	}
	err = f.open(ctx, c, o, &s)
	return s, err
}

// open sends requests when they are due, whether or not earlier ones were answered.
func (f *fleet) open(ctx context.Context, c contender, o options, s *sample) error {
	var latency load.Histogram
	err := load.Run(ctx, load.Options{
		Targets: []string{f.measured.Listener(c.listener)},
		Flows:   []load.Flow{{Request: tenantRequest(c.path), Arrivals: load.Fixed(o.rate), Connections: 16}},
		For:     o.lasts,
		Observe: func(r load.Record) {
			switch {
			case r.Err != nil:
				s.missing++
			case r.Status != c.status:
				s.unexpected++
			}
			latency.Add(r.Latency())
		},
	})
	s.typical, s.nearly = latency.Quantile(0.5), latency.Quantile(0.99)
	return err
}

// cpuTimes gives the times of Envoy, of the service and of the store.
func (f *fleet) cpuTimes(c contender) ([3]time.Duration, error) {
	var times [3]time.Duration
	for i, p := range []*rig.Process{f.measured.Process, c.service, c.store} {
		if p == nil {
			continue
		}
		var err error
		if times[i], err = cpuTime(p.PID()); err != nil {
			return times, err
		}
	}
	return times, nil
}

// compare runs all contenders in turn, round after round, each round starting with another one. What slows the machine
// down for a while then slows all of them.
func (f *fleet) compare(ctx context.Context, o options, closed closedLoop, told func(string, ...any)) ([]contender, [][]sample, error) {
	all := slices.DeleteFunc(f.contenders(), func(c contender) bool {
		return !strings.Contains(c.name, o.only) && c.name != plainName && c.name != globalName && c.name != leaseName
	})
	samples := make([][]sample, len(all))
	for _, c := range all { // the connections are made, the code is compiled, the limit that denies is used up
		if _, err := closed(ctx, f.measured.Listener(c.listener), c.path, time.Second); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for round := range o.rounds {
		told("round %d of %d", round+1, o.rounds)
		for i := range all {
			i = (i + round) % len(all)
			s, err := f.measure(ctx, all[i], o, closed)
			if err != nil {
				return nil, nil, err
			}
			samples[i] = append(samples[i], s)
			told("  %-55s %6.0f/s  CPU %v  p50 %v  p99 %v", all[i].name, s.perSecond, s.cpu(), s.typical, s.nearly)
		}
	}
	return all, samples, nil
}
