package wasmhost

import (
	"fmt"
	"time"
)

// Request is what a client sends.
type Request struct {
	// Headers should have :method, :path, :authority and, unless it is http,
	// :scheme.
	Headers  Headers
	Body     []byte
	Trailers Headers
	// Open: more of the body follows, by Stream.SendBody.
	Open bool
	// Source is the client's address and port; empty means 127.0.0.1:50000.
	Source string
	// ConnectionID is the connection's; 0 means a new connection.
	ConnectionID uint64
	// Properties are what only this stream can read; they go before the Host's
	// and before what the headers give.
	Properties []Property
}

// Kind is what has become of a request so far.
type Kind uint8

const (
	// Pending: the filter holds the request.
	Pending Kind = iota
	// Continued: the filter has let the request pass to the upstream.
	Continued
	// LocalReply: the filter has answered it; or, if the instance has failed, the
	// proxy.
	LocalReply
	// Closed: the filter has reset the stream.
	Closed
	// Cancelled: the client left before anything else became of it.
	Cancelled
)

// String is the kind in one word.
func (k Kind) String() string {
	if names := [...]string{"pending", "continued", "local reply", "closed", "cancelled"}; int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", k)
}

// Outcome is what has become of a request so far. All but Kind and At is for
// LocalReply, and is what the filter asked for; Stream.Response is what the
// client was sent.
type Outcome struct {
	Kind Kind
	// At is the monotonic clock's reading when it was decided; 0 while Pending.
	At      time.Duration
	Status  int
	Headers Headers
	Body    string
	// GRPCStatus is a gRPC status code, -1 for none.
	GRPCStatus int32
	// Details is Envoy's response code details.
	Details string
}

// String is the outcome in a few words.
func (o Outcome) String() string {
	if o.Kind == LocalReply {
		return fmt.Sprintf("local reply %d %q", o.Status, o.Body)
	}
	return o.Kind.String()
}

// Stream is one request and its response.
type Stream struct {
	worker  *Worker
	vm      *vm
	root    *rootContext
	ctx     *guestContext
	request Request
	started time.Duration
	// skipped: the filter is not in the chain.
	skipped bool

	req, resp half
	local     *Outcome
	decided   time.Duration // when the request was released or answered
	answers   int           // local replies so far, to notice one
	failReply bool          // the proxy answered for a failed instance

	closing   bool // reset by the filter, or cancelled, or complete: being torn down
	closed    bool
	cancelled bool
	logging   bool
	ended     bool

	// properties that the guest has set.
	set map[string][]byte
	own *propertyNode
}

// Request sends a request that is complete with its headers, and runs the filter
// on it. On the main thread, and after Stop, it passes without the filter.
func (w *Worker) Request(headers Headers) *Stream { return w.Send(Request{Headers: headers}) }

// Send sends a request, and runs the filter on it.
func (w *Worker) Send(r Request) *Stream {
	h := w.host
	defer h.enter()()
	if r.ConnectionID == 0 {
		h.lastConnection++
		r.ConnectionID = h.lastConnection
	}
	if r.Source == "" {
		r.Source = "127.0.0.1:50000"
	}
	w.reloadIfDue()
	v := w.vm
	s := &Stream{worker: w, vm: v, root: v.root, request: r, started: h.clock.mono, own: buildProperties(r.Properties)}
	s.req.s, s.resp.s, s.resp.response = s, s, true
	s.ctx = &guestContext{vm: v, root: v.root, stream: s}
	s.skipped = v.failed && h.cfg.Failure == FailOpen || w.index == mainThread || v.root.retired
	if !s.skipped && !v.failed {
		s.ctx = v.addContext(v.root, s)
		v.root.streams++
		v.callback(s.ctx, "proxy_on_context_create", uint64(s.ctx.id), uint64(v.root.id))
	}
	whole := !r.Open && r.Trailers == nil
	s.req.takeHeaders(r.Headers, whole && r.Body == nil)
	if r.Body != nil {
		s.req.takeBody(r.Body, whole)
	}
	if r.Trailers != nil {
		s.req.takeTrailers(r.Trailers)
	}
	return s
}

// SendBody sends more of an open request's body. After the last, nothing more
// can be sent.
func (s *Stream) SendBody(data []byte, last bool) {
	defer s.worker.host.enter()()
	s.req.takeBody(data, last)
}

// SendTrailers ends an open request with trailers.
func (s *Stream) SendTrailers(t Headers) {
	defer s.worker.host.enter()()
	s.req.takeTrailers(t)
}

// Worker is the worker that the stream belongs to.
func (s *Stream) Worker() *Worker { return s.worker }

// ContextID is the stream's context in the guest, 0 if it has none.
func (s *Stream) ContextID() uint32 { return s.ctx.id }

// Started is the monotonic clock's reading when the request came.
func (s *Stream) Started() time.Duration { return s.started }

