package policy

import "strconv"

// Source says where an identity's value is read from. Numbers are the wire's field numbers.
type Source uint8

// The sources of an identity.
const (
	FromHeader  Source = 2
	FromAddress Source = 3
)

// Identity is a value that tells callers apart.
type Identity struct {
	Name   string
	Source Source
	// Header is the header's name in lower case, for FromHeader.
	Header string
	// TrustedHops, for FromAddress: 0 takes the peer's address, n > 0 the n-th entry from the right of X-Forwarded-For, or
	// the peer's where there is no such entry or it is no address. Up to MaxTrustedHops.
	TrustedHops uint32
}

func (b *binding) read(identity uint32, v *value) {
	id := &b.policy.Identities[identity]
	var text string
	switch id.Source {
	case FromHeader:
		var fields int
		text, fields = b.request.Header(id.Header)
		v.present = fields > 0
	case FromAddress:
		text, v.present = clientAddress(b.request, id.TrustedHops)
	}
	if v.present {
		v.escaped = EscapeValue(text)
	}
	v.read = true
}

func checkIdentity(id *Identity) *invalid {
	switch {
	case !ValidName(id.Name):
		return badName("name", id.Name)
	case id.Source == FromHeader && !ValidHeader(id.Header):
		return &invalid{"header", strconv.Quote(clip(id.Header)) + " is no header's name in lower case"}
	case id.Source == FromAddress && id.TrustedHops > MaxTrustedHops:
		return &invalid{"trusted_hops", tooMany(int(id.TrustedHops), MaxTrustedHops, "hops")}
	case id.Source != FromHeader && id.Source != FromAddress:
		return &invalid{"source", strconv.Itoa(int(id.Source)) + " is no source that is known here"}
	}
	return nil
}
