package wasmhost

import (
	"slices"
	"strings"
)

// MetricKind is the kind of a metric, with the ABI's numbers.
type MetricKind uint32

// The kinds of ABI 0.2.1.
const (
	Counter MetricKind = iota
	Gauge
	Histogram
)

// Metric is a metric that guests have defined. All instances share those of the
// same kind and name.
type Metric struct {
	Kind MetricKind
	Name string
	// Value of a counter or a gauge.
	Value uint64
	// Samples of a histogram: how many, and their sum.
	Count, Sum uint64
}

// metricStore holds the values, metricHandles an instance's ids for them.
type metricStore struct {
	byName map[metricKey]*Metric
}

type metricKey struct {
	kind MetricKind
	name string
}

func (m *metricStore) init() { m.byName = map[metricKey]*Metric{} }

// maxMetrics bounds the names, and each instance's handles: Envoy has no bound,
// and a filter that makes a metric for each request shows here.
const maxMetrics = 100_000

func (m *metricStore) define(kind MetricKind, name string) *Metric {
	key := metricKey{kind, name}
	if found := m.byName[key]; found != nil {
		return found
	}
	if len(m.byName) >= maxMetrics {
		return nil
	}
	made := &Metric{Kind: kind, Name: name}
	m.byName[key] = made
	return made
}

// Metrics are all metrics that guests have defined, by name and kind.
func (h *Host) Metrics() []Metric {
	out := make([]Metric, 0, len(h.metrics.byName))
	for _, m := range h.metrics.byName {
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b Metric) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return int(a.Kind) - int(b.Kind)
	})
	return out
}

// Metric is the value of the counter, or else the gauge, of that name; ok is
// false if no guest has defined one.
func (h *Host) Metric(name string) (value uint64, ok bool) {
	for _, kind := range []MetricKind{Counter, Gauge} {
		if m := h.metrics.byName[metricKey{kind, name}]; m != nil {
			return m.Value, true
		}
	}
	return 0, false
}

// metricHandles are the ids that one instance was given. As in Envoy the low two
// bits are the kind, and each definition gives another id.
type metricHandles struct {
	byID map[uint32]*Metric
	last uint32
}

func (m *metricHandles) init() { m.byID = map[uint32]*Metric{} }

const (
	metricKindMask    = 3
	metricIDIncrement = 4
)

func (v *vm) defineMetric(kind uint32, name string) (uint32, Status) {
	if kind > uint32(Histogram) {
		return 0, StatusBadArgument
	}
	m := v.host.metrics.define(MetricKind(kind), name)
	if m == nil || len(v.metrics.byID) >= maxMetrics {
		return 0, StatusInternalFailure
	}
	v.metrics.last += metricIDIncrement
	id := v.metrics.last | kind
	v.metrics.byID[id] = m
	return id, StatusOK
}

func (v *vm) incrementMetric(id uint32, offset int64) Status {
	kind, m := MetricKind(id&metricKindMask), v.metrics.byID[id]
	switch {
	case kind != Counter && kind != Gauge:
		return StatusBadArgument
	case m == nil:
		return StatusNotFound
	case kind == Counter && offset <= 0:
		return StatusBadArgument
	}
	m.Value += uint64(offset)
	return StatusOK
}

func (v *vm) recordMetric(id uint32, value uint64) Status {
	m := v.metrics.byID[id]
	if m == nil {
		return StatusNotFound
	}
	switch m.Kind {
	case Counter: // Envoy adds.
		m.Value += value
	case Gauge:
		m.Value = value
	case Histogram:
		m.Count++
		m.Sum += value
	}
	return StatusOK
}

func (v *vm) getMetric(id uint32) (uint64, Status) {
	kind, m := MetricKind(id&metricKindMask), v.metrics.byID[id]
	switch {
	case kind != Counter && kind != Gauge:
		return 0, StatusBadArgument
	case m == nil:
		return 0, StatusNotFound
	}
	return m.Value, StatusOK
}
