package policy

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// twin says whether a request is what a match says, the obvious way, for short requests.
func twin(m *Match, r request) bool {
	method, hasMethod := r[":method"]
	target, hasPath := r[":path"]
	path, query, _ := strings.Cut(target, "?")
	if path == "" {
		path = "/"
	}
	host := strings.ToLower(r[":authority"])
	host = strings.TrimSuffix(regexp.MustCompile(`:[0-9]*$`).ReplaceAllString(host, ""), ".")
	switch {
	case len(m.Methods) > 0 && (!hasMethod || !slices.Contains(m.Methods, method)):
		return false
	case strings.HasPrefix(m.Host, "*.") && (!strings.HasSuffix(host, m.Host[1:]) || len(host) <= len(m.Host)-1):
		return false
	case m.Host != "" && m.Host[0] != '*' && host != m.Host:
		return false
	case m.PathExact != "" && (!hasPath || path != m.PathExact):
		return false
	case m.PathPrefix != "" && (!hasPath || !strings.HasPrefix(path+"/", strings.TrimSuffix(m.PathPrefix, "/")+"/")):
		return false
	case m.PathRegex != "" && (!hasPath || !regexp.MustCompile("^(?:"+m.PathRegex+")$").MatchString(path)):
		return false
	case m.PathTemplate != "" && (!hasPath || !templateTwin(m.PathTemplate).MatchString(path)):
		return false
	}
	for _, f := range m.Headers {
		value, there := r[f.Name]
		all := append(strings.Split(value, ","), value)
		if !there || !slices.ContainsFunc(all, func(v string) bool { return v == value && fieldTwin(f, v) || fieldTwin(f, strings.TrimSpace(v)) }) {
			return false
		}
	}
	for _, f := range m.Query {
		if !slices.ContainsFunc(strings.Split(query, "&"), func(p string) bool {
			name, value, _ := strings.Cut(p, "=")
			return name == f.Name && fieldTwin(f, value)
		}) {
			return false
		}
	}
	return m.Not == nil || !twin(m.Not, r)
}

// templateTwin is a template as a regular expression.
func templateTwin(template string) *regexp.Regexp {
	text := regexp.QuoteMeta(template)
	text = regexp.MustCompile(`/\\\{[a-z]+=\\\*\\\*\\\}$`).ReplaceAllString(text, `(/.*)?`)
	text = regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(text, `[^/]+`)
	return regexp.MustCompile(`^` + text + `$`)
}

func fieldTwin(f FieldMatch, value string) bool {
	switch f.Kind {
	case FieldExact:
		return value == f.Value
	case FieldPrefix:
		return strings.HasPrefix(value, f.Value)
	case FieldRegex:
		return regexp.MustCompile("^(?:" + f.Value + ")$").MatchString(value)
	default:
		return true
	}
}

// A small world, so that most requests lead somewhere, with segments that begin alike.
var (
	someSegment = rapid.SampledFrom([]string{"a", "b", "ab", "abc", ""})
	somePath    = rapid.Map(rapid.SliceOfN(someSegment, 1, 4), func(s []string) string { return "/" + strings.Join(s, "/") })
	someHost    = rapid.SampledFrom([]string{"x.test", "a.x.test", "b.a.x.test", "y.test", "test", "x.testing"})
)

func drawTemplate(t *rapid.T) string {
	text := ""
	for i := range rapid.IntRange(0, 3).Draw(t, "segments") {
		text += "/" + rapid.SampledFrom([]string{"a", "ab", "", "{v" + string(rune('a'+i)) + "}"}).Draw(t, "segment")
	}
	if text == "" || rapid.Bool().Draw(t, "rest") {
		text += "/{rest=**}"
	}
	return text
}

