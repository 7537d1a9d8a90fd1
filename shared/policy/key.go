package policy

import (
	"crypto/sha256"
	"strconv"
	"strings"
)

// MaxValueLength is the longest identity value that stands in a key as it is, in bytes; of a longer one stands a hash.
const MaxValueLength = 128

// MaxKeyLength bounds a key: every part of MaxValueLength bytes that are all escaped.
const MaxKeyLength = MaxKeyParts*(3*MaxValueLength+1) - 1

// noValue stands for the empty value, so that a key of one empty value differs from a key of no values. No escaped value
// looks like it, for a percent sign is always followed by two digits.
const noValue = "%"

// EscapeValue gives the form in which a value stands in a key: bytes that are not graphic ASCII, and % / { } #, as %XX;
// "%" for the empty value; "#" and the value's SHA-256 in hex where it is longer than MaxValueLength. No two values have
// the same form, and none contains what a key or a Redis hash tag is delimited by. Where nothing needs escaping the
// value itself is given back, without a copy.
func EscapeValue(value string) string {
	switch {
	case value == "":
		return noValue
	case len(value) > MaxValueLength:
		sum := sha256.Sum256([]byte(value))
		return hexForm("#", sum[:])
	}
	for i := range len(value) {
		if !isPlain(value[i]) {
			return escape(value, i)
		}
	}
	return value
}

// escape escapes a value of up to MaxValueLength bytes, the first from of which are plain.
func escape(value string, from int) string {
	const digits = "0123456789ABCDEF"
	var room [3 * MaxValueLength]byte
	text := append(room[:0], value[:from]...)
	for _, b := range []byte(value[from:]) {
		if isPlain(b) {
			text = append(text, b)
		} else {
			text = append(text, '%', digits[b>>4], digits[b&0xf])
		}
	}
	return string(text)
}

// UnescapeValue gives the value that has a form; false where EscapeValue gives no value that form, and where it is a hash.
func UnescapeValue(form string) (string, bool) {
	if form == noValue {
		return "", true
	}
	text := make([]byte, 0, len(form))
	for i := 0; i < len(form); i++ {
		if form[i] != '%' {
			text = append(text, form[i])
			continue
		}
		if i+2 >= len(form) {
			return "", false
		}
		b, err := strconv.ParseUint(form[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		text = append(text, byte(b))
		i += 2
	}
	return string(text), EscapeValue(string(text)) == form
}

// isPlain says whether a byte stands for itself in a key.
func isPlain(b byte) bool {
	if b <= ' ' || b >= 0x7f {
		return false
	}
	switch b {
	case '%', '/', '{', '}', '#':
		return false
	}
	return true
}

// ValidKey says whether a key that came off the wire could have been made by a Policy: it is not longer than
// MaxKeyLength, and has nothing in it that is never left unescaped.
func ValidKey(key string) bool {
	if len(key) > MaxKeyLength {
		return false
	}
	for i := range len(key) {
		if b := key[i]; !isPlain(b) && b != '/' && b != '%' && b != '#' {
			return false
		}
	}
	return true
}

// StoreName names a key among all keys of a store: domain/limit/key, the first two escaped as values are, the key as Bind
// gives it. No two triples share a name, and it may stand within the braces of a Redis hash tag if ValidKey(key).
func StoreName(domain, limit, key string) string {
	return EscapeValue(domain) + "/" + EscapeValue(limit) + "/" + key
}

// joinKey puts escaped values together.
func joinKey(values []string) string {
	switch len(values) {
	case 0:
		return ""
	case 1:
		return values[0]
	}
	return strings.Join(values, "/")
}
