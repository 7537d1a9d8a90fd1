package wasmhost

import (
	"encoding/binary"
	"math"
	"net"
	"strconv"
	"strings"
)

// Property is something that a guest can read with proxy_get_property.
type Property struct {
	// Path as the guest names it: "source", "address".
	Path []string
	// Value as the guest reads it: text as it is; a number as 8 bytes,
	// little-endian; a bool as one byte.
	Value []byte
}

// StringProperty is a property that is text.
func StringProperty(value string, path ...string) Property {
	return Property{Path: path, Value: []byte(value)}
}

// IntProperty is a property that is a whole number, such as a port, a response
// code, a duration or an instant in nanoseconds.
func IntProperty(value int64, path ...string) Property {
	return Property{Path: path, Value: binary.LittleEndian.AppendUint64(nil, uint64(value))}
}

// NumberProperty is a property that is a number of a metadata structure.
func NumberProperty(value float64, path ...string) Property {
	return Property{Path: path, Value: binary.LittleEndian.AppendUint64(nil, math.Float64bits(value))}
}

// BoolProperty is a property that is true or false.
func BoolProperty(value bool, path ...string) Property {
	return Property{Path: path, Value: []byte{byte(oneIf(value))}}
}

// propertyNode is a tree of properties. One that has parts reads as a map of
// them, as in Envoy.
type propertyNode struct {
	name  string
	value []byte
	parts []*propertyNode
}

func buildProperties(list []Property) *propertyNode {
	root := &propertyNode{}
	for _, p := range list {
		n := root
		for _, name := range p.Path {
			n = n.part(name, true)
		}
		n.value = append([]byte{}, p.Value...)
	}
	return root
}

func (n *propertyNode) part(name string, make bool) *propertyNode {
	for _, p := range n.parts {
		if p.name == name {
			return p
		}
	}
	if !make {
		return nil
	}
	p := &propertyNode{name: name}
	n.parts = append(n.parts, p)
	return p
}

func (n *propertyNode) find(path []string) *propertyNode {
	for _, name := range path {
		if n = n.part(name, false); n == nil {
			return nil
		}
	}
	return n
}

// bytes is the node as the guest reads it.
func (n *propertyNode) bytes() []byte {
	if len(n.parts) == 0 {
		return n.value
	}
	pairs := make(Headers, len(n.parts))
	for i, p := range n.parts {
		pairs[i] = [2]string{p.name, string(p.bytes())}
	}
	return marshalPairs(pairs)
}

// property is proxy_get_property in the context. A path's parts are separated by
// zero bytes.
func (v *vm) property(c *guestContext, raw string) ([]byte, Status) {
	path := strings.Split(raw, "\x00")
	s := c.stream
	if s != nil {
		for _, tree := range []*propertyNode{s.own, v.host.properties} {
			if n := tree.find(path); n != nil {
				return n.bytes(), StatusOK
			}
		}
		if value, status := s.property(path); status != StatusNotFound {
			return value, status
		}
		if value, ok := s.set[path[0]]; ok && len(path) == 1 {
			return value, StatusOK
		}
	}
	if len(path) == 1 {
		switch path[0] {
		case "plugin_name":
			return []byte(v.host.cfg.PluginName), StatusOK
		case "plugin_root_id":
			return []byte(v.host.cfg.RootID), StatusOK
		case "plugin_vm_id":
			return []byte(v.host.cfg.VMID), StatusOK
		}
	}
	if path[0] == "node" {
		if n := v.host.properties.find(path); n != nil {
			return n.bytes(), StatusOK
		}
	}
	return nil, StatusNotFound
}

// maxSetProperties bounds what a guest can set on one stream.
const maxSetProperties = 10_000

func (v *vm) setProperty(c *guestContext, name string, value []byte) Status {
	if c.stream == nil {
		return StatusNotFound
	}
	if c.stream.set == nil {
		c.stream.set = map[string][]byte{}
	}
	if len(c.stream.set) >= maxSetProperties {
		return StatusInternalFailure
	}
	c.stream.set[name] = append([]byte{}, value...)
	return StatusOK
}

