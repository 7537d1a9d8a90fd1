package rpc

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"sluice/shared/policy"
)

// entries reads a descriptor: "a=1 b=" has two entries, the second with an empty value.
func entries(text string) (all []entry) {
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		all = append(all, entry{[]byte(key), []byte(value)})
	}
	return all
}

// limitOf reads a limit's descriptor: "a=1 b=x* c #d" wants a value, a prefix, and any value, of which that of d is hashed.
func limitOf(text string) (l policy.Limit) {
	l.Name = text
	for field := range strings.FieldsSeq(text) {
		field, hash := strings.CutPrefix(field, "#")
		key, value, _ := strings.Cut(field, "=")
		prefix := strings.HasSuffix(value, "*")
		l.Descriptor = append(l.Descriptor, policy.DescriptorEntry{Key: key, Value: strings.TrimSuffix(value, "*"), Prefix: prefix, Hash: hash})
	}
	return l
}

func TestDescriptors(t *testing.T) {
	p := &policy.Policy{HashKey: "0123456789abcdef", Limits: []policy.Limit{
		{Name: "no descriptor"},
		limitOf("db=users"), limitOf("db=default"),
		limitOf("type=marketing to"), limitOf("to"),
		limitOf("key"), limitOf("key=value"), limitOf("key=value sub=subvalue"),
		limitOf("path=/v1/*"), limitOf("path=/v1/users/*"), limitOf("path=/v1/users/7"), limitOf("path"),
		limitOf("tenant route=/a"), limitOf("tenant=acme route=/b"),
		limitOf("#secret"), limitOf("#secret #path=/v1/* zone"), limitOf("secret user"), limitOf("secret=known #user"),
	}}
	hash := func(value string) string {
		mac := hmac.New(sha256.New, []byte(p.HashKey))
		mac.Write([]byte(value))
		return "##" + hex.EncodeToString(mac.Sum(nil))
	}
	tree := newDescriptors(p)
	for _, c := range []struct{ descriptor, limit, key string }{
		{"db=users", "db=users", ""},
		{"db=other", "", ""},
		{"type=marketing to=206", "type=marketing to", "206"},
		{"type=marketing", "", ""},
		{"type=other to=206", "", ""},
		{"to=206", "to", "206"},
		{"to=", "to", "%"},
		{"to=206 type=marketing", "", ""},
		{"key=value", "key=value", ""},
		{"key=other", "key", "other"},
		{"key=value sub=subvalue", "key=value sub=subvalue", ""},
		{"key=value sub=other", "", ""},
		{"key=other sub=subvalue", "", ""}, // deeper than any limit
		{"path=/v1/users/7", "path=/v1/users/7", ""},
		{"path=/v1/users/8", "path=/v1/users/*", "%2Fv1%2Fusers%2F8"},
		{"path=/v1/x", "path=/v1/*", "%2Fv1%2Fx"},
		{"path=/v2", "path", "%2Fv2"},
		{"tenant=beta route=/a", "tenant route=/a", "beta"},
		{"tenant=acme route=/b", "tenant=acme route=/b", ""},
		{"tenant=acme route=/a", "", ""}, // acme's own node is taken, and has no such route
		{"secret=1", "#secret", hash("1")},
		{"secret=2", "#secret", hash("2")},
		{"secret=", "#secret", hash("")},
		{"secret=1 path=/v1/x zone=a/b", "#secret #path=/v1/* zone", hash("1") + "/" + hash("/v1/x") + "/a%2Fb"},
		{"secret=1 path=/v2/x zone=a", "", ""},
		{"secret=1 user=ann", "secret user", "1/ann"}, // that another limit hashes the same entry is nothing to this one
		{"secret=known user=ann", "secret=known #user", hash("ann")},
		{"", "", ""},
		{"nothing=x", "", ""},
		{strings.Repeat("to=1 ", 11), "", ""},
	} {
		limit, key, found := tree.find(p, entries(c.descriptor))
		switch {
		case c.limit == "" && found:
			t.Errorf("%q: got the limit %q, want none", c.descriptor, p.Limits[limit].Name)
		case c.limit != "" && (!found || p.Limits[limit].Name != c.limit || key != c.key):
			t.Errorf("%q: got %v %q with the key %q, want %q with %q", c.descriptor, found, p.Limits[limit].Name, key, c.limit, c.key)
		}
	}
}
