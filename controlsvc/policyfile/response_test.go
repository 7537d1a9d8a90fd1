package policyfile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/shared/policy"
)

func TestResponses(t *testing.T) {
	const limits = `
domain: shop
limits:
- {name: a, key: [], rates: [10/s]}
- {name: b, key: [], rates: [10/s], response: {status: 503}}
- {name: c, key: [], rates: [10/s], response: {status: 503, headers: {}}}
- {name: d, key: [], rates: [10/s], response: {body: {text: "wait {{ retry_after }} s"}}}
- {name: e, key: [], rates: [10/s], response: {status: 429}}
`
	for _, c := range []struct {
		name, more string
		want       []policy.Response
		of         []uint32
		styles     policy.FieldStyles
	}{
		{
			name: "the policy says nothing",
			want: []policy.Response{{}, {Status: 503}, {Body: "wait {{ retry_after }} s"}},
			of:   []uint32{0, 1, 1, 2, 0},
		},
		{
			name: "the policy says all",
			more: `
header_style: [x-ratelimit, ratelimit]
response:
  status: 420
  body: {json: '{"detail":"{{message}}","again":{{retry_after}}}'}
  headers: {X-Help: https://example.com/limits}
  retry_after_jitter: 5s
`,
			want: []policy.Response{
				{
					Status: 420, Body: `{"detail":"{{message}}","again":{{retry_after}}}`, JSON: true,
					Headers: []policy.Field{{Name: "x-help", Value: "https://example.com/limits"}}, RetryAfterJitter: 5 * time.Second,
				},
				{
					Status: 503, Body: `{"detail":"{{message}}","again":{{retry_after}}}`, JSON: true,
					Headers: []policy.Field{{Name: "x-help", Value: "https://example.com/limits"}}, RetryAfterJitter: 5 * time.Second,
				},
				{
					Status: 503, Body: `{"detail":"{{message}}","again":{{retry_after}}}`, JSON: true, RetryAfterJitter: 5 * time.Second,
				},
				{
					Status: 420, Body: "wait {{ retry_after }} s",
					Headers: []policy.Field{{Name: "x-help", Value: "https://example.com/limits"}}, RetryAfterJitter: 5 * time.Second,
				},
				{
					Body: `{"detail":"{{message}}","again":{{retry_after}}}`, JSON: true,
					Headers: []policy.Field{{Name: "x-help", Value: "https://example.com/limits"}}, RetryAfterJitter: 5 * time.Second,
				},
			},
			of:     []uint32{0, 1, 2, 3, 4},
			styles: policy.StandardFields | policy.XFields,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse("policy.yaml", []byte(limits+c.more))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, p.Responses, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for i, want := range c.of {
				if p.Limits[i].Response != want {
					t.Errorf("limit %s has response %d, want %d", p.Limits[i].Name, p.Limits[i].Response, want)
				}
			}
			if p.FieldStyles != c.styles {
				t.Errorf("styles %b, want %b", p.FieldStyles, c.styles)
			}
		})
	}
}

func TestAPolicyThatSaysNothingOfResponsesHasNone(t *testing.T) {
	p, err := Parse("policy.yaml", []byte("{domain: shop, header_style: ratelimit, response: {status: 429}, limits: []}"))
	if err != nil || p.Responses != nil || p.FieldStyles != 0 {
		t.Errorf("%+v, %v; want the defaults as if nothing had been said", p, err)
	}
}
