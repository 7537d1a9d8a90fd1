package wire

import "sluice/shared/policy"

func appendIdentity(dst []byte, id *policy.Identity) []byte {
	dst = appendText(dst, 1, id.Name)
	switch id.Source {
	case policy.FromHeader:
		dst = appendPresentText(dst, uint32(policy.FromHeader), id.Header)
	case policy.FromAddress:
		var start int
		dst, start = openMessage(dst, uint32(policy.FromAddress))
		dst = closeMessage(appendNumber(dst, 1, uint64(id.TrustedHops)), start)
	}
	return dst
}

func parseIdentity(b []byte) (id policy.Identity, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			id.Name = f.text("name", policy.MaxNameLength)
		case 2:
			// Of the members of a oneof the last one holds.
			id = policy.Identity{Name: id.Name, Source: policy.FromHeader, Header: f.text("header", policy.MaxNameLength)}
		case 3:
			id.Source, id.Header = policy.FromAddress, ""
			hops, err := parseClientAddress(f.message("address"), id.TrustedHops)
			f.nested("address", -1, err)
			id.TrustedHops = hops
		default:
			f.skip()
		}
	}
	return id, f.err
}

// parseClientAddress reads a message; hops is what it has where the message does not say.
func parseClientAddress(b []byte, hops uint32) (uint32, *FieldError) {
	f := fields{rest: b}
	for f.next() {
		if f.number == 1 {
			hops = uint32(f.numberUpTo("trusted_hops", policy.MaxTrustedHops))
		} else {
			f.skip()
		}
	}
	return hops, f.err
}