// Property is what the guest has set on this stream by proxy_set_property.
func (s *Stream) Property(name string) (value []byte, ok bool) {
	value, ok = s.set[name]
	return append([]byte(nil), value...), ok
}

// property is what the stream itself gives: the attributes of Envoy's that
// follow from the messages.
func (s *Stream) property(path []string) ([]byte, Status) {
	if len(path) == 1 {
		switch path[0] {
		case "connection_id":
			return integer(int64(s.request.ConnectionID))
		case "request", "response", "source", "destination", "connection", "upstream", "xds":
			return nil, StatusSerializationFailure
		}
		return nil, StatusNotFound
	}
	switch path[0] {
	case "request":
		return s.requestProperty(path[1:])
	case "response":
		return s.responseProperty(path[1:])
	case "source":
		return s.sourceProperty(path[1])
	case "connection":
		if path[1] == "id" {
			return integer(int64(s.request.ConnectionID))
		}
	}
	return nil, StatusNotFound
}

// requestProperty reads the headers, and like them is there only until the
// request was let through, and in on_log.
func (s *Stream) requestProperty(path []string) ([]byte, Status) {
	if path[0] == "time" {
		at := s.worker.host.clock.wallAtZero.Add(s.started)
		return integer(at.UnixNano())
	}
	if path[0] == "duration" {
		if !s.logging {
			return nil, StatusNotFound
		}
		return integer(int64(s.worker.host.clock.mono - s.started))
	}
	h := s.readable(mapRequestHeaders)
	if h == nil {
		return nil, StatusNotFound
	}
	target := h.Get(":path")
	urlPath, query, _ := strings.Cut(target, "?")
	switch path[0] {
	case "path":
		return []byte(target), StatusOK
	case "url_path":
		return []byte(urlPath), StatusOK
	case "query":
		return []byte(query), StatusOK
	case "scheme":
		if v := h.Get(":scheme"); v != "" {
			return []byte(v), StatusOK
		}
		return []byte("http"), StatusOK
	case "headers":
		return headerProperty(*h, path[1:])
	case "protocol":
		return []byte("HTTP/1.1"), StatusOK
	case "size":
		return integer(int64(len(s.req.out.Body)))
	case "total_size":
		return integer(int64(len(s.req.out.Body) + h.byteSize()))
	}
	names := map[string]string{"method": ":method", "host": ":authority", "referer": "referer", "useragent": "user-agent", "id": "x-request-id"}
	if name, known := names[path[0]]; known {
		return headerProperty(*h, []string{name})
	}
	return nil, StatusNotFound
}

func (s *Stream) responseProperty(path []string) ([]byte, Status) {
	if !s.resp.started {
		return nil, StatusNotFound
	}
	h := s.resp.headers
	if s.resp.sent {
		h = s.resp.out.Headers
	}
	switch path[0] {
	case "code":
		if n, err := strconv.ParseInt(h.Get(":status"), 10, 64); err == nil {
			return integer(n)
		}
	case "headers":
		return headerProperty(h, path[1:])
	case "trailers":
		return headerProperty(s.resp.trailers, path[1:])
	case "size":
		return integer(int64(len(s.resp.out.Body)))
	case "code_details":
		if s.local != nil {
			return []byte(s.local.Details), StatusOK
		}
		return []byte("via_upstream"), StatusOK
	}
	return nil, StatusNotFound
}

func (s *Stream) sourceProperty(part string) ([]byte, Status) {
	switch part {
	case "address":
		return []byte(s.request.Source), StatusOK
	case "port":
		if _, port, err := net.SplitHostPort(s.request.Source); err == nil {
			if n, err := strconv.ParseUint(port, 10, 16); err == nil {
				return integer(int64(n))
			}
		}
	}
	return nil, StatusNotFound
}

// headerProperty is a header by name, or, without one, all of them.
func headerProperty(h Headers, path []string) ([]byte, Status) {
	switch len(path) {
	case 0:
		return marshalPairs(h), StatusOK
	case 1:
		if v, ok := h.lookup(path[0]); ok {
			return []byte(v), StatusOK
		}
	}
	return nil, StatusNotFound
}

func integer(n int64) ([]byte, Status) {
	return binary.LittleEndian.AppendUint64(nil, uint64(n)), StatusOK
}
