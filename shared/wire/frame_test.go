package wire

import (
	"bytes"
	"errors"
	"testing"
)

func TestUnframe(t *testing.T) {
	for _, c := range []struct {
		name, body string
		most       int
		want, err  string
	}{
		{"a message", "\x00\x00\x00\x00\x03abc", 3, "abc", ""},
		{"an empty message", "\x00\x00\x00\x00\x00", 0, "", ""},
		{"nothing", "", 9, "", "the body has 0 bytes, the prefix alone 5"},
		{"half a prefix", "\x00\x00\x00\x00", 9, "", "the body has 4 bytes, the prefix alone 5"},
		{"compressed", "\x01\x00\x00\x00\x01a", 9, "", "the message is compressed"},
		{"no flag", "\x02\x00\x00\x00\x01a", 9, "", "the compressed flag is 2"},
		{"cut off", "\x00\x00\x00\x00\x03ab", 9, "", "the prefix claims 3 bytes, the body has 2"},
		{"two messages", "\x00\x00\x00\x00\x01a\x00\x00\x00\x00\x01b", 9, "", "the prefix claims 1 bytes, the body has 7"},
		{"too long", "\x00\x00\x00\x00\x03abc", 2, "", "the prefix claims 3 bytes, more than 2"},
		{"the longest claim", "\x00\xff\xff\xff\xffa", 9, "", "the prefix claims 4294967295 bytes, more than 9"},
		{"no room at all", "\x00\x00\x00\x00\x00", -1, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Unframe([]byte(c.body), c.most)
			switch {
			case c.err == "" && (err != nil || string(got) != c.want):
				t.Fatalf("got %q, %v, want %q", got, err, c.want)
			case c.err != "" && (!errors.Is(err, ErrFrame) || err.Error() != c.err+"; "+ErrFrame.Error()):
				t.Fatalf("got %q, %v, want the error %q", got, err, c.err)
			}
		})
	}
}

func FuzzUnframe(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x03abc"), 3)
	f.Add([]byte("\x01\x00\x00\x00\x00"), 0)
	f.Add([]byte("\x00\xff\xff\xff\xff"), -1)
	f.Fuzz(func(t *testing.T, body []byte, most int) {
		message, err := Unframe(body, most)
		if err != nil {
			if !errors.Is(err, ErrFrame) || message != nil {
				t.Fatalf("got %q, %v", message, err)
			}
		} else if len(message) > max(most, 0) || !bytes.Equal(AppendFrame(nil, message), body) {
			t.Fatalf("%q framed is not %q", message, body)
		}
		if again, err := Unframe(AppendFrame([]byte{}, body), len(body)); err != nil || !bytes.Equal(again, body) {
			t.Fatalf("framed and unframed: %q, %v, want %q", again, err, body)
		}
	})
}
