package filterrun

import (
	"context"
	"time"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/instant"
	"sluice/testharness/wasmhost"
)

// cluster is the one that Refuse takes down: the default of the plugin's configuration.
const cluster = "sluice"

// monotonicBegan is what the monotonic clock says at first, and wallBegan what the wall clock said when it was 0.
const monotonicBegan = time.Hour

var wallBegan = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// Wasm runs the filter as the proxy loads it, in wasmhost.
type Wasm struct {
	ctx     context.Context //nolint:containedctx // every call into the guest wants it
	module  []byte
	seed    uint64
	host    *wasmhost.Host
	streams []*wasmhost.Stream
	made    []*fake.Call
	byID    map[host.CallID]*wasmhost.Call
	last    host.CallID
	failure error // why there is no host
	stepped time.Duration
}

var _ Runner = (*Wasm)(nil)

// NewWasm gives a runner of a module that begins with Start. Its random numbers follow from the seed.
func NewWasm(ctx context.Context, module []byte, seed uint64) *Wasm {
	return &Wasm{ctx: ctx, module: module, seed: seed, byID: map[host.CallID]*wasmhost.Call{}}
}

// Host is where the filter runs; nil before Start.
func (w *Wasm) Host() *wasmhost.Host { return w.host }

// Start implements Runner.
func (w *Wasm) Start(configuration string) bool {
	if w.host != nil {
		return w.host.Reconfigure([]byte(configuration)) == nil
	}
	if w.load(configuration) == nil {
		return true
	}
	// A host that refuses to begin has no log to look at; one that refuses to go on has.
	if w.failure = w.load("{}"); w.failure == nil {
		_ = w.host.Reconfigure([]byte(configuration))
	}
	return false
}

func (w *Wasm) load(configuration string) error {
	var err error
	w.host, err = wasmhost.New(w.ctx, w.module, wasmhost.Config{
		PluginConfig: []byte(configuration), Seed: w.seed, HTTPCall: w.call, LogLevel: wasmhost.LogDebug,
		Wall: wallBegan.Add(monotonicBegan), Monotonic: monotonicBegan,
	})
	return err
}

// call keeps a call for Calls.
func (w *Wasm) call(c *wasmhost.Call) wasmhost.Reply {
	w.last++
	w.byID[w.last] = c
	w.made = append(w.made, &fake.Call{
		ID: w.last, Cluster: c.Cluster, Headers: headersOf(c.Headers), Body: c.Body, Timeout: c.Timeout,
		Sent: instant.Instant(0).Add(c.Sent),
	})
	return wasmhost.Reply{Lost: true}
}

// Now implements Runner.
func (w *Wasm) Now() instant.Instant { return instant.Instant(0).Add(w.host.Now()) }

// NextTick implements Runner.
func (w *Wasm) NextTick() (time.Duration, bool) { return w.host.NextEvent() }

// Advance implements Runner.
func (w *Wasm) Advance(d time.Duration) { w.host.Advance(d) }

// StepWall implements Runner.
func (w *Wasm) StepWall(d time.Duration) {
	w.stepped += d
	w.host.SetWall(wallBegan.Add(w.host.Now() + w.stepped))
}

// Request implements Runner.
func (w *Wasm) Request(headers []host.Header, properties map[string]string) int {
	r := wasmhost.Request{}
	for _, h := range headers {
		r.Headers = append(r.Headers, h)
	}
	for path, value := range properties {
		r.Properties = append(r.Properties, wasmhost.StringProperty(value, PropertyPath(path)...))
	}
	w.streams = append(w.streams, w.host.Worker(0).Send(r))
	return len(w.streams) - 1
}

// Outcome implements Runner.
func (w *Wasm) Outcome(request int) Outcome {
	s := w.streams[request]
	o := s.Outcome()
	out := Outcome{
		Arrived: instant.Instant(0).Add(s.Started()), Decided: instant.Instant(0).Add(o.At),
		Status: o.Status, Body: o.Body, GRPCStatus: int(o.GRPCStatus), Headers: headersOf(o.Headers),
	}
	switch o.Kind {
	case wasmhost.Continued:
		out.Fate = fake.Passed
	case wasmhost.LocalReply:
		out.Fate = fake.Answered
	case wasmhost.Cancelled, wasmhost.Closed:
		out.Fate = fake.Gone
	default:
		out.Fate = fake.Waiting
	}
	return out
}

// Respond implements Runner. To a request that waits the proxy gives no answer of its own.
func (w *Wasm) Respond(request int) []host.Header {
	s := w.streams[request]
	s.RespondUpstream(wasmhost.Headers{{":status", "200"}})
	var out []host.Header
	for _, h := range s.Response().Headers {
		if h[0] != ":status" && h[0] != "content-length" { // those are the proxy's
			out = append(out, h)
		}
	}
	return out
}

// End implements Runner.
func (w *Wasm) End(request int) { w.streams[request].Cancel() }

// Calls implements Runner.
func (w *Wasm) Calls() []*fake.Call {
	made := w.made
	w.made = nil
	return made
}

// Finish implements Runner. A call that this runner never made is left alone: a proxy numbers its own.
func (w *Wasm) Finish(call *fake.Call, reply fake.Reply) {
	c := w.byID[call.ID]
	if c == nil {
		return
	}
	r := wasmhost.Reply{Headers: fieldsOf(reply.Headers), Trailers: fieldsOf(reply.Trailers), Body: reply.Content}
	r.Reset = len(reply.Headers) == 0
	if !c.Respond(r) {
		c.RespondAgain(r)
	}
	w.host.Advance(0)
}

// Refuse implements Runner.
func (w *Wasm) Refuse(on bool) { w.host.SetClusterDown(cluster, on) }

// Metric implements Runner.
func (w *Wasm) Metric(name string) int64 {
	w.host.Advance(w.host.Worker(0).TickPeriod())
	value, there := w.host.Metric(name)
	if !there {
		return -1
	}
	return int64(value)
}

// Log implements Runner.
func (w *Wasm) Log() []string {
	if w.failure != nil {
		return []string{"error: " + w.failure.Error()}
	}
	var lines []string
	for _, l := range w.host.Logs() {
		var level string
		switch l.Level {
		case wasmhost.LogInfo:
			level = "info"
		case wasmhost.LogWarn:
			level = "warn"
		case wasmhost.LogError, wasmhost.LogCritical:
			level = "error"
		default:
			level = "debug"
		}
		lines = append(lines, level+": "+l.Message)
	}
	return lines
}

// Misuse implements Runner.
func (w *Wasm) Misuse() []string {
	var lines []string
	if w.host == nil {
		return lines
	}
	for _, v := range w.host.Violations() {
		lines = append(lines, v.String())
	}
	for _, t := range w.host.Traps() {
		lines = append(lines, "trap in "+t.Callback+": "+t.Message+"\n"+t.Stderr)
	}
	return lines
}

// Stop implements Runner.
func (w *Wasm) Stop() bool { return w.host.Worker(0).Stop() }

// Close implements Runner.
func (w *Wasm) Close() {
	if w.host != nil {
		_ = w.host.Close()
	}
}

func headersOf(from wasmhost.Headers) []host.Header {
	out := make([]host.Header, 0, len(from))
	for _, h := range from {
		out = append(out, h)
	}
	return out
}

func fieldsOf(from []host.Header) wasmhost.Headers {
	out := make(wasmhost.Headers, 0, len(from))
	for _, h := range from {
		out = append(out, h)
	}
	return out
}