func drawMatch(t *rapid.T, not bool) Match {
	var m Match
	maybe := func(what string) bool { return rapid.IntRange(0, 3).Draw(t, what) == 0 }
	switch rapid.IntRange(0, 6).Draw(t, "path") {
	case 0:
		m.PathExact = somePath.Draw(t, "exact")
	case 1:
		m.PathPrefix = somePath.Draw(t, "prefix")
	case 2, 3:
		m.PathTemplate = drawTemplate(t)
	case 4:
		m.PathRegex = rapid.SampledFrom([]string{"/a.*", "/(a|b)/?.*", "/[^/]*"}).Draw(t, "regex")
	case 5:
		m.PathExact, m.PathTemplate = somePath.Draw(t, "exact"), drawTemplate(t)
	}
	if maybe("host") {
		m.Host = rapid.SampledFrom([]string{"", "*."}).Draw(t, "all") + someHost.Draw(t, "host")
	}
	if maybe("methods") {
		m.Methods = rapid.SliceOfN(rapid.SampledFrom([]string{"GET", "POST", "PUT"}), 1, 2).Draw(t, "methods")
	}
	if maybe("headers") {
		m.Headers = rapid.SliceOfN(rapid.Custom(drawField), 1, 2).Draw(t, "headers")
	}
	if maybe("query") {
		m.Query = rapid.SliceOfN(rapid.Custom(drawField), 1, 2).Draw(t, "query")
	}
	if not && maybe("not") {
		inner := drawMatch(t, false)
		m.Not = &inner
	}
	return m
}

func drawField(t *rapid.T) FieldMatch {
	f := FieldMatch{Name: rapid.SampledFrom([]string{"h", "i"}).Draw(t, "name"), Kind: FieldKind(rapid.Uint8Range(1, 4).Draw(t, "kind"))}
	if f.Kind != FieldPresent {
		f.Value = rapid.SampledFrom([]string{"1", "2", "12"}).Draw(t, "value")
	}
	return f
}

func drawRequest(t *rapid.T) request {
	r := request{}
	put := func(name string, g *rapid.Generator[string]) {
		if rapid.IntRange(0, 9).Draw(t, "has "+name) > 0 {
			r[name] = g.Draw(t, name)
		}
	}
	value := rapid.SampledFrom([]string{"1", "2", "12", "", "1,2", " 2 ,x", "x", "1, 1", "2,1,2", "121", "121,x"})
	put(":method", rapid.SampledFrom([]string{"GET", "POST", "PUT", "get"}))
	put(":authority", rapid.Custom(func(t *rapid.T) string {
		host := someHost.Draw(t, "host")
		if rapid.Bool().Draw(t, "capitals") {
			host = strings.ToUpper(host)
		}
		return rapid.SampledFrom([]string{"", "", "", "."}).Draw(t, "before") + host + rapid.SampledFrom([]string{"", ":80", ".", ".:8080"}).Draw(t, "after")
	}))
	put(":path", rapid.Custom(func(t *rapid.T) string {
		query := rapid.SampledFrom([]string{"", "?", "?h=1", "?x&h=2&h=1&i", "?i=12"}).Draw(t, "query")
		return rapid.OneOf(somePath, somePath, somePath, rapid.SampledFrom([]string{"*", "", "a/b"})).Draw(t, "path") + query
	}))
	put("h", value)
	put("i", value)
	return r
}

// The index finds what a look at every limit finds, in the same order.
func TestTheIndexFindsWhatAScanFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &Policy{}
		for range rapid.IntRange(1, 40).Draw(t, "limits") {
			p.Limits = append(p.Limits, Limit{Match: drawMatch(t, true)})
		}
		c := newBinder(p, rapid.SampledFrom([]int{0, fewLimits, 40}).Draw(t, "few"))
		for range 8 {
			r := drawRequest(t)
			var want, got []int
			for i := range p.Limits {
				if twin(&p.Limits[i].Match, r) {
					want = append(want, i)
				}
			}
			for _, b := range c.Bind(r, nil) {
				got = append(got, b.Limit)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				for _, i := range append(want, got...) {
					t.Logf("limit %d: %+v", i, p.Limits[i].Match)
				}
				t.Fatalf("%q (-want +got):\n%s", r, diff)
			}
		}
	})
}

