// Package jsontext reads JSON (RFC 8259) without reflection, which encoding/json would bring into the filter: an object of
// plain values, or one value out of a larger object.
package jsontext

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxLength bounds what is read at all, in bytes.
const MaxLength = 1 << 16

// Kind is the type of a value.
type Kind uint8

// The kinds of values.
const (
	String Kind = iota + 1
	Number
	Bool
	Null
	// Compound is an object or a list.
	Compound
)

// Value is a value; of an object or a list it is only said that it is one.
type Value struct {
	Kind Kind
	// Text is a string's content, and else the value as it stands.
	Text string
	// Number is a number's value, as near as a float64 has it.
	Number float64
}

// Describe gives the value for an error.
func (v Value) Describe() string {
	if v.Kind == String {
		return strconv.QuoteToASCII(clip(v.Text))
	}
	return clip(v.Text)
}

// Whole gives a whole number from least to most. A protobuf Struct holds every number as a double: 200 may come as 200.0.
func (v Value) Whole(least, most int) (int, error) {
	if v.Kind != Number || v.Number != math.Trunc(v.Number) || v.Number < float64(least) || v.Number > float64(most) {
		return 0, errors.New("is " + v.Describe() + ", want a whole number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most))
	}
	return int(v.Number), nil
}

// ReadObject reads a JSON object of plain values, and gives each member to take, in order. A name that stands twice is an
// error, and so is what take gives.
func ReadObject(text []byte, take func(key string, v Value) error) error {
	if len(text) > MaxLength {
		return errors.New("has " + strconv.Itoa(len(text)) + " bytes, want at most " + strconv.Itoa(MaxLength))
	}
	if !utf8.Valid(text) {
		return errors.New("is not UTF-8")
	}
	r := &reader{text: string(text)}
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
		v, err := r.value()
		if err != nil {
			return err
		}
		if v.Kind == Compound {
			return errors.New(strconv.QuoteToASCII(clip(key)) + " is an object or a list, want a plain value")
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

type reader struct {
	text string
	at   int
}

func (r *reader) wrong(want string) error {
	return errors.New("not JSON at byte " + strconv.Itoa(r.at) + ": want " + want)
}

func (r *reader) space() {
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
}

// skip passes over space, and then over the byte if it is next.
func (r *reader) skip(b byte) bool {
	r.space()
	if r.at < len(r.text) && r.text[r.at] == b {
		r.at++
		return true
	}
	return false
}

func (r *reader) expect(b byte, want string) error {
	if !r.skip(b) {
		return r.wrong(want)
	}
	return nil
}

func (r *reader) end() error {
	r.space()
	if r.at < len(r.text) {
		return r.wrong("nothing after the object")
	}
	return nil
}

// value reads a plain value; of an object or a list it passes over the bracket that opens it.
func (r *reader) value() (Value, error) {
	r.space()
	if r.at == len(r.text) {
		return Value{}, r.wrong("a value")
	}
	switch r.text[r.at] {
	case '"':
		text, err := r.readString("a string")
		return Value{Kind: String, Text: text}, err
	case '{', '[':
		r.at++
		return Value{Kind: Compound, Text: r.text[r.at-1 : r.at]}, nil
	}
	start := r.at
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n,]}", r.text[r.at]) < 0 {
		r.at++
	}
	word := r.text[start:r.at]
	switch word {
	case "true", "false":
		return Value{Kind: Bool, Text: word}, nil
	case "null":
		return Value{Kind: Null, Text: word}, nil
	}
	number, err := strconv.ParseFloat(word, 64)
	if !isJSONNumber(word) || err != nil {
		r.at = start
		return Value{}, r.wrong("a string, a number, true, false or null")
	}
	return Value{Kind: Number, Text: word, Number: number}, nil
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

func (r *reader) readString(want string) (string, error) {
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
func (r *reader) readEscape() (rune, bool) {
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

func clip(text string) string {
	const most = 64
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
