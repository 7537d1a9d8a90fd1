package plugin

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSON bounds what is read at all, in bytes.
const maxJSON = 1 << 16

// jsonKind is the type of a value.
type jsonKind uint8

const (
	jsonString jsonKind = iota + 1
	jsonNumber
	jsonOther // true, false or null
)

// jsonValue is a value that is neither an object nor an array.
type jsonValue struct {
	kind   jsonKind
	text   string // a string's, else as it stands
	number float64
}

// describe gives the value for an error.
func (v jsonValue) describe() string {
	if v.kind == jsonString {
		return strconv.QuoteToASCII(clip(v.text))
	}
	return clip(v.text)
}

// whole gives a whole number from least to most. A protobuf Struct holds every number as a double: 200 may come as 200.0.
func (v jsonValue) whole(least, most int) (int, error) {
	if v.kind != jsonNumber || v.number != math.Trunc(v.number) || v.number < float64(least) || v.number > float64(most) {
		return 0, errors.New("is " + v.describe() + ", want a whole number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most))
	}
	return int(v.number), nil
}

// readJSONObject reads a JSON object (RFC 8259) of plain values, and gives each member to take, in order. A name that
// stands twice is an error. encoding/json would bring reflection into the filter.
func readJSONObject(text []byte, take func(key string, v jsonValue) error) error {
	if len(text) > maxJSON {
		return errors.New("has " + strconv.Itoa(len(text)) + " bytes, want at most " + strconv.Itoa(maxJSON))
	}
	if !utf8.Valid(text) {
		return errors.New("is not UTF-8")
	}
	r := &jsonReader{text: string(text)}
	seen := map[string]bool{}
	if err := r.expect('{', `"{"`); err != nil {
		return err
	}
	if r.skip('}') {
		return r.end()
	}
	for {
		key, err := r.readString("a name in quotes")
		if err != nil {
			return err
		}
		if seen[key] {
			return errors.New(strconv.QuoteToASCII(clip(key)) + " stands twice")
		}
		seen[key] = true
		if err := r.expect(':', `":"`); err != nil {
			return err
		}
		v, err := r.readValue(key)
		if err != nil {
			return err
		}
		if err := take(key, v); err != nil {
			return err
		}
		if r.skip(',') {
			continue
		}
		if err := r.expect('}', `"," or "}"`); err != nil {
			return err
		}
		return r.end()
	}
}

type jsonReader struct {
	text string
	at   int
}

func (r *jsonReader) wrong(want string) error {
	return errors.New("not JSON at byte " + strconv.Itoa(r.at) + ": want " + want)
}

func (r *jsonReader) space() {
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
}

// skip passes over space, and then over the byte if it is next.
func (r *jsonReader) skip(b byte) bool {
	r.space()
	if r.at < len(r.text) && r.text[r.at] == b {
		r.at++
		return true
	}
	return false
}

func (r *jsonReader) expect(b byte, want string) error {
	if !r.skip(b) {
		return r.wrong(want)
	}
	return nil
}

func (r *jsonReader) end() error {
	r.space()
	if r.at < len(r.text) {
		return r.wrong("nothing after the object")
	}
	return nil
}

func (r *jsonReader) readValue(key string) (jsonValue, error) {
	r.space()
	if r.at == len(r.text) {
		return jsonValue{}, r.wrong("a value")
	}
	switch r.text[r.at] {
	case '"':
		text, err := r.readString("a string")
		return jsonValue{kind: jsonString, text: text}, err
	case '{', '[':
		return jsonValue{}, errors.New(strconv.QuoteToASCII(clip(key)) + " is an object or a list, want a plain value")
	}
	start := r.at
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n,}", r.text[r.at]) < 0 {
		r.at++
	}
	word := r.text[start:r.at]
	switch word {
	case "true", "false", "null":
		return jsonValue{kind: jsonOther, text: word}, nil
	}
	number, err := strconv.ParseFloat(word, 64)
	if !isJSONNumber(word) || err != nil {
		r.at = start
		return jsonValue{}, r.wrong("a string, a number, true, false or null")
	}
	return jsonValue{kind: jsonNumber, text: word, number: number}, nil
}

// isJSONNumber checks the grammar of RFC 8259, section 6, which is narrower than what strconv reads.
func isJSONNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	digits := func() bool {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		s = s[n:]
		return n > 0
	}
	if strings.HasPrefix(s, "0") {
		s = s[1:]
	} else if !digits() {
		return false
	}
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		if !digits() {
			return false
		}
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		s = s[1:]
		if s != "" && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		if !digits() {
			return false
		}
	}
	return s == ""
}

func (r *jsonReader) readString(want string) (string, error) {
	if !r.skip('"') {
		return "", r.wrong(want)
	}
	var text []byte
	for r.at < len(r.text) {
		b := r.text[r.at]
		switch {
		case b == '"':
			r.at++
			return string(text), nil
		case b < ' ':
			return "", r.wrong("no control character in a string")
		case b != '\\':
			text = append(text, b)
			r.at++
			continue
		}
		c, ok := r.readEscape()
		if !ok {
			return "", r.wrong("an escape that JSON knows")
		}
		text = utf8.AppendRune(text, c)
	}
	return "", r.wrong("the string's closing quote")
}

// readEscape reads a backslash and what follows it; two of them for a character outside of the basic plane.
func (r *jsonReader) readEscape() (rune, bool) {
	rest := r.text[r.at+1:]
	if rest == "" {
		return 0, false
	}
	if rest[0] != 'u' {
		const short, long = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
		i := strings.IndexByte(short, rest[0])
		if i < 0 {
			return 0, false
		}
		r.at += 2
		return rune(long[i]), true
	}
	first, ok := hex4(rest[1:])
	if !ok {
		return 0, false
	}
	r.at += 6
	if !utf16.IsSurrogate(first) {
		return first, true
	}
	if rest = r.text[r.at:]; !strings.HasPrefix(rest, `\u`) {
		return 0, false
	}
	second, ok := hex4(rest[2:])
	if c := utf16.DecodeRune(first, second); ok && c != utf8.RuneError {
		r.at += 6
		return c, true
	}
	return 0, false
}

func hex4(s string) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	for i := range 4 {
		if strings.IndexByte("0123456789abcdefABCDEF", s[i]) < 0 {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(s[:4], 16, 16)
	return rune(n), err == nil
}
