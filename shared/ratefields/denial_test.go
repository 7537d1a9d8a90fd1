package ratefields_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/ratefields"
)

// denied is a denial of the only limit of a policy.
var denied = admission.Output{
	Verdict: admission.Deny, Rate: perMinute, Remaining: 2, Reset: 59 * time.Second, RetryAfter: 12*time.Second + 1,
}

// of gives a limit that has the response, in a policy with the styles.
func of(r policy.Response, styles policy.FieldStyles) []*ratefields.Limit {
	p := &policy.Policy{Responses: []policy.Response{{Status: 500}, r}, FieldStyles: styles}
	l := &policy.Limit{Name: "reports", Rates: []limit.Rate{perMinute}, Response: 1}
	return []*ratefields.Limit{ratefields.New(p, l.Rule("", ""))}
}

func TestStyles(t *testing.T) {
	for styles, want := range map[policy.FieldStyles][]string{
		0:                     {"retry-after", "ratelimit-policy", "ratelimit"},
		policy.StandardFields: {"retry-after", "ratelimit-policy", "ratelimit"},
		policy.LegacyFields:   {"retry-after", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"},
		policy.XFields:        {"retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"},
		policy.NoFields:       {"retry-after"},
		policy.StandardFields | policy.LegacyFields | policy.XFields: {
			"retry-after", "ratelimit-policy", "ratelimit", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset",
			"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
		},
	} {
		var got []string
		values := map[string]string{
			"limit": "600", "remaining": "2", "reset": "59", "retry-after": "13",
			"ratelimit-policy": `"reports";q=600;w=60`, "ratelimit": `"reports";r=2;t=59`,
		}
		ratefields.Each(of(policy.Response{}, styles), denied, func(name, value string) {
			got = append(got, name)
			want, known := values[name]
			if !known {
				want = values[name[strings.LastIndexByte(name, '-')+1:]]
			}
			if value != want {
				t.Errorf("style %b: %s: %s, want %s", styles, name, value, want)
			}
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("style %b (-want +got):\n%s", styles, diff)
		}
	}
}

func TestResponses(t *testing.T) {
	never := denied
	never.Never = true
	away := denied
	away.Unavailable = true
	for _, c := range []struct {
		name     string
		response policy.Response
		out      admission.Output
		status   int
		kind     string
		body     string
		headers  []string
	}{
		{
			name: "text", out: denied, status: 429, kind: "text/plain; charset=utf-8",
			response: policy.Response{Body: "{{limit}}: {{ rate }}, {{remaining}} left, {{reset}} s, again in {{retry_after}} s {{}"},
			body:     "reports: 600/m, 2 left, 59 s, again in 13 s {{}", headers: []string{"retry-after: 13"},
		},
		{
			name: "JSON", out: denied, status: 420, kind: "application/json",
			response: policy.Response{
				Status: 420, Body: `{"detail":"{{message}}","again":{{retry_after}}}`, JSON: true, Headers: []policy.Field{{Name: "x-help", Value: "yes"}},
			},
			body:    `{"detail":"Over the limit of 600/m. Retry in 13 s.","again":13}`,
			headers: []string{"retry-after: 13", "x-help: yes"},
		},
		{
			name: "a wait that does not help", out: never, status: 429, kind: "application/json",
			response: policy.Response{Body: `{"again":{{retry_after}}}`, JSON: true}, body: `{"again":null}`,
		},
		{
			name: "while the service is away", out: away, status: 503, kind: "text/plain; charset=utf-8",
			response: policy.Response{Status: 420, Body: "{{message}}"},
			body:     "The rate limit could not be checked. Retry in 13 s.", headers: []string{"retry-after: 13"},
		},
		{
			name: "an admission has nothing of it", out: admission.Output{Verdict: admission.Admit, Rate: perMinute}, status: 429,
			response: policy.Response{Body: "x", Headers: []policy.Field{{Name: "x-help", Value: "yes"}}}, body: "x", kind: "text/plain; charset=utf-8",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			limits := of(c.response, policy.NoFields)
			if status, _ := ratefields.Status(limits, c.out); status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			body, kind := ratefields.Body(limits, c.out)
			if body != c.body || kind != c.kind {
				t.Errorf("body %q of type %q, want %q of %q", body, kind, c.body, c.kind)
			}
			var headers []string
			ratefields.Each(limits, c.out, func(name, value string) { headers = append(headers, name+": "+value) })
			if diff := cmp.Diff(c.headers, headers); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

// Jitter only ever adds, no more than the policy says, and all of it at times.
func TestJitter(t *testing.T) {
	if got := ratefields.Jitter(of(policy.Response{}, 0), denied, func() uint64 { panic("drawn for nothing") }); got != 0 {
		t.Errorf("%v without a jitter", got)
	}
	limits := of(policy.Response{RetryAfterJitter: 10 * time.Second}, 0)
	rapid.Check(t, func(t *rapid.T) {
		got := ratefields.Jitter(limits, denied, func() uint64 { return rapid.Uint64().Draw(t, "random") })
		if got < 0 || got > 10*time.Second {
			t.Errorf("%v, want 0 to 10s", got)
		}
	})
	if got := ratefields.Jitter(limits, denied, func() uint64 { return uint64(10 * time.Second) }); got != 10*time.Second {
		t.Errorf("at most %v, want 10s", got)
	}
}

// Whatever is denied, and of whatever limit, a JSON body is JSON: nothing that stands in it needs escaping.
func TestBodiesAreJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := limit.Rate{
			Units:  rapid.Int64Range(0, limit.MaxUnits).Draw(t, "units"),
			Window: time.Duration(rapid.Int64Range(1000, limit.MaxWindow.Microseconds()).Draw(t, "window")) * time.Microsecond,
		}
		l := &policy.Limit{Name: rapid.StringMatching(`[a-z0-9._-]{1,20}`).Draw(t, "name"), Rates: []limit.Rate{rate}}
		body := rapid.SampledFrom([]string{
			"", `{"a":"{{message}}","b":"{{limit}}{{rate}}","c":[{{remaining}},{{reset}},{{retry_after}}]}`,
		}).Draw(t, "body")
		p := &policy.Policy{Responses: []policy.Response{{Body: body, JSON: true}}}
		out := admission.Output{
			Verdict: admission.Deny, Demand: rapid.IntRange(-1, 1).Draw(t, "demand"), Rate: rate,
			Remaining: rapid.Int64Range(0, limit.MaxUnits).Draw(t, "remaining"), RetryAfter: time.Duration(rapid.Int64().Draw(t, "wait")),
			Reset: time.Duration(rapid.Int64().Draw(t, "reset")), Never: rapid.Bool().Draw(t, "never"), Unavailable: rapid.Bool().Draw(t, "away"),
		}
		if text, _ := ratefields.Body([]*ratefields.Limit{ratefields.New(p, l.Rule("", ""))}, out); !json.Valid([]byte(text)) {
			t.Errorf("%s is no JSON", text)
		}
	})
}
