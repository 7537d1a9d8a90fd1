package wire

import (
	"pgregory.net/rapid"

	"sluice/shared/policy"
)

var (
	aName   = rapid.StringMatching(`[a-z0-9._-]{1,128}`)
	aHeader = rapid.StringMatching(`[a-z0-9-]{1,128}`)
)

// drawIdentities draws identities of every source; those of first_of come before it.
func drawIdentities(t *rapid.T) []policy.Identity {
	var list []policy.Identity
	for range rapid.IntRange(0, 6).Draw(t, "identities") {
		list = append(list, drawIdentity(t, len(list)))
	}
	return list
}

func drawIdentity(t *rapid.T, before int) policy.Identity {
	id := policy.Identity{Name: aName.Draw(t, "name"), Default: rapid.StringN(0, 16, 64).Draw(t, "default")}
	most := policy.FirstOf
	if before == 0 {
		most--
	}
	id.Source = policy.Source(rapid.IntRange(int(policy.FromHeader), int(most)).Draw(t, "source"))
	if id.Source != policy.FirstOf {
		id.Hash, id.Lowercase = rapid.Bool().Draw(t, "hash"), rapid.Bool().Draw(t, "lowercase")
		id.MaxLength = rapid.Uint32Range(0, policy.MaxMaxLength).Draw(t, "max length")
	}
	parts := rapid.SliceOfN(rapid.StringMatching(`[a-z:/.ü]{1,60}`), 1, policy.MaxPathParts)
	switch id.Source {
	case policy.FromHeader:
		id.Header = aHeader.Draw(t, "header")
	case policy.FromAddress:
		id.TrustedHops = rapid.Uint32Range(0, policy.MaxTrustedHops).Draw(t, "hops")
		id.IPv4Prefix = rapid.Uint32Range(0, 32).Draw(t, "ipv4")
		id.IPv6Prefix = rapid.Uint32Range(0, 128).Draw(t, "ipv6")
		id.Networks = drawList(t, "networks", 3, func(t *rapid.T) policy.Network {
			return policy.Network{
				Name: rapid.StringN(1, 20, 128).Draw(t, "name"),
				CIDR: rapid.SampledFrom([]string{"10.0.0.0/8", "2001:db8::/32", "::/0", "192.0.2.1/32"}).Draw(t, "cidr"),
			}
		})
	case policy.FromCookie:
		id.Text = rapid.StringMatching(`[A-Za-z_.-]{1,128}`).Draw(t, "cookie")
	case policy.FromQuery, policy.FromConstant:
		id.Text = rapid.StringN(1, 20, 128).Draw(t, "text")
	case policy.FromClaim:
		id.Path = parts.Draw(t, "path")
		if rapid.Bool().Draw(t, "is verified") {
			id.Metadata = rapid.StringN(1, 20, 128).Draw(t, "metadata")
		} else {
			id.Header = aHeader.Draw(t, "header")
		}
	case policy.FromAttribute:
		id.Path = parts.Draw(t, "path")
	case policy.FromPathTemplate:
		id.Path = rapid.SliceOfN(aTemplate, 1, 10).Draw(t, "templates")
	case policy.FirstOf:
		id.FirstOf = rapid.SliceOfN(rapid.Uint32Range(0, uint32(before-1)), 1, policy.MaxFirstOf).Draw(t, "first of")
	}
	return id
}

var aTemplate = rapid.StringMatching(`/v1(/[a-z]{0,10}){0,5}(/\{id\})?(/[a-z]{1,9})?(/\{rest=\*\*\})?`)

// drawMatch draws a match, with a negation where that is asked for.
func drawMatch(t *rapid.T, not bool) policy.Match {
	path := rapid.StringMatching(`(/[!-"$->@-~]{0,400})?`)
	maybe := func(g *rapid.Generator[string]) *rapid.Generator[string] { return rapid.OneOf(rapid.Just(""), g) }
	m := policy.Match{
		PathExact: path.Draw(t, "exact"), PathPrefix: path.Draw(t, "prefix"),
		PathTemplate: maybe(aTemplate).Draw(t, "template"),
		PathRegex:    rapid.SampledFrom([]string{"", `/v\d+`, `[^/]{1,64}(a|b)*`, "ü"}).Draw(t, "regex"),
		Host:         maybe(rapid.StringMatching(`(\*\.)?[a-z][a-z0-9-]{0,60}\.example`)).Draw(t, "host"),
		Methods:      rapid.SliceOfN(rapid.StringMatching(`[A-Za-z]{1,32}`), 0, policy.MaxMethods).Draw(t, "methods"),
		Headers:      drawList(t, "headers", 3, drawFieldMatch), Query: drawList(t, "query", policy.MaxFieldMatches, drawFieldMatch),
	}
	if not {
		inner := drawMatch(t, false)
		inner.Methods = append(inner.Methods[:0], "POST") // it must not match everything
		m.Not = &inner
	}
	return m
}

func drawFieldMatch(t *rapid.T) policy.FieldMatch {
	f := policy.FieldMatch{Name: aHeader.Draw(t, "name"), Kind: policy.FieldKind(rapid.Uint8Range(1, 4).Draw(t, "kind"))}
	switch f.Kind {
	case policy.FieldExact, policy.FieldPrefix:
		f.Value = rapid.StringN(0, 100, policy.MaxFieldValue).Draw(t, "value")
	case policy.FieldRegex:
		f.Value = rapid.SampledFrom([]string{".*", `a|b`}).Draw(t, "value")
	}
	return f
}
