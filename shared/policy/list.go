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

// BlockList is what requests that the policy's own block list denies are counted under, in the place of a limit's name.
const BlockList = "(block)"

// on says whether the request stands on one of the lists.
func (b *binding) on(lists []List) bool { return b.listed(lists) != place{} }

// place is an element of a list: of its values, or after those of its prefixes. The zero value is none.
type place struct {
	list  *List
	index int
}

// listed gives where the request stands on one of the lists.
func (b *binding) listed(lists []List) place {
	for i := range lists {
		l := &lists[i]
		address := ""
		if len(l.Prefixes) > 0 {
			address = b.address(l.Identity)
		}
		if at := l.find(b.value(l.Identity).escaped, address); at >= 0 {
			return place{l, at}
		}
	}
	return place{}
}

// element names an element of a list, for people, as identity=value or identity=prefix. Most often it is the one before.
func (c *Binder) element(at place) string {
	name, known := c.elements[at]
	if !known {
		l := at.list
		name = c.policy.Identities[l.Identity].Name + "="
		if at.index < len(l.Values) {
			name += l.Values[at.index]
		} else {
			name += l.Prefixes[at.index-len(l.Values)].String()
		}
		c.elements[at] = name
	}
	return name
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

// find looks for a value among the values, and for what is an address among the prefixes, and gives the element's index: the
// prefixes come after the values; -1 where it is not found. Empty is neither.
func (l *List) find(escaped, text string) int {
	if i, found := slices.BinarySearch(l.Values, escaped); found {
		return i
	}
	if len(l.Prefixes) == 0 || !looksLikeAddress(text) {
		return -1
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return -1
	}
	address = address.Unmap() // of a header's value: those of clients are so already
	// The only one that can hold it is the last that does not begin after it.
	i, begins := slices.BinarySearchFunc(l.Prefixes, address, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	switch {
	case begins:
	case i > 0 && l.Prefixes[i-1].Contains(address):
		i--
	default:
		return -1
	}
	return len(l.Values) + i
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
