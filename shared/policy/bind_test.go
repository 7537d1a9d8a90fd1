package policy

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/shared/limit"
)

// request is a request as a map: headers by their names, attributes by their path with blanks.
type request map[string]string

func (r request) Header(name string) (string, int) {
	if value, ok := r[name]; ok {
		return value, 1
	}
	return "", 0
}

func (r request) Property(path ...string) (string, bool) {
	value, ok := r[strings.Join(path, " ")]
	return value, ok
}

func TestMatch(t *testing.T) {
	prefix := func(p string) Match { return Match{PathPrefix: p} }
	exact := func(p string) Match { return Match{PathExact: p} }
	methods := func(m ...string) Match { return Match{Methods: m} }
	for _, c := range []struct {
		match        Match
		method, path string
		want         bool
	}{
		{Match{}, "GET", "/", true},
		{Match{}, "", "", true},
		{prefix("/v1/reports"), "GET", "/v1/reports", true},
		{prefix("/v1/reports"), "GET", "/v1/reports/", true},
		{prefix("/v1/reports"), "GET", "/v1/reports/7", true},
		{prefix("/v1/reports"), "GET", "/v1/reports?x=/y", true},
		{prefix("/v1/reports"), "GET", "/v1/reports#x", true},
		{prefix("/v1/reports"), "GET", "/v1/reportsX", false},
		{prefix("/v1/reports"), "GET", "/v1/report", false},
		{prefix("/v1/reports"), "GET", "/V1/reports", false},
		{prefix("/v1/reports"), "GET", "/?/v1/reports", false},
		{prefix("/v1/reports/"), "GET", "/v1/reports", true},
		{prefix("/v1/reports/"), "GET", "/v1/reports/7", true},
		{prefix("/"), "GET", "/anything", true},
		{prefix("/"), "GET", "/", true},
		{prefix("/"), "OPTIONS", "*", false},
		{prefix("/"), "CONNECT", "", false},
		{exact("/v1/reports"), "GET", "/v1/reports", true},
		{exact("/v1/reports"), "GET", "/v1/reports?x", true},
		{exact("/v1/reports"), "GET", "/v1/reports/", false},
		{exact("/v1/reports"), "GET", "/v1/reports/7", false},
		{exact("/v1/reports"), "CONNECT", "", false},
		{methods("POST", "PUT"), "PUT", "/", true},
		{methods("POST", "PUT"), "GET", "/", false},
		{methods("POST"), "post", "/", false},
		{methods("POST"), "", "/", false},
		{Match{PathPrefix: "/a", Methods: []string{"POST"}}, "POST", "/a/b", true},
		{Match{PathPrefix: "/a", Methods: []string{"POST"}}, "POST", "/b", false},
		{Match{PathPrefix: "/a", Methods: []string{"POST"}}, "GET", "/a/b", false},
		{Match{PathPrefix: "/a", PathExact: "/a/b"}, "GET", "/a/b", true},
		{Match{PathPrefix: "/a", PathExact: "/a/b"}, "GET", "/a/c", false},
	} {
		r := request{}
		if c.method != "" {
			r[":method"] = c.method
		}
		if c.path != "" {
			r[":path"] = c.path
		}
		p := &Policy{Limits: []Limit{{Match: c.match}}}
		if got := len(NewBinder(p).Bind(r, nil)) == 1; got != c.want {
			t.Errorf("%+v, %q %q: got %v", c.match, c.method, c.path, got)
		}
	}
}

// shop is a policy with two identities and four limits.
func shop() *Policy {
	rates := []limit.Rate{{Units: 10, Window: time.Second}}
	rule := func(name string, match Match, key ...uint32) Limit {
		return Limit{Name: name, Match: match, Key: key, Rates: rates, Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Local}
	}
	return &Policy{
		Domain: "shop",
		Identities: []Identity{
			{Name: "tenant", Source: FromHeader, Header: "x-tenant-id"}, {Name: "client", Source: FromAddress},
		},
		Limits: []Limit{
			rule("tenant", Match{}, 0), rule("reports", Match{PathPrefix: "/v1/reports", Methods: []string{"POST"}}, 0, 1),
			rule("client", Match{}, 1), rule("all", Match{}),
		},
	}
}

// under is what of a Bound these tests look at.
type under struct {
	Limit int
	Key   string
}

func boundTo(bounds []Bound) (all []under) {
	for _, b := range bounds {
		all = append(all, under{b.Limit, b.Key})
	}
	return all
}

