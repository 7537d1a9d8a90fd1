package ratelimitfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"sluice/shared/policy"
)

// nameLimits names each limit by its entries, KEY-VALUE.KEY-VALUE, whatever stands beside it in the files. Those that would have
// the same name get a hash of their entries behind it.
func (d *domain) nameLimits() {
	taken := make(map[string]int)
	for _, l := range d.limits {
		l.name = plainName(l.entries)
		taken[l.name]++
	}
	for _, l := range d.limits {
		if taken[l.name] == 1 && len(l.name) <= policy.MaxNameLength {
			continue
		}
		hash := pathHash(l.entries)
		// More of the hash is needed only where somebody has looked for a path with the same beginning.
		for digits := 8; digits <= len(hash); digits *= 2 {
			name := l.name[:min(len(l.name), policy.MaxNameLength-1-digits)] + "-" + hash[:digits]
			if taken[name] == 0 {
				taken[name]++
				l.name = name
				break
			}
		}
	}
}

// plainName is made of what a name may have, but may be longer.
func plainName(entries []policy.DescriptorEntry) string {
	var b strings.Builder
	for i := range entries {
		if i > 0 {
			b.WriteByte('.')
		}
		e := &entries[i]
		text := e.Key
		if e.Value != "" {
			text += "-" + e.Value
		}
		writeWord(&b, text)
	}
	if b.Len() == 0 {
		return "limit"
	}
	return b.String()
}

// writeWord writes text in small letters, with one dash for all that a name cannot have, and none at the end.
func writeWord(b *strings.Builder, text string) {
	gap := false
	for i := range len(text) {
		c := text[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' {
			gap = true
			continue
		}
		if gap {
			b.WriteByte('-')
		}
		gap = false
		b.WriteByte(c)
	}
}

// pathHash is of the entries, written so that no two paths have the same text.
func pathHash(entries []policy.DescriptorEntry) string {
	var b strings.Builder
	for i := range entries {
		fmt.Fprintf(&b, "%q %q %t ", entries[i].Key, entries[i].Value, entries[i].Prefix)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}