// What is too long to be compared with a pattern binds the limit, and leaves no negation.
func TestNobodyLeavesALimitByWritingMore(t *testing.T) {
	long := strings.Repeat("x", MaxPatternInput)
	commas := strings.Repeat("x,", maxElements) + "1"
	plan := func(kind FieldKind) []FieldMatch { return []FieldMatch{{Name: "plan", Kind: kind, Value: "1"}} }
	for name, c := range map[string]struct {
		match Match
		r     request
		want  bool
	}{
		"a long path":                   {Match{PathRegex: "/a"}, request{":path": "/" + long}, true},
		"a long path that is let off":   {Match{Not: &Match{PathRegex: "/.*"}}, request{":path": "/" + long}, true},
		"a shorter one":                 {Match{PathRegex: "/a"}, request{":path": "/x"}, false},
		"many values":                   {Match{Headers: plan(FieldExact)}, request{"plan": strings.Repeat("x,", maxElements)}, true},
		"the value behind many":         {Match{Headers: plan(FieldExact)}, request{"plan": commas}, true},
		"many values that are let off":  {Match{Not: &Match{Headers: plan(FieldExact)}}, request{"plan": commas}, true},
		"the value among few":           {Match{Headers: plan(FieldExact)}, request{"plan": "x, 1"}, true},
		"a few values that are let off": {Match{Not: &Match{Headers: plan(FieldExact)}}, request{"plan": "x, 1"}, false},
		"a long header":                 {Match{Headers: plan(FieldRegex)}, request{"plan": long + "x"}, true},
	} {
		for _, few := range []int{0, fewLimits} {
			if got := len(newBinder(&Policy{Limits: []Limit{{Match: c.match}}}, few).Bind(c.r, nil)) == 1; got != c.want {
				t.Errorf("%s, indexed from %d limits on: got %v", name, few, got)
			}
		}
	}
}

// manyLimits are n that differ, of which few bind a request: by paths, templates, hosts and headers.
func manyLimits(n int) *Policy {
	p := &Policy{Identities: []Identity{{Name: "t", Source: FromHeader, Header: "x-tenant-id"}}}
	for i := range n {
		number := strconv.Itoa(i)
		m := Match{PathTemplate: "/v1/reports/{id}/part-" + number}
		switch {
		case i == 0:
			m = Match{PathPrefix: "/v1/reports", Methods: []string{"POST"}}
		case i%4 == 1:
			m = Match{PathPrefix: "/v2/" + number}
		case i%4 == 2:
			m = Match{Host: "h" + number + ".example.com", PathPrefix: "/"}
		case i%4 == 3:
			m = Match{Headers: []FieldMatch{{Name: "x-plan", Kind: FieldExact, Value: "p" + number}}}
		}
		p.Limits = append(p.Limits, Limit{Name: "l" + number, Match: m, Key: []uint32{0}})
	}
	return p
}

// BenchmarkMatch is a request on its way through so many limits, of which one binds it.
func BenchmarkMatch(b *testing.B) {
	r := request{
		":method": "POST", ":path": "/v1/reports/7?full=1", ":authority": "shop.example.com", "x-tenant-id": "acme", "x-plan": "free",
	}
	for _, n := range []int{1, 100, 10_000} {
		b.Run("limits="+strconv.Itoa(n), func(b *testing.B) {
			c, room := NewBinder(manyLimits(n)), make([]Bound, 0, 8)
			b.ReportAllocs()
			var asked Request = r
			b.ResetTimer()
			for range b.N {
				if len(c.Bind(asked, room)) != 1 {
					b.Fatal("not bound")
				}
			}
		})
	}
}
