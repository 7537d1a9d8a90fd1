package host

import (
	"time"

	"sluice/shared/instant"
)

// ContextID names a stream, as the proxy numbers them.
type ContextID uint32

// CallID names a call under way, as the proxy numbers them.
type CallID uint32

// Header is a field's name, in lower case, and its value, any bytes.
type Header [2]string

// Level is a log line's severity.
type Level uint8

// The log levels that the filter uses.
const (
	Debug Level = iota
	Info
	Warn
	Error
)

// Metric names a counter or gauge of the proxy's.
type Metric uint32

// Proxy is what the filter may ask of the proxy.
type Proxy interface {
	// Now reads the monotonic clock. Steps of the wall clock do not touch it.
	Now() instant.Instant
	// Random gives 64 random bits.
	Random() uint64
	Log(level Level, message string)
	// SetTick asks for Plugin.Tick every period, about; 0 stops it.
	SetTick(period time.Duration)

	// RequestHeader reads a header of the request, by its name in lower case, and counts the fields of that name; of several,
	// it gives their values joined by commas, and those of cookie by semicolons. Valid only during Plugin.RequestHeaders, as
	// the value is: what is kept is copied.
	RequestHeader(name string) (value string, fields int)
	// Property reads an attribute of the proxy's by its path, such as {"source", "address"}; false where there is none.
	Property(path ...string) (string, bool)
	// AddResponseHeader adds a field. Valid only during Plugin.ResponseHeaders.
	AddResponseHeader(name, value string)

	// Continue lets a paused request go on to the upstream. False where the stream is gone.
	Continue(stream ContextID) bool
	// Respond answers a request, paused or just seen, in the upstream's place: exactly once for a stream. grpcStatus is
	// negative where the request is no gRPC request. False where the stream is gone.
	Respond(stream ContextID, status int, headers []Header, body string, grpcStatus int) bool

	// Call sends one unary HTTP/2 request to a cluster. Its end arrives in Plugin.CallEnded, exactly once, unless the
	// proxy loses it: the caller keeps a deadline of its own. An error where the proxy refuses, as for an unknown cluster.
	Call(cluster string, headers []Header, body []byte, timeout time.Duration) (CallID, error)

	// Counter and Gauge define a metric once, when the plugin starts; a name defined twice is the same metric.
	Counter(name string) Metric
	Gauge(name string) Metric
	// Add changes a counter or gauge by delta.
	Add(metric Metric, delta int64)
	// Record sets a gauge.
	Record(metric Metric, value int64)
}

// Reply is how a call ended. Its strings and bytes are valid only during Plugin.CallEnded: what is kept is copied.
type Reply interface {
	// Header reads a response header, by its name in lower case; ":status" is the HTTP status. The reply to a call that
	// failed or timed out has none.
	Header(name string) (string, bool)
	Trailer(name string) (string, bool)
	// Body reads the whole body, at most limit bytes; false where it is longer.
	Body(limit int) ([]byte, bool)
}

// Action is what becomes of a request whose headers the plugin has seen.
type Action uint8

// The actions on a request.
const (
	// Proceed sends the request on.
	Proceed Action = iota
	// Pause holds the request until Proxy.Continue or Proxy.Respond; also what is returned after Respond.
	Pause
)

// Plugin is what the proxy tells the filter. One instance lives in every worker, and one on the proxy's main thread,
// which ticks and never sees a request.
type Plugin interface {
	// Start gives the plugin its configuration: JSON, where the proxy has a google.protobuf.Struct; else the bytes that the
	// proxy has. False refuses it. A proxy may configure one plugin again.
	Start(configuration []byte) bool
	Tick()
	RequestHeaders(stream ContextID) Action
	// ResponseHeaders sees the upstream's answer, the plugin's own (Proxy.Respond), and that of a filter behind this one; no
	// answer of a filter before it, for then the request is never seen either.
	ResponseHeaders(stream ContextID)
	// Done says that a stream is over that the plugin was told of, whatever came before: its client left, or the answer was
	// sent. It is told once, and nothing of the stream is told after it.
	Done(stream ContextID)
	CallEnded(call CallID, reply Reply)
	// Stop says that the plugin is shut down or will be replaced. True: it may go at once, and is told nothing more. False: it
	// is asked again after each callback that may follow; in Envoy none does, where no other configuration shares the VM.
	Stop() bool
}
