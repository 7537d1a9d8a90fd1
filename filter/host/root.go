package host

import (
	"errors"
	"strconv"
	"time"

	"sluice/shared/instant"
)

// maxLogLine is how many bytes of a message are logged; what is beyond it is cut off.
const maxLogLine = 4096

// noMetric is a metric that could not be defined.
const noMetric = ^Metric(0)

// root is a root context: one plugin configuration in one VM, and the proxy as its plugin sees it.
type root struct {
	*instance

	id      uint32
	plugin  Plugin
	calls   calls
	reply   reply
	current uint32 // the context whose callback is running
	// headers is the request's, read once in a callback, at the first question.
	headers fields
	// stopping: the host wants the plugin gone, and waits for proxy_done. stopped: the plugin is told nothing any more.
	stopping, stopped bool
}

var _ Proxy = (*root)(nil)

func (r *root) start(configuration []byte) bool {
	r.enter(r.id)
	accepted := r.plugin.Start(configuration)
	r.leave()
	return accepted
}

// stop asks the plugin whether it may go at once; if not, leave asks it again after each of its callbacks.
func (r *root) stop() bool {
	if r.stopped {
		return true
	}
	r.stopped = r.plugin.Stop()
	r.stopping = !r.stopped
	return r.stopped
}

// enter begins a callback in a context; the host has put it into effect.
func (r *root) enter(context uint32) { r.current = context }

// leave ends a callback.
func (r *root) leave() {
	r.current, r.headers = r.id, nil
	if r.stopping && r.plugin.Stop() {
		r.stopping, r.stopped = false, true
		r.check(r.abi.setEffectiveContext(r.id))
		r.check(r.abi.done())
		delete(r.roots, r.id)
	}
}

func (r *root) Now() instant.Instant { return now() }

func (r *root) Random() uint64 { return random() }

func (r *root) Log(level Level, message string) {
	if len(message) > maxLogLine {
		message = message[:maxLogLine]
	}
	r.check(r.abi.log(level, message))
}

// SetTick rounds the period up to whole milliseconds.
func (r *root) SetTick(period time.Duration) { r.check(r.abi.setTickPeriod(millis(period))) }

// RequestHeader reads them all at the first question. In Envoy that costs about as much as two questions for one field,
// each of which has Envoy ask the filter for memory, and only so are several fields of one name seen: of those, a question
// for one gives the first, also of several cookie fields in HTTP/1.
func (r *root) RequestHeader(name string) (string, int) {
	return r.field(&r.headers, requestHeaders, name)
}

// Property gives a string as it is, and a number or a bool as the bytes that Envoy keeps it in, little-endian.
func (r *root) Property(path ...string) (string, bool) {
	value, st := r.abi.property(path)
	if st != statusOK && st != statusNotFound {
		r.fault()
	}
	return value, st == statusOK
}

// field looks for a field in a header map, which is asked for where it is not there yet.
func (r *root) field(in *fields, from mapType, name string) (string, int) {
	if *in == nil {
		found, st := r.abi.headers(from)
		if !r.check(st) {
			found = noFields{}
		}
		*in = found
	}
	return (*in).find(name)
}

func (r *root) AddResponseHeader(name, value string) {
	r.check(r.abi.addResponseHeader(name, value))
}

func (r *root) Continue(id ContextID) bool {
	s := r.open(id)
	if s == nil {
		return false
	}
	if s.asking {
		s.settled = true // by what the callback returns, for the host must not be told twice
		return true
	}
	if !r.effective(uint32(id)) {
		return false
	}
	s.settled = true
	ok := r.check(r.abi.continueRequest())
	r.restore(uint32(id))
	return ok
}

func (r *root) Respond(id ContextID, code int, headers []Header, body string, grpcStatus int) bool {
	s := r.open(id)
	if s == nil || !r.effective(uint32(id)) {
		return false
	}
	s.settled, s.answered = true, true
	ok := r.check(r.abi.sendLocalResponse(uint32(code), headers, body, int32(max(grpcStatus, -1))))
	r.restore(uint32(id))
	return ok
}

// open gives a stream that may still be sent on or answered; nil where it is gone, or was already.
func (r *root) open(id ContextID) *stream {
	s := r.streams.Get(id)
	if s == nil || s.root != r {
		return nil
	}
	if s.settled {
		r.fault()
		return nil
	}
	return s
}

// effective makes the host act on a context other than the one that is called back. False where that context is gone.
func (r *root) effective(context uint32) bool {
	return context == r.current || r.check(r.abi.setEffectiveContext(context))
}

// restore takes back what effective did.
func (r *root) restore(context uint32) {
	if context != r.current {
		r.check(r.abi.setEffectiveContext(r.current))
	}
}

func (r *root) Call(cluster string, headers []Header, body []byte, timeout time.Duration) (CallID, error) {
	// The root's own call, so that its end is told also when the stream that made it has gone.
	if !r.effective(r.id) {
		return 0, errors.New("calling " + cluster + ": the plugin's root context is gone")
	}
	id, st := r.abi.httpCall(cluster, headers, body, max(millis(timeout), 1))
	r.restore(r.id)
	if st != statusOK {
		return 0, callError(cluster, st)
	}
	r.calls.add(id)
	return id, nil
}

func callError(cluster string, st status) error {
	switch st {
	case statusBadArgument:
		return errors.New("calling " + cluster + ": the proxy knows no such cluster, or a header is missing of :method, :path and :authority")
	case statusInternalFailure:
		return errors.New("calling " + cluster + ": the proxy could not send the request")
	default:
		return errors.New("calling " + cluster + ": the proxy answered with status " + strconv.Itoa(int(st)))
	}
}

func (r *root) Counter(name string) Metric { return r.define(counterMetric, name) }

func (r *root) Gauge(name string) Metric { return r.define(gaugeMetric, name) }

// Add changes a counter only upwards, as Envoy does.
func (r *root) Add(m Metric, delta int64) {
	switch {
	case m >= Metric(len(r.metrics)) || delta == 0:
	case r.metrics[m].kind == counterMetric && delta < 0:
		r.fault()
	default:
		r.check(r.abi.incrementMetric(r.metrics[m].id, delta))
	}
}

// Record sets the gauge of the whole proxy, which its workers share: the last one wins.
func (r *root) Record(m Metric, value int64) {
	if m < Metric(len(r.metrics)) {
		r.check(r.abi.recordMetric(r.metrics[m].id, uint64(value)))
	}
}

// millis rounds a duration up to whole milliseconds, as the ABI has them; 0 where it is not positive.
func millis(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	const longest = 24 * time.Hour
	return uint32((min(d, longest) + time.Millisecond - 1) / time.Millisecond)
}
