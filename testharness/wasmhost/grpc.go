package wasmhost

import "time"

// gRPC statuses that the host itself gives.
const (
	grpcOK               = 0
	grpcUnknown          = 2
	grpcPermissionDenied = 7
	grpcUnimplemented    = 12
	grpcInternal         = 13
	grpcUnavailable      = 14
	grpcUnauthenticated  = 16
	grpcMaxKnown         = grpcUnauthenticated
)

// GRPCCall is a unary gRPC call of a guest, proxy_grpc_call.
type GRPCCall struct {
	Worker          *Worker
	Stream          *Stream // see Call.Stream
	Cluster         string
	Service, Method string
	Metadata        Headers
	Message         []byte
	Timeout         time.Duration // 0 means never
	Sent            time.Duration // the monotonic clock's reading at the call

	root    *rootContext
	token   uint32
	timeout *event
	over    bool
}

// GRPCReply is what comes back from a GRPCCall.
type GRPCReply struct {
	// Message of a call that succeeds.
	Message []byte
	// Status of one that fails, a gRPC status code, and its message. 0 is success.
	Status        uint32
	StatusMessage string
	// Delay is how long the reply takes; after the call's timeout it is the
	// timeout that arrives, as status 14.
	Delay time.Duration
	// Drop is no reply at all, unless GRPCCall.Respond gives one later.
	Drop bool
}

// grpcCall sends the call, on behalf of the context, from its root.
func (v *vm) grpcCall(c *guestContext, call *GRPCCall, timeoutMillis uint32) (uint32, Status) {
	if status := v.admit(call.Cluster, StatusParseFailure); status != StatusOK {
		return 0, status
	}
	call.Timeout = time.Duration(timeoutMillis) * time.Millisecond
	call.Worker, call.Stream, call.root, call.Sent = v.worker, c.stream, c.root, v.host.clock.mono
	call.token = v.calls.token(tokenGRPCCall)
	v.calls.grpc[call.token] = call
	if call.Timeout > 0 {
		call.timeout = v.host.clock.after(call.Timeout, func() {
			call.deliver(GRPCReply{Status: grpcUnavailable, StatusMessage: "upstream request timeout"})
		})
	}
	v.host.later(func() {
		if !call.over && v.host.cfg.GRPCCall != nil {
			call.Respond(v.host.cfg.GRPCCall(call))
		}
	})
	return call.token, StatusOK
}

// Over tells whether the call was answered, timed out or was cancelled.
func (c *GRPCCall) Over() bool { return c.over }

// Respond sends the reply on its way now; see Call.Respond.
func (c *GRPCCall) Respond(r GRPCReply) bool {
	if c.over {
		return false
	}
	if !r.Drop {
		c.Worker.host.clock.after(r.Delay, func() {
			if !c.over {
				c.deliver(r)
			}
		})
	}
	return true
}

// deliver tells the plugin: of the message, or of the failure; not of both.
func (c *GRPCCall) deliver(r GRPCReply) {
	root := c.root
	v := root.vm
	c.over = true
	v.host.clock.cancel(c.timeout)
	delete(v.calls.grpc, c.token)
	if r.Status == grpcOK {
		v.tellMessage(root, c.token, r.Message)
		return
	}
	v.tellClose(root, c.token, r.Status, r.StatusMessage)
}

func (v *vm) tellMessage(root *rootContext, token uint32, message []byte) {
	if v.failed || root.deleted {
		return
	}
	defer v.host.enter()()
	root.grpcMessage = append([]byte{}, message...)
	v.after = append(v.after, func() { root.grpcMessage = nil })
	v.callback(root.guestContext, "proxy_on_grpc_receive", uint64(root.id), uint64(token), uint64(len(message)))
}

func (v *vm) tellClose(root *rootContext, token, status uint32, message string) {
	if v.failed || root.deleted {
		return
	}
	defer v.host.enter()()
	root.statusCode, root.statusMessage = status, message
	v.after = append(v.after, func() { root.statusMessage = "" })
	v.callback(root.guestContext, "proxy_on_grpc_close", uint64(root.id), uint64(token), uint64(status))
}

// GRPCStream is a gRPC stream of a guest, proxy_grpc_stream. The handler that
// gets it sets the functions that hear of the guest, and answers with Metadata,
// Message and Finish, at once or later.
type GRPCStream struct {
	Worker          *Worker
	Stream          *Stream // see Call.Stream
	Cluster         string
	Service, Method string
	RequestMetadata Headers

	// OnMessage hears of each message; end says that it is the last. A stream
	// closed without a message gives a nil one.
	OnMessage func(message []byte, end bool)
	// OnCancel hears that the guest cancelled the stream.
	OnCancel func()

	root        *rootContext
	token       uint32
	over        bool // cancelled, or closed from both sides
	localClosed bool
	finished    bool
}

