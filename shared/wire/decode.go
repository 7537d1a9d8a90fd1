package wire

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrMessage is what every error about a message's bytes wraps.
var ErrMessage = errors.New("not a valid message")

// FieldError says which field of a message is wrong, and what was expected of it.
type FieldError struct {
	// Field is the path from the message: "SyncRequest.asks[3].want".
	Field string
	// Problem says what is wrong.
	Problem string
}

// Error gives the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Unwrap gives ErrMessage.
func (e *FieldError) Unwrap() error { return ErrMessage }

// within puts the name of the message around an error, and makes it an error for callers.
func within(message string, err *FieldError) error {
	if err == nil {
		return nil
	}
	return &FieldError{Field: strings.TrimSuffix(message+"."+err.Field, "."), Problem: err.Problem}
}

// fields reads a message's fields one after the other. Once something is wrong, err is set and next gives false.
type fields struct {
	rest   []byte
	number uint32
	kind   byte
	err    *FieldError
}

// next goes to the next field; what is read of it then has to be exactly one of the methods below.
func (f *fields) next() bool {
	if f.err != nil || len(f.rest) == 0 {
		return false
	}
	tag, ok := f.varint()
	if !ok {
		return false
	}
	number := tag >> 3
	const maxNumber = 1<<29 - 1
	if number == 0 || number > maxNumber {
		f.fail("", "the field number "+strconv.FormatUint(number, 10)+" does not exist")
		return false
	}
	f.number, f.kind = uint32(number), byte(tag&7)
	return true
}

func (f *fields) fail(name, problem string) {
	if f.err == nil {
		f.err = &FieldError{Field: name, Problem: problem}
	}
}

// nested takes over what is wrong in the i-th message of a field, or in its only one with i < 0.
func (f *fields) nested(name string, i int, err *FieldError) {
	if err == nil {
		return
	}
	if i >= 0 {
		name += "[" + strconv.Itoa(i) + "]"
	}
	if err.Field != "" {
		name += "." + err.Field
	}
	f.fail(name, err.Problem)
}

// varint takes a number of 64 bits off the bytes.
func (f *fields) varint() (uint64, bool) {
	var v uint64
	for i, b := range f.rest {
		if i == 9 && b > 1 {
			f.fail("", "a number has more than 64 bits")
			return 0, false
		}
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			f.rest = f.rest[i+1:]
			return v, true
		}
	}
	f.fail("", "the message ends within a number")
	return 0, false
}

// take takes n bytes off the bytes, without copying them.
func (f *fields) take(name string, n uint64) []byte {
	if n > uint64(len(f.rest)) {
		f.fail(name, "claims "+strconv.FormatUint(n, 10)+" bytes, the message has "+strconv.Itoa(len(f.rest))+" left")
		return nil
	}
	taken := f.rest[:n:n]
	f.rest = f.rest[n:]
	return taken
}

// is checks the field's wire type.
func (f *fields) is(name string, kind byte) bool {
	if f.kind != kind {
		f.fail(name, "has wire type "+strconv.Itoa(int(f.kind))+", want "+strconv.Itoa(int(kind)))
		return false
	}
	return true
}

// room checks that a list takes one element more.
func (f *fields) room(name string, length, most int) bool {
	if length >= most {
		f.fail(name, "has more than "+strconv.Itoa(most)+" elements")
		return false
	}
	return true
}

// element reads one element more of a list of messages, which takes at most so many.
func element[T any](f *fields, name string, into []T, most int, parse func([]byte) (T, *FieldError)) []T {
	b := f.message(name)
	if !f.room(name, len(into), most) {
		return into
	}
	one, err := parse(b)
	f.nested(name, len(into), err)
	return append(into, one)
}

// skip passes over a field that this version does not know.
func (f *fields) skip() {
	const name = "an unknown field"
	switch f.kind {
	case kindVarint:
		f.varint()
	case kindFixed64:
		f.take(name, 8)
	case kindFixed32:
		f.take(name, 4)
	case kindBytes:
		f.message(name)
	default:
		f.fail(name, "has wire type "+strconv.Itoa(int(f.kind))+", want 0, 1, 2 or 5")
	}
}

// message reads the bytes of a message, or of any field with a length. They are not copied.
func (f *fields) message(name string) []byte {
	if !f.is(name, kindBytes) {
		return nil
	}
	n, ok := f.varint()
	if !ok {
		return nil
	}
	return f.take(name, n)
}

// text reads a string of at most the given bytes, and copies it.
func (f *fields) text(name string, most int) string {
	b := f.message(name)
	if len(b) > most {
		f.fail(name, "has "+strconv.Itoa(len(b))+" bytes, want at most "+strconv.Itoa(most))
		return ""
	}
	if !utf8.Valid(b) {
		f.fail(name, "is not UTF-8")
		return ""
	}
	return string(b)
}

// numberUpTo reads a number from 0 to the given.
func (f *fields) numberUpTo(name string, most uint64) uint64 {
	if !f.is(name, kindVarint) {
		return 0
	}
	v, _ := f.varint()
	return f.upTo(name, v, most)
}

func (f *fields) upTo(name string, v, most uint64) uint64 {
	if v > most {
		f.fail(name, strconv.FormatUint(v, 10)+" is more than "+strconv.FormatUint(most, 10))
		return 0
	}
	return v
}

func (f *fields) number32(name string) uint32 {
	return uint32(f.numberUpTo(name, math.MaxUint32))
}

// number8 reads a number of an enumeration.
func (f *fields) number8(name string) uint8 { return uint8(f.numberUpTo(name, math.MaxUint8)) }

// units reads a count of units.
func (f *fields) units(name string) int64 { return int64(f.numberUpTo(name, MaxUnits)) }

// duration reads whole microseconds.
func (f *fields) duration(name string) time.Duration {
	return time.Duration(f.numberUpTo(name, uint64(MaxDuration.Microseconds()))) * time.Microsecond
}

func (f *fields) flag(name string) bool { return f.numberUpTo(name, math.MaxUint64) != 0 }

func (f *fields) fixed64(name string) uint64 {
	if !f.is(name, kindFixed64) {
		return 0
	}
	b := f.take(name, 8)
	if b == nil {
		return 0
	}
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// indices reads more of a list of numbers, packed or one by one.
func (f *fields) indices(name string, most int, into []uint32) []uint32 {
	if f.kind == kindVarint {
		if f.room(name, len(into), most) {
			into = append(into, f.number32(name))
		}
		return into
	}
	packed := fields{rest: f.message(name)}
	for len(packed.rest) > 0 && f.err == nil {
		v, ok := packed.varint()
		if !ok {
			f.nested(name, -1, packed.err)
			break
		}
		if f.room(name, len(into), most) {
			into = append(into, uint32(f.upTo(name, v, math.MaxUint32)))
		}
	}
	return into
}

// tooLong refuses a message of more than MaxMessageSize.
func tooLong(b []byte) *FieldError {
	if len(b) > MaxMessageSize {
		return &FieldError{Problem: "has " + strconv.Itoa(len(b)) + " bytes, want at most " + strconv.Itoa(MaxMessageSize)}
	}
	return nil
}
