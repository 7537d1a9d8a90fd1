// Package fake is a proxy for tests: its clock stands still until it is told to move, it keeps every call and answer that
// the filter makes, and it complains of what a real proxy would not forgive.
package fake

import (
	"errors"
	"strconv"
	"time"

	"sluice/filter/host"
	"sluice/shared/instant"
)

// ErrRefused is what Proxy.Call answers while Refuse is set, as a proxy does for a cluster that it does not know.
var ErrRefused = errors.New("the proxy refuses the call")

// Call is one that the filter made.
type Call struct {
	ID      host.CallID
	Cluster string
	Headers []host.Header
	Body    []byte
	Timeout time.Duration
	Sent    instant.Instant
}

// Header reads one of the call's own headers.
func (c *Call) Header(name string) (string, bool) { return lookup(c.Headers, name) }

// Proxy implements host.Proxy.
type Proxy struct {
	// Clock is what Now gives.
	Clock instant.Instant
	// Period is what the filter last asked for by SetTick.
	Period time.Duration
	// Calls are those made and not yet taken by TakeCalls, in order.
	Calls []*Call
	// Refuse makes every Call fail.
	Refuse bool
	// Lines are the log lines, each with its level before it.
	Lines []string
	// Misuse holds a line for each thing that the filter must not do: answer twice, answer a stream that is gone, read a
	// header outside of its callback.
	Misuse []string

	random   uint64
	lastCall host.CallID
	streams  map[host.ContextID]*Stream
	lastID   host.ContextID
	current  *Stream
	replying bool // within ResponseHeaders
	metrics  []metric
}

type metric struct {
	name  string
	value int64
}

// New gives a proxy whose random numbers follow from the seed. Its clock starts an hour after its origin.
func New(seed uint64) *Proxy {
	return &Proxy{
		Clock: instant.Instant(0).Add(time.Hour), random: seed, streams: map[host.ContextID]*Stream{}, lastID: 1,
	}
}

// Advance moves the clock.
func (p *Proxy) Advance(d time.Duration) { p.Clock = p.Clock.Add(d) }

// TakeCalls gives the calls made since it was last asked.
func (p *Proxy) TakeCalls() []*Call {
	calls := p.Calls
	p.Calls = nil
	return calls
}

// Value gives a metric's value by its name; false where it was not defined.
func (p *Proxy) Value(name string) (int64, bool) {
	for _, m := range p.metrics {
		if m.name == name {
			return m.value, true
		}
	}
	return 0, false
}

func (p *Proxy) misuse(what string) { p.Misuse = append(p.Misuse, what) }

// Now gives Clock.
func (p *Proxy) Now() instant.Instant { return p.Clock }

// Random gives the next number of the sequence that the seed began (splitmix64).
func (p *Proxy) Random() uint64 {
	p.random += 0x9e3779b97f4a7c15
	z := p.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Log keeps the line.
func (p *Proxy) Log(level host.Level, message string) {
	p.Lines = append(p.Lines, [...]string{"debug", "info", "warn", "error"}[level]+": "+message)
}

// SetTick keeps the period; whoever drives the clock ticks by it.
func (p *Proxy) SetTick(period time.Duration) { p.Period = period }

// Call keeps a copy of the call.
func (p *Proxy) Call(cluster string, headers []host.Header, body []byte, timeout time.Duration) (host.CallID, error) {
	if p.Refuse {
		return 0, ErrRefused
	}
	if timeout <= 0 {
		p.misuse("a call without a timeout")
	}
	p.lastCall++
	p.Calls = append(p.Calls, &Call{
		ID: p.lastCall, Cluster: cluster, Headers: append([]host.Header(nil), headers...),
		Body: append([]byte(nil), body...), Timeout: timeout, Sent: p.Clock,
	})
	return p.lastCall, nil
}

// Counter defines a metric.
func (p *Proxy) Counter(name string) host.Metric { return p.define(name) }

// Gauge defines a metric.
func (p *Proxy) Gauge(name string) host.Metric { return p.define(name) }

func (p *Proxy) define(name string) host.Metric {
	for i, m := range p.metrics {
		if m.name == name {
			return host.Metric(i)
		}
	}
	p.metrics = append(p.metrics, metric{name: name})
	return host.Metric(len(p.metrics) - 1)
}

// Add changes a metric.
func (p *Proxy) Add(m host.Metric, delta int64) {
	if int(m) >= len(p.metrics) {
		p.misuse("metric " + strconv.Itoa(int(m)) + " was never defined")
		return
	}
	p.metrics[m].value += delta
}

// Record sets a metric.
func (p *Proxy) Record(m host.Metric, value int64) {
	if int(m) >= len(p.metrics) {
		p.misuse("metric " + strconv.Itoa(int(m)) + " was never defined")
		return
	}
	p.metrics[m].value = value
}

// lookup gives a field's value, of several joined, and whether there is one.
func lookup(headers []host.Header, name string) (string, bool) {
	value, fields := find(headers, name)
	return value, fields > 0
}

func find(headers []host.Header, name string) (string, int) {
	separator := ","
	if name == "cookie" {
		separator = "; "
	}
	value, fields := "", 0
	for _, h := range headers {
		if h[0] != name {
			continue
		}
		if fields++; fields > 1 {
			value += separator
		}
		value += h[1]
	}
	return value, fields
}
