package policy

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestClientAddress(t *testing.T) {
	for _, c := range []struct {
		name, peer, forwarded string
		hops                  uint32
		want                  string
	}{
		{"an IPv4 peer", "192.0.2.1:40000", "", 0, "192.0.2.1"},
		{"an IPv6 peer", "[2001:db8::1]:40000", "", 0, "2001:db8::1"},
		{"the shortest IPv6 peer", "[::1]:1234", "", 0, "::1"},
		{"an IPv6 peer in another spelling", "[2001:DB8:0:0:0:0:0:1]:1", "", 0, "2001:db8::1"},
		{"an IPv4 peer on an IPv6 socket", "[::ffff:192.0.2.1]:1", "", 0, "192.0.2.1"},
		{"a link's peer", "[fe80::1%eth0]:1", "", 0, "fe80::1"},
		{"a peer without a port", "192.0.2.1", "", 0, "192.0.2.1"},
		{"an IPv6 peer without a port", "2001:db8::1", "", 0, "2001:db8::1"},
		{"brackets without a port", "[::1]", "", 0, "::1"},
		{"a Unix socket", "@/run/app.sock", "", 0, "@/run/app.sock"},
		{"a Unix socket without a name", "", "", 0, ""},
		{"another kind of peer", "envoy://listener/1", "", 0, "envoy://listener/1"},

		{"no trust", "192.0.2.1:1", "203.0.113.9", 0, "192.0.2.1"},
		{"the only entry", "192.0.2.1:1", "203.0.113.9", 1, "203.0.113.9"},
		{"the last entry", "192.0.2.1:1", "6.6.6.6, 203.0.113.9", 1, "203.0.113.9"},
		{"the last but one", "192.0.2.1:1", "6.6.6.6,203.0.113.9 ,\t198.51.100.2", 2, "203.0.113.9"},
		{"the first of as many", "192.0.2.1:1", "203.0.113.9,198.51.100.2", 2, "203.0.113.9"},
		{"an entry with a port", "192.0.2.1:1", "203.0.113.9:443", 1, "203.0.113.9"},
		{"an IPv6 entry", "192.0.2.1:1", "2001:DB8::9", 1, "2001:db8::9"},
		{"an IPv6 entry with a port", "192.0.2.1:1", "[2001:db8::9]:443", 1, "2001:db8::9"},
		{"an entry with a zone", "192.0.2.1:1", "fe80::1%a", 1, "fe80::1"},

		{"no header", "192.0.2.1:1", "", 1, "192.0.2.1"},
		{"too few entries", "192.0.2.1:1", "203.0.113.9", 2, "192.0.2.1"},
		{"an entry that is no address", "192.0.2.1:1", "203.0.113.9, unknown", 1, "192.0.2.1"},
		{"an empty entry", "192.0.2.1:1", "203.0.113.9,", 1, "192.0.2.1"},
		{"only commas", "192.0.2.1:1", ",,,", 2, "192.0.2.1"},
		{"a leading zero", "192.0.2.1:1", "203.0.113.09", 1, "192.0.2.1"},
		{"a port that is none", "192.0.2.1:1", "203.0.113.9:http", 1, "192.0.2.1"},
		{"a port that is empty", "192.0.2.1:1", "203.0.113.9:", 1, "192.0.2.1"},
		{"a bracket that is left open", "192.0.2.1:1", "[::1", 1, "192.0.2.1"},
		{"IPv4 in brackets", "192.0.2.1:1", "[203.0.113.9]", 1, "192.0.2.1"},
		{"bytes of any kind", "192.0.2.1:1", "\xff\x00", 1, "192.0.2.1"},
		{"a very long entry", "192.0.2.1:1", "fe80::1%" + strings.Repeat("a", 1000), 1, "192.0.2.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request{"source address": c.peer}
			if c.forwarded != "" {
				r["x-forwarded-for"] = c.forwarded
			}
			if got, ok := clientAddress(r, c.hops); !ok || got != c.want {
				t.Fatalf("got %q, %v, want %q", got, ok, c.want)
			}
		})
	}
	if got, ok := clientAddress(request{"x-forwarded-for": "nobody"}, 1); ok {
		t.Fatalf("got %q of a request without a peer", got)
	}
}

// Whatever a client writes to the left of what trusted proxies add changes nothing.
func TestAClientCannotChooseItsAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hops := rapid.Uint32Range(1, 5).Draw(t, "hops")
		added := []string{"203.0.113.9"}
		for range hops - 1 {
			added = append(added, "198.51.100.2")
		}
		forged := rapid.StringOfN(rapid.SampledFrom([]rune("1234567890.:[],\t %fé")), 0, 40, -1).Draw(t, "forged")
		header := strings.Join(append([]string{forged}, added...), rapid.SampledFrom([]string{",", ", "}).Draw(t, "comma"))
		if got, _ := clientAddress(request{"source address": "192.0.2.1:1", "x-forwarded-for": header}, hops); got != "203.0.113.9" {
			t.Fatalf("got %q of %q", got, header)
		}
	})
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"192.0.2.1:80", "[::1]:80", "fe80::1%eth0", "[::ffff:1.2.3.4]", "a,b,,1.2.3.4", "1.2.3.4:"} {
		f.Add(s, uint8(1))
	}
	f.Fuzz(func(t *testing.T, text string, hops uint8) {
		got, ok := clientAddress(request{"source address": "192.0.2.1:1", "x-forwarded-for": text}, uint32(hops%4))
		address, err := netip.ParseAddr(got)
		if !ok || err != nil || address.String() != got || address.Zone() != "" || address.Is4In6() {
			t.Fatalf("%q, %d hops: %q is no canonical address", text, hops, got)
		}
	})
}

// What is taken for an IPv4 address without netip is what netip reads, and writes in the same way.
func TestPlainIPv4IsWhatNetipReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		octet := rapid.OneOf(
			rapid.Map(rapid.IntRange(0, 300), strconv.Itoa), rapid.SampledFrom([]string{"0", "00", "01", "255", "256", "", "a", "1:"}),
		)
		text := strings.Join(rapid.SliceOfN(octet, 3, 5).Draw(t, "octets"), ".")
		after := rapid.SampledFrom([]string{"", ":80", ".", "%a", ":", "]"}).Draw(t, "after")
		want := 0
		if a, err := netip.ParseAddr(text); err == nil && a.Is4() && a.String() == text {
			want = len(text)
		}
		if after == "." {
			want = 0
		}
		if strings.Contains(text, ":") { // a port in the wrong place: the address before it, or none
			before, _, _ := strings.Cut(text, ":")
			if a, err := netip.ParseAddr(before); err == nil && a.Is4() {
				want = len(before)
			}
		}
		if got := plainIPv4(text + after); got != want {
			t.Fatalf("%q: %d, want %d", text+after, got, want)
		}
	})
}
