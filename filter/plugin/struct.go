package plugin

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// readObject reads the plugin's configuration in either of the forms that it comes in: the JSON of a StringValue, or the
// bytes of a google.protobuf.Struct. Envoy's API says that it turns a Struct into JSON; Envoy 1.40 does not.
func readObject(text []byte, take func(key string, v jsonValue) error) error {
	// A Struct begins with the tag of its first field, which JSON takes for a line's end; but no "{" follows it.
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); text[0] == '\n' && (len(trimmed) == 0 || trimmed[0] != '{') {
		return readStruct(text, take)
	}
	return readJSONObject(text, take)
}

var errStruct = errors.New("is neither JSON nor a google.protobuf.Struct")

// readStruct reads a google.protobuf.Struct of plain values, and gives each member to take, in order, as readJSONObject
// does. What it does not know it refuses.
func readStruct(text []byte, take func(key string, v jsonValue) error) error {
	if len(text) > maxJSON {
		return errors.New("has " + strconv.Itoa(len(text)) + " bytes, want at most " + strconv.Itoa(maxJSON))
	}
	seen := map[string]bool{}
	for len(text) > 0 {
		entry, n := readBytesField(text, 1)
		if n < 0 {
			return errStruct
		}
		text = text[n:]
		// A map's entry: the key and the value, each once.
		key, n := readBytesField(entry, 1)
		if n < 0 || !utf8.Valid(key) {
			return errStruct
		}
		value, m := readBytesField(entry[n:], 2)
		if m < 0 || n+m != len(entry) {
			return errStruct
		}
		name := string(key)
		if seen[name] {
			return errors.New(strconv.QuoteToASCII(clip(name)) + " stands twice")
		}
		seen[name] = true
		v, err := readStructValue(name, value)
		if err != nil {
			return err
		}
		if err := take(name, v); err != nil {
			return err
		}
	}
	return nil
}

// readBytesField reads a length-delimited field of that number; n is the bytes it takes, negative where it is not there.
func readBytesField(b []byte, number protowire.Number) (value []byte, n int) {
	found, kind, n := protowire.ConsumeTag(b)
	if n < 0 || found != number || kind != protowire.BytesType {
		return nil, -1
	}
	value, m := protowire.ConsumeBytes(b[n:])
	if m < 0 {
		return nil, -1
	}
	return value, n + m
}

// readStructValue reads a google.protobuf.Value, which has one of six fields.
func readStructValue(key string, b []byte) (jsonValue, error) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return jsonValue{}, errStruct
	}
	b = b[n:]
	var v jsonValue
	switch {
	case (number == 1 || number == 4) && kind == protowire.VarintType: // null_value, bool_value
		var word uint64
		if word, n = protowire.ConsumeVarint(b); n == len(b) {
			v = jsonValue{kind: jsonOther, text: "null"}
			if number == 4 {
				v.text = strconv.FormatBool(word != 0)
			}
		}
	case number == 2 && kind == protowire.Fixed64Type: // number_value
		var bits uint64
		if bits, n = protowire.ConsumeFixed64(b); n == len(b) {
			f := math.Float64frombits(bits)
			v = jsonValue{kind: jsonNumber, text: strconv.FormatFloat(f, 'g', -1, 64), number: f}
		}
	case number == 3 && kind == protowire.BytesType: // string_value
		var s []byte
		if s, n = protowire.ConsumeBytes(b); n == len(b) && utf8.Valid(s) {
			v = jsonValue{kind: jsonString, text: string(s)}
		}
	case number == 5 || number == 6: // struct_value, list_value
		return v, errors.New(strconv.QuoteToASCII(clip(key)) + " is an object or a list, want a plain value")
	}
	if v.kind == 0 {
		return v, errStruct
	}
	return v, nil
}
