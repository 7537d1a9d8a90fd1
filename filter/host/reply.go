package host

// reply is how a call ended; it asks the host for its parts, where it said that there are any.
type reply struct {
	root                        *root
	headers, bodySize, trailers uint32

	headerFields, trailerFields fields
}

var _ Reply = (*reply)(nil)

func (p *reply) Header(name string) (string, bool) {
	if p.headers == 0 {
		return "", false
	}
	value, n := p.root.field(&p.headerFields, callResponseHeaders, name)
	return value, n > 0
}

func (p *reply) Trailer(name string) (string, bool) {
	if p.trailers == 0 {
		return "", false
	}
	value, n := p.root.field(&p.trailerFields, callResponseTrailers, name)
	return value, n > 0
}

func (p *reply) Body(limit int) ([]byte, bool) {
	switch {
	case int64(p.bodySize) > int64(limit):
		return nil, false
	case p.bodySize == 0:
		return nil, true
	}
	body, st := p.root.abi.buffer(callResponseBody, p.bodySize)
	return body, p.root.check(st)
}
