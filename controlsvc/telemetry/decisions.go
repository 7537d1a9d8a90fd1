package telemetry

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/shared/admission"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

const (
	// otherLimits is what decisions under limits are counted as that the policy in force does not have, or for which there
	// is no room.
	otherLimits = "(other)"
	// maxDecisionSeries bounds the series of decisions: of limit, route, window, result and source.
	maxDecisionSeries = 8192
)

// decision is what a decision is counted by.
type decision struct {
	limit, route string
	window       time.Duration
	result       wire.Result
	source       uint8
}

// decisions counts what workers report of their decisions: each request once, as the result says, and what limits in shadow
// would have made of it besides.
type decisions struct {
	total, near    *prometheus.CounterVec
	reports, lost  prometheus.Counter
	waits, waited  prometheus.Counter
	away           prometheus.Counter
	upstream, asks prometheus.Histogram

	mu     sync.RWMutex
	limits map[string]bool // of the policy in force
	series map[decision]prometheus.Counter
}

func newDecisions(registry prometheus.Registerer) *decisions {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	d := &decisions{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_decisions_total",
			Help: "Requests decided, as the workers report them, by limit (the one that denied, else the one with least left; " +
				"empty: none), route (the policy's path pattern), window of the rate that decided, result (admitted, denied, " +
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
		limits: map[string]bool{}, series: make(map[decision]prometheus.Counter),
	}
	registry.MustRegister(d.total, d.near, d.reports, d.lost, d.waits, d.waited, d.away, d.upstream, d.asks)
	return d
}

// setPolicy drops the series of limits that the policy does not have.
func (d *decisions) setPolicy(p *policy.Policy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.limits
	d.limits = make(map[string]bool, len(p.Limits))
	for i := range p.Limits {
		d.limits[p.Limits[i].Name] = true
		d.near.WithLabelValues(p.Limits[i].Name)
	}
	for name := range before {
		if !d.limits[name] {
			d.total.DeletePartialMatch(prometheus.Labels{"limit": name})
			d.near.DeletePartialMatch(prometheus.Labels{"limit": name})
		}
	}
	for known := range d.series {
		if before[known.limit] && !d.limits[known.limit] {
			delete(d.series, known)
		}
	}
}

func (d *decisions) report(r *wire.Report) {
	d.reports.Inc()
	for i := range r.Tallies {
		t := &r.Tallies[i]
		if t.Count <= 0 || t.Result < wire.Admitted || t.Result > wire.Left {
			continue
		}
		what := decision{d.name(t.Limit), t.Route, t.Window, t.Result, t.Source}
		d.counter(what).Add(float64(t.Count))
		if t.Near > 0 && what.limit != "" {
			d.near.WithLabelValues(what.limit).Add(float64(t.Near))
		}
	}
	d.lost.Add(float64(max(r.KeysLost, 0)))
	d.waits.Add(float64(max(r.Waits, 0)))
	d.waited.Add(max(r.Waited, 0).Seconds())
	d.away.Add(max(r.Away, 0).Seconds())
	for _, micros := range r.UpstreamMicros {
		d.upstream.Observe(float64(micros) / 1e6)
	}
}

// name gives what a limit is called in metrics.
func (d *decisions) name(limit string) string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if limit == "" || d.limits[limit] {
		return limit
	}
	if of, _, is := policy.CutRate(limit); is && d.limits[of] {
		return of // a call of Envoy's own rate limit filter brought its own rate
	}
	return otherLimits
}

// counter gives what counts a decision. Where there is no room for another series it is one that says less.
func (d *decisions) counter(what decision) prometheus.Counter {
	d.mu.RLock()
	known := d.series[what]
	d.mu.RUnlock()
	if known != nil {
		return known
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if what.limit != "" && !d.limits[what.limit] || len(d.series) >= maxDecisionSeries {
		what = decision{limit: otherLimits, result: what.result, source: what.source}
	}
	if known := d.series[what]; known != nil {
		return known
	}
	window := ""
	if what.window > 0 {
		window = strconv.FormatFloat(what.window.Seconds(), 'f', -1, 64) + "s"
	}
	added := d.total.WithLabelValues(what.limit, what.route, window, what.result.String(), admission.Source(what.source).String())
	d.series[what] = added
	return added
}
