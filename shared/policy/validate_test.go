package policy

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/shared/limit"
)

func TestValidate(t *testing.T) {
	if err := Validate(shop()); err != nil {
		t.Fatalf("a valid policy: %v", err)
	}
	long := strings.Repeat("x", MaxNameLength+1)
	for _, c := range []struct {
		damage func(*Policy)
		want   string
	}{
		{func(p *Policy) { p.Version = long }, "version: has 129 bytes, want at most 128"},
		{func(p *Policy) { p.Domain = "" }, `domain: "" is no name, want 1 to 128 of a-z 0-9 . _ -`},
		{func(p *Policy) { p.Domain = "a/b" }, `domain: "a/b" is no name, want 1 to 128 of a-z 0-9 . _ -`},
		{func(p *Policy) { p.Identities = make([]Identity, 257) }, "identities: has 257 elements, want at most 256"},
		{func(p *Policy) { p.Limits = make([]Limit, 16385) }, "limits: has 16385 elements, want at most 16384"},
		{func(p *Policy) { p.Identities[1].Name = "Tenant" }, `identities[1].name: "Tenant" is no name, want 1 to 128 of a-z 0-9 . _ -`},
		{func(p *Policy) { p.Identities[0].Header = "X-Tenant" }, `identities[0].header: "X-Tenant" is no header's name in lower case`},
		{func(p *Policy) { p.Identities[0].Header = "" }, `identities[0].header: "" is no header's name in lower case`},
		{func(p *Policy) { p.Identities[0].Header = ":status" }, `identities[0].header: ":status" is no header's name in lower case`},
		{func(p *Policy) { p.Identities[0].Source = 0 }, "identities[0].source: 0 is no source that is known here"},
		{func(p *Policy) { p.Identities[0].Source = 99 }, "identities[0].source: 99 is no source that is known here"},
		{func(p *Policy) { p.Identities[1].TrustedHops = 65 }, "identities[1].trusted_hops: has 65 hops, want at most 64"},
		{func(p *Policy) { p.Limits[3].Name = long }, `limits[3].name: "` + strings.Repeat("x", 64) + `…" is no name, want 1 to 128 of a-z 0-9 . _ -`},
		{func(p *Policy) { p.Limits[3].Name = "tenant" }, `limits[3].name: "tenant" names an earlier limit`},
		{func(p *Policy) { p.Limits[0].Key = make([]uint32, 9) }, "limits[0].key: has 9 elements, want at most 8"},
		{func(p *Policy) { p.Limits[1].Key[1] = 2 }, "limits[1].key[1]: 2 is no index into the 2 identities"},
		{func(p *Policy) { p.Limits[1].Key[1] = 1<<32 - 1 }, "limits[1].key[1]: 4294967295 is no index into the 2 identities"},
		{func(p *Policy) { p.Limits[0].Rates = nil }, "limits[0].rates: has 0 elements, want 1 to 8"},
		{func(p *Policy) { p.Limits[0].Rates = make([]limit.Rate, 9) }, "limits[0].rates: has 9 elements, want 1 to 8"},
		{func(p *Policy) { p.Limits[0].Rates = []limit.Rate{{Units: -1, Window: time.Second}} }, "limits[0].rates[0]: has -1 units, want 0 to 1000000000000"},
		{func(p *Policy) { p.Limits[0].Rates = []limit.Rate{{Units: 1e12 + 1, Window: time.Second}} }, "limits[0].rates[0]: has 1000000000001 units, want 0 to 1000000000000"},
		{func(p *Policy) { p.Limits[0].Rates = []limit.Rate{{Units: 1}} }, "limits[0].rates[0]: has a window of 0s, want 1ms to 8784h0m0s in whole microseconds"},
		{func(p *Policy) { p.Limits[0].Rates = []limit.Rate{{Units: 1, Window: time.Second + 1}} }, "limits[0].rates[0]: has a window of 1.000000001s, want 1ms to 8784h0m0s in whole microseconds"},
		{func(p *Policy) { p.Limits[0].Rates = []limit.Rate{{Units: 1, Window: 367 * 24 * time.Hour}} }, "limits[0].rates[0]: has a window of 8808h0m0s, want 1ms to 8784h0m0s in whole microseconds"},
		{func(p *Policy) { p.Limits[0].Rates = []limit.Rate{{Units: 1, Window: 1e9}, {Units: 2, Window: 1e9}} }, "limits[0].rates[1]: has the window of an earlier rate, 1s"},
		{func(p *Policy) { p.Limits[0].Algorithm = 0 }, "limits[0].algorithm: algorithm(0) is not known here"},
		{func(p *Policy) { p.Limits[0].Algorithm = 6 }, "limits[0].algorithm: algorithm(6) is not known here"},
		{func(p *Policy) { p.Limits[0].Mode = 4 }, "limits[0].mode: mode(4) is not known here"},
		{func(p *Policy) { p.Responses = []Response{{Status: 200}} }, "responses[0].status: is 200, want 400 to 599"},
		{func(p *Policy) { p.Responses = []Response{{}, {Body: "{{x}}"}} }, `responses[1].body: "x" is no variable, want one of message, limit, rate, remaining, reset, retry_after`},
		{func(p *Policy) { p.Responses = []Response{{Body: "\xff"}} }, "responses[0].body: is not UTF-8"},
		{func(p *Policy) { p.Responses = []Response{{Headers: []Field{{"server", "x"}}}} }, `responses[0].headers[0].name: "server" is no header that a response may set, or its value none`},
		{func(p *Policy) { p.Responses = []Response{{Headers: []Field{{"x", "a\r\nb: c"}}}} }, `responses[0].headers[0].name: "x" is no header that a response may set, or its value none`},
		{func(p *Policy) { p.Responses = []Response{{RetryAfterJitter: 2 * time.Hour}} }, "responses[0].retry_after_jitter: is 2h0m0s, want 0 to 1h0m0s"},
		{func(p *Policy) { p.Limits[0].Response = 1 }, "limits[0].response: 1 is no index into the 0 responses"},
		{func(p *Policy) { p.FieldStyles = NoFields | XFields }, "field_styles: 12 is no combination of styles"},
		{func(p *Policy) { p.Limits[0].MaxWait = -time.Second }, "limits[0].max_wait: is -1s, want 0 to 1m0s in whole microseconds"},
		{func(p *Policy) { p.Limits[0].MaxWait = MaxMaxWait + 1000 }, "limits[0].max_wait: is 1m0.000001s, want 0 to 1m0s in whole microseconds"},
		{func(p *Policy) { p.Limits[0].MaxWait = 1 }, "limits[0].max_wait: is 1ns, want 0 to 1m0s in whole microseconds"},
		{func(p *Policy) { p.Limits[0].MaxWait, p.Limits[0].Mode = time.Second, limit.Strict }, "limits[0].max_wait: needs mode lease, not strict"},
		{func(p *Policy) { p.Limits[0].MaxWait, p.Limits[0].Mode = time.Second, limit.Async }, "limits[0].max_wait: needs mode lease, not async"},
		{func(p *Policy) {
			l := &p.Limits[0]
			l.MaxWait, l.Mode = time.Second, limit.Lease
			l.Plans = []Exception{{Name: "a", Rates: l.Rates}, {Name: "b", Rates: []limit.Rate{{Units: 1, Window: time.Hour}}}}
		}, "limits[0].plans[1].rates: have other windows than those before, want the same ones in each plan of a limit with max_wait: its requests wait in one line"},
		{func(p *Policy) { p.Limits[0].OnUnavailable = 0 }, "limits[0].on_unavailable: on_unavailable(0) is not known here"},
		{func(p *Policy) { p.Limits[0].Match.PathExact = "v1" }, `limits[0].match.path_exact: "v1" is no path, want a slash first, at most 1024 bytes, no query and no white space`},
		{func(p *Policy) { p.Limits[0].Match.PathPrefix = "/a?b" }, `limits[0].match.path_prefix: "/a?b" is no path, want a slash first, at most 1024 bytes, no query and no white space`},
		{func(p *Policy) { p.Limits[0].Match.PathPrefix = "/\xff" }, `limits[0].match.path_prefix: "/\xff" is no path, want a slash first, at most 1024 bytes, no query and no white space`},
		{func(p *Policy) { p.Limits[0].Match.Methods = make([]string, 33) }, "limits[0].match.methods: has 33 elements, want at most 32"},
		{func(p *Policy) { p.Limits[0].Match.Methods = []string{"GET", "P T"} }, `limits[0].match.methods[1]: "P T" is no method's name`},
	} {
		p := shop()
		c.damage(p)
		if err := Validate(p); !errors.Is(err, ErrInvalid) || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

func TestTheLargestPolicyIsValid(t *testing.T) {
	p := shop()
	rule := p.Limits[0]
	p.Limits = nil
	for i := range MaxLimits {
		rule.Name = "l" + strconv.Itoa(i)
		p.Limits = append(p.Limits, rule)
	}
	if err := Validate(p); err != nil {
		t.Fatal(err)
	}
}
