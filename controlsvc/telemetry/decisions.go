package telemetry

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/controlsvc/traffic"
	"sluice/shared/admission"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// maxDecisionSeries bounds the series of decisions: of limit, route, window, result and source.
const maxDecisionSeries = 8192

// decision is what a decision is counted by.
type decision struct {
	limit, route string
	window       time.Duration
	result       wire.Result
	source       string
}

// decisions counts what workers report of their decisions: each request once, as the result says, and what limits in shadow
// would have made of it besides.
type decisions struct {
	total, near    *prometheus.CounterVec
	reports, lost  prometheus.Counter
	waits, waited  prometheus.Counter
	away           prometheus.Counter
	upstream, asks prometheus.Histogram

	mu     sync.Mutex
	names  *traffic.Names // of the policy in force
	series map[decision]prometheus.Counter
	nears  map[string]prometheus.Counter // of its limits
}

func newDecisions(registry prometheus.Registerer) *decisions {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	d := &decisions{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_decisions_total",
			Help: "Requests decided, as the workers report them, by limit (the one that denied, else the one with least left; " +
				"\"(block)\": the policy's block list; empty: none), route (the policy's path pattern, \"(other)\": not the policy's), " +
				"window of the rate that decided, result (admitted, denied, " +
				"left: the client did, shadow_admitted, shadow_denied: what a limit in shadow says besides) and source.",
		}, []string{"limit", "route", "window", "result", "source"}),
		near: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_near_misses_total", Help: "Requests admitted that left 5 % of their rate or less, by limit.",
		}, []string{"limit"}),
		reports: counter("sluice_reports_total", "Reports taken of workers' decisions."),
		lost:    counter("sluice_report_keys_lost_total", "Requests that are in no key's count, for their worker had no room for it."),
		waits:   counter("sluice_waits_total", "Requests that were paused before they were decided."),
		waited:  counter("sluice_wait_seconds_total", "For how long requests were paused, all together."),
		away:    counter("sluice_fallback_seconds_total", "For how long workers had given the service up, so that on_unavailable decided."),
		upstream: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_upstream_seconds", Help: "How long some of the admitted requests were at the upstream.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		asks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_sync_asks", Help: "How many asks a worker's call has: 0 where it only reports.",
			Buckets: []float64{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
		}),
		names: traffic.NewNames(&policy.Policy{}), series: make(map[decision]prometheus.Counter), nears: make(map[string]prometheus.Counter),
	}
	registry.MustRegister(d.total, d.near, d.reports, d.lost, d.waits, d.waited, d.away, d.upstream, d.asks)
	return d
}

// setPolicy drops the series of limits, routes and windows that the policy does not have.
func (d *decisions) setPolicy(p *policy.Policy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names = traffic.NewNames(p)
	for what := range d.series {
		if d.named(what) != what {
			d.total.DeleteLabelValues(what.labels()...)
			delete(d.series, what)
		}
	}
	for limit := range d.nears {
		if d.names.Limit(limit) != limit {
			d.near.DeleteLabelValues(limit)
			delete(d.nears, limit)
		}
	}
	for i := range p.Limits {
		limit := p.Limits[i].Name
		d.nears[limit] = d.near.WithLabelValues(limit) // one that nobody has met yet counts 0, not nothing
	}
}

func (d *decisions) report(r *wire.Report) {
	d.reports.Inc()
	d.lost.Add(float64(max(r.KeysLost, 0)))
	d.waits.Add(float64(max(r.Waits, 0)))
	d.waited.Add(max(r.Waited, 0).Seconds())
	d.away.Add(max(r.Away, 0).Seconds())
	for _, micros := range r.UpstreamMicros {
		d.upstream.Observe(float64(micros) / 1e6)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range r.Tallies {
		t := &r.Tallies[i]
		if t.Count <= 0 || t.Result < wire.Admitted || t.Result > wire.Left {
			continue
		}
		what := d.named(decision{t.Limit, t.Route, t.Window, t.Result, admission.Source(t.Source).String()})
		d.counter(what).Add(float64(t.Count))
		if near := d.nears[what.limit]; near != nil && t.Near > 0 {
			near.Add(float64(t.Near))
		}
	}
}

// named gives what a decision is counted by under the policy in force.
func (d *decisions) named(what decision) decision {
	what.limit, what.route, what.window = d.names.Limit(what.limit), d.names.Route(what.route), d.names.Window(what.window)
	return what
}

// counter gives what counts a decision. Where there is no room for another series it is one that says less.
func (d *decisions) counter(what decision) prometheus.Counter {
	if len(d.series) >= maxDecisionSeries && d.series[what] == nil {
		what = decision{limit: traffic.Other, result: what.result, source: what.source}
	}
	counter := d.series[what]
	if counter == nil {
		counter = d.total.WithLabelValues(what.labels()...)
		d.series[what] = counter
	}
	return counter
}

// labels are those of the series, in its order.
func (d *decision) labels() []string {
	window := ""
	if d.window > 0 {
		window = strconv.FormatFloat(d.window.Seconds(), 'f', -1, 64) + "s"
	}
	return []string{d.limit, d.route, window, d.result.String(), d.source}
}
