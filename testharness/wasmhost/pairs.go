package wasmhost

import "encoding/binary"

// The ABI writes a header map as the number of pairs, the sizes of every name
// and value, and then the texts, each followed by a zero byte. Numbers are
// little-endian, of 32 bits.

// marshalPairs writes the map. An empty one is no bytes at all, as in Envoy.
func marshalPairs(h Headers) []byte {
	if len(h) == 0 {
		return nil
	}
	size := 4
	for _, p := range h {
		size += 8 + len(p[0]) + len(p[1]) + 2
	}
	b := make([]byte, 0, size)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h)))
	for _, p := range h {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p[0])))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p[1])))
	}
	for _, p := range h {
		b = append(append(b, p[0]...), 0)
		b = append(append(b, p[1]...), 0)
	}
	return b
}

// unmarshalPairs reads a map that a guest wrote; ok is false if it ends too
// early. No bytes are the empty map.
func unmarshalPairs(b []byte) (h Headers, ok bool) {
	if len(b) == 0 {
		return nil, true
	}
	if len(b) < 4 {
		return nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if 4+8*n > uint64(len(b)) {
		return nil, false
	}
	sizes, texts := b[4:4+8*n], b[4+8*n:]
	var flat []string
	for ; len(sizes) > 0; sizes = sizes[4:] {
		size := uint64(binary.LittleEndian.Uint32(sizes))
		if size+1 > uint64(len(texts)) {
			return nil, false
		}
		flat = append(flat, string(texts[:size]))
		texts = texts[size+1:]
	}
	for i := 0; i < len(flat); i += 2 {
		h = append(h, [2]string{flat[i], flat[i+1]})
	}
	return h.clone(), true
}
