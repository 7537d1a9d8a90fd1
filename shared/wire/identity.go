package wire

import "sluice/shared/policy"

func appendIdentity(dst []byte, id *policy.Identity) []byte {
	dst = appendText(dst, 1, id.Name)
	number := uint32(id.Source)
	switch id.Source {
	case policy.FromHeader:
		dst = appendPresentText(dst, number, id.Header)
	case policy.FromCookie, policy.FromQuery, policy.FromConstant:
		dst = appendPresentText(dst, number, id.Text)
	case policy.FromMethod, policy.FromHost, policy.FromPath:
		dst = appendFlag(dst, number, true)
	default:
		var start int
		dst, start = openMessage(dst, number)
		dst = closeMessage(appendSource(dst, id), start)
	}
	dst = appendFlag(dst, 16, id.Hash)
	dst = appendFlag(dst, 17, id.Lowercase)
	dst = appendNumber(dst, 18, uint64(id.MaxLength))
	return appendText(dst, 19, id.Default)
}

// appendSource writes a source that is a message.
func appendSource(dst []byte, id *policy.Identity) []byte {
	switch id.Source {
	case policy.FromAddress:
		dst = appendNumber(dst, 1, uint64(id.TrustedHops))
		dst = appendNumber(dst, 2, uint64(id.IPv4Prefix))
		dst = appendNumber(dst, 3, uint64(id.IPv6Prefix))
		for _, n := range id.Networks {
			var start int
			dst, start = openMessage(dst, 4)
			dst = closeMessage(appendText(appendText(dst, 1, n.Name), 2, n.CIDR), start)
		}
	case policy.FromClaim:
		dst = appendTexts(dst, id.Path)
		dst = appendText(dst, 2, id.Header)
		dst = appendText(dst, 3, id.Metadata)
	case policy.FromPathTemplate, policy.FromAttribute:
		dst = appendTexts(dst, id.Path)
	case policy.FirstOf:
		dst = appendIndices(dst, 1, id.FirstOf)
	default: // is no message
	}
	return dst
}

func appendTexts(dst []byte, texts []string) []byte {
	for _, text := range texts {
		dst = appendPresentText(dst, 1, text)
	}
	return dst
}

func parseIdentity(b []byte) (id policy.Identity, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			id.Name = f.text("name", policy.MaxNameLength)
		case 16:
			id.Hash = f.flag("hash")
		case 17:
			id.Lowercase = f.flag("lowercase")
		case 18:
			id.MaxLength = uint32(f.numberUpTo("max_length", policy.MaxMaxLength))
		case 19:
			id.Default = f.text("default", policy.MaxDefaultLength)
		default:
			if f.number < uint32(policy.FromHeader) || f.number > uint32(policy.FirstOf) {
				f.skip()
				continue
			}
			if source := policy.Source(f.number); id.Source != source {
				// Of the members of a oneof the last one holds.
				id = policy.Identity{
					Name: id.Name, Source: source, Hash: id.Hash, Lowercase: id.Lowercase, MaxLength: id.MaxLength, Default: id.Default,
				}
			}
			f.source(&id)
		}
	}
	return id, f.err
}

// source reads the identity's source, and adds to one of the same kind that came before, as protobuf has it.
func (f *fields) source(id *policy.Identity) {
	switch id.Source {
	case policy.FromHeader:
		id.Header = f.text("header", policy.MaxNameLength)
	case policy.FromCookie:
		id.Text = f.text("cookie", policy.MaxNameLength)
	case policy.FromQuery:
		id.Text = f.text("query", policy.MaxNameLength)
	case policy.FromConstant:
		id.Text = f.text("constant", policy.MaxValueLength)
	case policy.FromMethod, policy.FromHost, policy.FromPath:
		f.flag("part")
	case policy.FromAddress:
		f.nested("address", -1, parseClientAddress(f.message("address"), id))
	case policy.FromClaim:
		f.nested("claim", -1, parseClaim(f.message("claim"), id))
	case policy.FromPathTemplate:
		f.nested("path_template", -1, parseTexts(f.message("path_template"), id, policy.MaxTemplates, policy.MaxPathLength))
	case policy.FromAttribute:
		f.nested("attribute", -1, parseTexts(f.message("attribute"), id, policy.MaxPathParts, policy.MaxNameLength))
	case policy.FirstOf:
		f.nested("first_of", -1, parseFirstOf(f.message("first_of"), id))
	}
}

func parseClientAddress(b []byte, id *policy.Identity) *FieldError {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			id.TrustedHops = uint32(f.numberUpTo("trusted_hops", policy.MaxTrustedHops))
		case 2:
			id.IPv4Prefix = uint32(f.numberUpTo("ipv4_prefix", 32))
		case 3:
			id.IPv6Prefix = uint32(f.numberUpTo("ipv6_prefix", 128))
		case 4:
			id.Networks = element(&f, "networks", id.Networks, policy.MaxNetworks, parseNetwork)
		default:
			f.skip()
		}
	}
	return f.err
}

func parseNetwork(b []byte) (n policy.Network, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			n.Name = f.text("name", policy.MaxNameLength)
		case 2:
			n.CIDR = f.text("cidr", policy.MaxNameLength)
		default:
			f.skip()
		}
	}
	return n, f.err
}

func parseClaim(b []byte, id *policy.Identity) *FieldError {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			id.Path = f.texts("path", id.Path, policy.MaxPathParts, policy.MaxNameLength)
		case 2:
			id.Header = f.text("header", policy.MaxNameLength)
		case 3:
			id.Metadata = f.text("metadata", policy.MaxNameLength)
		default:
			f.skip()
		}
	}
	return f.err
}

func parseTexts(b []byte, id *policy.Identity, most, longest int) *FieldError {
	f := fields{rest: b}
	for f.next() {
		if f.number == 1 {
			id.Path = f.texts("texts", id.Path, most, longest)
		} else {
			f.skip()
		}
	}
	return f.err
}

func parseFirstOf(b []byte, id *policy.Identity) *FieldError {
	f := fields{rest: b}
	for f.next() {
		if f.number == 1 {
			id.FirstOf = f.indices("identities", policy.MaxFirstOf, id.FirstOf)
		} else {
			f.skip()
		}
	}
	return f.err
}

// texts reads one more of a list of texts.
func (f *fields) texts(name string, into []string, most, longest int) []string {
	if text := f.text(name, longest); f.room(name, len(into), most) {
		into = append(into, text)
	}
	return into
}
