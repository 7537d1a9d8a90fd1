package policy

import (
	"slices"
	"strconv"
)

// Source says where an identity's value is read from. Numbers are the wire's field numbers.
type Source uint8

// The sources of an identity.
const (
	FromHeader       Source = 2
	FromAddress      Source = 3
	FromCookie       Source = 4
	FromQuery        Source = 5
	FromClaim        Source = 6
	FromMethod       Source = 7
	FromHost         Source = 8
	FromPath         Source = 9
	FromPathTemplate Source = 10
	FromAttribute    Source = 11
	FromConstant     Source = 12
	FirstOf          Source = 13
)

// Identity is a value that tells callers apart. What a request has nothing for is absent, and it is not under limits that
// need it, unless there is a Default.
type Identity struct {
	Name   string
	Source Source
	// Header is the header's name in lower case, for FromHeader, and for FromClaim the one with the token. Of several fields
	// that say different things comes one value, the same whatever they say, and so of several cookies or query parameters of
	// one name: which of them the upstream goes by is not known here, and a key for each would give a client as many as it
	// likes.
	Header string
	// TrustedHops, for FromAddress: 0 takes the client's address as the proxy has it, n > 0 the n-th entry from the right of
	// X-Forwarded-For, to which the proxy itself may have appended, or the proxy's where there is no such entry or it is no address. Up to MaxTrustedHops.
	TrustedHops uint32
	// IPv4Prefix and IPv6Prefix, for FromAddress, are how many bits of the address count; 0: all.
	IPv4Prefix, IPv6Prefix uint32
	// Networks, for FromAddress, gives the name of the narrowest range instead, and nothing for other addresses.
	Networks []Network
	// Text is the cookie's name, the query parameter's, or the constant.
	Text string
	// Path is the claim's, the attribute's, or a list of path templates.
	Path []string
	// Metadata, for FromClaim without a Header, is what Envoy's filter for tokens calls the payload (payload_in_metadata).
	Metadata string
	// FirstOf holds indices into Policy.Identities: the first that the request has counts. What is said below, except for
	// Default, they say themselves.
	FirstOf []uint32

	// Hash has an HMAC-SHA256 by Policy.HashKey stand for the value.
	Hash bool
	// Lowercase makes small letters of the capitals of ASCII.
	Lowercase bool
	// MaxLength is the longest value in bytes; a longer one is absent. 0: any; those longer than MaxValueLength are hashed.
	MaxLength uint32
	// Default stands for an absent value, 1 to MaxDefaultLength bytes; it is another value than the same text in a request.
	// Empty: none.
	Default string
}

// What can stand in a key that no value's own form can look like: see EscapeValue.
const (
	// differing is of several header fields, cookies or query parameters of one name that differ.
	differing = "#,"
	// defaultMark, secretMark and, with a name and an equals sign after it, originMark are before a form.
	defaultMark = "#="
	secretMark  = "##"
	originMark  = "#"
)

// reader is an identity that is ready to be read.
type reader struct {
	*Identity
	networks  *networks
	templates *templates
	// property is where the proxy has a claim.
	property []string
	// origin and fallback are made of the name and of Default.
	origin, fallback string
}

func newReader(id *Identity) reader {
	r := reader{Identity: id, origin: originMark + id.Name + "="}
	if id.Default != "" {
		r.fallback = defaultMark + EscapeValue(id.Default)
	}
	if id.Metadata != "" {
		r.property = append([]string{"metadata", "filter_metadata", jwtMetadata, id.Metadata}, id.Path...)
	}
	if len(id.Networks) > 0 {
		r.networks = newNetworks(id.Networks)
	}
	if id.Source == FromPathTemplate {
		r.templates = newTemplates(id.Path)
	}
	return r
}

func (b *binding) read(identity uint32, v *value) {
	v.read = true
	id := &b.binder.readers[identity]
	switch id.Source {
	case FirstOf:
		v.escaped, v.present = b.firstOf(id)
	default:
		switch text, values := b.text(id); values {
		case 0:
		case 1:
			v.escaped, v.present = b.form(id, text)
		default:
			v.escaped, v.present = differing, true
		}
	}
	if !v.present && id.fallback != "" {
		v.escaped, v.present = id.fallback, true
	}
}

// text reads a value, and counts the different ones: 0, 1, or more, which are none.
func (b *binding) text(id *reader) (string, int) {
	switch id.Source {
	case FromHeader:
		return b.header(id.Header)
	case FromCookie:
		cookies, _ := b.request.Header("cookie")
		return cookieValue(cookies, id.Text)
	case FromQuery:
		return queryParameter(b.readQuery(), id.Text)
	case FromClaim:
		if id.Header != "" {
			token, values := b.header(id.Header)
			if values != 1 {
				return "", values
			}
			return one(tokenClaim(token, id.Path))
		}
	default: // has one value at most
	}
	return one(b.only(id))
}