func TestBind(t *testing.T) {
	for _, c := range []struct {
		name string
		r    request
		want []under
	}{
		{
			"everything",
			request{":method": "POST", ":path": "/v1/reports", "x-tenant-id": "acme", "source address": "192.0.2.1:1"},
			[]under{{0, "acme"}, {1, "acme/192.0.2.1"}, {2, "192.0.2.1"}, {3, ""}},
		},
		{
			"another path",
			request{":method": "POST", ":path": "/", "x-tenant-id": "acme", "source address": "192.0.2.1:1"},
			[]under{{0, "acme"}, {2, "192.0.2.1"}, {3, ""}},
		},
		{
			"no tenant",
			request{":method": "POST", ":path": "/v1/reports", "source address": "192.0.2.1:1"},
			[]under{{2, "192.0.2.1"}, {3, ""}},
		},
		{
			"an empty tenant and an odd one of two",
			request{":method": "POST", ":path": "/v1/reports", "x-tenant-id": "", "source address": ""},
			[]under{{0, "%"}, {1, "%/%"}, {2, "%"}, {3, ""}},
		},
		{"nothing at all", request{}, []under{{3, ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := []Bound{{Limit: 99}}
			got := NewBinder(shop()).Bind(c.r, before)
			if diff := cmp.Diff(append([]under{{99, ""}}, c.want...), boundTo(got)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

// counted counts what is read of a request.
type counted struct {
	request
	reads map[string]int
}

func (c counted) Header(name string) (string, int) {
	c.reads[name]++
	return c.request.Header(name)
}

func (c counted) Property(path ...string) (string, bool) {
	c.reads[strings.Join(path, " ")]++
	return c.request.Property(path...)
}

func TestEverythingIsReadAtMostOnce(t *testing.T) {
	p := shop()
	p.Limits = append(p.Limits, p.Limits...)
	r := counted{request{":method": "POST", ":path": "/v1/reports", "source address": "192.0.2.1:1"}, map[string]int{}}
	NewBinder(p).Bind(r, nil)
	want := map[string]int{":method": 1, ":path": 1, "x-tenant-id": 1, "source address": 1}
	if diff := cmp.Diff(want, r.reads); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	r = counted{request{":method": "GET"}, map[string]int{}}
	p.Limits = p.Limits[1:2]
	NewBinder(p).Bind(r, nil)
	if diff := cmp.Diff(map[string]int{":method": 1}, r.reads); diff != "" {
		t.Fatalf("a limit that does not match reads more than it needs (-want +got):\n%s", diff)
	}
}

func TestBindWithEveryIdentity(t *testing.T) {
	p, r := &Policy{}, request{}
	for i := range MaxIdentities {
		name := "h" + strconv.Itoa(i)
		p.Identities = append(p.Identities, Identity{Source: FromHeader, Header: name})
		p.Limits = append(p.Limits, Limit{Key: []uint32{uint32(i)}})
		r[name] = name
	}
	for i, b := range boundTo(NewBinder(p).Bind(r, nil)) {
		if want := (under{i, "h" + strconv.Itoa(i)}); b != want {
			t.Fatalf("got %v, want %v", b, want)
		}
	}
}

func TestBindAllocatesOnlyWhatItMakes(t *testing.T) {
	p, room := NewBinder(shop()), make([]Bound, 0, 8)
	for name, c := range map[string]struct {
		r    Request
		most float64
	}{
		"keys of one plain value":   {request{":method": "GET", ":path": "/", "x-tenant-id": "acme", "source address": "192.0.2.1"}, 0},
		"a joined key":              {request{":method": "POST", ":path": "/v1/reports", "x-tenant-id": "acme", "source address": "192.0.2.1"}, 1},
		"a value with odd bytes":    {request{":method": "GET", ":path": "/", "x-tenant-id": "a c m e"}, 1},
		"a value that is very long": {request{":method": "GET", ":path": "/", "x-tenant-id": strings.Repeat("x", 64<<10)}, 2},
	} {
		// Joining a property's path allocates in the fake.
		if got := testing.AllocsPerRun(100, func() { p.Bind(plain{c.r.(request)}, room) }); got > c.most {
			t.Errorf("%s: %v allocations, want at most %v", name, got, c.most)
		}
	}
}

// plain knows one property.
type plain struct{ request }

func (r plain) Property(...string) (string, bool) {
	value, ok := r.request["source address"]
	return value, ok
}

func BenchmarkBind(b *testing.B) {
	p, room := NewBinder(shop()), make([]Bound, 0, 8)
	for _, c := range []struct {
		name string
		r    request
	}{
		{"plain", request{":method": "GET", ":path": "/v1/items?page=2", "x-tenant-id": "acme", "source address": "192.0.2.1:40000"}},
		{"joined", request{":method": "POST", ":path": "/v1/reports", "x-tenant-id": "acme", "source address": "192.0.2.1:40000"}},
		{"escaped", request{":method": "GET", ":path": "/", "x-tenant-id": "Ünal & Söhne", "source address": "[2001:db8::1]:40000"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var r Request = plain{c.r}
			for range b.N {
				p.Bind(r, room)
			}
		})
	}
}
