package wasmhost

// half is one direction of a stream: the request, or the response. It calls the
// guest with headers, body and trailers, holds back what the guest holds back,
// and collects what goes on.
type half struct {
	s        *Stream
	response bool

	// What the guest can reach. A map or body is gone once it was let go.
	headers, trailers               Headers
	headersVisible, trailersVisible bool
	chunk                           []byte
	chunkVisible                    bool
	end                             bool // no more follows what it was last told of

	// kept is body that is held back; keeping: the guest sees all of it each time.
	kept    []byte
	keeping bool

	// What is held back, and why.
	headersHeld, bodyHeld, trailersHeld bool
	// What came meanwhile.
	waitingBody     []byte
	waitingEnd      bool
	waitingTrailers Headers
	hasTrailers     bool

	// The running callback, and whether the guest continued the stream in it.
	inCallback, continued bool

	started bool // the guest was told of the headers
	out     Message
	sent    bool // the headers went on
}

// Message is a request or a response: as it was sent, or so far.
type Message struct {
	Headers  Headers
	Body     []byte
	Trailers Headers
	// End: it is complete.
	End bool
}

func (m Message) clone() Message {
	m.Headers, m.Trailers = m.Headers.clone(), m.Trailers.clone()
	m.Body = append([]byte(nil), m.Body...)
	return m
}

func (d *half) paused() bool { return d.headersHeld || d.bodyHeld || d.trailersHeld }

// name is the export that hears of a part of this half.
func (d *half) name(part string) string {
	if d.response {
		return "proxy_on_response_" + part
	}
	return "proxy_on_request_" + part
}

// call runs one callback, and tells whether the stream goes on as before.
func (d *half) call(part string, args ...uint64) (action uint64, alive bool) {
	s := d.s
	d.inCallback, d.continued = true, false
	answered := s.answers
	action, called := s.vm.callback(s.ctx, d.name(part), append([]uint64{uint64(s.ctx.id)}, args...)...)
	d.inCallback = false
	if s.vm.failed && !called {
		s.instanceFailed()
	}
	if s.ended || s.answers != answered || s.closing {
		return action, false
	}
	if d.continued {
		action = actionContinue
	}
	return action, true
}

func oneIf(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (d *half) takeHeaders(h Headers, end bool) {
	d.headers, d.headersVisible, d.end, d.started = h.clone(), true, end, true
	if d.s.bypass() {
		d.releaseHeaders()
		return
	}
	action, alive := d.call("headers", uint64(len(d.headers)), oneIf(end))
	if !alive {
		return
	}
	if action != actionContinue && action != actionContinueAndEnd {
		d.headersHeld = true
		return
	}
	d.headersVisible = false
	d.releaseHeaders()
}

// releaseHeaders sends the headers on, and then tells the guest of what came
// while they were held.
func (d *half) releaseHeaders() {
	d.headersHeld = false
	if !d.sent {
		d.sent = true
		d.out.Headers = d.headers.clone()
		d.s.headersOut(d)
	}
	if d.end {
		d.finish()
		return
	}
	if d.waitingBody != nil || d.waitingEnd {
		body, end := d.waitingBody, d.waitingEnd
		d.waitingBody, d.waitingEnd = nil, false
		d.takeBody(body, end)
	}
	if d.hasTrailers && !d.s.ended {
		t := d.waitingTrailers
		d.waitingTrailers, d.hasTrailers = nil, false
		d.takeTrailers(t)
	}
}

func (d *half) takeBody(data []byte, end bool) {
	if d.s.ended || d.out.End {
		return
	}
	if d.headersHeld {
		d.waitingBody = append(append([]byte{}, d.waitingBody...), data...)
		d.waitingEnd = d.waitingEnd || end
		return
	}
	kept := d.keeping
	d.chunk, d.chunkVisible, d.end = append([]byte{}, data...), true, end
	if kept {
		d.kept = append(d.kept, data...)
		d.chunk = nil
	}
	if d.s.bypass() {
		d.releaseBody()
		return
	}
	action, alive := d.call("body", uint64(len(*d.body())), oneIf(end))
	if !alive {
		return
	}
	d.keeping = action == actionPause
	d.bodyHeld = action != actionContinue
	if !d.bodyHeld {
		d.chunkVisible = false
		d.releaseBody()
		return
	}
	if action < actionNoBuffer {
		d.kept = append(d.kept, d.chunk...)
	}
	d.chunk = nil
}

// body is what the guest sees as the body: all that is kept, or one chunk.
func (d *half) body() *[]byte {
	if d.keeping {
		return &d.kept
	}
	return &d.chunk
}

func (d *half) releaseBody() {
	d.bodyHeld = false
	d.out.Body = append(append(d.out.Body, d.kept...), d.chunk...)
	d.kept, d.chunk = nil, nil
	if d.end {
		d.releaseTrailers()
	}
}

func (d *half) takeTrailers(t Headers) {
	if d.s.ended || d.out.End {
		return
	}
	if d.headersHeld {
		d.waitingTrailers, d.hasTrailers = t, true
		return
	}
	d.trailers, d.trailersVisible, d.end = t.clone(), true, true
	if !d.s.bypass() {
		action, alive := d.call("trailers", uint64(len(t)))
		if !alive {
			return
		}
		if d.trailersHeld = action != actionContinue; d.trailersHeld {
			return
		}
	}
	d.trailersVisible = false
	d.bodyHeld = false
	d.releaseBody()
}

func (d *half) releaseTrailers() {
	d.trailersHeld = false
	d.out.Trailers = d.trailers.clone()
	d.finish()
}

func (d *half) finish() {
	if !d.out.End {
		d.out.End = true
		d.s.halfDone(d)
	}
}

// resume is what proxy_continue_stream comes to, after the callback.
func (d *half) resume() {
	switch {
	case d.inCallback:
		d.s.violate(ContinuedUnpaused, "continued in the callback that could have returned Continue")
		d.continued = true
	case d.headersHeld:
		d.releaseHeaders()
	case d.bodyHeld || d.trailersHeld:
		d.bodyHeld, d.trailersHeld, d.keeping = false, false, false
		d.releaseBody()
	default:
		d.s.violate(ContinuedUnpaused, "the stream was not paused")
	}
}

// mutableTrailers are trailers that the guest may write: those that came, or,
// with the last of the body, new ones.
func (d *half) mutableTrailers() *Headers {
	if !d.trailersVisible && d.chunkVisible && d.end {
		d.trailersVisible = true
	}
	if !d.trailersVisible {
		return nil
	}
	return &d.trailers
}
