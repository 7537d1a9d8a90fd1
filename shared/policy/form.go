package policy

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// Form gives the form in which a value of an identity stands in a key, for one that is written down: a value that requests
// have, or of a FirstOf the name of one of its identities, an equals sign and a value of that. False where the identity never
// has such a value. The index is in range.
func (p *Policy) Form(identity uint32, text string) (string, bool) {
	id := &p.Identities[identity]
	switch {
	case id.Source == FirstOf:
		return p.formOfFirst(id, text)
	case id.Source == FromAddress && len(id.Networks) > 0:
		if !slices.ContainsFunc(id.Networks, func(n Network) bool { return n.Name == text }) {
			return "", false
		}
	case id.Source == FromAddress:
		address, ok := canonicalAddress(text)
		if !ok {
			return "", false
		}
		text = maskAddress(address, id.IPv4Prefix, id.IPv6Prefix)
	case id.Source == FromHost:
		text = canonicalHost(text)
	case id.Source == FromPathTemplate && !slices.Contains(id.Path, text), id.Source == FromConstant && id.Text != text:
		return "", false
	}
	b := binding{binder: &Binder{policy: p}}
	return b.form(&reader{Identity: id}, text)
}

func (p *Policy) formOfFirst(id *Identity, text string) (string, bool) {
	name, value, _ := strings.Cut(text, "=")
	for _, i := range id.FirstOf {
		switch of := &p.Identities[i]; {
		case of.Source == FirstOf:
			if form, ok := p.formOfFirst(of, text); ok {
				return form, true
			}
		case of.Name == name:
			form, ok := p.Form(i, value)
			return boundForm(originMark + name + "=" + form), ok
		}
	}
	return "", false
}

// unmarked takes the marks off the form of a default, or of one of a FirstOf. Of a hashed value nothing is left.
func unmarked(form string) string {
	for strings.HasPrefix(form, "#") {
		_, form, _ = strings.Cut(form, "=")
	}
	return form
}

// IsForm says whether a value of an identity can stand in a key so: whether some request has it. Of a hashed value, and of one
// that is too long to stand there itself, only that it looks like a hash can be known. The index is in range.
func (p *Policy) IsForm(identity uint32, form string) bool {
	id := &p.Identities[identity]
	switch {
	case id.Default != "" && form == defaultMark+EscapeValue(id.Default):
		return true
	case id.Source == FirstOf:
		return p.isFormOfFirst(id, form)
	case form == differing:
		return id.Source == FromHeader || id.Source == FromCookie || id.Source == FromQuery || id.Source == FromClaim && id.Header != ""
	case id.Hash:
		return isHexForm(secretMark, form)
	}
	if values, few := id.values(); few {
		return slices.ContainsFunc(values, func(value string) bool {
			of, ok := p.Form(identity, value)
			return ok && of == form
		})
	}
	if IsValueHash(form) {
		return id.Source != FromAddress && (id.MaxLength == 0 || id.MaxLength > MaxValueLength)
	}
	text, ok := UnescapeValue(form)
	if ok && id.Source == FromAddress && isSocket(text) {
		return true
	}
	of, has := p.Form(identity, text)
	return ok && has && of == form
}

// values gives the values that an identity has, where the policy says them all.
func (id *Identity) values() ([]string, bool) {
	switch {
	case id.Source == FromPathTemplate:
		return id.Path, true
	case id.Source == FromConstant:
		return []string{id.Text}, true
	case id.Source == FromAddress && len(id.Networks) > 0:
		names := make([]string, 0, len(id.Networks))
		for _, n := range id.Networks {
			names = append(names, n.Name)
		}
		return names, true
	}
	return nil, false
}

// isSocket says whether text is what a proxy has for the address of a peer that is no IP address.
func isSocket(text string) bool {
	return text == "" || strings.HasPrefix(text, "/") || strings.HasPrefix(text, "@") || strings.HasPrefix(text, "envoy://")
}

func (p *Policy) isFormOfFirst(id *Identity, form string) bool {
	for _, i := range id.FirstOf {
		of := &p.Identities[i]
		inner, named := strings.CutPrefix(form, originMark+of.Name+"=")
		named = named && len(form) <= 3*MaxValueLength
		switch {
		case of.Source == FirstOf:
			if named && of.Default != "" && inner == defaultMark+EscapeValue(of.Default) || p.isFormOfFirst(of, form) {
				return true
			}
		case named && p.IsForm(i, inner), !of.Hash && IsValueHash(form):
			return true
		}
	}
	return false
}

// Secret says whether values of an identity may stand hashed in keys, because the policy wants it so.
func (p *Policy) Secret(identity uint32) bool {
	id := &p.Identities[identity]
	return id.Hash || slices.ContainsFunc(id.FirstOf, p.Secret)
}

// IsValueHash says whether a form looks like that of a value that is too long to stand in a key itself.
func IsValueHash(form string) bool { return isHexForm("#", form) }

func isHexForm(mark, form string) bool {
	sum, marked := strings.CutPrefix(form, mark)
	if !marked || len(sum) != 2*sha256.Size {
		return false
	}
	for i := range len(sum) {
		if c := sum[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
