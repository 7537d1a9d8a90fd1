// Package telemetry says what the service does: Prometheus metrics, and logs as lines of JSON.
package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"

	"sluice/controlsvc/traffic"
	"sluice/shared/admission"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// Metrics counts what the service does, in a registry of its own. It is what the authority and the server observe with.
// No identity of a caller is ever in a label.
type Metrics struct {
	registry  *prometheus.Registry
	decisions *decisions
	syncs     *prometheus.CounterVec
	asked     *prometheus.CounterVec
	answered  *prometheus.CounterVec
	strangers prometheus.Counter
	rollbacks prometheus.Counter
	leaked    prometheus.Counter
	lostLines prometheus.Counter
	sheds     prometheus.Counter
	panics    prometheus.Counter
	policy    *prometheus.GaugeVec
	limits    prometheus.Gauge
	reloads   *prometheus.CounterVec
	reloaded  prometheus.Gauge
	store     *prometheus.HistogramVec
	storeErrs *prometheus.CounterVec

	mu      sync.RWMutex
	labels  map[string]decided
	answers map[answer]prometheus.Counter
}

// decided is a limit's counters.
type decided struct{ admitted, denied, unanswered prometheus.Counter }

// NewMetrics gives metrics that start at 0.
func NewMetrics() *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	registry := prometheus.NewRegistry()
	m := &Metrics{
		registry:  registry,
		decisions: newDecisions(registry),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_sync_total", Help: "Calls of Sync, by gRPC status code.",
		}, []string{"code"}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_asked_total",
			Help: "Requests that workers asked the service for, once for each limit, by result: admitted, denied, unanswered (the store was).",
		}, []string{"limit", "result"}),
		answered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_ratelimit_total",
			Help: "Calls of Envoy's own rate limit filter, once for each limit that had a say, by result (admitted, denied) and source: " +
				"where the verdict was known from. sluice_decisions_total has each of them once, beside those of Sluice's own filter.",
		}, []string{"limit", "result", "source"}),
		strangers: counter("sluice_ratelimit_unknown_domain_total",
			"Calls of Envoy's own rate limit filter for another domain than the policy's, which are answered OK and limited by nothing."),
		rollbacks: counter("sluice_rollbacks_total", "Grants taken back because another limit of the same requests denied."),
		leaked:    counter("sluice_leaked_charges_total", "Charges that could not be taken back and run out of their windows instead."),
		lostLines: counter("sluice_log_lost_total", "Lines of the denial log that were lost, for more came than could be written."),
		sheds:     counter("sluice_shed_total", "Calls refused because too many were under way."),
		panics:    counter("sluice_panics_total", "Calls that panicked, each a bug."),
		policy: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_policy_info", Help: "1 for the version of the policy that is in force.",
		}, []string{"domain", "version"}),
		limits: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_policy_limits", Help: "Limits in the policy that is in force.",
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_policy_reloads_total", Help: "Readings of the policy file after the first, by result: applied, unchanged, invalid.",
		}, []string{"result"}),
		reloaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_policy_last_reload_successful", Help: "1 while the policy in force is what the file said when it was last read, else 0.",
		}),
		store: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_store_seconds", Help: "How long a call of the store took, by operation, failed ones included.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
		}, []string{"operation"}),
		storeErrs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_store_errors_total", Help: "Operations that the store failed, by operation.",
		}, []string{"operation"}),
		labels: make(map[string]decided), answers: make(map[answer]prometheus.Counter),
	}
	m.registry.MustRegister(
		m.syncs, m.asked, m.answered, m.strangers, m.rollbacks, m.leaked, m.lostLines, m.sheds, m.panics, m.policy, m.limits, m.reloads,
		m.reloaded, m.store, m.storeErrs,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.syncs.WithLabelValues(codes.OK.String())
	for _, result := range []ReloadResult{ReloadApplied, ReloadUnchanged, ReloadInvalid} {
		m.reloads.WithLabelValues(string(result))
	}
	m.reloaded.Set(1)
	return m
}

// Watch reports numbers that are asked for at each scrape: the charges that wait to be taken back, and the calls under
// way. It may be called once.
func (m *Metrics) Watch(owed, inFlight func() int) {
	gauge := func(name, help string, now func() int) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(now()) }))
	}
	gauge("sluice_owed_charges", "Charges that nobody was admitted for and that wait for the store, to be taken back.", owed)
	gauge("sluice_in_flight", "Calls under way.", inFlight)
}

