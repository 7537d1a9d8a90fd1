package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/controlsvc/overlay"
	"sluice/controlsvc/traffic"
)

// gathered are the metrics that are asked for at each scrape.
type gathered struct {
	now            func() traffic.Now
	leases, units  *prometheus.Desc
	out, unitsOut  *prometheus.Desc
	filters        *prometheus.Desc
	workers, stale *prometheus.Desc
	away           *prometheus.Desc
	// ages are of the youngest, the median and the oldest.
	ages [3]*prometheus.Desc
}

// Traffic has leases and workers reported as they are at each scrape. It may be called once.
func (m *Metrics) Traffic(now func() traffic.Now) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.registry.MustRegister(&gathered{
		now:    now,
		leases: desc("sluice_leases_total", "Leases granted, by limit.", "limit"),
		units: desc("sluice_lease_units_total", "Units of leases by limit and event: granted; spent, returned (as the workers "+
			"report); expired (nobody reported to this replica); elsewhere (reported here, granted by another replica or life of "+
			"this one: take it from the sum of the expired).", "limit", "event"),
		out:      desc("sluice_leases_out", "Leases granted here that are out."),
		unitsOut: desc("sluice_lease_units_out", "Units of the leases granted here that are out."),
		filters: desc("sluice_filters", "Filters that called this replica within the last minute, with those that have decided "+
			"nothing: there is one on each Envoy's main thread."),
		workers: desc("sluice_workers", "Workers that decide requests, of the filters that called this replica within the last minute."),
		stale:   desc("sluice_workers_stale", "Workers of those that decide by another policy than the one in force here."),
		away: desc("sluice_workers_away", "Workers of those that, as they reported a moment ago, had given the service or its store up: "+
			"their breaker was open, and on_unavailable decided."),
		ages: [3]*prometheus.Desc{
			desc("sluice_worker_age_youngest_seconds", "How long the youngest of the workers has lived."),
			desc("sluice_worker_age_median_seconds", "How long the workers have lived: the median."),
			desc("sluice_worker_age_oldest_seconds", "How long the oldest of the workers has lived."),
		},
	})
}

// Describe implements prometheus.Collector.
func (g *gathered) Describe(to chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{g.leases, g.units, g.out, g.unitsOut, g.filters, g.workers, g.stale, g.away}, g.ages[:]...) {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gathered) Collect(to chan<- prometheus.Metric) {
	now := g.now()
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	for limit, l := range now.Leases {
		counter(g.leases, l.Leases, limit)
		counter(g.units, l.Granted, limit, "granted")
		counter(g.units, l.Spent, limit, "spent")
		counter(g.units, l.Returned, limit, "returned")
		counter(g.units, l.Expired, limit, "expired")
		counter(g.units, l.Elsewhere, limit, "elsewhere")
	}
	gauge(g.out, float64(now.Out))
	gauge(g.unitsOut, float64(now.OutUnits))
	gauge(g.filters, float64(now.Filters))
	gauge(g.workers, float64(now.Workers))
	gauge(g.stale, float64(now.Stale))
	gauge(g.away, float64(now.Away))
	if slices.Sort(now.Ages); len(now.Ages) > 0 {
		last := len(now.Ages) - 1
		for i, at := range []int{0, last / 2, last} {
			gauge(g.ages[i], now.Ages[at])
		}
	}
}

// laid is what is asked of the overlay at each scrape.
type laid struct {
	health               func() overlay.Health
	items, age, failures *prometheus.Desc
}

// Overlay has what operators set for a while reported as it is at each scrape. It may be called once.
func (m *Metrics) Overlay(health func() overlay.Health) {
	m.registry.MustRegister(&laid{
		health: health,
		items:  prometheus.NewDesc("sluice_overlay_items", "Overrides, blocks and allows that operators have set, by kind.", []string{"kind"}, nil),
		age: prometheus.NewDesc("sluice_overlay_age_seconds", "How long ago the store last gave what operators have set: it is "+
			"asked every second.", nil, nil),
		failures: prometheus.NewDesc("sluice_overlay_failures_total", "How often the store did not give what operators have set.", nil, nil),
	})
}

// Describe implements prometheus.Collector.
func (l *laid) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.items, l.age, l.failures} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (l *laid) Collect(to chan<- prometheus.Metric) {
	now := l.health()
	for kind, n := range now.Items {
		to <- prometheus.MustNewConstMetric(l.items, prometheus.GaugeValue, float64(n), string(kind))
	}
	to <- prometheus.MustNewConstMetric(l.age, prometheus.GaugeValue, now.Age.Seconds())
	to <- prometheus.MustNewConstMetric(l.failures, prometheus.CounterValue, float64(now.Failures))
}
