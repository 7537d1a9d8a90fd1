//go:build !wasip1

package host

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The bytes of the ABI's own example of a map.
func TestPairsAreSerializedAsTheABIHasThem(t *testing.T) {
	got := appendPairs([]byte("x"), []Header{{"a", "bc"}, {"", ""}})
	want := "x" + "\x02\x00\x00\x00" + "\x01\x00\x00\x00\x02\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00" + "a\x00bc\x00" + "\x00\x00"
	if string(got) != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := appendPath(nil, []string{"source", "address"}); string(got) != "source\x00address" {
		t.Errorf("a path is %q", got)
	}
}

// What is written is found, several fields of a name joined.
func TestPairsFindWhatIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"a", "b", "aa", "cookie", ":authority", ""})
		value := rapid.StringOfN(rapid.RuneFrom([]rune{'x', ',', 0, 'ÿ'}), 0, 5, -1)
		var headers []Header
		for range rapid.IntRange(0, 6).Draw(t, "headers") {
			headers = append(headers, Header{name.Draw(t, "name"), value.Draw(t, "value")})
		}
		p := pairs(appendPairs(nil, headers))
		for _, wanted := range []string{"a", "b", "aa", "aaa", "cookie", ":authority", "host", ""} {
			stored, separator := fieldRules(wanted)
			var values []string
			for _, h := range headers {
				if h[0] == stored {
					values = append(values, h[1])
				}
			}
			got, found := p.find(wanted)
			if found != len(values) || got != strings.Join(values, separator) {
				t.Fatalf("%q in %q is %q, %d; want %q", wanted, headers, got, found, values)
			}
			sdk, found := sdkFields(untyped(headers)).find(wanted)
			if found != len(values) || sdk != got {
				t.Fatalf("%q in %q is %q, %d in the SDK's map; want %q", wanted, headers, sdk, found, values)
			}
		}
	})
}

func untyped(headers []Header) [][2]string {
	var u [][2]string
	for _, h := range headers {
		u = append(u, h)
	}
	return u
}

// Whatever the host hands over, reading it neither panics nor goes beyond it.
func FuzzPairs(f *testing.F) {
	whole := appendPairs(nil, []Header{{"a", "1"}, {"b", "2"}, {"a", "3"}})
	for n := range whole {
		f.Add(whole[:n])
	}
	f.Add(whole)
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range []string{"a", "b", ""} {
			if value, found := pairs(slices.Clip(b)).find(name); len(value) > len(b) || found == 0 && value != "" {
				t.Errorf("%q in %q is %q, %d", name, b, value, found)
			}
		}
	})
}

func BenchmarkPairsFind(b *testing.B) {
	headers := []Header{{":authority", "a.test"}, {":path", "/v1/reports"}, {":method", "POST"}, {":scheme", "https"}}
	for _, name := range []string{"user-agent", "accept", "accept-language", "x-forwarded-for", "x-request-id", "x-tenant-id"} {
		headers = append(headers, Header{name, strings.Repeat("x", 20)})
	}
	p := pairs(appendPairs(nil, headers))
	b.ReportAllocs()
	for range b.N {
		p.find("x-tenant-id")
	}
}
