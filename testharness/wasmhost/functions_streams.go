package wasmhost

// streamFunctions are what a guest does to streams and contexts.
var streamFunctions = []hostFunction{
	{"proxy_continue_stream", "i", continueStream},
	{"proxy_close_stream", "i", closeStream},
	{"proxy_send_local_response", "iiiiiiii", sendLocalResponse},
	{"proxy_set_effective_context", "i", setEffectiveContext},
	{"proxy_done", "", func(a *hostCall) Status { return a.vm.done(a.ctx) }},
}

// The three that follow act once the callback has returned, and say OK whatever
// there is to act on: that is Envoy's way.

func continueStream(a *hostCall) Status {
	switch kind := a.u32(0); kind {
	case streamRequest, streamResponse:
		s := a.ctx.stream
		if s == nil {
			a.vm.host.violate(a.ctx, NoStream, "continued")
			return StatusOK
		}
		// The request is out of the guest's hands, whichever way it is continued.
		s.req.headersVisible, s.req.trailersVisible = false, false
		a.vm.after = append(a.vm.after, func() { s.resume(kind == streamResponse) })
		return StatusOK
	case streamDownstream:
		return StatusOK
	case streamUpstream:
		return StatusUnimplemented
	}
	return StatusBadArgument
}

func (s *Stream) resume(response bool) {
	switch {
	case s.closing:
		s.violate(AnsweredAfterEnd, "continued")
	case response:
		s.resp.resume()
	case s.local != nil:
		s.violate(AnsweredTwice, "continued")
	default:
		s.req.resume()
	}
}

func closeStream(a *hostCall) Status {
	if a.u32(0) > streamMax {
		return StatusBadArgument
	}
	s := a.ctx.stream
	if s == nil {
		a.vm.host.violate(a.ctx, NoStream, "closed")
		return StatusOK
	}
	a.vm.after = append(a.vm.after, func() {
		if s.closing {
			s.violate(AnsweredAfterEnd, "closed")
			return
		}
		s.reset()
	})
	return StatusOK
}

func sendLocalResponse(a *hostCall) Status {
	o := Outcome{
		Status: int(a.u32(0)), Details: a.text(1), Body: a.text(3),
		Headers: a.pairs(5), GRPCStatus: int32(a.u32(7)),
	}
	if a.bad {
		return StatusInvalidMemoryAccess
	}
	a.vm.stopNext = true
	s := a.ctx.stream
	if s == nil {
		a.vm.host.violate(a.ctx, NoStream, "answered")
		return StatusOK
	}
	a.vm.after = append(a.vm.after, func() { s.answer(o) })
	return StatusOK
}

func setEffectiveContext(a *hostCall) Status {
	id := a.u32(0)
	if id == 0 {
		a.vm.effective = nil
		return StatusOK
	}
	c := a.vm.contexts[id]
	if c == nil {
		return StatusBadArgument
	}
	a.vm.effective = c
	return StatusOK
}
