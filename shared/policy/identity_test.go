package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const hashKey = "0123456789abcdef"

// fields is a request whose headers may have several fields.
type fields map[string][]string

func (r fields) Header(name string) (string, int) {
	separator := ","
	if name == "cookie" {
		separator = "; "
	}
	return strings.Join(r[name], separator), len(r[name])
}

func (r fields) Property(path ...string) (string, bool) {
	values := r[strings.Join(path, " ")]
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

// token is an unsigned one with the claims.
func token(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "."
}

// absent is what keyFrom gives where a request is not under the limit.
const absent = "(absent)"

// keyFrom is the key of a limit by the last of the identities.
func keyFrom(t failer, r Request, identities ...Identity) string {
	t.Helper()
	for i := range identities {
		identities[i].Name = "i" + string(rune('0'+i))
	}
	p := &Policy{Domain: "d", HashKey: hashKey, Identities: identities, Limits: []Limit{{Key: []uint32{uint32(len(identities) - 1)}}}}
	if e := checkIdentities(p); e != nil {
		t.Fatalf("%v", e)
	}
	bound := NewBinder(p).Bind(r, nil)
	if len(bound) == 0 {
		return absent
	}
	if !ValidKey(bound[0].Key) || !p.IsForm(uint32(len(identities)-1), bound[0].Key) {
		t.Fatalf("%q is no valid key", bound[0].Key)
	}
	return bound[0].Key
}

func eight(bits uint64) string { return string(binary.LittleEndian.AppendUint64(nil, bits)) }

func TestIdentities(t *testing.T) {
	header := func(name string) Identity { return Identity{Source: FromHeader, Header: name} }
	cookie := Identity{Source: FromCookie, Text: "sid"}
	query := Identity{Source: FromQuery, Text: "key"}
	claim := func(path ...string) Identity { return Identity{Source: FromClaim, Header: "authorization", Path: path} }
	verified := Identity{Source: FromClaim, Metadata: "payload", Path: []string{"realm", "role"}}
	const metadata = "metadata filter_metadata envoy.filters.http.jwt_authn payload realm role"
	route := Identity{Source: FromPathTemplate, Path: []string{
		"/v1/{kind}/{id}", "/v1/reports/{id}", "/v1/reports/today", "/v1/{kind}/{id}/parts", "/v1/{rest=**}", "/v1/reports/{id}/{rest=**}",
	}}
	bearer := func(text string) fields { return fields{"authorization": {"Bearer " + text}} }
	path := func(text string) fields { return fields{":path": {text}} }
	office := Identity{Source: FromAddress, Networks: []Network{
		{"office", "10.0.0.0/8"}, {"lab", "10.1.0.0/16"}, {"v6", "2001:db8::/32"}, {"all v4", "0.0.0.0/0"},
	}}
	from := func(address string) fields { return fields{"source address": {address}} }
	for _, c := range []struct {
		name string
		id   Identity
		r    fields
		want string
	}{
		{"a header", header("x"), fields{"x": {"acme"}}, "acme"},
		{"two fields that differ", header("x"), fields{"x": {"acme", "evil"}}, "#,"},
		{"two others that differ", header("x"), fields{"x": {"a", "b"}}, "#,"},
		{"two fields that say the same", header("x"), fields{"x": {"acme", "acme"}}, "acme"},
		{"two fields with a comma that say the same", header("x"), fields{"x": {"a,b", "a,b"}}, "a,b"},
		{"a comma in one field", header("x"), fields{"x": {"a,a"}}, "a,a"},
		{"two empty fields", header("x"), fields{"x": {"", ""}}, "%"},

		{"a cookie", cookie, fields{"cookie": {"a=1; sid=x; b=2"}}, "x"},
		{"two cookies that differ", cookie, fields{"cookie": {"sid=x; sid=y"}}, "#,"},
		{"three cookies, in two fields, that differ", cookie, fields{"cookie": {"sid=x; sid=x", "sid=z"}}, "#,"},
		{"two cookies that say the same", cookie, fields{"cookie": {`sid=x; a=1; sid="x"`}}, "x"},
		{"a cookie with blanks around it", cookie, fields{"cookie": {"a=1;\tsid = x ; b"}}, "x"},
		{"a cookie in the second field", cookie, fields{"cookie": {"a=1", "sid=x"}}, "x"},
		{"a cookie in quotes", cookie, fields{"cookie": {`sid="x y"`}}, "x%20y"},
		{"an empty cookie", cookie, fields{"cookie": {"sid="}}, "%"},
		{"a cookie with an equals sign", cookie, fields{"cookie": {"sid=a=b"}}, "a=b"},
		{"no such cookie", cookie, fields{"cookie": {"xsid=x; SID=x; sid"}}, absent},
		{"cookies that are none", cookie, fields{"cookie": {";;=; =sid;,"}}, absent},

		{"a parameter", query, path("/?a=1&key=x&b"), "x"},
		{"two of a name that differ", query, path("/?key=x&a=1&%6bey=y"), "#,"},
		{"two of a name that say the same", query, path("/?key=x&key=%78"), "x"},
		{"other spellings", query, path("/?%6bey=a%2Fb+c%20d%"), "a%2Fb%20c%20d%25"},
		{"a parameter without a value", query, path("/?key"), "%"},
		{"a broken escape", query, path("/?key=%zz%4"), "%25zz%254"},
		{"nothing behind a fragment", query, path("/#?key=x"), absent},
		{"up to a fragment", query, path("/?key=x#y"), "x"},
		{"no query", query, path("/"), absent},

		{"a claim", claim("sub"), bearer(token(`{"sub":"acme"}`)), "acme"},
		{"another case of bearer", claim("sub"), fields{"authorization": {"bEARER  " + token(`{"sub":"acme"}`)}}, "acme"},
		{"a token alone", claim("sub"), fields{"authorization": {token(`{"sub":"acme"}`)}}, "acme"},
		{"a claim within a claim", claim("realm_access", "role"), bearer(token(`{"realm_access":{"role":"admin"}}`)), "admin"},
		{"a number", claim("sub"), bearer(token(`{"sub":7}`)), "7"},
		{"another spelling of it", claim("sub"), bearer(token(`{"sub":70e-1}`)), "7"},
		{"a number that no float64 holds", claim("sub"), bearer(token(`{"sub":12345678901234567891}`)), "12345678901234567891"},
		{"a fraction", claim("sub"), bearer(token(`{"sub":0.50}`)), "0.5"},
		{"true", claim("sub"), bearer(token(`{"sub":true}`)), "true"},
		{"null", claim("sub"), bearer(token(`{"sub":null}`)), absent},
		{"a list", claim("aud"), bearer(token(`{"aud":["a"]}`)), absent},
		{"an object", claim("sub"), bearer(token(`{"sub":{}}`)), absent},
		{"a claim that stands twice", claim("sub"), bearer(token(`{"sub":"a","sub":"b"}`)), absent},
		{"no JSON", claim("sub"), bearer(token(`{"sub":"a"`)), absent},
		{"no base64", claim("sub"), bearer("e30.!!.x"), absent},
		{"two parts", claim("sub"), bearer("e30.e30"), absent},
		{"five parts, as encrypted ones have", claim("sub"), bearer(token(`{"sub":"a"}`) + "x.y.z"), absent},
		{"another scheme", claim("sub"), fields{"authorization": {"Basic " + token(`{"sub":"a"}`)}}, absent},
		{"two tokens", claim("sub"), fields{"authorization": {token(`{"sub":"a"}`), token(`{"sub":"b"}`)}}, "#,"},
		{"a token and something else", claim("sub"), fields{"authorization": {token(`{"sub":"a"}`), "x"}}, "#,"},
		{"a token twice", claim("sub"), fields{"authorization": {token(`{"sub":"a"}`), token(`{"sub":"a"}`)}}, "a"},
		{"a token behind 9 KB of blanks", claim("sub"), bearer(strings.Repeat(" ", 9000) + token(`{"sub":"a"}`)), "a"},
		{"a token of 9 KB", claim("sub"), bearer(token(`{"sub":"a","x":"` + strings.Repeat("x", 9000) + `"}`)), absent},

		{"a verified claim", verified, fields{metadata: {"admin"}}, "admin"},
		{"a verified number", verified, fields{metadata: {eight(math.Float64bits(42))}}, "42"},
		{"a verified bool", verified, fields{metadata: {"\x01"}}, "true"},
		{"eight letters", verified, fields{metadata: {"abcdefgh"}}, "abcdefgh"},
		{"no metadata", verified, fields{}, absent},
		{"a verified list", verified, fields{metadata: {"\x02\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00a\x00\x00b\x00\x00"}}, absent},
		{"a verified object", verified, fields{metadata: {"\x01\x00\x00\x00\x04\x00\x00\x00\x05\x00\x00\x00role\x00admin\x00"}}, absent},
		{"an empty one of the two", verified, fields{metadata: {"\x00\x00\x00\x00"}}, absent},
		{"what only begins like one", verified, fields{metadata: {"\x01\x00\x00\x00\x04\x00\x00\x00\x05\x00\x00\x00role\x00admin"}}, "%01%00%00%00%04%00%00%00%05%00%00%00role%00admin"},
		{"as if of more than there is", verified, fields{metadata: {"\xff\xff\xff\xff"}}, "%FF%FF%FF%FF"},

		{"the method", Identity{Source: FromMethod}, fields{":method": {"POST"}}, "POST"},
		{"the host", Identity{Source: FromHost}, fields{":authority": {"Shop.Example.com.:8080"}}, "shop.example.com"},
		{"an IPv6 host", Identity{Source: FromHost}, fields{":authority": {"[::1]:80"}}, "[::1]"},
		{"no host", Identity{Source: FromHost}, fields{}, absent},
		{"the path", Identity{Source: FromPath}, path("/a/b?c"), "%2Fa%2Fb"},

		{"a template", route, path("/v1/users/7?x"), "%2Fv1%2F%7Bkind%7D%2F%7Bid%7D"},
		{"a literal before a variable", route, path("/v1/reports/7"), "%2Fv1%2Freports%2F%7Bid%7D"},
		{"two literals before one", route, path("/v1/reports/today"), "%2Fv1%2Freports%2Ftoday"},
		{"the first segment decides", route, path("/v1/reports/7/parts"), "%2Fv1%2Freports%2F%7Bid%7D%2F%7Brest=**%7D"},
		{"back to a variable", route, path("/v1/users/7/parts"), "%2Fv1%2F%7Bkind%7D%2F%7Bid%7D%2Fparts"},
		{"all that follows", route, path("/v1/users/7/x"), "%2Fv1%2F%7Brest=**%7D"},
		{"no empty segment for a variable", route, path("/v1/users/"), "%2Fv1%2F%7Brest=**%7D"},
		{"no template", route, path("/v2"), absent},

		{"an attribute", Identity{Source: FromAttribute, Path: []string{"connection", "sni"}}, fields{"connection sni": {"a.test"}}, "a.test"},
		{"a port", Identity{Source: FromAttribute, Path: []string{"source", "port"}}, fields{"source port": {eight(40000)}}, "40000"},
		{"all headers", Identity{Source: FromAttribute, Path: []string{"request", "headers"}}, fields{"request headers": {"\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00a\x00b\x00"}}, absent},
		{"no attribute", Identity{Source: FromAttribute, Path: []string{"connection", "sni"}}, fields{}, absent},
		{"a constant", Identity{Source: FromConstant, Text: "prod"}, fields{}, "prod"},

		{"an IPv6 client by its network", Identity{Source: FromAddress, IPv6Prefix: 64}, from("[2001:db8:1:2:3:4:5:6]:1"), "2001:db8:1:2::"},
		{"an IPv4 client beside it", Identity{Source: FromAddress, IPv6Prefix: 64}, from("192.0.2.1:1"), "192.0.2.1"},
		{"an IPv4 client by its network", Identity{Source: FromAddress, IPv4Prefix: 24}, from("192.0.2.77:1"), "192.0.2.0"},
		{"a mapped client by its network", Identity{Source: FromAddress, IPv4Prefix: 24, IPv6Prefix: 8}, from("[::ffff:192.0.2.77]:1"), "192.0.2.0"},
		{"the narrowest range", office, from("10.1.2.3:1"), "lab"},
		{"the wider range", office, from("10.2.2.3:1"), "office"},
		{"all others", office, from("192.0.2.1:1"), "all%20v4"},
		{"a range of IPv6", office, from("[2001:db8::1]:1"), "v6"},
		{"no range", office, from("[2001:db9::1]:1"), absent},
		{"no address", office, from("@socket"), absent},

		{"small letters", Identity{Source: FromHeader, Header: "x", Lowercase: true}, fields{"x": {"ACMEÜ\xff"}}, "acme%C3%9C%FF"},
		{"not too long", Identity{Source: FromHeader, Header: "x", MaxLength: 4}, fields{"x": {"acme"}}, "acme"},
		{"too long", Identity{Source: FromHeader, Header: "x", MaxLength: 3}, fields{"x": {"acme"}}, absent},
		{"a default for too long", Identity{Source: FromHeader, Header: "x", MaxLength: 3, Default: "none"}, fields{"x": {"acme"}}, "#=none"},
		{"a default", Identity{Source: FromHeader, Header: "x", Default: "none"}, fields{}, "#=none"},
		{"what looks like a default", Identity{Source: FromHeader, Header: "x", Default: "none"}, fields{"x": {"#=none"}}, "%23=none"},
		{"a hash", Identity{Source: FromHeader, Header: "x", Hash: true}, fields{"x": {"acme"}}, "##" + mac("acme")},
		{"a hash of small letters", Identity{Source: FromHeader, Header: "x", Hash: true, Lowercase: true}, fields{"x": {"ACME"}}, "##" + mac("acme")},
		{"a hash of fields that differ", Identity{Source: FromHeader, Header: "x", Hash: true}, fields{"x": {"a", "b"}}, "#,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := keyFrom(t, c.r, c.id); got != c.want {
				t.Fatalf("got %s, want %s", got, c.want)
			}
		})
	}
}

