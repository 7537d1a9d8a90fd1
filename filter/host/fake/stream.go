package fake

import (
	"strconv"
	"strings"

	"sluice/filter/host"
	"sluice/shared/instant"
)

// Fate is what has become of a request.
type Fate uint8

// The fates of a request.
const (
	// Waiting: the filter holds it.
	Waiting Fate = iota
	// Passed: it went on to the upstream.
	Passed
	// Answered: the filter answered in the upstream's place.
	Answered
	// Gone: its client left while it was waiting.
	Gone
)

// String gives the fate's name.
func (f Fate) String() string { return [...]string{"waiting", "passed", "answered", "gone"}[f] }

// Stream is a request and what has become of it.
type Stream struct {
	ID         host.ContextID
	Headers    []host.Header
	Properties map[string]string
	Arrived    instant.Instant
	Fate       Fate
	// Decided is when the fate was decided.
	Decided instant.Instant
	// Status, Body, GRPCStatus and Response are the filter's own answer; Response then also holds what ResponseHeaders
	// added, to that or to the upstream's.
	Status     int
	Body       string
	GRPCStatus int
	Response   []host.Header

	seen bool // RequestHeaders has returned
	over bool // Done was called
}

// Field reads a response header.
func (s *Stream) Field(name string) (string, bool) { return lookup(s.Response, name) }

// Request gives the filter a request, as a proxy does, and what becomes of it at once. Properties are keyed by their paths
// joined with dots.
func (p *Proxy) Request(plugin host.Plugin, headers []host.Header, properties map[string]string) *Stream {
	p.lastID++
	s := &Stream{ID: p.lastID, Headers: headers, Properties: properties, Arrived: p.Clock, GRPCStatus: -1}
	p.streams[s.ID] = s
	p.current = s
	action := plugin.RequestHeaders(s.ID)
	p.current = nil
	s.seen = true
	switch {
	case action == host.Proceed && s.Fate == Waiting:
		s.Fate, s.Decided = Passed, p.Clock
	case action == host.Proceed:
		p.misuse(name(s.ID) + ": Proceed, and " + s.Fate.String())
	}
	return s
}

// Reply lets the upstream's answer, or the filter's own, pass the filter on its way back.
func (p *Proxy) Reply(plugin host.Plugin, s *Stream) {
	p.current, p.replying = s, true
	plugin.ResponseHeaders(s.ID)
	p.current, p.replying = nil, false
}

// End ends the stream: its answer is complete, or its client left.
func (p *Proxy) End(plugin host.Plugin, s *Stream) {
	if s.over {
		return
	}
	s.over = true
	if s.Fate == Waiting {
		s.Fate, s.Decided = Gone, p.Clock
	}
	delete(p.streams, s.ID)
	plugin.Done(s.ID)
}

// RequestHeader reads a header of the request that is being shown to the filter.
func (p *Proxy) RequestHeader(header string) (string, int) {
	if p.current == nil || p.replying {
		p.misuse("request header " + header + " read outside of RequestHeaders")
		return "", 0
	}
	return find(p.current.Headers, header)
}

// Property reads an attribute of the request that is being shown to the filter.
func (p *Proxy) Property(path ...string) (string, bool) {
	if p.current == nil {
		return "", false
	}
	value, found := p.current.Properties[strings.Join(path, ".")]
	if !found {
		value, found = p.current.Properties[strings.Join(path, "/")]
	}
	return value, found
}

// AddResponseHeader adds to the response that is being shown to the filter.
func (p *Proxy) AddResponseHeader(header, value string) {
	if p.current == nil || !p.replying {
		p.misuse("response header " + header + " added outside of ResponseHeaders")
		return
	}
	p.current.Response = append(p.current.Response, host.Header{header, value})
}

// Continue lets a paused request pass.
func (p *Proxy) Continue(id host.ContextID) bool {
	s, there := p.streams[id]
	switch {
	case !there:
		p.misuse(name(id) + ": Continue, but it is gone")
		return false
	case s.Fate != Waiting:
		p.misuse(name(id) + ": Continue, but it is " + s.Fate.String())
		return false
	case !s.seen:
		p.misuse(name(id) + ": Continue within RequestHeaders")
	}
	s.Fate, s.Decided = Passed, p.Clock
	return true
}

// Respond answers a request.
func (p *Proxy) Respond(id host.ContextID, status int, headers []host.Header, body string, grpcStatus int) bool {
	s, there := p.streams[id]
	switch {
	case !there:
		p.misuse(name(id) + ": Respond, but it is gone")
		return false
	case s.Fate != Waiting:
		p.misuse(name(id) + ": Respond, but it is " + s.Fate.String())
		return false
	}
	s.Fate, s.Decided = Answered, p.Clock
	s.Status, s.Body, s.GRPCStatus = status, body, grpcStatus
	s.Response = append(s.Response, headers...)
	return true
}

func name(id host.ContextID) string { return "stream " + strconv.Itoa(int(id)) }

// Reply is how a call ended; the zero value is one that failed.
type Reply struct {
	Headers, Trailers []host.Header
	Content           []byte
}

// Header reads a response header.
func (r *Reply) Header(name string) (string, bool) { return lookup(r.Headers, name) }

// Trailer reads a trailer.
func (r *Reply) Trailer(name string) (string, bool) { return lookup(r.Trailers, name) }

// Body reads the body, within the limit.
func (r *Reply) Body(limit int) ([]byte, bool) {
	if len(r.Content) > limit {
		return nil, false
	}
	return append([]byte(nil), r.Content...), true
}

// Finish ends a call. What the reply lent to the filter is overwritten afterwards, as a proxy may do.
func (p *Proxy) Finish(plugin host.Plugin, id host.CallID, reply Reply) {
	lent := &lender{Reply: reply}
	plugin.CallEnded(id, lent)
	for i := range lent.body {
		lent.body[i] = 0xa5
	}
}

// lender is a reply that knows what it gave away.
type lender struct {
	Reply
	body []byte
}

// Body gives a copy of the body, for as long as the callback lasts.
func (l *lender) Body(limit int) ([]byte, bool) {
	body, ok := l.Reply.Body(limit)
	l.body = body
	return body, ok
}
