package policy

import (
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