func mac(value string) string {
	m := hmac.New(sha256.New, []byte(hashKey))
	m.Write([]byte(value))
	return hex.EncodeToString(m.Sum(nil))
}

func TestFirstOf(t *testing.T) {
	key, client := Identity{Source: FromHeader, Header: "x-api-key"}, Identity{Source: FromAddress}
	caller := Identity{Source: FirstOf, FirstOf: []uint32{0, 1}}
	outer := Identity{Source: FirstOf, FirstOf: []uint32{2}}
	peer := map[string][]string{"source address": {"192.0.2.1:1"}}
	with := func(value string) fields {
		return fields{"source address": peer["source address"], "x-api-key": {value}}
	}
	for _, c := range []struct {
		name       string
		r          fields
		identities []Identity
		want       string
	}{
		{"the first", with("k1"), []Identity{key, client, caller}, "#i0=k1"},
		{"the second", peer, []Identity{key, client, caller}, "#i1=192.0.2.1"},
		{"the first, which says what the second would", with("192.0.2.1"), []Identity{key, client, caller}, "#i0=192.0.2.1"},
		{"the first, which looks like the second", with("#i1=192.0.2.1"), []Identity{key, client, caller}, "#i0=%23i1=192.0.2.1"},
		{"none", fields{}, []Identity{key, client, caller}, absent},
		{"one in another", peer, []Identity{key, client, caller, outer}, "#i1=192.0.2.1"},
		{"a default in another", fields{}, []Identity{key, client, {Source: FirstOf, FirstOf: []uint32{0}, Default: "x"}, outer}, "#i2=#=x"},
		{"a member's default", fields{}, []Identity{{Source: FromHeader, Header: "h", Default: "x"}, client, caller}, "#i0=#=x"},
		{"a later one", peer, []Identity{{Source: FirstOf, FirstOf: []uint32{1}}, client, {Source: FirstOf, FirstOf: []uint32{0}}}, "#i1=192.0.2.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := keyFrom(t, c.r, c.identities...); got != c.want {
				t.Fatalf("got %s, want %s", got, c.want)
			}
		})
	}
	long := keyFrom(t, with(strings.Repeat("é", MaxValueLength/2)), key, client, caller)
	if len(long) > 3*MaxValueLength {
		t.Errorf("a long one has %d bytes", len(long))
	}
}

