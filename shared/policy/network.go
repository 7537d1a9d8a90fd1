package policy

import (
	"net/netip"
	"strconv"
)

// Network is a range of addresses with a name.
type Network struct {
	// Name is what stands for an address of it.
	Name string
	// CIDR is the range in its canonical form, such as 192.0.2.0/24 or 2001:db8::/32.
	CIDR string
}

// networks finds the narrowest range that an address is in.
type networks struct {
	// lengths are the lengths of the ranges' prefixes, the longest first; those of IPv4 are counted by themselves.
	lengths4, lengths6 []int
	names              map[netip.Prefix]string
}

func newNetworks(list []Network) *networks {
	n := &networks{names: make(map[netip.Prefix]string, len(list))}
	var seen4, seen6 [129]bool
	for _, entry := range list {
		prefix, ok := ParseCIDR(entry.CIDR)
		if !ok {
			continue // Validate has refused it
		}
		if _, twice := n.names[prefix]; !twice {
			n.names[prefix] = entry.Name
		}
		if prefix.Addr().Is4() {
			seen4[prefix.Bits()] = true
		} else {
			seen6[prefix.Bits()] = true
		}
	}
	for bits := 128; bits >= 0; bits-- {
		if seen4[bits] {
			n.lengths4 = append(n.lengths4, bits)
		}
		if seen6[bits] {
			n.lengths6 = append(n.lengths6, bits)
		}
	}
	return n
}

// find gives the name of the narrowest range that has the address; false where none has, and of what is no address.
func (n *networks) find(address string) (string, bool) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return "", false
	}
	lengths := n.lengths6
	if a.Is4() {
		lengths = n.lengths4
	}
	for _, bits := range lengths {
		prefix, err := a.Prefix(bits)
		if err != nil {
			continue
		}
		if name, ok := n.names[prefix]; ok {
			return name, true
		}
	}
	return "", false
}

// maskAddress gives the first address of the range of that many bits that an address is in; 0 bits: the address itself. What
// is no address stays as it is.
func maskAddress(address string, bits4, bits6 uint32) string {
	if bits4 == 0 && bits6 == 0 {
		return address
	}
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	bits := bits6
	if a.Is4() {
		bits = bits4
	}
	prefix, err := a.Prefix(int(bits))
	if bits == 0 || err != nil || prefix.Addr() == a {
		return address
	}
	return prefix.Addr().String()
}

// ParseCIDR reads a range of addresses: ADDRESS/BITS without a zone, bits beyond the prefix being 0, or a single address.
func ParseCIDR(text string) (netip.Prefix, bool) {
	if len(text) > maxCIDRLength {
		return netip.Prefix{}, false
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" {
			return netip.Prefix{}, false
		}
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	if prefix.Addr().Is4In6() || prefix != prefix.Masked() {
		return netip.Prefix{}, false
	}
	return prefix, true
}

// maxCIDRLength is that of the longest form of a range, in bytes.
const maxCIDRLength = 64

func checkAddress(id *Identity) *invalid {
	switch {
	case id.TrustedHops > MaxTrustedHops:
		return &invalid{"trusted_hops", tooMany(int(id.TrustedHops), MaxTrustedHops, "hops")}
	case id.IPv4Prefix > 32:
		return &invalid{"ipv4_prefix", strconv.Itoa(int(id.IPv4Prefix)) + " is more than 32"}
	case id.IPv6Prefix > 128:
		return &invalid{"ipv6_prefix", strconv.Itoa(int(id.IPv6Prefix)) + " is more than 128"}
	case len(id.Networks) > MaxNetworks:
		return &invalid{"networks", tooMany(len(id.Networks), MaxNetworks, "elements")}
	}
	for i, n := range id.Networks {
		at := "networks[" + strconv.Itoa(i) + "]"
		if n.Name == "" || len(n.Name) > MaxNameLength {
			return &invalid{at + ".name", "has " + strconv.Itoa(len(n.Name)) + " bytes, want 1 to " + strconv.Itoa(MaxNameLength)}
		}
		if prefix, ok := ParseCIDR(n.CIDR); !ok || prefix.String() != n.CIDR {
			return &invalid{at + ".cidr", strconv.Quote(clip(n.CIDR)) + " is no range of addresses in its canonical form"}
		}
	}
	return nil
}
