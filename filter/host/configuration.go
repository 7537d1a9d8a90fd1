package host

import (
	"errors"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
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
	number, kind, tag := protowire.ConsumeTag(message)
	if tag < 0 || depth > maxConfigurationDepth {
		return nil, errNoStruct
	}
	content := message[tag:]
	if size := protowire.ConsumeFieldValue(number, kind, content); size != len(content) {
		return nil, errNoStruct
	}
	switch {
	case number == 1 && kind == protowire.VarintType:
		return append(b, "null"...), nil
	case number == 2 && kind == protowire.Fixed64Type:
		bits, _ := protowire.ConsumeFixed64(content)
		return appendJSONNumber(b, math.Float64frombits(bits))
	case number == 3 && kind == protowire.BytesType:
		text, _ := protowire.ConsumeBytes(content)
		return appendJSONString(b, text), nil
	case number == 4 && kind == protowire.VarintType:
		yes, _ := protowire.ConsumeVarint(content)
		return strconv.AppendBool(b, yes != 0), nil
	case number == 5 && kind == protowire.BytesType:
		fields, _ := protowire.ConsumeBytes(content)
		return appendStruct(b, fields, depth)
	case number == 6 && kind == protowire.BytesType:
		values, _ := protowire.ConsumeBytes(content)
		return appendList(b, values, depth)
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
func consumeBytes(message []byte, want protowire.Number) ([]byte, int) {
	number, kind, tag := protowire.ConsumeTag(message)
	if tag < 0 || number != want || kind != protowire.BytesType {
		return nil, -1
	}
	content, size := protowire.ConsumeBytes(message[tag:])
	if size < 0 {
		return nil, -1
	}
	return content, tag + size
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
