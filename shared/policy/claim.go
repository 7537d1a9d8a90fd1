package policy

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice/shared/jsontext"
)

// maxTokenLength bounds the tokens that are read, in bytes; longer ones are none.
const maxTokenLength = 8192

// tokenClaim reads a claim from a JSON Web Token (RFC 7519) in its compact form, with "Bearer " before it or without. Nothing
// is verified. False where it is no such token, or has no such claim, or that is a list, an object or null.
func tokenClaim(token string, path []string) (string, bool) {
	const scheme = "bearer "
	if len(token) >= len(scheme) && lowerASCII(token[:len(scheme)]) == scheme {
		token = strings.Trim(token[len(scheme):], " ")
	}
	if len(token) > maxTokenLength {
		return "", false
	}
	head, rest, ok := strings.Cut(token, ".")
	payload, signature, signed := strings.Cut(rest, ".")
	if !ok || !signed || strings.IndexByte(head, ' ') >= 0 || strings.IndexByte(signature, '.') >= 0 {
		return "", false
	}
	claims, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return "", false
	}
	v, ok := jsontext.Find(string(claims), path)
	switch {
	case !ok:
		return "", false
	case v.Kind == jsontext.Number:
		return numberText(v.Text, v.Number), true
	case v.Kind == jsontext.String, v.Kind == jsontext.Bool:
		return v.Text, true
	}
	return "", false
}

// numberText gives one text for all spellings of a number: 7, 7.0 and 70e-1. Whole numbers keep every digit.
func numberText(text string, number float64) string {
	if !strings.ContainsAny(text, ".eE") {
		if text == "-0" {
			return "0"
		}
		return text
	}
	return floatText(number)
}

func floatText(number float64) string {
	const exact = 1 << 53
	if number == math.Trunc(number) && math.Abs(number) <= exact {
		return strconv.FormatInt(int64(number), 10)
	}
	return strconv.FormatFloat(number, 'g', -1, 64)
}

// jwtMetadata is where Envoy's filter for tokens puts what it has verified.
const jwtMetadata = "envoy.filters.http.jwt_authn"

// isComposite says whether a value of the proxy's is a list or an object: how many pairs it has, the lengths of both parts
// of each, and then the parts, with a zero byte after each. An object's pairs stand in no certain order.
func isComposite(value string) bool {
	if len(value) < 4 {
		return false
	}
	head := 4 + 8*uint64(littleEndian32(value))
	if head > uint64(len(value)) {
		return false
	}
	length := head
	for at := uint64(4); at < head; at += 4 {
		length += uint64(littleEndian32(value[at:])) + 1
	}
	return length == uint64(len(value))
}

func littleEndian32(text string) uint32 {
	return uint32(text[0]) | uint32(text[1])<<8 | uint32(text[2])<<16 | uint32(text[3])<<24
}

// metadataText gives the text of a value of the proxy's metadata, in which a number is eight bytes, a float64, and a bool is
// one. What reads as text is text.
func metadataText(value string) string {
	return binaryText(value, func(bits uint64) string { return floatText(math.Float64frombits(bits)) })
}

// attributeText gives the text of an attribute of the proxy's, in which a number is eight bytes, an int64.
func attributeText(value string) string {
	return binaryText(value, func(bits uint64) string { return strconv.FormatInt(int64(bits), 10) })
}

func binaryText(value string, number func(bits uint64) string) string {
	switch {
	case value == "\x00":
		return "false"
	case value == "\x01":
		return "true"
	case len(value) != 8 || isText(value):
		return value
	}
	var bits uint64
	for i := range 8 {
		bits |= uint64(value[i]) << (8 * i)
	}
	return number(bits)
}

func isText(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' {
			return false
		}
	}
	return utf8.ValidString(value)
}