// Whatever an identity is read from, two requests share a key only if what is read of them is the same.
func TestNoTwoValuesShareAKeyWhateverTheirSource(t *testing.T) {
	type source struct {
		identities []Identity
		request    func(value string) fields
	}
	key := Identity{Source: FromHeader, Header: "x"}
	hashed := key
	hashed.Hash = true
	withDefault := key
	withDefault.Default = "none"
	header := func(value string) fields { return fields{"x": {value}} }
	sources := []source{
		{[]Identity{key}, header},
		{[]Identity{hashed}, header},
		{[]Identity{withDefault}, header},
		{[]Identity{key, {Source: FirstOf, FirstOf: []uint32{0}}}, header},
		{[]Identity{hashed, {Source: FirstOf, FirstOf: []uint32{0}}}, header},
		{[]Identity{{Source: FromQuery, Text: "x"}}, func(value string) fields {
			return fields{":path": {"/?x=" + hex.EncodeToString([]byte(value))}}
		}},
		{[]Identity{{Source: FromClaim, Header: "x", Path: []string{"a"}}}, func(value string) fields {
			return fields{"x": {token(`{"a":"` + hex.EncodeToString([]byte(value)) + `"}`)}}
		}},
		{[]Identity{{Source: FromAttribute, Path: []string{"filter_state", "x"}}}, func(value string) fields {
			return fields{"filter_state x": {"_" + value}}
		}},
	}
	nasty := rapid.OneOf(
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte("/%{}#=, aA2F25\x00\xff")), 0, 6), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, MaxValueLength+2), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"#=none", "none", "#i0=a", "a", "#,", "##" + mac("a"), "#" + strings.Repeat("a", 64)}),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := nasty.Draw(t, "a"), nasty.Draw(t, "b")
		for i, s := range sources {
			x, y := keyFrom(t, s.request(a), slices.Clone(s.identities)...), keyFrom(t, s.request(b), slices.Clone(s.identities)...)
			if (x == y) != (a == b) {
				t.Fatalf("source %d: %q has the key %s, %q has %s", i, a, x, b, y)
			}
		}
		// A header's own value is none that stands for something else.
		for _, other := range []fields{{}, {"x": {"1", "2"}}} {
			if x, y := keyFrom(t, header(a), withDefault), keyFrom(t, other, withDefault); x == y {
				t.Fatalf("%q has the key of another kind: %s", a, x)
			}
		}
	})
}