// Ended tells whether all is over: the response complete, or the client gone.
func (s *Stream) Ended() bool { return s.ended }

// Outcome is what has become of the request so far.
func (s *Stream) Outcome() Outcome {
	switch {
	case s.local != nil:
		out := *s.local
		out.Headers = out.Headers.clone()
		return out
	case s.closed:
		return Outcome{Kind: Closed, At: s.decided}
	case s.released():
		return Outcome{Kind: Continued, At: s.decided}
	case s.cancelled:
		return Outcome{Kind: Cancelled, At: s.decided}
	}
	return Outcome{Kind: Pending}
}

// released tells whether the upstream has all of the request that came so far.
func (s *Stream) released() bool { return s.req.sent && !s.req.paused() }

// Upstream is what the upstream has been sent so far.
func (s *Stream) Upstream() Message { return s.req.out.clone() }

// Response is what the client has been sent so far.
func (s *Stream) Response() Message { return s.resp.out.clone() }

// RespondUpstream has the upstream answer, without a body, and gives the headers
// that the client is sent: nil if the filter holds them, or if the request never
// went to the upstream or is over.
func (s *Stream) RespondUpstream(headers Headers) Headers {
	s.RespondHeaders(headers, true)
	return s.resp.out.Headers.clone()
}

// Respond has the upstream answer with the whole message, End or not.
func (s *Stream) Respond(m Message) {
	s.RespondHeaders(m.Headers, len(m.Body) == 0 && m.Trailers == nil)
	if len(m.Body) > 0 {
		s.RespondBody(m.Body, m.Trailers == nil)
	}
	if m.Trailers != nil {
		s.RespondTrailers(m.Trailers)
	}
}

// RespondHeaders begins the upstream's response; last says that it ends there. It
// does nothing, as do the next two, unless the request has been let through and
// has not been answered.
func (s *Stream) RespondHeaders(headers Headers, last bool) {
	defer s.worker.host.enter()()
	if s.answerable() && !s.resp.started {
		s.resp.takeHeaders(headers, last)
	}
}

// RespondBody sends more of the upstream's response.
func (s *Stream) RespondBody(data []byte, last bool) {
	defer s.worker.host.enter()()
	if s.answerable() && s.resp.started {
		s.resp.takeBody(data, last)
	}
}

// RespondTrailers ends the upstream's response.
func (s *Stream) RespondTrailers(t Headers) {
	defer s.worker.host.enter()()
	if s.answerable() && s.resp.started {
		s.resp.takeTrailers(t)
	}
}

func (s *Stream) answerable() bool { return s.req.sent && s.local == nil && !s.closing }

// Cancel is the client leaving. The filter hears of it by on_log, on_done and
// on_delete. Nothing happens if the stream has ended.
func (s *Stream) Cancel() {
	defer s.worker.host.enter()()
	if s.closing {
		return
	}
	s.cancelled = true
	s.decide()
	s.end()
}

// decide notes when the request's fate was settled, the first time.
func (s *Stream) decide() {
	if s.decided == 0 {
		s.decided = s.worker.host.clock.mono
	}
}

// headersOut and halfDone hear from the two directions.
func (s *Stream) headersOut(d *half) {
	if !d.response {
		s.decide()
	}
}

func (s *Stream) halfDone(d *half) {
	if d.response {
		s.end()
	}
}

// reset is proxy_close_stream.
func (s *Stream) reset() {
	if s.closing {
		return
	}
	s.closed = true
	s.decide()
	s.end()
}

// end tears the stream down, in Envoy's order: log, done, delete.
func (s *Stream) end() {
	if s.closing {
		return
	}
	s.closing = true
	v, id := s.vm, uint64(s.ctx.id)
	if s.ctx.id != 0 {
		s.hideAll()
		s.logging = true
		v.callback(s.ctx, "proxy_on_log", id)
		s.logging = false
		v.callback(s.ctx, "proxy_on_done", id)
		v.callback(s.ctx, "proxy_on_delete", id)
		delete(v.contexts, s.ctx.id)
		s.root.streams--
	}
	s.ended = true
	s.req.kept, s.req.waitingBody, s.resp.kept, s.resp.waitingBody = nil, nil, nil, nil
	if s.ctx.id != 0 {
		v.retireIfIdle(s.root)
	}
}

// hideAll: once a stream is torn down, the guest reaches nothing of it but, in
// on_log, the headers.
func (s *Stream) hideAll() {
	for _, d := range []*half{&s.req, &s.resp} {
		d.headersVisible, d.trailersVisible, d.chunkVisible = false, false, false
	}
}

func (s *Stream) violate(kind ViolationKind, detail string) {
	s.worker.host.violate(s.ctx, kind, detail)
}

// bypass tells whether the filter's callbacks are left out.
func (s *Stream) bypass() bool {
	return s.skipped || s.failReply || s.vm.failed && s.worker.host.cfg.Failure == FailOpen
}
