package policy

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds on descriptors.
const (
	MaxDescriptorEntries = 10
	// MaxReplaces bounds the limits that one stands in the place of.
	MaxReplaces = 64
	// MaxDescriptorText bounds an entry's key and value, in bytes.
	MaxDescriptorText = 256
)

// DescriptorEntry is what an entry of a descriptor has to be for a limit to bind it. Descriptors are what Envoy's own rate
// limit filter sends: lists of keys with values, which Envoy's routes make of a request.
type DescriptorEntry struct {
	// Key is the entry's key, 1 to MaxDescriptorText bytes of UTF-8.
	Key string
	// Value is the value, or with Prefix what it begins with. Empty: any value will do.
	Value string
	// Prefix: every value that begins with Value will do.
	Prefix bool
	// Hash has an HMAC-SHA256 by Policy.HashKey stand for the value in the key, of an entry that is Counted.
	Hash bool
}

// Counted says whether each value of the entry has a count of its own: the value then is part of the key.
func (e *DescriptorEntry) Counted() bool { return e.Value == "" || e.Prefix }

// EntryForm gives the form in which a value of an entry stands in a key.
func (p *Policy) EntryForm(e *DescriptorEntry, value string) string {
	if e.Hash {
		return p.secretForm(value)
	}
	return EscapeValue(value)
}

// IsForm says whether a value of the entry can stand in a key so. Of one that is hashed only that it looks like a hash can be
// known.
func (e *DescriptorEntry) IsForm(form string) bool {
	switch {
	case e.Hash:
		return isHexForm(secretMark, form)
	case IsValueHash(form):
		return true
	}
	value, plain := UnescapeValue(form)
	return plain && (!e.Prefix || strings.HasPrefix(value, e.Value))
}

func checkDescriptor(l *Limit, hashKey bool) *invalid {
	if len(l.Descriptor) == 0 {
		return nil
	}
	if len(l.Descriptor) > MaxDescriptorEntries {
		return &invalid{"descriptor", tooMany(len(l.Descriptor), MaxDescriptorEntries, "entries")}
	}
	if len(l.Key)+len(l.Plans)+len(l.Overrides)+len(l.Allow)+len(l.Block) > 0 || l.Measure != (Measure{}) {
		return &invalid{"descriptor", "tells of no request, want it without key, plans, overrides, lists and a cost that is measured"}
	}
	counted := 0
	for i := range l.Descriptor {
		e := &l.Descriptor[i]
		if e.Counted() {
			counted++
		}
		if e.Key == "" || !ValidDescriptorText(e.Key) || !ValidDescriptorText(e.Value) || e.Prefix && e.Value == "" ||
			e.Hash && (!hashKey || !e.Counted()) {
			return &invalid{"descriptor[" + strconv.Itoa(i) + "]", "want a key, and a value or a prefix that is not empty, of up to " +
				strconv.Itoa(MaxDescriptorText) + " bytes of UTF-8, and hash only with the policy's hash_key and without a fixed value"}
		}
	}
	if counted > MaxKeyParts {
		return &invalid{"descriptor", "has " + strconv.Itoa(counted) + " entries without a fixed value, want at most " + strconv.Itoa(MaxKeyParts)}
	}
	return nil
}

// checkReplaces looks at what the policy's i-th limit stands in the place of.
func checkReplaces(limits []Limit, i int) *invalid {
	l := &limits[i]
	if len(l.Replaces) > MaxReplaces {
		return &invalid{"replaces", tooMany(len(l.Replaces), MaxReplaces, "elements")}
	}
	for j, n := range l.Replaces {
		if len(l.Descriptor) == 0 || int64(n) >= int64(len(limits)) || int(n) == i || len(limits[n].Descriptor) == 0 {
			return &invalid{"replaces[" + strconv.Itoa(j) + "]", "want the index of another limit, both with a descriptor, not " +
				strconv.FormatUint(uint64(n), 10)}
		}
	}
	return nil
}

// ValidDescriptorText says whether text may be an entry's key or value.
func ValidDescriptorText(text string) bool {
	return len(text) <= MaxDescriptorText && utf8.ValidString(text)
}