func TestValidateIdentitiesAndMatches(t *testing.T) {
	const wantedEntry = "want a key, and a value or a prefix that is not empty, of up to 256 bytes of UTF-8, " +
		"and hash only with the policy's hash_key and without a fixed value"
	for _, c := range []struct {
		damage func(*Policy)
		want   string
	}{
		{func(p *Policy) { p.Identities[0].Hash = true }, "identities[0].hash: needs the policy's hash_key"},
		{func(p *Policy) {
			p.Limits[0].Key = nil
			p.Limits[0].Descriptor = []DescriptorEntry{{Key: "a"}, {Key: "a", Hash: true}}
		}, "limits[0].descriptor[1]: " + wantedEntry},
		{func(p *Policy) {
			p.HashKey, p.Limits[0].Key = hashKey, nil
			p.Limits[0].Descriptor = []DescriptorEntry{{Key: "a", Hash: true}, {Key: "a", Value: "b", Hash: true}}
		}, "limits[0].descriptor[1]: " + wantedEntry},
		{func(p *Policy) { p.HashKey = "short" }, "hash_key: has 5 bytes, want 16 to 1024"},
		{func(p *Policy) { p.Identities[0].MaxLength = MaxMaxLength + 1 }, "identities[0].max_length: is 65537, want at most 65536"},
		{func(p *Policy) { p.Identities[1].IPv6Prefix = 129 }, "identities[1].ipv6_prefix: 129 is more than 128"},
		{func(p *Policy) { p.Identities[1].Networks = []Network{{"a", "10.0.0.1/8"}} }, `identities[1].networks[0].cidr: "10.0.0.1/8" is no range of addresses in its canonical form`},
		{func(p *Policy) { p.Identities[0] = Identity{Name: "a", Source: FirstOf, FirstOf: []uint32{2}} }, "identities[0].first_of[0]: 2 is no index into the 2 identities"},
		{func(p *Policy) { p.Identities[0] = Identity{Name: "a", Source: FirstOf, FirstOf: []uint32{1, 0}} }, "identities[0].first_of: is read from itself"},
		{func(p *Policy) { p.Identities[0] = Identity{Name: "a", Source: FromClaim, Path: []string{"sub"}} }, "identities[0].claim: wants either the header with the token or the name of the metadata"},
		{func(p *Policy) { p.Identities[0] = Identity{Name: "a", Source: FromAttribute, Path: []string{"a\x00"}} }, `identities[0].attribute[0]: "a\x00" is no name of a part`},
		{func(p *Policy) { p.Limits[0].Match.Host = "Example.com" }, `limits[0].match.host: "Example.com" is no host's name, want one in lower case without a port, or *. before one`},
		{func(p *Policy) { p.Limits[0].Match.Not = &Match{Not: &Match{PathExact: "/"}} }, "limits[0].match.not.not: is a second negation, want one at most"},
		{func(p *Policy) { p.Limits[0].Match.Not = &Match{} }, "limits[0].match.not: matches everything, so that nothing is left"},
		{func(p *Policy) { p.Limits[0].Match.Not = &Match{PathRegex: "(a{500}){2}"} }, `limits[0].match.not.path_regex: "(a{500}){2}" is 1002 steps long when its repetitions are written out, want at most 512`},
		{func(p *Policy) { p.Limits[0].Match.PathRegex = `(a{1000}){1000}` }, "limits[0].match.path_regex: \"(a{1000}){1000}\" is no regular expression: error parsing regexp: invalid repeat count: `{1000}`"},
		{func(p *Policy) { p.Limits[0].Match.PathRegex = `\Q/a.b` }, "limits[0].match.path_regex: \"\\\\Q/a.b\" is no regular expression within another one: error parsing regexp: missing closing ): `^(?:\\Q/a.b)$`"},
		{func(p *Policy) { p.Limits[0].Match.Headers = []FieldMatch{{"x", FieldRegex, "["}} }, "limits[0].match.headers[0].value: \"[\" is no regular expression: error parsing regexp: missing closing ]: `[`"},
		{func(p *Policy) { p.Limits[0].Match.Query = []FieldMatch{{"x", 5, ""}} }, "limits[0].match.query[0].kind: 5 is not known here"},
	} {
		p := shop()
		c.damage(p)
		got := ""
		if err := Validate(p); err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	p := shop()
	for i := range MaxPatterns + 1 {
		l := p.Limits[0]
		l.Name, l.Match = "p"+strconv.Itoa(i), Match{PathRegex: "/" + strconv.Itoa(i)}
		p.Limits = append(p.Limits, l)
	}
	want := "limits[1028].match.path_regex: is one of more than 1024 different patterns of the policy"
	if err := Validate(p); err == nil || err.Error() != want {
		t.Errorf("too many patterns: got %v, want %s", err, want)
	}
}

// Of what is written down only that is a form which a request gives.
func TestIsForm(t *testing.T) {
	p := &Policy{HashKey: hashKey, Identities: []Identity{
		{Name: "plain", Source: FromHeader, Header: "x"},
		{Name: "secret", Source: FromHeader, Header: "x", Hash: true},
		{Name: "small", Source: FromHeader, Header: "x", Lowercase: true, MaxLength: 5},
		{Name: "defaulted", Source: FromClaim, Metadata: "m", Path: []string{"a"}, Default: "no/ne"},
		{Name: "address", Source: FromAddress, IPv4Prefix: 24, IPv6Prefix: 64},
		{Name: "network", Source: FromAddress, Networks: []Network{{Name: "office"}}},
		{Name: "host", Source: FromHost},
		{Name: "template", Source: FromPathTemplate, Path: []string{"/a/{id}", "/" + strings.Repeat("a", 200)}},
		{Name: "constant", Source: FromConstant, Text: "all"},
		{Name: "first", Source: FirstOf, FirstOf: []uint32{1, 0}},
		{Name: "deep", Source: FirstOf, FirstOf: []uint32{9, 3}},
	}}
	sum := strings.Repeat("0f", 32)
	for name, test := range map[string]struct{ are, not []string }{
		"plain":     {[]string{"a", "%", "%2F", "#,", "#" + sum}, []string{"", "a/b", "%61", "%zz", "%2f", "%4", "#", "##" + sum, "#=a", "#" + sum[1:], strings.Repeat("a", 129)}},
		"secret":    {[]string{"##" + sum, "#,"}, []string{"a", "", "%", "#" + sum, sum, "##" + strings.ToUpper(sum), "##" + sum + "0", "#=a"}},
		"small":     {[]string{"a", "%7B", "#,"}, []string{"A", "abcdef", "#" + sum}},
		"defaulted": {[]string{"a", "#=no%2Fne", "#" + sum}, []string{"#,", "#=none", "#=no/ne"}},
		"address":   {[]string{"10.0.0.0", "2001:db8::", "%2Frun%2Fx", "%"}, []string{"10.0.0.1", "2001:db8::1", "2001:DB8::", "x", "10.0.0.0:80", "#,", "#" + sum}},
		"network":   {[]string{"office"}, []string{"10.0.0.0", "home", "%2Frun%2Fx", "#" + sum}},
		"host":      {[]string{"example.com", "[::1]"}, []string{"Example.com", "example.com:80", "example.com."}},
		"template":  {[]string{"%2Fa%2F%7Bid%7D", EscapeValue("/" + strings.Repeat("a", 200))}, []string{"%2Fa%2F1", "#" + sum}},
		"constant":  {[]string{"all"}, []string{"some", "#,"}},
		"first":     {[]string{"#secret=##" + sum, "#plain=a", "#plain=#,", "#" + sum}, []string{"a", "#secret=a", "#other=a", "##" + sum, "#first=#plain=a"}},
		"deep":      {[]string{"#plain=a", "#defaulted=#=no%2Fne"}, []string{"#first=#plain=a", "#deep=a", "#secret=a"}},
	} {
		at := uint32(slices.IndexFunc(p.Identities, func(id Identity) bool { return id.Name == name }))
		for _, form := range test.are {
			if !p.IsForm(at, form) {
				t.Errorf("%q is none of %s", form, name)
			}
		}
		for _, form := range test.not {
			if p.IsForm(at, form) {
				t.Errorf("%q is one of %s", form, name)
			}
		}
		if want := name == "secret" || name == "first" || name == "deep"; p.Secret(at) != want {
			t.Errorf("%s is secret: %v", name, !want)
		}
	}
}
