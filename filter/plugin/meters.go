package plugin

import (
	"sluice/filter/control"
	"sluice/filter/host"
	"sluice/shared/admission"
)

// meters counts what happens, and tells the proxy with every tick: a call into the proxy for each count of each request
// would cost more than the decision.
type meters struct {
	requests, admitted, noPolicy, left int64
	denied                             [deniedKinds]int64
	fallback                           int64
	// allowed requests were not under a limit, or any, because of an allow list.
	allowed int64
	// shadowAdmitted and shadowDenied are verdicts of limits in shadow; shadowUnavailable are those that on_unavailable gave
	// while the service was away, which say nothing of the limit.
	shadowAdmitted, shadowDenied, shadowUnavailable int64

	counters [counters]host.Metric
	told     [counters]int64
	keys     host.Metric
	toldKeys int64
}

// Denials by what they rest on.
const (
	deniedByPolicy = iota
	deniedByStore
	deniedByDenial
	deniedByLog
	deniedByFallback
	deniedByLease
	deniedByCount
	deniedByBlock
	deniedKinds
)

// names are the counters', in the order of values.
var names = [...]string{
	"sluice.requests", "sluice.admitted", "sluice.admitted.fallback", "sluice.no_policy", "sluice.left",
	"sluice.denied.policy", "sluice.denied.store", "sluice.denied.denial", "sluice.denied.log", "sluice.denied.fallback",
	"sluice.denied.lease", "sluice.denied.count", "sluice.denied.block",
	"sluice.allowed", "sluice.shadow.admitted", "sluice.shadow.denied", "sluice.shadow.unavailable",
	"sluice.calls", "sluice.failures", "sluice.abandoned", "sluice.surplus", "sluice.dropped_reports", "sluice.held",
}

const counters = len(names)

func (m *meters) values(c *control.Counts) [counters]int64 {
	d := &m.denied
	return [counters]int64{
		m.requests, m.admitted, m.fallback, m.noPolicy, m.left,
		d[deniedByPolicy], d[deniedByStore], d[deniedByDenial], d[deniedByLog], d[deniedByFallback], d[deniedByLease], d[deniedByCount],
		d[deniedByBlock],
		m.allowed, m.shadowAdmitted, m.shadowDenied, m.shadowUnavailable,
		c.Calls, c.Failures, c.Abandoned, c.Surplus, c.Dropped, c.Held,
	}
}

func (m *meters) define(proxy host.Proxy) {
	*m = meters{}
	for i, name := range names {
		m.counters[i] = proxy.Counter(name)
	}
	m.keys = proxy.Gauge("sluice.keys")
}

func (m *meters) decided(out admission.Output) {
	if out.Verdict == admission.Admit {
		m.admitted++
		if out.Source == admission.FromFallback {
			m.fallback++
		}
		return
	}
	switch out.Source {
	case admission.FromPolicy:
		m.denied[deniedByPolicy]++
	case admission.FromStore:
		m.denied[deniedByStore]++
	case admission.FromDenial:
		m.denied[deniedByDenial]++
	case admission.FromLog:
		m.denied[deniedByLog]++
	case admission.FromFallback:
		m.denied[deniedByFallback]++
	case admission.FromLease:
		m.denied[deniedByLease]++
	case admission.FromCount:
		m.denied[deniedByCount]++
	case admission.FromBlock:
		m.denied[deniedByBlock]++
	case admission.FromAllow, admission.FromNoPolicy: // these deny nothing that is decided
	}
}

// shadowed counts a verdict of a limit in shadow, and says whether the limit denied.
func (m *meters) shadowed(out admission.Output) bool {
	switch {
	case out.Source == admission.FromFallback:
		m.shadowUnavailable++
	case out.Verdict == admission.Deny:
		m.shadowDenied++
		return true
	default:
		m.shadowAdmitted++
	}
	return false
}

func (m *meters) publish(proxy host.Proxy, c *control.Counts, keys int) {
	for i, value := range m.values(c) {
		if delta := value - m.told[i]; delta != 0 {
			proxy.Add(m.counters[i], delta)
			m.told[i] = value
		}
	}
	if int64(keys) != m.toldKeys {
		m.toldKeys = int64(keys)
		proxy.Record(m.keys, m.toldKeys)
	}
}
