package wasmhost

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// answer is what proxy_send_local_response comes to, after the callback.
func (s *Stream) answer(o Outcome) {
	switch {
	case s.closing:
		s.violate(AnsweredAfterEnd, "a local response "+strconv.Itoa(o.Status))
		return
	case s.local != nil, s.resp.sent:
		s.violate(AnsweredTwice, "a local response "+strconv.Itoa(o.Status))
		return
	case s.req.out.End && !s.resp.started && !s.req.inCallback:
		s.violate(AnsweredAfterRelease, "a local response "+strconv.Itoa(o.Status))
	}
	s.reply(o)
}

// reply answers the client in the upstream's stead.
func (s *Stream) reply(o Outcome) {
	s.answers++
	o.Kind, o.At = LocalReply, s.worker.host.clock.mono
	s.local = &o
	s.decided = o.At
	headers, body := s.localReply(o)
	if s.resp.started {
		// In the place of a response on its way: it is not shown to the filter.
		s.resp.out, s.resp.sent = Message{Headers: headers, Body: body}, true
		s.resp.finish()
		return
	}
	s.resp.takeHeaders(headers, len(body) == 0)
	if len(body) > 0 && !s.closing {
		s.resp.takeBody(body, true)
	}
}

// instanceFailed is what a stream of a failed instance meets.
func (s *Stream) instanceFailed() {
	if s.worker.host.cfg.Failure == FailOpen || s.closing || s.local != nil || s.resp.sent {
		return
	}
	s.failReply = true
	s.reply(Outcome{Status: 503, GRPCStatus: grpcUnavailable, Details: "wasm_fail_stream"})
}

// localReply makes the message as Envoy does (Http::Utility::prepareLocalReply):
// for a gRPC request one of headers only, with the body as grpc-message.
func (s *Stream) localReply(o Outcome) (Headers, []byte) {
	h := Headers{{":status", strconv.Itoa(o.Status)}}
	h = append(h, o.Headers.clone()...)
	h.remove("content-length")
	if isGRPC(s.req.headers) {
		h.replace(":status", "200")
		h.replace("content-type", "application/grpc")
		if !h.Has("grpc-status") {
			h.replace("grpc-status", strconv.Itoa(int(o.grpcStatus())))
		}
		if o.Body != "" && !s.isHead() {
			h.replace("grpc-message", percentEncode(o.Body))
		}
		return h, nil
	}
	if o.Body == "" {
		h.remove("content-type")
		return h, nil
	}
	h.add("content-length", strconv.Itoa(len(o.Body)))
	if !h.Has("content-type") {
		h.add("content-type", "text/plain")
	}
	if s.isHead() {
		return h, nil
	}
	return h, []byte(o.Body)
}

func (s *Stream) isHead() bool { return s.req.headers.Get(":method") == "HEAD" }

// isGRPC is by content type: application/grpc, alone or with a suffix.
func isGRPC(h Headers) bool {
	rest, ok := strings.CutPrefix(h.Get("content-type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+')
}

// grpcStatus is the one that was given, or else what the HTTP status means,
// after gRPC's http-grpc-status-mapping.
func (o Outcome) grpcStatus() int32 {
	if o.GRPCStatus >= grpcOK && o.GRPCStatus <= grpcMaxKnown {
		return o.GRPCStatus
	}
	switch o.Status {
	case 400:
		return grpcInternal
	case 401:
		return grpcUnauthenticated
	case 403:
		return grpcPermissionDenied
	case 404:
		return grpcUnimplemented
	case 429, 502, 503, 504:
		return grpcUnavailable
	}
	return grpcUnknown
}

// percentEncode is gRPC's encoding of grpc-message.
func percentEncode(s string) string {
	var b strings.Builder
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= '~' || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// grpcPrefix is the length of what goes before a message: a flag for
// compression, and the message's length in 4 bytes, the highest first.
const grpcPrefix = 5

// GRPCMessage is the message of a call in which a filter frames gRPC by hand; ok
// is false if the body is not one whole uncompressed message.
func (c *Call) GRPCMessage() (message []byte, ok bool) {
	if len(c.Body) < grpcPrefix || c.Body[0] != 0 {
		return nil, false
	}
	message = c.Body[grpcPrefix:]
	return message, uint64(binary.BigEndian.Uint32(c.Body[1:])) == uint64(len(message))
}

// GRPCReplyOverHTTP is a unary gRPC reply to an HTTP call, for filters that
// frame gRPC by hand: status 200, the message with its 5-byte prefix, and the
// gRPC status in the trailers. A failure has no message.
func GRPCReplyOverHTTP(message []byte, status int, statusMessage string) Reply {
	r := Reply{
		Headers:  Headers{{":status", "200"}, {"content-type", "application/grpc"}},
		Trailers: Headers{{"grpc-status", strconv.Itoa(status)}},
	}
	if statusMessage != "" {
		r.Trailers.add("grpc-message", percentEncode(statusMessage))
	}
	if status == grpcOK {
		r.Body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	}
	return r
}