// one counts a value that is the only one.
func one(text string, ok bool) (string, int) {
	if !ok {
		return "", 0
	}
	return text, 1
}

// header reads a header whose fields, if there are several, have to say the same.
func (b *binding) header(name string) (string, int) {
	text, fields := b.request.Header(name)
	switch {
	case fields <= 1:
		return text, fields
	case isRepeated(text, fields):
		return text[:repeatedLength(text, fields)], 1
	}
	return "", fields
}

// only reads a value of which a request has no second one.
func (b *binding) only(id *reader) (string, bool) {
	switch id.Source {
	case FromAddress:
		address, ok := clientAddress(b.request, id.TrustedHops)
		switch {
		case !ok:
			return "", false
		case id.networks != nil:
			return id.networks.find(address)
		}
		return maskAddress(address, id.IPv4Prefix, id.IPv6Prefix), true
	case FromClaim:
		text, ok := b.request.Property(id.property...)
		return metadataText(text), ok && !isComposite(text)
	case FromMethod:
		b.readMethod()
		return b.method, b.hasMethod
	case FromHost:
		return b.readHost(), b.readHost() != ""
	case FromPath:
		ok := b.readPath()
		return b.path, ok
	case FromPathTemplate:
		if !b.readPath() {
			return "", false
		}
		return id.templates.match(b.path)
	case FromAttribute:
		text, ok := b.request.Property(id.Path...)
		switch {
		case isComposite(text):
			return "", false
		case id.Path[0] == "metadata":
			return metadataText(text), ok
		}
		return attributeText(text), ok
	case FromConstant:
		return id.Text, true
	default: // is read by text
	}
	return "", false
}

// form gives the form in which a value stands in a key; false where the value is too long for this identity.
func (b *binding) form(id *reader, text string) (string, bool) {
	if id.MaxLength > 0 && len(text) > int(id.MaxLength) {
		return "", false
	}
	if id.Lowercase {
		text = lowerASCII(text)
	}
	if id.Hash {
		return b.binder.policy.secretForm(text), true
	}
	return EscapeValue(text), true
}

// firstOf gives the form of the first identity that the request has, with its name: two identities that read the same say
// different things of a caller.
func (b *binding) firstOf(id *reader) (string, bool) {
	for _, i := range id.FirstOf {
		v := b.value(i)
		if !v.present {
			continue
		}
		if from := &b.binder.readers[i]; from.Source != FirstOf || v.escaped == from.fallback {
			return boundForm(from.origin + v.escaped), true
		}
		return v.escaped, true // the name of the one that it was read from is in it
	}
	return "", false
}

// isRepeated says whether so many fields, joined by commas, all say the same.
func isRepeated(joined string, fields int) bool {
	n := repeatedLength(joined, fields)
	if n < 0 {
		return false
	}
	for at := n; at < len(joined); at += n + 1 {
		if joined[at] != ',' || joined[at+1:at+1+n] != joined[:n] {
			return false
		}
	}
	return true
}

// repeatedLength is how long each of so many fields is, if all are of one length; else negative.
func repeatedLength(joined string, fields int) int {
	n := len(joined) - (fields - 1)
	if n < 0 || n%fields != 0 {
		return -1
	}
	return n / fields
}

func checkIdentity(id *Identity, p *Policy) *invalid {
	switch {
	case !ValidName(id.Name):
		return badName("name", id.Name)
	case id.Hash && len(p.HashKey) == 0:
		return &invalid{"hash", "needs the policy's hash_key"}
	case id.MaxLength > MaxMaxLength:
		return &invalid{"max_length", "is " + strconv.Itoa(int(id.MaxLength)) + ", want at most " + strconv.Itoa(MaxMaxLength)}
	case len(id.Default) > MaxDefaultLength:
		return &invalid{"default", tooMany(len(id.Default), MaxDefaultLength, "bytes")}
	}
	return checkSource(id, len(p.Identities))
}

func checkSource(id *Identity, identities int) *invalid {
	switch id.Source {
	case FromHeader:
		return checkHeaderName(id.Header)
	case FromAddress:
		return checkAddress(id)
	case FromCookie:
		if !ValidCookie(id.Text) {
			return &invalid{"cookie", strconv.Quote(clip(id.Text)) + " is no cookie's name"}
		}
	case FromQuery:
		if !ValidParameter(id.Text) {
			return &invalid{"query", "has " + strconv.Itoa(len(id.Text)) + " bytes, want 1 to " + strconv.Itoa(MaxNameLength)}
		}
	case FromConstant:
		if id.Text == "" || len(id.Text) > MaxValueLength {
			return &invalid{"constant", "has " + strconv.Itoa(len(id.Text)) + " bytes, want 1 to " + strconv.Itoa(MaxValueLength)}
		}
	case FromClaim:
		return checkClaim(id)
	case FromAttribute:
		return checkParts("attribute", id.Path)
	case FromPathTemplate:
		return checkTemplates(id.Path)
	case FirstOf:
		return checkFirstOf(id, identities)
	case FromMethod, FromHost, FromPath:
	default:
		return &invalid{"source", strconv.Itoa(int(id.Source)) + " is no source that is known here"}
	}
	return nil
}

