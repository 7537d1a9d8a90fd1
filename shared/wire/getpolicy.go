package wire

import (
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// AppendGetPolicyRequest writes the message to the end of dst, and gives dst back.
func AppendGetPolicyRequest(dst []byte, m *GetPolicyRequest) []byte {
	return appendText(dst, 1, m.Version)
}

// ParseGetPolicyRequest reads a message. Nothing of body is kept. Errors are of type *FieldError and wrap ErrMessage.
func ParseGetPolicyRequest(body []byte) (GetPolicyRequest, error) {
	var m GetPolicyRequest
	f := fields{rest: body, err: tooLong(body)}
	for f.next() {
		if f.number == 1 {
			m.Version = f.text("version", policy.MaxNameLength)
		} else {
			f.skip()
		}
	}
	if f.err != nil {
		return GetPolicyRequest{}, within("GetPolicyRequest", f.err)
	}
	return m, nil
}

// AppendGetPolicyResponse writes the message to the end of dst, and gives dst back.
func AppendGetPolicyResponse(dst []byte, m *GetPolicyResponse) []byte {
	dst = appendText(dst, 1, m.Version)
	if m.Policy != nil {
		var start int
		dst, start = openMessage(dst, 2)
		dst = closeMessage(AppendPolicy(dst, m.Policy), start)
	}
	return dst
}

// AppendPolicy writes sluice.v1.Policy, which is everything but the version, to the end of dst. Equal policies give equal
// bytes.
func AppendPolicy(dst []byte, p *policy.Policy) []byte {
	var start int
	dst = appendText(dst, 1, p.Domain)
	for i := range p.Identities {
		dst, start = openMessage(dst, 2)
		dst = closeMessage(appendIdentity(dst, &p.Identities[i]), start)
	}
	for i := range p.Limits {
		dst, start = openMessage(dst, 3)
		dst = closeMessage(appendLimit(dst, &p.Limits[i]), start)
	}
	return dst
}

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

func appendLimit(dst []byte, l *policy.Limit) []byte {
	dst = appendText(dst, 1, l.Name)
	dst, start := openMessage(dst, 2)
	if dst = appendMatch(dst, &l.Match); len(dst) == start {
		dst = dst[:start-2] // it matches everything: without its tag and length
	} else {
		dst = closeMessage(dst, start)
	}
	dst = appendIndices(dst, 3, l.Key)
	for _, r := range l.Rates {
		dst, start = openMessage(dst, 4)
		dst = closeMessage(appendDuration(appendUnits(dst, 1, r.Units), 2, r.Window), start)
	}
	dst = appendNumber(dst, 5, uint64(l.Algorithm))
	dst = appendNumber(dst, 6, uint64(l.Mode))
	dst = appendNumber(dst, 7, uint64(l.OnUnavailable))
	dst = appendUnits(dst, 8, l.Cost)
	return appendDuration(dst, 9, l.MaxWait)
}

func appendMatch(dst []byte, m *policy.Match) []byte {
	dst = appendText(dst, 1, m.PathExact)
	dst = appendText(dst, 2, m.PathPrefix)
	for _, method := range m.Methods {
		dst = appendPresentText(dst, 3, method)
	}
	return dst
}

// ParseGetPolicyResponse reads a message; the policy in it has passed policy.Validate. Nothing of body is kept. Errors
// wrap ErrMessage or policy.ErrInvalid.
func ParseGetPolicyResponse(body []byte) (GetPolicyResponse, error) {
	var m GetPolicyResponse
	f := fields{rest: body, err: tooLong(body)}
	for f.next() {
		switch f.number {
		case 1:
			m.Version = f.text("version", policy.MaxNameLength)
		case 2:
			if m.Policy == nil {
				m.Policy = new(policy.Policy)
			}
			f.nested("policy", -1, parsePolicy(f.message("policy"), m.Policy))
		default:
			f.skip()
		}
	}
	if f.err != nil {
		return GetPolicyResponse{}, within("GetPolicyResponse", f.err)
	}
	if m.Policy != nil {
		m.Policy.Version = m.Version
		if err := policy.Validate(m.Policy); err != nil {
			return GetPolicyResponse{}, err
		}
	}
	return m, nil
}

func parsePolicy(b []byte, p *policy.Policy) *FieldError {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			p.Domain = f.text("domain", policy.MaxNameLength)
		case 2:
			if b := f.message("identities"); f.room("identities", len(p.Identities), policy.MaxIdentities) {
				id, err := parseIdentity(b)
				f.nested("identities", len(p.Identities), err)
				p.Identities = append(p.Identities, id)
			}
		case 3:
			if b := f.message("limits"); f.room("limits", len(p.Limits), policy.MaxLimits) {
				l, err := parseLimit(b)
				f.nested("limits", len(p.Limits), err)
				p.Limits = append(p.Limits, l)
			}
		default:
			f.skip()
		}
	}
	return f.err
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

func parseLimit(b []byte) (l policy.Limit, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			l.Name = f.text("name", policy.MaxNameLength)
		case 2:
			f.nested("match", -1, parseMatch(f.message("match"), &l.Match))
		case 3:
			l.Key = f.indices("key", policy.MaxKeyParts, l.Key)
		case 4:
			if b := f.message("rates"); f.room("rates", len(l.Rates), limit.MaxRates) {
				r, err := parseRate(b)
				f.nested("rates", len(l.Rates), err)
				l.Rates = append(l.Rates, r)
			}
		case 5:
			l.Algorithm = limit.Algorithm(f.number8("algorithm"))
		case 6:
			l.Mode = limit.Mode(f.number8("mode"))
		case 7:
			l.OnUnavailable = limit.Unavailable(f.number8("on_unavailable"))
		case 8:
			l.Cost = f.units("cost")
		case 9:
			l.MaxWait = f.duration("max_wait")
		default:
			f.skip()
		}
	}
	return l, f.err
}

func parseRate(b []byte) (r limit.Rate, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			r.Units = f.units("units")
		case 2:
			r.Window = f.duration("window")
		default:
			f.skip()
		}
	}
	return r, f.err
}

func parseMatch(b []byte, m *policy.Match) *FieldError {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			m.PathExact = f.text("path_exact", policy.MaxPathLength)
		case 2:
			m.PathPrefix = f.text("path_prefix", policy.MaxPathLength)
		case 3:
			if method := f.text("methods", policy.MaxMethodLength); f.room("methods", len(m.Methods), policy.MaxMethods) {
				m.Methods = append(m.Methods, method)
			}
		default:
			f.skip()
		}
	}
	return f.err
}