// Handler serves the metrics in the formats that Prometheus reads.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// ReloadResult is what came of reading the policy file again.
type ReloadResult string

// The results of a reload.
const (
	ReloadApplied   ReloadResult = "applied"
	ReloadUnchanged ReloadResult = "unchanged"
	ReloadInvalid   ReloadResult = "invalid"
)

// Reloaded counts readings of the policy file.
func (m *Metrics) Reloaded(result ReloadResult) {
	m.reloads.WithLabelValues(string(result)).Inc()
	ok := 1.
	if result == ReloadInvalid {
		ok = 0
	}
	m.reloaded.Set(ok)
}

// Policy says which policy is in force. Its limits have series of their own; those of limits that are gone go too, so that
// a process's life of changes does not add up.
func (m *Metrics) Policy(p *policy.Policy) {
	m.policy.Reset()
	m.policy.WithLabelValues(p.Domain, p.Version).Set(1)
	m.limits.Set(float64(len(p.Limits)))
	m.decisions.setPolicy(p)
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.answers)
	before := m.labels
	m.labels = make(map[string]decided, len(p.Limits))
	for i := range p.Limits {
		name := p.Limits[i].Name
		d, known := before[name]
		if !known {
			d = m.series(name) // a limit that nobody has met yet counts 0, not nothing
		}
		m.labels[name] = d
	}
	for name := range before {
		if _, stays := m.labels[name]; !stays {
			m.asked.DeletePartialMatch(prometheus.Labels{"limit": name})
			m.answered.DeletePartialMatch(prometheus.Labels{"limit": name})
		}
	}
}

// Decided counts requests that were asked for and that a limit admitted, denied, or had no answer for from the store.
func (m *Metrics) Decided(limit string, admitted, denied, unanswered int64) {
	d := m.limit(limit)
	d.admitted.Add(float64(admitted))
	d.denied.Add(float64(denied))
	d.unanswered.Add(float64(unanswered))
}

// limit gives the counters of a limit. One that the policy in force does not have, for a call that began under another, is
// counted with others.
func (m *Metrics) limit(name string) decided {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if d, found := m.labels[name]; found {
		return d
	}
	return m.series(traffic.Other)
}

func (m *Metrics) series(label string) decided {
	return decided{
		admitted:   m.asked.WithLabelValues(label, "admitted"),
		denied:     m.asked.WithLabelValues(label, "denied"),
		unanswered: m.asked.WithLabelValues(label, "unanswered"),
	}
}

// answer is what calls of Envoy's own rate limit filter are counted by.
type answer struct {
	limit  string
	denied bool
	source admission.Source
}

// Answered counts a call of Envoy's own rate limit filter under one of its limits.
func (m *Metrics) Answered(limit string, denied bool, source admission.Source) {
	m.mu.RLock()
	counter, found := m.answers[answer{limit, denied, source}]
	m.mu.RUnlock()
	if !found {
		counter = m.newAnswer(answer{limit, denied, source})
	}
	counter.Inc()
}

func (m *Metrics) newAnswer(a answer) prometheus.Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	label, result := a.limit, "admitted"
	if a.denied {
		result = "denied"
	}
	_, known := m.labels[a.limit]
	if !known {
		label = traffic.Other
	}
	counter := m.answered.WithLabelValues(label, result, a.source.String())
	if known {
		m.answers[a] = counter
	}
	return counter
}

// UnknownDomain counts a call of Envoy's own rate limit filter for another domain than the policy's.
func (m *Metrics) UnknownDomain() { m.strangers.Inc() }

// RolledBack counts grants that were taken back because another limit of the same requests denied.
func (m *Metrics) RolledBack(grants int) { m.rollbacks.Add(float64(grants)) }

// Leaked counts charges that could not be taken back.
func (m *Metrics) Leaked(charges int) { m.leaked.Add(float64(charges)) }

// Called counts a worker's call, and how much it asks for.
func (m *Metrics) Called(asks int) { m.decisions.asks.Observe(float64(asks)) }

// Reported counts what a worker has decided.
func (m *Metrics) Reported(report *wire.Report) { m.decisions.report(report) }

// Synced counts calls of Sync by their outcome.
func (m *Metrics) Synced(code codes.Code) { m.syncs.WithLabelValues(code.String()).Inc() }

// Shed counts calls that were refused because too many were under way.
func (m *Metrics) Shed() { m.sheds.Inc() }

// Panicked counts calls that panicked.
func (m *Metrics) Panicked() { m.panics.Inc() }

// NewLogger gives a logger that writes lines of JSON.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}
