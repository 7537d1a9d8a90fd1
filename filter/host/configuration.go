package host

import (
	"errors"
	"math"
	"strconv"
)

// maxConfigurationDepth bounds how deep values stand in one another.
const maxConfigurationDepth = 32

var errNoStruct = errors.New("no google.protobuf.Struct")

// configurationJSON gives a plugin's configuration as JSON. Envoy hands over the content of a StringValue or BytesValue as
// it is, but a google.protobuf.Struct in its binary form, whose first byte is also a line feed. The two cannot be confused:
// every field in a Struct has a byte, 0x12, that JSON never has. What is neither is given back as it is.
func configurationJSON(configuration []byte) []byte {
	if json, err := appendStruct(nil, configuration, 0); err == nil && len(configuration) > 0 {
		return json
	}
	return configuration
}

// appendStruct appends a google.protobuf.Struct (google/protobuf/struct.proto) to b as a JSON object, its fields in the
// order in which they come.
func appendStruct(b, message []byte, depth int) ([]byte, error) {
	b = append(b, '{')
	for n := 0; len(message) > 0; n++ {
		entry, size := consumeBytes(message, 1)
		if size < 0 {
			return nil, errNoStruct
		}
		message = message[size:]
		name, size := consumeBytes(entry, 1)
		if size < 0 {
			return nil, errNoStruct
		}
		value, rest := consumeBytes(entry[size:], 2)
		if rest < 0 || size+rest != len(entry) {
			return nil, errNoStruct
		}
		if n > 0 {
			b = append(b, ',')
		}
		b = append(appendJSONString(b, name), ':')
		var err error
		if b, err = appendValue(b, value, depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendValue appends a google.protobuf.Value, one of a null, a number, a string, a bool, a Struct and a list.
func appendValue(b, message []byte, depth int) ([]byte, error) {
	f, size := consumeField(message)
	if size != len(message) || depth > maxConfigurationDepth {
		return nil, errNoStruct
	}
	switch {
	case f.number == 1 && f.kind == wireVarint:
		return append(b, "null"...), nil
	case f.number == 2 && f.kind == wireFixed64:
		return appendJSONNumber(b, math.Float64frombits(f.value))
	case f.number == 3 && f.kind == wireBytes:
		return appendJSONString(b, f.content), nil
	case f.number == 4 && f.kind == wireVarint:
		return strconv.AppendBool(b, f.value != 0), nil
	case f.number == 5 && f.kind == wireBytes:
		return appendStruct(b, f.content, depth)
	case f.number == 6 && f.kind == wireBytes:
		return appendList(b, f.content, depth)
	default:
		return nil, errNoStruct
	}
}

// appendList appends a google.protobuf.ListValue.
func appendList(b, message []byte, depth int) ([]byte, error) {
	b = append(b, '[')
	for n := 0; len(message) > 0; n++ {
		value, size := consumeBytes(message, 1)
		if size < 0 {
			return nil, errNoStruct
		}
		message = message[size:]
		if n > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendValue(b, value, depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// consumeBytes gives the content of a field that must come next, and the size of all of it; negative where it does not.
func consumeBytes(message []byte, want uint64) ([]byte, int) {
	f, size := consumeField(message)
	if size < 0 || f.number != want || f.kind != wireBytes {
		return nil, -1
	}
	return f.content, size
}

// The wire types that a Struct has. (protobuf.dev/programming-guides/encoding, Message Structure.) They are read here and
// not by protowire, which would bring fmt and file access into the filter: a tenth of its size.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
)

// field is one field of a message: value holds a varint or eight fixed bytes, content what has a length.
type field struct {
	number  uint64
	kind    uint64
	value   uint64
	content []byte
}

// consumeField reads the field that a message begins with, and gives its size; negative where there is none.
func consumeField(message []byte) (f field, size int) {
	tag, size := consumeVarint(message)
	if size < 0 {
		return field{}, -1
	}
	f.number, f.kind = tag>>3, tag&7
	rest := message[size:]
	switch f.kind {
	case wireVarint:
		value, n := consumeVarint(rest)
		if n < 0 {
			return field{}, -1
		}
		f.value = value
		return f, size + n
	case wireFixed64:
		const fixed = 8
		if len(rest) < fixed {
			return field{}, -1
		}
		for i := fixed - 1; i >= 0; i-- {
			f.value = f.value<<8 | uint64(rest[i])
		}
		return f, size + fixed
	case wireBytes:
		length, n := consumeVarint(rest)
		if n < 0 || length > uint64(len(rest)-n) {
			return field{}, -1
		}
		f.content = rest[n : n+int(length)]
		return f, size + n + int(length)
	}
	return field{}, -1
}

// consumeVarint reads a varint, and gives its size; negative where there is none.
func consumeVarint(b []byte) (v uint64, size int) {
	const most = 10
	for size < len(b) && size < most {
		v |= uint64(b[size]&0x7f) << (7 * size)
		size++
		if b[size-1] < 0x80 {
			return v, size
		}
	}
	return 0, -1
}

func appendJSONNumber(b []byte, number float64) ([]byte, error) {
	if math.IsNaN(number) || math.IsInf(number, 0) {
		return nil, errNoStruct
	}
	const exact = 1 << 53
	if number == math.Trunc(number) && math.Abs(number) <= exact {
		return strconv.AppendInt(b, int64(number), 10), nil
	}
	return strconv.AppendFloat(b, number, 'g', -1, 64), nil
}

// appendJSONString escapes what JSON wants escaped. (RFC 8259, 7.)
func appendJSONString(b, text []byte) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
