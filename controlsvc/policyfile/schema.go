package policyfile

import "sluice/shared/policy"

// policy reads the document.
func (d *decoder) policy(v value) *policy.Policy {
	f, _ := d.fields(v, "a policy with domain, identities and limits", "domain!", "hash_key", "identities", "limits!", "response", "header_style",
		"plans", "allow", "block", "shadow_header")
	p := &policy.Policy{}
	d.built = p
	if v, ok := f["domain"]; ok {
		p.Domain = d.name(v, "the domain's name")
	}
	if v, ok := f["hash_key"]; ok {
		d.hasHashKey = true
		p.HashKey = d.hashKey(v)
	}
	identities := make(map[string]uint32)
	if v, ok := f["identities"]; ok {
		p.Identities = d.identities(v, identities)
	}
	if v, ok := f["header_style"]; ok {
		p.FieldStyles = d.fieldStyles(v)
	}
	if v, ok := f["plans"]; ok {
		d.readTiers(v, identities)
	}
	if v, ok := f["allow"]; ok {
		p.Allow = d.lists(v, identities)
	}
	if v, ok := f["block"]; ok {
		p.Block = d.lists(v, identities)
	}
	if v, ok := f["shadow_header"]; ok {
		p.ShadowHeader = d.truth(v, "whether clients are told which limits in shadow would have denied them")
	}
	var said policy.Response
	if v, ok := f["response"]; ok {
		said = d.response(v, said)
	}
	d.responses = []policy.Response{said}
	if v, ok := f["limits"]; ok {
		p.Limits = d.limits(v, identities)
	}
	if len(d.responses) > 1 || !isDefault(&said) {
		p.Responses = d.responses
	}
	return p
}

// name reads a name, as policy.ValidName has it.
func (d *decoder) name(v value, want string) string {
	text, ok := d.text(v, want)
	if ok && !policy.ValidName(text) {
		d.fail(v, "%s is no name, want 1 to %d of a-z 0-9 . _ -", quote(text), policy.MaxNameLength)
	}
	return text
}
