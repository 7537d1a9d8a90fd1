package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestEscapeValue(t *testing.T) {
	long := strings.Repeat("x", MaxValueLength+1)
	sum := sha256.Sum256([]byte(long))
	for _, c := range []struct{ value, want string }{
		{"acme", "acme"},
		{"", "%"},
		{"%", "%25"},
		{"a/b", "a%2Fb"},
		{"#a", "%23a"},
		{"{a}", "%7Ba%7D"},
		{"a b\tc\x00d\x7f", "a%20b%09c%00d%7F"},
		{"é\xff", "%C3%A9%FF"},
		{"2001:db8::1", "2001:db8::1"},
		{"!\"$&'()*+,-.:;<=>?@[\\]^_`|~", "!\"$&'()*+,-.:;<=>?@[\\]^_`|~"},
		{strings.Repeat("x", MaxValueLength), strings.Repeat("x", MaxValueLength)},
		{strings.Repeat("é", MaxValueLength/2), strings.Repeat("%C3%A9", MaxValueLength/2)},
		{long, "#" + hex.EncodeToString(sum[:])},
	} {
		if got := EscapeValue(c.value); got != c.want {
			t.Errorf("%q: got %s, want %s", c.value, got, c.want)
		}
	}
}

// unescape is the inverse of EscapeValue for values that are not hashed, made of nothing of this package's: that it exists
// is why no two values share a form.
func unescape(t failer, form string) string {
	t.Helper()
	if form == "%" {
		return ""
	}
	if form == "" || strings.ContainsAny(form, "/{}# ") {
		t.Fatalf("%q is no escaped value", form)
	}
	value, err := url.PathUnescape(form)
	if err != nil {
		t.Fatalf("%q: %v", form, err)
	}
	return value
}

// unkey is the inverse of a key; a hashed value comes back as its hash.
func unkey(t failer, key string) (values []string) {
	t.Helper()
	if key == "" {
		return nil
	}
	for _, form := range strings.Split(key, "/") {
		if strings.HasPrefix(form, "#") {
			values = append(values, form)
		} else {
			values = append(values, unescape(t, form))
		}
	}
	return values
}

type failer interface {
	Helper()
	Fatalf(format string, arguments ...any)
}

// keyOf is the key of a limit over as many headers as there are values.
func keyOf(t failer, values []string) string {
	t.Helper()
	p, r := &Policy{Limits: make([]Limit, 1)}, request{}
	for i, value := range values {
		header := "h" + string(rune('a'+i))
		p.Identities = append(p.Identities, Identity{Source: FromHeader, Header: header})
		p.Limits[0].Key = append(p.Limits[0].Key, uint32(i))
		r[header] = value
	}
	bound := NewBinder(p).Bind(r, nil)
	if len(bound) != 1 {
		t.Fatalf("%q is not bound", values)
	}
	return bound[0].Key
}

// checkKey checks that a tuple of values can be told from its key, and that the key is fit for the wire and the store.
func checkKey(t failer, values []string) {
	t.Helper()
	key := keyOf(t, values)
	want := make([]string, 0, len(values))
	for _, v := range values {
		if len(v) > MaxValueLength {
			sum := sha256.Sum256([]byte(v))
			v = "#" + hex.EncodeToString(sum[:])
		}
		want = append(want, v)
	}
	if got := unkey(t, key); strings.Join(got, "\x00") != strings.Join(want, "\x00") || len(got) != len(want) {
		t.Fatalf("%q has the key %s, which is the key of %q", values, key, got)
	}
	if !ValidKey(key) {
		t.Fatalf("%q has a key that is not valid: %s", values, key)
	}
}

func TestNoTwoTuplesShareAKey(t *testing.T) {
	t.Run("single bytes and pairs", func(t *testing.T) {
		seen := make(map[string][]string)
		check := func(values ...string) {
			key := keyOf(t, values)
			if other, taken := seen[key]; taken {
				t.Fatalf("%q and %q share the key %s", values, other, key)
			}
			seen[key] = values
		}
		check()
		check("")
		check("", "")
		check("", "", "")
		for a := range 256 {
			one := string([]byte{byte(a)})
			check(one)
			check(one, "")
			check("", one)
			for b := range 256 {
				check(one + string([]byte{byte(b)}))
				check(one, string([]byte{byte(b)}))
			}
		}
	})
	nasty := rapid.OneOf(
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte("/%{}# aA2F25\x00\xff")), 0, 6), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, MaxValueLength+2), func(b []byte) string { return string(b) }),
		rapid.Just("#"+strings.Repeat("a", 64)),
	)
	t.Run("any tuple", rapid.MakeCheck(func(t *rapid.T) {
		checkKey(t, rapid.SliceOfN(nasty, 0, MaxKeyParts).Draw(t, "values"))
	}))
	t.Run("two tuples", rapid.MakeCheck(func(t *rapid.T) {
		tuple := rapid.SliceOfN(nasty, 0, 3)
		a, b := tuple.Draw(t, "a"), tuple.Draw(t, "b")
		if cmp.Equal(a, b) != (keyOf(t, a) == keyOf(t, b)) {
			t.Fatalf("%q has the key %s, %q has %s", a, keyOf(t, a), b, keyOf(t, b))
		}
	}))
}

func TestNoTwoTriplesShareAStoreName(t *testing.T) {
	if got := StoreName("shop", "tenant", "acme"); got != "shop/tenant/acme" {
		t.Fatalf("got %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte("/%{}#aé")), 0, 4), func(b []byte) string { return string(b) })
		domain, limit, value := part.Draw(t, "domain"), part.Draw(t, "limit"), part.Draw(t, "value")
		parts := strings.SplitN(StoreName(domain, limit, keyOf(t, []string{value})), "/", 3)
		got := []string{unescape(t, parts[0]), unescape(t, parts[1]), unescape(t, parts[2])}
		if diff := cmp.Diff([]string{domain, limit, value}, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestValidKey(t *testing.T) {
	for key, want := range map[string]bool{
		"": true, "acme": true, "a/%/%2F": true, "#00": true,
		"{a}": false, "a b": false, "a\n": false, "é": false, "a}": false,
		strings.Repeat("x", MaxKeyLength): true, strings.Repeat("x", MaxKeyLength+1): false,
	} {
		if got := ValidKey(key); got != want {
			t.Errorf("%q: got %v", key, got)
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add("acme", "", "a/b")
	f.Add("%", "%25", "#")
	f.Add(strings.Repeat("\xff", MaxValueLength), strings.Repeat("x", MaxValueLength+1), "{}")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		checkKey(t, []string{a, b, c})
		checkKey(t, []string{a, b})
		if a+b != b+a && keyOf(t, []string{a, b}) == keyOf(t, []string{b, a}) {
			t.Fatalf("%q and %q do not keep their places", a, b)
		}
	})
}
