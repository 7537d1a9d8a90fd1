package wire

import (
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
	dst = appendLists(dst, 4, p.Allow)
	dst = appendLists(dst, 5, p.Block)
	dst = appendFlag(dst, 6, p.ShadowHeader)
	dst = appendText(dst, 7, string(p.HashKey))
	for i := range p.Responses {
		dst, start = openMessage(dst, 10)
		dst = closeMessage(appendResponse(dst, &p.Responses[i]), start)
	}
	return appendNumber(dst, 11, uint64(p.FieldStyles))
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
			p.Identities = element(&f, "identities", p.Identities, policy.MaxIdentities, parseIdentity)
		case 3:
			p.Limits = element(&f, "limits", p.Limits, policy.MaxLimits, parseLimit)
		case 4:
			p.Allow = element(&f, "allow", p.Allow, policy.MaxLists, parseList)
		case 5:
			p.Block = element(&f, "block", p.Block, policy.MaxLists, parseList)
		case 6:
			p.ShadowHeader = f.flag("shadow_header")
		case 7:
			p.HashKey = policy.Secret(f.text("hash_key", policy.MaxHashKey))
		case 10:
			p.Responses = element(&f, "responses", p.Responses, policy.MaxResponses, parseResponse)
		case 11:
			p.FieldStyles = policy.FieldStyles(f.number8("field_styles"))
		default:
			f.skip()
		}
	}
	return f.err
}