func checkHeaderName(name string) *invalid {
	if !ValidHeader(name) {
		return &invalid{"header", strconv.Quote(clip(name)) + " is no header's name in lower case"}
	}
	return nil
}

func checkClaim(id *Identity) *invalid {
	switch {
	case (id.Header == "") == (id.Metadata == ""):
		return &invalid{"claim", "wants either the header with the token or the name of the metadata"}
	case len(id.Metadata) > MaxNameLength:
		return &invalid{"claim.metadata", tooMany(len(id.Metadata), MaxNameLength, "bytes")}
	}
	if id.Header != "" {
		if e := checkHeaderName(id.Header); e != nil {
			return e
		}
	}
	return checkParts("claim.path", id.Path)
}

func checkParts(where string, path []string) *invalid {
	if len(path) == 0 || len(path) > MaxPathParts {
		return &invalid{where, "has " + strconv.Itoa(len(path)) + " parts, want 1 to " + strconv.Itoa(MaxPathParts)}
	}
	for i, part := range path {
		if !ValidPart(part) {
			return &invalid{where + "[" + strconv.Itoa(i) + "]", strconv.Quote(clip(part)) + " is no name of a part"}
		}
	}
	return nil
}

// ValidPart says whether text may be a part of a claim's or an attribute's path: 1 to MaxNameLength bytes, none of them 0.
func ValidPart(text string) bool {
	for i := range len(text) {
		if text[i] == 0 {
			return false
		}
	}
	return text != "" && len(text) <= MaxNameLength
}

func checkTemplates(list []string) *invalid {
	if len(list) == 0 || len(list) > MaxTemplates {
		return &invalid{"path_template", "has " + strconv.Itoa(len(list)) + " templates, want 1 to " + strconv.Itoa(MaxTemplates)}
	}
	for i, text := range list {
		if problem := CheckTemplate(text); problem != "" {
			return &invalid{"path_template[" + strconv.Itoa(i) + "]", problem}
		}
	}
	return nil
}

func checkFirstOf(id *Identity, identities int) *invalid {
	switch {
	case len(id.FirstOf) == 0 || len(id.FirstOf) > MaxFirstOf:
		return &invalid{"first_of", "has " + strconv.Itoa(len(id.FirstOf)) + " identities, want 1 to " + strconv.Itoa(MaxFirstOf)}
	case id.Hash || id.Lowercase || id.MaxLength > 0:
		return &invalid{"first_of", "cannot be hashed, bounded or made small: the identities in it can"}
	}
	for i, n := range id.FirstOf {
		if int64(n) >= int64(identities) {
			return &invalid{"first_of[" + strconv.Itoa(i) + "]", strconv.FormatUint(uint64(n), 10) + " is no index into the " +
				strconv.Itoa(identities) + " identities"}
		}
	}
	return nil
}

// Cycle gives the index of an identity that is read from itself, by FirstOf; negative where there is none. Indices are in
// range.
func Cycle(identities []Identity) int {
	const unseen, open, closed = 0, 1, 2
	state := make([]uint8, len(identities))
	var visit func(i int) bool
	visit = func(i int) bool {
		if state[i] != unseen {
			return state[i] == open
		}
		if identities[i].Source != FirstOf {
			return false
		}
		state[i] = open
		for _, next := range identities[i].FirstOf {
			if visit(int(next)) {
				return true
			}
		}
		state[i] = closed
		return false
	}
	for i := range identities {
		if visit(i) {
			return i
		}
	}
	return -1
}

// SameValues says whether two identities of two policies read the same of every request, in the same form.
func SameValues(a *Policy, i uint32, b *Policy, j uint32) bool {
	x, y := &a.Identities[i], &b.Identities[j]
	if x.Name != y.Name || x.Source != y.Source || x.Header != y.Header || x.Text != y.Text || x.Metadata != y.Metadata ||
		x.TrustedHops != y.TrustedHops || x.IPv4Prefix != y.IPv4Prefix || x.IPv6Prefix != y.IPv6Prefix ||
		x.Hash != y.Hash || x.Lowercase != y.Lowercase || x.MaxLength != y.MaxLength || x.Default != y.Default ||
		!slices.Equal(x.Path, y.Path) || !slices.Equal(x.Networks, y.Networks) || len(x.FirstOf) != len(y.FirstOf) ||
		x.Hash && a.HashKey != b.HashKey {
		return false
	}
	for n := range x.FirstOf {
		if !SameValues(a, x.FirstOf[n], b, y.FirstOf[n]) {
			return false
		}
	}
	return true
}
