package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// List names callers by the value of one identity.
type List struct {
	// Identity is an index into Policy.Identities.
	Identity uint32
	// Values are as EscapeValue has them: sorted, each once.
	Values []string
	// Prefixes hold addresses: sorted, none within another. They are compared with the client's address where the identity
	// is that, whatever its value is, and else with values that are addresses.
	Prefixes []netip.Prefix
}

// Listed says on which kind of list a request stands.
type Listed uint8

// The kinds of list. Whoever is on both kinds is blocked.
const (
	// Allowed requests are not under the limit, or under none.
	Allowed Listed = iota + 1
	// Blocked requests are denied, whatever they have left.
	Blocked
)

// on says whether the request stands on one of the lists.
func (b *binding) on(lists []List) bool {
	for i := range lists {
		l := &lists[i]
		address := ""
		if len(l.Prefixes) > 0 {
			address = b.address(l.Identity)
		}
		if l.holds(b.value(l.Identity).escaped, address) {
			return true
		}
	}
	return false
}

// address gives what prefixes are compared with: of an identity that is the client's address all of it, whatever stands for it in a
// key, and else the value.
func (b *binding) address(identity uint32) string {
	if id := &b.binder.readers[identity]; id.Source == FromAddress {
		address, _ := clientAddress(b.request, id.TrustedHops)
		return address
	}
	return b.value(identity).escaped
}

// holds looks for a value among the values, and for what is an address among the prefixes. Empty is neither.
func (l *List) holds(escaped, text string) bool {
	if _, found := slices.BinarySearch(l.Values, escaped); found {
		return true
	}
	if len(l.Prefixes) == 0 || !looksLikeAddress(text) {
		return false
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return false
	}
	address = address.Unmap() // of a header's value: those of clients are so already
	// The only one that can hold it is the last that does not begin after it.
	i, begins := slices.BinarySearchFunc(l.Prefixes, address, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return begins || i > 0 && l.Prefixes[i-1].Contains(address)
}

// looksLikeAddress spares a text that is none the error that netip would make of it.
func looksLikeAddress(text string) bool {
	return text != "" && strings.Trim(text, "0123456789abcdefABCDEF.:") == ""
}

func checkLists(where string, lists []List, identities int) *invalid {
	if len(lists) > MaxLists {
		return &invalid{where, tooMany(len(lists), MaxLists, "elements")}
	}
	for i := range lists {
		if e := checkList(&lists[i], identities); e != nil {
			return e.in(where, i)
		}
	}
	return nil
}

func checkList(l *List, identities int) *invalid {
	switch {
	case int64(l.Identity) >= int64(identities):
		return &invalid{"identity", strconv.FormatUint(uint64(l.Identity), 10) + " is no index into the " +
			strconv.Itoa(identities) + " identities"}
	case len(l.Values) > MaxListEntries:
		return &invalid{"values", tooMany(len(l.Values), MaxListEntries, "elements")}
	case len(l.Prefixes) > MaxListEntries:
		return &invalid{"prefixes", tooMany(len(l.Prefixes), MaxListEntries, "elements")}
	}
	for i, value := range l.Values {
		where := "values[" + strconv.Itoa(i) + "]"
		switch {
		case !ValidKey(value) || strings.Contains(value, "/") || value == "":
			return &invalid{where, strconv.Quote(clip(value)) + " is no value as it stands in a key"}
		case i > 0 && l.Values[i-1] >= value:
			return &invalid{where, "does not come after the one before, want each once, in order"}
		}
	}
	for i, prefix := range l.Prefixes {
		where := "prefixes[" + strconv.Itoa(i) + "]"
		switch {
		case !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4In6():
			return &invalid{where, prefix.String() + " is no prefix whose other bits are 0"}
		case i > 0 && (l.Prefixes[i-1].Addr().Compare(prefix.Addr()) >= 0 || l.Prefixes[i-1].Overlaps(prefix)):
			return &invalid{where, prefix.String() + " does not come after the one before, want them in order and none within another"}
		}
	}
	return nil
}
