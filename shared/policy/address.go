package policy

import (
	"net/netip"
	"strings"
)

// sourceAddress is the proxy's attribute with the peer's address: "192.0.2.1:40000", "[2001:db8::1]:40000", or what a
// Unix socket is called. It is passed on as it is, and never changed.
var sourceAddress = []string{"source", "address"}

// clientAddress reads the client's address in its canonical form, without a port or a zone; an IPv4 address within IPv6
// is given as IPv4.
//
// With hops, an entry of X-Forwarded-For that is missing, or no address, was not written by the proxies that are trusted;
// the peer's address is taken then. It holds back all that comes through this peer together, where the alternative would
// leave the choice of a key, or of none, to the client.
func clientAddress(r Request, hops uint32) (string, bool) {
	if hops > 0 {
		if forwarded, fields := r.Header("x-forwarded-for"); fields > 0 {
			if address, ok := canonicalAddress(entryFromRight(forwarded, hops)); ok {
				return address, true
			}
		}
	}
	peer, ok := r.Property(sourceAddress...)
	if !ok {
		return "", false
	}
	if address, ok := canonicalAddress(peer); ok {
		return address, true
	}
	// A Unix socket. Its clients have no name as a rule, so all of them share one key.
	return peer, true
}

// entryFromRight gives the n-th of a list of entries between commas, counted from the right from 1; empty where there are
// fewer.
func entryFromRight(list string, n uint32) string {
	for ; n > 1; n-- {
		comma := strings.LastIndexByte(list, ',')
		if comma < 0 {
			return ""
		}
		list = list[:comma]
	}
	return strings.Trim(list[strings.LastIndexByte(list, ',')+1:], " \t")
}

// canonicalAddress reads an IP address with or without a port: "192.0.2.1", "192.0.2.1:80", "2001:db8::1",
// "[2001:db8::1]", "[2001:db8::1]:80". Text that is canonical already is given back without a copy.
func canonicalAddress(text string) (string, bool) {
	// The longest is "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255%zone]:65535"; a hostile one is not worth reading.
	const longest = 128
	if text == "" || len(text) > longest {
		return "", false
	}
	if end := plainIPv4(text); end > 0 && isPort(text[end:]) {
		return text[:end], true
	}
	host := text
	switch {
	case text[0] == '[':
		end := strings.IndexByte(text, ']')
		if end < 0 || !isPort(text[end+1:]) || strings.IndexByte(text[:end], ':') < 0 {
			return "", false
		}
		host = text[1:end]
	case strings.Count(text, ":") == 1:
		colon := strings.IndexByte(text, ':')
		if !isPort(text[colon:]) {
			return "", false
		}
		host = text[:colon]
	}
	// A zone says nothing of the client. It is cut before netip sees it, which keeps every zone that it was ever shown.
	bare, zone, hasZone := strings.Cut(host, "%")
	address, err := netip.ParseAddr(bare)
	if err != nil || hasZone && (zone == "" || !address.Is6()) {
		return "", false
	}
	var room [64]byte
	canonical := address.Unmap().AppendTo(room[:0])
	if string(canonical) == host {
		return host, true
	}
	return string(canonical), true
}

// plainIPv4 is how long the IPv4 address is that text begins with, in the only form that netip reads and writes one; 0 where
// there is none. Nearly every address is such a one, and this takes a tenth of reading and writing it.
func plainIPv4(text string) int {
	octets, start, value := 1, 0, 0
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			if i > start && value == 0 {
				return 0 // 01 is no octet
			}
			if value = 10*value + int(c-'0'); value > 255 {
				return 0
			}
		case i == start: // no digit
			return 0
		case c == '.':
			octets, start, value = octets+1, i+1, 0
		case octets == 4:
			return i
		default:
			return 0
		}
	}
	if octets == 4 && start < len(text) {
		return len(text)
	}
	return 0
}

// isPort says whether text is empty, or a colon and up to five digits.
func isPort(text string) bool {
	if text == "" {
		return true
	}
	if text[0] != ':' || len(text) == 1 || len(text) > 6 {
		return false
	}
	for i := 1; i < len(text); i++ {
		if c := text[i]; c < '0' || c > '9' {
			return false
		}
	}
	return true
}
