//go:build !tinygo

package host

import "unsafe"

// appendPairs appends headers to b as the ABI serializes a map: how many, then the lengths of each name and value, then
// each name and value with a zero byte after it; all numbers are 32 bits, little-endian.
// (Proxy-Wasm ABI 0.2.1, "Serialization", "Map".)
func appendPairs(b []byte, headers []Header) []byte {
	b = appendLength(b, len(headers))
	for i := range headers {
		b = appendLength(b, len(headers[i][0]))
		b = appendLength(b, len(headers[i][1]))
	}
	for i := range headers {
		b = append(append(b, headers[i][0]...), 0)
		b = append(append(b, headers[i][1]...), 0)
	}
	return b
}

func appendLength(b []byte, n int) []byte {
	return append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
}

// pairs is a map that is serialized so. It is the host's, and yet nothing in it is trusted.
type pairs []byte

var _ fields = pairs(nil)

func (p pairs) find(name string) (string, int) {
	name, separator := fieldRules(name)
	value, rest := p.after(p.begin(), name)
	if value == nil {
		return "", 0
	}
	more, rest := p.after(rest, name)
	if more == nil {
		// Not a copy: the host writes there no more before the next callback.
		return unsafe.String(unsafe.SliceData(value), len(value)), 1 //nolint:gosec // of the slice itself
	}
	joined := append([]byte(nil), value...)
	found := 1
	for ; more != nil; more, rest = p.after(rest, name) {
		joined = append(append(joined, separator...), more...)
		found++
	}
	return string(joined), found
}

// place is where a pair's lengths are, and its name.
type place struct {
	sizes, data uint64
}

func (p pairs) begin() place { return place{sizes: 4, data: 4 + 8*p.count()} }

// count is how many pairs there are; 0 where there is not even room for their lengths.
func (p pairs) count() uint64 {
	if len(p) < 4 {
		return 0
	}
	n := uint64(length(p))
	if n > uint64(len(p)-4)/8 {
		return 0
	}
	return n
}

// after gives the value of the first field of that name from at on, never nil, and the place behind it. Nil at the end, and
// where the map is cut short.
func (p pairs) after(at place, name string) ([]byte, place) {
	data, wanted := at.data, uint64(len(name))
	for sizes, end := at.sizes, 4+8*p.count(); sizes < end; sizes += 8 {
		lengths := p[sizes:][:8:8]
		nameSize, valueSize := uint64(length(lengths)), uint64(length(lengths[4:]))
		value := data + nameSize + 1
		next := value + valueSize + 1
		if next > uint64(len(p)) {
			break
		}
		if nameSize == wanted && string(p[data:data+nameSize]) == name {
			return p[value : next-1 : next-1], place{sizes: sizes + 8, data: next}
		}
		data = next
	}
	return nil, at
}

func length(b []byte) uint32 {
	_ = b[3]
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// appendPath appends a property's path to b as the ABI serializes it: its parts, with a zero byte between two.
// (Proxy-Wasm ABI 0.2.1, proxy_get_property.)
func appendPath(b []byte, path []string) []byte {
	for i, part := range path {
		if i > 0 {
			b = append(b, 0)
		}
		b = append(b, part...)
	}
	return b
}
