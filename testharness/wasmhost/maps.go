package wasmhost

import "slices"

// readable is a header map of the stream that the guest can read now, nil if
// there is none.
func (s *Stream) readable(kind uint32) *Headers {
	if s.logging {
		switch kind {
		case mapRequestHeaders:
			return &s.req.headers
		case mapResponseHeaders:
			if s.resp.sent {
				return &s.resp.out.Headers
			}
		case mapResponseTrailers:
			if s.resp.out.Trailers != nil {
				return &s.resp.out.Trailers
			}
		}
		return nil
	}
	d := &s.req
	if kind == mapResponseHeaders || kind == mapResponseTrailers {
		d = &s.resp
	}
	switch kind {
	case mapRequestHeaders, mapResponseHeaders:
		if d.headersVisible {
			return &d.headers
		}
	case mapRequestTrailers, mapResponseTrailers:
		if d.trailersVisible {
			return &d.trailers
		}
	}
	return nil
}

// readable is a header map that the guest can read in this context.
func (c *guestContext) readable(kind uint32) *Headers {
	r := c.root
	switch {
	case kind <= mapResponseTrailers:
		if c.stream != nil {
			return c.stream.readable(kind)
		}
	case kind == mapGRPCInitialMetadata && r.grpcHasMetadata:
		return &r.grpcMetadata
	case kind == mapGRPCTrailingMetadata && r.grpcHasTrailers:
		return &r.grpcTrailers
	case kind == mapCallHeaders && r.reply != nil:
		return &r.reply.Headers
	case kind == mapCallTrailers && r.reply != nil && r.reply.Trailers != nil:
		return &r.reply.Trailers
	}
	return nil
}

// writable is a header map that the guest can write: one of a message on its way.
func (c *guestContext) writable(kind uint32) *Headers {
	s := c.stream
	if s == nil || s.closing {
		return nil
	}
	switch kind {
	case mapRequestTrailers:
		return s.req.mutableTrailers()
	case mapResponseTrailers:
		return s.resp.mutableTrailers()
	case mapRequestHeaders, mapResponseHeaders:
		return s.readable(kind)
	}
	return nil
}

// buffer is something that the guest can read as bytes.
type buffer struct {
	data []byte
	// body is set if the guest can change it.
	body *[]byte
}

// buffer finds what the guest names; ok is false if there is no such thing now.
// A body that is not at hand is an empty one, as in Envoy.
func (c *guestContext) buffer(kind uint32) (b buffer, ok bool) {
	r := c.root
	switch kind {
	case bufferRequestBody, bufferResponseBody:
		if c.stream == nil {
			return buffer{}, true
		}
		d := &c.stream.req
		if kind == bufferResponseBody {
			d = &c.stream.resp
		}
		if !d.chunkVisible {
			return buffer{}, true
		}
		return buffer{data: *d.body(), body: d.body()}, true
	case bufferCallBody:
		if r.reply == nil {
			return buffer{}, false
		}
		return buffer{data: r.reply.Body}, true
	case bufferGRPCMessage:
		return buffer{data: r.grpcMessage}, true
	case bufferVMConfig:
		return buffer{data: c.vm.host.cfg.VMConfig}, true
	case bufferPluginConfig:
		return buffer{data: r.config}, r.configuring
	}
	return buffer{}, true // Call data and TCP: nothing ever.
}

// slice is the part that the guest asked for, cut to what there is.
func (b buffer) slice(start, length uint32) []byte {
	size := uint64(len(b.data))
	from := min(uint64(start), size)
	return b.data[from:min(from+uint64(length), size)]
}

// write puts data in the place of the buffer's beginning, or after its end:
// Envoy does not write in the middle.
func (b buffer) write(start, length uint32, data []byte) Status {
	if b.body == nil {
		return StatusBadArgument
	}
	size := uint64(len(b.data))
	switch {
	case start == 0:
		*b.body = slices.Concat(data, b.data[min(uint64(length), size):])
	case uint64(start) >= size:
		*b.body = slices.Concat(b.data, data)
	default:
		return StatusBadArgument
	}
	return StatusOK
}
