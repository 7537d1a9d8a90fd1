package policy

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/shared/limit"
)

func TestExplain(t *testing.T) {
	rates := []limit.Rate{{Units: 10, Window: time.Second}}
	p := &Policy{
		Identities: []Identity{{Name: "tenant", Source: FromHeader, Header: "x-tenant"}, {Name: "client", Source: FromAddress}},
		Allow:      []List{{Identity: 0, Values: []string{"friend"}}},
		Block:      []List{{Identity: 1, Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}},
		Limits: []Limit{
			{Name: "tenant", Key: []uint32{0}, Rates: rates},
			{Name: "posts", Match: Match{Methods: []string{"POST", "PUT"}}, Rates: rates},
			{Name: "host", Match: Match{Host: "*.example.com"}, Rates: rates},
			{Name: "exact", Match: Match{PathExact: "/login"}, Rates: rates},
			{Name: "prefix", Match: Match{PathPrefix: "/v1"}, Rates: rates},
			{Name: "template", Match: Match{PathTemplate: "/v1/{id}"}, Rates: rates},
			{Name: "regex", Match: Match{PathRegex: "/v[0-9]/.*"}, Rates: rates},
			{Name: "header", Match: Match{Headers: []FieldMatch{{"x-a", FieldPresent, ""}, {"x-b", FieldExact, "b"}}}, Rates: rates},
			{Name: "query", Match: Match{Query: []FieldMatch{{"q", FieldPrefix, "x"}}}, Rates: rates},
			{Name: "not", Match: Match{Not: &Match{PathPrefix: "/v2"}}, Rates: rates},
			{Name: "unlimited", Unlimited: true},
			{Name: "envoy", Descriptor: []DescriptorEntry{{Key: "a"}}, Rates: rates},
			{Name: "blocks", Block: []List{{Identity: 0, Values: []string{"thief"}}}, Rates: rates},
			{Name: "allows", Allow: []List{{Identity: 0, Values: []string{"acme"}}}, Rates: rates},
		},
	}
	for _, c := range []struct {
		name string
		r    request
		want []string
	}{
		{
			"hardly anything",
			request{":method": "GET", ":path": "/v2/x?q=y", ":authority": "example.com", "x-a": "", "source address": "192.0.2.1:1"},
			[]string{
				"the request has no tenant", "the method is GET, not POST or PUT", "the host is example.com, not *.example.com",
				"the path is /v2/x, not /login", "the path is /v2/x, not /v1 or below it", "the path is /v2/x, which is no /v1/{id}", "binds",
				"the header x-b is not b", "the query parameter q does not begin with x", "it is what the limit's `not` says",
				"it is unlimited for this key", "it is for descriptors of Envoy's own rate limit filter", "binds", "binds",
			},
		},
		{
			"nearly all",
			request{
				":method": "POST", ":path": "/v1/x?q=xy", ":authority": "a.example.com", "x-b": "b", "x-tenant": "acme", "source address": "192.0.2.1:1",
			},
			[]string{
				"binds acme", "binds", "binds", "the path is /v1/x, not /login", "binds", "binds", "binds", "the header x-a is not there", "binds", "binds",
				"it is unlimited for this key", "it is for descriptors of Envoy's own rate limit filter", "binds", "allowed",
			},
		},
		{
			"a limit's block list",
			request{":path": "/login", "x-tenant": "thief", "source address": "192.0.2.1:1"},
			append(append([]string{"the block list of blocks denies the request", "the method is , not POST or PUT", "the host is , not *.example.com"},
				"the block list of blocks denies the request", "the path is /login, not /v1 or below it", "the path is /login, which is no /v1/{id}",
				"the path is /login, which does not match /v[0-9]/.*", "the header x-a is not there", "the query parameter q does not begin with x",
				"the block list of blocks denies the request", "it is unlimited for this key", "it is for descriptors of Envoy's own rate limit filter",
				"blocked"), "the block list of blocks denies the request"),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, e := range NewBinder(p).Explain(c.r) {
				text := e.Why
				switch {
				case text != "":
				case e.Listed == Blocked:
					text = "blocked"
				case e.Listed == Allowed:
					text = "allowed"
				default:
					text = strings.TrimSpace("binds " + e.Key)
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for tenant, want := range map[string]string{"friend": "the policy's allow list takes the request out of all limits", "x": "the policy's block list denies the request before any limit is looked at"} {
		address := "192.0.2.1:1"
		if tenant == "x" {
			address = "203.0.113.7:1"
		}
		all := NewBinder(p).Explain(request{"x-tenant": tenant, "source address": address})
		if all[0].Limit != -1 || all[1].Why != want {
			t.Errorf("%s: got %+v", tenant, all[:2])
		}
	}
}

// What an explanation says binds is what binds, and nothing else.
func TestExplainSaysWhatBindDoes(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		p := &Policy{Identities: []Identity{{Name: "h", Source: FromHeader, Header: "h"}, {Name: "i", Source: FromHeader, Header: "i"}}}
		lists := func(label string) []List {
			if w := word.Draw(t, label); w != "" && rapid.Bool().Draw(t, "any "+label) {
				return []List{{Identity: rapid.Uint32Range(0, 1).Draw(t, "identity"), Values: []string{w}}}
			}
			return nil
		}
		p.Allow, p.Block = lists("allow"), lists("block")
		for range rapid.IntRange(0, 6).Draw(t, "limits") {
			l := Limit{Rates: []limit.Rate{{Units: 1, Window: time.Second}}, Allow: lists("allow"), Block: lists("block")}
			if w := word.Draw(t, "path"); w != "" {
				l.Match.PathPrefix = "/" + w
			}
			if w := word.Draw(t, "header"); w != "" {
				l.Match.Headers = []FieldMatch{{"h", FieldExact, w}}
			}
			if w := word.Draw(t, "not"); w != "" {
				l.Match.Not = &Match{Methods: []string{w}}
			}
			l.Key = rapid.SliceOfNDistinct(rapid.Uint32Range(0, 1), 0, 2, rapid.ID).Draw(t, "key")
			l.Unlimited = rapid.IntRange(0, 4).Draw(t, "unlimited") == 0
			p.Limits = append(p.Limits, l)
		}
		r := request{":path": "/" + word.Draw(t, "request path"), ":method": word.Draw(t, "method")}
		for _, header := range []string{"h", "i"} {
			if w := word.Draw(t, header); w != "" {
				r[header] = w
			}
		}
		c := NewBinder(p)
		var explained []Bound
		for _, e := range c.Explain(r) {
			if e.Why == "" {
				explained = append(explained, e.Bound)
			}
		}
		if diff := cmp.Diff(c.Bind(r, nil), explained); diff != "" {
			t.Fatalf("(-bound +explained):\n%s", diff)
		}
	})
}
