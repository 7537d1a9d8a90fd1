package wire

import "time"

// The wire types of protobuf's encoding. Groups, 3 and 4, do not exist in proto3 and are refused.
const (
	kindVarint  = 0
	kindFixed64 = 1
	kindBytes   = 2
	kindFixed32 = 5
)

func appendVarint(dst []byte, v uint64) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

func appendTag(dst []byte, number uint32, kind byte) []byte {
	return appendVarint(dst, uint64(number)<<3|uint64(kind))
}

// appendNumber writes a field unless it is 0.
func appendNumber(dst []byte, number uint32, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return appendVarint(appendTag(dst, number, kindVarint), v)
}

func appendFixed64(dst []byte, number uint32, v uint64) []byte {
	if v == 0 {
		return dst
	}
	dst = appendTag(dst, number, kindFixed64)
	return append(dst, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
}

func appendFlag(dst []byte, number uint32, v bool) []byte {
	if !v {
		return dst
	}
	return append(appendTag(dst, number, kindVarint), 1)
}

// appendUnits writes units within 0 and MaxUnits.
func appendUnits(dst []byte, number uint32, units int64) []byte {
	return appendNumber(dst, number, uint64(min(max(units, 0), MaxUnits)))
}

// appendDuration writes a duration within 0 and MaxDuration in microseconds, rounded down.
func appendDuration(dst []byte, number uint32, d time.Duration) []byte {
	return appendNumber(dst, number, uint64(min(max(d, 0), MaxDuration).Microseconds()))
}

// appendText writes a field unless it is empty.
func appendText(dst []byte, number uint32, text string) []byte {
	if text == "" {
		return dst
	}
	return appendPresentText(dst, number, text)
}

// appendPresentText writes a field, empty or not, for members of a oneof and elements of a list.
func appendPresentText(dst []byte, number uint32, text string) []byte {
	dst = appendVarint(appendTag(dst, number, kindBytes), uint64(len(text)))
	return append(dst, text...)
}

// appendIndices writes a list of numbers, packed.
func appendIndices(dst []byte, number uint32, indices []uint32) []byte {
	if len(indices) == 0 {
		return dst
	}
	dst, start := openMessage(dst, number)
	for _, n := range indices {
		dst = appendVarint(dst, uint64(n))
	}
	return closeMessage(dst, start)
}

// openMessage begins a field whose length is not known yet, and says where its content starts. One byte is left for the
// length: most messages are shorter than 128 bytes, and measuring first would cost more than moving the others.
func openMessage(dst []byte, number uint32) (out []byte, start int) {
	out = append(appendTag(dst, number, kindBytes), 0)
	return out, len(out)
}

// closeMessage puts in the length of what was written since openMessage.
func closeMessage(dst []byte, start int) []byte {
	length := len(dst) - start
	if length < 0x80 {
		dst[start-1] = byte(length)
		return dst
	}
	var prefix [10]byte
	head := appendVarint(prefix[:0], uint64(length))
	dst = append(dst, head[1:]...) // room for the move
	copy(dst[start-1+len(head):], dst[start:start+length])
	copy(dst[start-1:], head)
	return dst
}