func (v *vm) grpcStream(c *guestContext, s *GRPCStream) (uint32, Status) {
	if status := v.admit(s.Cluster, StatusParseFailure); status != StatusOK {
		return 0, status
	}
	s.Worker, s.Stream, s.root = v.worker, c.stream, c.root
	s.token = v.calls.token(tokenGRPCStream)
	v.calls.streams[s.token] = s
	v.host.later(func() {
		if v.host.cfg.GRPCStream != nil {
			v.host.cfg.GRPCStream(s)
		}
	})
	return s.token, StatusOK
}

// Over tells whether the stream was cancelled, or closed from both sides.
func (s *GRPCStream) Over() bool { return s.over }

// tell runs f after the delay, unless the stream has ended by then.
func (s *GRPCStream) tell(delay time.Duration, f func(v *vm)) {
	v := s.root.vm
	v.host.clock.after(delay, func() {
		if !s.over && !s.finished {
			f(v)
		}
	})
}

// Metadata sends the initial metadata, to arrive after the delay.
func (s *GRPCStream) Metadata(h Headers, delay time.Duration) {
	s.tell(delay, func(v *vm) { v.tellMetadata(s.root, s.token, h, false) })
}

// Message sends a message.
func (s *GRPCStream) Message(message []byte, delay time.Duration) {
	s.tell(delay, func(v *vm) { v.tellMessage(s.root, s.token, message) })
}

// Finish ends the stream: trailing metadata, then the status.
func (s *GRPCStream) Finish(status uint32, message string, trailers Headers, delay time.Duration) {
	s.tell(delay, func(v *vm) {
		v.tellMetadata(s.root, s.token, trailers, true)
		if s.over {
			return
		}
		s.finished = true
		if s.localClosed {
			v.forget(s)
		}
		v.tellClose(s.root, s.token, status, message)
	})
}

func (v *vm) tellMetadata(root *rootContext, token uint32, h Headers, trailing bool) {
	if v.failed || root.deleted {
		return
	}
	defer v.host.enter()()
	name := "proxy_on_grpc_receive_initial_metadata"
	if trailing {
		name = "proxy_on_grpc_receive_trailing_metadata"
		root.grpcTrailers, root.grpcHasTrailers = h.clone(), true
	} else {
		root.grpcMetadata, root.grpcHasMetadata = h.clone(), true
	}
	v.callback(root.guestContext, name, uint64(root.id), uint64(token), uint64(len(h)))
	root.grpcTrailers, root.grpcHasTrailers = nil, false
	root.grpcMetadata, root.grpcHasMetadata = nil, false
}

func (v *vm) forget(s *GRPCStream) {
	s.over = true
	delete(v.calls.streams, s.token)
}

func (v *vm) grpcSend(token uint32, message []byte, end bool) Status {
	if token&tokenKindMask != tokenGRPCStream {
		return StatusBadArgument
	}
	s := v.calls.streams[token]
	if s == nil {
		return StatusNotFound
	}
	s.hear(v, append([]byte{}, message...), end)
	return StatusOK
}

// hear tells the handler, once no guest is running.
func (s *GRPCStream) hear(v *vm, message []byte, end bool) {
	if s.finished {
		return
	}
	v.host.later(func() {
		if s.OnMessage != nil {
			s.OnMessage(message, end)
		}
	})
}

// grpcEnd is proxy_grpc_cancel and proxy_grpc_close: the same for a call.
func (v *vm) grpcEnd(token uint32, cancel bool) Status {
	switch token & tokenKindMask {
	case tokenGRPCCall:
		call := v.calls.grpc[token]
		if call == nil {
			return StatusNotFound
		}
		call.over = true
		v.host.clock.cancel(call.timeout)
		delete(v.calls.grpc, token)
		return StatusOK
	case tokenGRPCStream:
		s := v.calls.streams[token]
		if s == nil {
			return StatusNotFound
		}
		v.endStream(s, cancel)
		return StatusOK
	}
	return StatusBadArgument
}

func (v *vm) endStream(s *GRPCStream, cancel bool) {
	if cancel {
		v.forget(s)
		v.host.later(func() {
			if s.OnCancel != nil {
				s.OnCancel()
			}
		})
		return
	}
	if !s.localClosed {
		s.hear(v, nil, true)
	}
	s.localClosed = true
	if s.finished {
		v.forget(s)
	}
}
