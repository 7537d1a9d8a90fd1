package policyfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/shared/policy"
)

const secret = "correct horse battery staple"

// Every source of an identity and every condition of a match.
func TestEverySourceAndMatch(t *testing.T) {
	t.Setenv("SLUICE_HASH_KEY", secret)
	got := load(t, "testdata/everything.yaml")
	want := &policy.Policy{
		Domain: "shop", HashKey: secret,
		Identities: []policy.Identity{
			{Name: "client", Source: policy.FromAddress, TrustedHops: 1, IPv6Prefix: 64},
			{Name: "place", Source: policy.FromAddress, Default: "elsewhere", Networks: []policy.Network{
				{Name: "office", CIDR: "10.0.0.0/8"}, {Name: "office", CIDR: "2001:db8::/32"}, {Name: "partner", CIDR: "192.0.2.7/32"},
			}},
			{Name: "range", Source: policy.FromAddress, Networks: []policy.Network{{Name: "10.0.0.0/8", CIDR: "10.0.0.0/8"}}},
			{Name: "api_key", Source: policy.FromHeader, Header: "x-api-key", Hash: true},
			{Name: "session", Source: policy.FromCookie, Text: "sid", Hash: true, MaxLength: 64},
			{Name: "region", Source: policy.FromQuery, Text: "region", Lowercase: true},
			{Name: "user", Source: policy.FromClaim, Path: []string{"sub"}, Header: "authorization"},
			{Name: "role", Source: policy.FromClaim, Path: []string{"realm_access", "role"}, Metadata: "payload"},
			{Name: "tenant", Source: policy.FromClaim, Path: []string{"https://example.com/tenant"}, Metadata: "payload"},
			{Name: "method", Source: policy.FromMethod},
			{Name: "host", Source: policy.FromHost},
			{Name: "path", Source: policy.FromPath},
			{Name: "route", Source: policy.FromPathTemplate, Path: []string{"/v1/reports/{id}", "/files/{rest=**}"}},
			{Name: "mtls", Source: policy.FromAttribute, Path: []string{"connection", "uri_san_peer_certificate"}},
			{Name: "caller", Source: policy.FirstOf, FirstOf: []uint32{3, 0}},
			{Name: "env", Source: policy.FromConstant, Text: "prod"},
		},
		Limits: []policy.Limit{{
			Name: "reports", Key: []uint32{14},
			Match: policy.Match{
				Host: "*.example.com", PathTemplate: "/v1/reports/{id}", Methods: []string{"POST"},
				Headers: []policy.FieldMatch{
					{Name: "x-beta", Kind: policy.FieldPresent},
					{Name: "x-plan", Kind: policy.FieldExact, Value: "free"},
					{Name: "x-agent", Kind: policy.FieldPrefix, Value: "curl/"},
					{Name: "x-id", Kind: policy.FieldRegex, Value: `\d+`},
				},
				Query: []policy.FieldMatch{{Name: "full", Kind: policy.FieldPresent}},
				Not:   &policy.Match{PathPrefix: "/v1/reports/public"},
			},
		}, {
			Name: "versions", Key: []uint32{0}, Match: policy.Match{Host: "api.example.com", PathRegex: `/v\d+/.*`},
		}, {
			Name: "users", Descriptor: []policy.DescriptorEntry{
				{Key: "database", Value: "users"}, {Key: "tenant", Hash: true}, {Key: "route", Value: "/v1/", Prefix: true, Hash: true}, {Key: "zone"},
			}, Replaces: []uint32{3},
		}, {
			Name: "database", Descriptor: []policy.DescriptorEntry{{Key: "database"}},
		}},
	}
	ignored := []cmp.Option{
		cmpopts.EquateEmpty(), cmpopts.IgnoreFields(policy.Policy{}, "Version"),
		cmpopts.IgnoreFields(policy.Limit{}, "Rates", "Algorithm", "Mode", "OnUnavailable"),
	}
	if diff := cmp.Diff(want, got, ignored...); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if text := fmt.Sprintf("%v %+v %#v %q", *got, *got, *got, got.HashKey); strings.Contains(text, "horse") {
		t.Errorf("the key is printed: %s", text)
	}
}

func TestTheHashKeyIsReadAndNeverShown(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("good", secret+"\n")
	write("windows", secret+"\r\n")
	write("short", "horse\n")
	write("long", strings.Repeat("horse", 300))
	write("binary", "horse\xff\xfe0123456789abcdef")
	t.Setenv("GOOD", secret)
	t.Setenv("SHORT", "horse")
	for _, c := range []struct{ where, want string }{
		{"{file: good}", ""},
		{"{file: windows}", ""},
		{"{file: " + filepath.Join(dir, "good") + "}", ""},
		{"{env: GOOD}", ""},
		{"{file: short}", "$.hash_key.file: the key there has 5 bytes, want 16 to 1024"},
		{"{env: SHORT}", "$.hash_key.env: the key there has 5 bytes, want 16 to 1024"},
		{"{file: long}", "$.hash_key.file: the key there has 1027 bytes, want 16 to 1024"},
		{"{file: binary}", "$.hash_key.file: the key there is not UTF-8 text; random bytes are best given in base64 or hex"},
		{"{file: none}", "no such file or directory"},
	} {
		p, err := Parse(filepath.Join(dir, "policy.yaml"), []byte("domain: shop\nhash_key: "+c.where+"\nlimits: []\n"))
		switch {
		case c.want == "" && (err != nil || p.HashKey != secret):
			t.Errorf("%s: %v", c.where, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "horse")):
			t.Errorf("%s: got %v, want %s", c.where, err, c.want)
		}
	}
}
