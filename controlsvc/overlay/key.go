package overlay

import (
	"fmt"
	"strings"

	"sluice/shared/policy"
)

// CheckKey says why no request can have a key of a limit, whose policy it is; nil where one can. No error of it quotes what may be
// a value that the policy hashes: somebody may have given the value itself in the place of its hash.
func CheckKey(p *policy.Policy, l *policy.Limit, key string) error {
	var parts []string
	if key != "" {
		parts = strings.Split(key, "/")
	}
	if len(parts) != l.KeyParts() {
		return fmt.Errorf("the key has %d parts, and keys of limit %s have %d%s", len(parts), l.Name, l.KeyParts(), partNames(p, l))
	}
	for i, identity := range l.Key {
		if !p.IsForm(identity, parts[i]) {
			return notAForm(p, identity, parts[i])
		}
	}
	parts = parts[len(l.Key):]
	for i := range l.Descriptor {
		if e := &l.Descriptor[i]; e.Counted() {
			switch {
			case e.IsForm(parts[0]):
			case e.Hash:
				return fmt.Errorf("the policy hashes entry %s of the descriptor, and what is given is no hash of it: want %s, as logs have it, "+
					"or the value as requests have it, by --identity", e.Key, hashForm)
			default:
				return fmt.Errorf("%.400q is nothing that entry %s of the descriptor is in a key: want a value as keys have it", parts[0], e.Key)
			}
			parts = parts[1:]
		}
	}
	return nil
}

// CheckValue does so of one value of an identity, as keys have it.
func CheckValue(p *policy.Policy, identity uint32, form string) error {
	if p.IsForm(identity, form) {
		return nil
	}
	return notAForm(p, identity, form)
}

func notAForm(p *policy.Policy, identity uint32, form string) error {
	name := p.Identities[identity].Name
	if p.Secret(identity) {
		return fmt.Errorf("the policy hashes %s, and what is given is no hash of it: want %s, as logs have it, or the value as requests have it, by --identity",
			name, hashed(p, identity))
	}
	return fmt.Errorf("%.400q is nothing that %s is in a key: want it as logs have it, or the value as requests have it, by --identity", form, name)
}

// hashForm says what a hash looks like in a key.
const hashForm = "## and 64 digits of hex"

// hashed says what a value of an identity looks like in a key, where it is hashed.
func hashed(p *policy.Policy, identity uint32) string {
	if p.Identities[identity].Hash {
		return hashForm
	}
	return "# and the name of an identity in its first_of, = and how that one is in keys"
}

// partNames says which identities a key is made of.
func partNames(p *policy.Policy, l *policy.Limit) string {
	if len(l.Key) == 0 {
		return ""
	}
	names := make([]string, 0, len(l.Key))
	for _, i := range l.Key {
		names = append(names, p.Identities[i].Name)
	}
	return ": " + strings.Join(names, ", ")
}
