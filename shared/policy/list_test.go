package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// findNaively is List.find, obviously.
func findNaively(l *List, escaped string) int {
	if i := slices.Index(l.Values, escaped); i >= 0 {
		return i
	}
	address, err := netip.ParseAddr(escaped)
	i := slices.IndexFunc(l.Prefixes, func(p netip.Prefix) bool { return err == nil && p.Contains(address.Unmap()) })
	if i >= 0 {
		i += len(l.Values)
	}
	return i
}

func drawAddress(t *rapid.T) netip.Addr {
	few := func(label string) byte { return rapid.SampledFrom([]byte{0, 1, 127, 128, 255}).Draw(t, label) }
	if rapid.Bool().Draw(t, "v4") {
		return netip.AddrFrom4([4]byte{few("a"), few("b"), few("c"), few("d")})
	}
	return netip.AddrFrom16([16]byte{0x20, 1, few("a"), few("b"), 15: few("c")})
}

func TestListsHoldWhatTheyShould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := List{Values: rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c.]{1,3}|10\.0\.0\.1`), 0, 5, rapid.ID[string]).Draw(t, "values")}
		slices.Sort(l.Values)
		for range rapid.IntRange(0, 8).Draw(t, "prefixes") {
			a := drawAddress(t)
			p, err := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(l.Prefixes, p.Overlaps) {
				l.Prefixes = append(l.Prefixes, p)
			}
		}
		slices.SortFunc(l.Prefixes, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
		if bad := checkList(&l, 1); bad != nil {
			t.Fatalf("%v", bad)
		}
		for range 10 {
			value := rapid.OneOf(
				rapid.Custom(func(t *rapid.T) string { return drawAddress(t).String() }),
				rapid.Custom(func(t *rapid.T) string { return netip.AddrFrom16(drawAddress(t).As16()).String() }),
				rapid.StringMatching(`[a-c.]{1,3}|%|[0-9a-f:.%]{1,20}`),
			).Draw(t, "value")
			if got, want := l.find(value, value), findNaively(&l, value); got != want {
				t.Fatalf("%q is on %v: at %d, want %d", value, l, got, want)
			}
		}
	})
}

// Ranges are of the client's address, whatever stands for it in keys.
func TestRangesOfAnAddressThatIsMasked(t *testing.T) {
	ranges := []List{{Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32"), netip.MustParsePrefix("2001:db8::5/128")}}}
	for name, id := range map[string]Identity{
		"masked": {IPv4Prefix: 24, IPv6Prefix: 64}, "hashed": {Hash: true}, "named": {Networks: []Network{{"office", "10.0.0.0/8"}}},
	} {
		id.Name, id.Source = "client", FromAddress
		c := NewBinder(&Policy{Identities: []Identity{id}, Block: ranges, HashKey: "0123456789abcdef"})
		for address, want := range map[string]bool{
			"203.0.113.7": true, "203.0.113.8": false, "203.0.113.0": false, "2001:db8::5": true, "2001:db8::": false,
		} {
			blocked := len(c.Bind(request{"source address": address}, nil)) > 0
			if blocked != want {
				t.Errorf("%s, %s: blocked %v, want %v", name, address, blocked, want)
			}
		}
	}
}

func BenchmarkLists(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		var l List
		for i := range n {
			l.Values = append(l.Values, "tenant-"+strconv.Itoa(i))
			l.Prefixes = append(l.Prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24))
		}
		slices.Sort(l.Values)
		for _, value := range []string{"tenant-77777", "10.3.4.5", "192.0.2.1"} {
			b.Run(value+"/"+strconv.Itoa(n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					l.find(value, value)
				}
			})
		}
	}
}

// Who is blocked is told by the element of the list, and not by what the request had.
func TestBlockedRequestsNameTheElement(t *testing.T) {
	p := &Policy{
		Version: "v1", Domain: "shop",
		Identities: []Identity{{Name: "key", Source: FromHeader, Header: "x-key"}, {Name: "from", Source: FromHeader, Header: "x-from"}},
		Limits: []Limit{{
			Name: "login", Block: []List{{Identity: 1, Values: []string{"evil"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}},
		}},
		Block: []List{{Identity: 0, Values: []string{"#00ff", "stolen"}}},
	}
	c := NewBinder(p)
	for range 2 { // the second time it is known
		for _, step := range []struct {
			key, from string
			want      Bound
		}{
			{"stolen", "evil", Bound{Limit: -1, Listed: Blocked, Key: "key=stolen"}},
			{"mine", "evil", Bound{Limit: 0, Listed: Blocked, Key: "from=evil"}},
			{"mine", "10.1.2.3", Bound{Limit: 0, Listed: Blocked, Key: "from=10.1.0.0/16"}},
			{"mine", "::ffff:10.1.255.255", Bound{Limit: 0, Listed: Blocked, Key: "from=10.1.0.0/16"}},
		} {
			r := fields{"x-key": {step.key}, "x-from": {step.from}}
			if got := c.Bind(r, nil); len(got) != 1 || got[0] != step.want || !ValidKey(got[0].Key) {
				t.Errorf("%s from %s: %+v, want %+v", step.key, step.from, got, step.want)
			}
		}
	}
	if len(c.elements) != 3 {
		t.Errorf("%v", c.elements)
	}
}
