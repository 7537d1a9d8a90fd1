package wasmhost

import (
	"math"
	"strconv"
	"time"
)

// Call is an HTTP call of a guest, proxy_http_call.
type Call struct {
	// Worker made the call, in a callback of Stream or on behalf of it; Stream is
	// nil if the plugin itself did. The reply goes to the plugin either way.
	Worker *Worker
	Stream *Stream
	// Cluster, Headers, Body and Trailers are what the guest passed.
	Cluster  string
	Headers  Headers
	Body     []byte
	Trailers Headers
	// Timeout is when Envoy gives up; 0 means never.
	Timeout time.Duration
	// Sent is the monotonic clock's reading at the call.
	Sent time.Duration

	root    *rootContext
	token   uint32
	timeout *event
	over    bool // answered, timed out or cancelled
}

// Reply is what comes back from a Call.
type Reply struct {
	// Headers begin with :status.
	Headers  Headers
	Body     []byte
	Trailers Headers
	// Delay is how long the reply takes. One that takes longer than the call's
	// timeout never arrives: the guest is told of the timeout instead.
	Delay time.Duration
	// Reset makes it a connection that breaks off amid the reply: the guest is
	// told of 0 headers.
	Reset bool
	// Drop is no reply at all, unless Call.Respond gives one later.
	Drop bool
	// Lost is a call whose end is never told, not even as a timeout: what an SDK
	// makes of one whose stream has gone. Call.Respond may still give a reply.
	Lost bool
	// Repeat is how many more times the same reply is delivered. No proxy does
	// that; a filter that survives it is robust.
	Repeat int
}

// StatusReply is a reply of the status, with the body and no other headers.
func StatusReply(status int, body string) Reply {
	return Reply{Headers: Headers{{":status", strconv.Itoa(status)}}, Body: []byte(body)}
}

// maxReplies bounds Reply.Repeat.
const maxReplies = 100

// timedOut is what Envoy makes of a timeout: not a reply without headers, but
// one of its own.
func timedOut() Reply {
	const body = "upstream request timeout"
	return Reply{
		Headers: Headers{{":status", "504"}, {"content-length", strconv.Itoa(len(body))}, {"content-type", "text/plain"}},
		Body:    []byte(body),
	}
}

// callTable holds what one instance waits for.
type callTable struct {
	http    map[uint32]*Call
	grpc    map[uint32]*GRPCCall
	streams map[uint32]*GRPCStream
	last    uint32
}

func (t *callTable) init() {
	t.http, t.grpc, t.streams = map[uint32]*Call{}, map[uint32]*GRPCCall{}, map[uint32]*GRPCStream{}
}

// token is a fresh id, with its kind in the low bits.
func (t *callTable) token(kind uint32) uint32 {
	t.last += tokenIncrement
	return t.last | kind
}

func (v *vm) outstanding() int {
	return len(v.calls.http) + len(v.calls.grpc) + len(v.calls.streams)
}

func (t *callTable) cancelAll(c *clock) { t.cancelRoot(c, nil) }

// cancelRoot cancels the calls of the root, or of all if it is nil.
func (t *callTable) cancelRoot(c *clock, r *rootContext) {
	for token, call := range t.http {
		if r == nil || call.root == r {
			call.over = true
			c.cancel(call.timeout)
			delete(t.http, token)
		}
	}
	for token, call := range t.grpc {
		if r == nil || call.root == r {
			call.over = true
			c.cancel(call.timeout)
			delete(t.grpc, token)
		}
	}
	for token, s := range t.streams {
		if r == nil || s.root == r {
			s.over = true
			delete(t.streams, token)
		}
	}
}

// admit is what any call meets first.
func (v *vm) admit(cluster string, unknown Status) Status {
	switch status := v.host.clusterStatus(cluster); {
	case status == StatusBadArgument:
		return unknown
	case status != StatusOK:
		return status
	case v.outstanding() >= v.host.cfg.MaxCalls:
		return StatusInternalFailure
	}
	return StatusOK
}

// httpCall sends the call, on behalf of the context, from its root.
func (v *vm) httpCall(c *guestContext, call *Call, timeoutMillis uint32) (uint32, Status) {
	if status := v.admit(call.Cluster, StatusBadArgument); status != StatusOK {
		return 0, status
	}
	if timeoutMillis > math.MaxInt32 || !call.Headers.Has(":path") || !call.Headers.Has(":method") || !call.Headers.Has(":authority") {
		return 0, StatusBadArgument
	}
	call.Timeout = time.Duration(timeoutMillis) * time.Millisecond
	call.Worker, call.Stream, call.root, call.Sent = v.worker, c.stream, c.root, v.host.clock.mono
	call.token = v.calls.token(tokenHTTPCall)
	v.calls.http[call.token] = call
	if call.Timeout > 0 {
		call.timeout = v.host.clock.after(call.Timeout, func() { call.deliver(timedOut()) })
	}
	v.host.later(func() {
		if !call.over && v.host.cfg.HTTPCall != nil {
			call.Respond(v.host.cfg.HTTPCall(call))
		}
	})
	return call.token, StatusOK
}

// Over tells whether the call was answered, timed out or was cancelled.
func (c *Call) Over() bool { return c.over }

// Respond sends the reply on its way now. It is for a call whose handler
// answered with Drop; it reports whether the call was still waiting.
func (c *Call) Respond(r Reply) bool {
	if c.over {
		return false
	}
	if r.Lost {
		c.Worker.host.clock.cancel(c.timeout)
	}
	if r.Drop || r.Lost {
		return true
	}
	c.Worker.host.clock.after(r.Delay, func() {
		if !c.over {
			c.deliver(r)
			for range min(r.Repeat, maxReplies) {
				c.tell(r)
			}
		}
	})
	return true
}

// RespondAgain delivers a reply to a call that is over, as no proxy does; see
// also Reply.Repeat. A call that is not over is left alone.
func (c *Call) RespondAgain(r Reply) {
	if c.over {
		c.Worker.host.clock.after(r.Delay, func() { c.tell(r) })
	}
}

func (c *Call) deliver(r Reply) {
	v := c.root.vm
	c.over = true
	v.host.clock.cancel(c.timeout)
	delete(v.calls.http, c.token)
	c.tell(r)
}

// tell calls the guest, in the plugin's root context.
func (c *Call) tell(r Reply) {
	root := c.root
	v := root.vm
	if v.failed || root.deleted {
		return
	}
	defer v.host.enter()()
	if r.Reset {
		r.Headers, r.Body, r.Trailers = nil, nil, nil
		root.statusCode, root.statusMessage = uint32(StatusBrokenConnection), "reset"
	} else {
		r.Headers, r.Trailers = r.Headers.clone(), r.Trailers.clone()
		r.Body = append([]byte(nil), r.Body...)
		root.reply = &r
	}
	// First, so that what the guest asks for happens without the reply in hand.
	v.after = append(v.after, func() { root.reply, root.statusMessage = nil, "" })
	v.callback(root.guestContext, "proxy_on_http_call_response", uint64(root.id), uint64(c.token),
		uint64(len(r.Headers)), uint64(len(r.Body)), uint64(len(r.Trailers)))
}
