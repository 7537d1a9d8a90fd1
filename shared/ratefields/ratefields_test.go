package ratefields_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/ratefields"
)

var (
	perSecond = limit.Rate{Units: 10, Window: time.Second}
	perMinute = limit.Rate{Units: 600, Window: time.Minute}
	tenant    = told(policy.Limit{Name: "tenant", Rates: []limit.Rate{{Units: 100, Window: time.Second}}})
	reports   = told(policy.Limit{Name: "reports", Rates: []limit.Rate{perSecond, perMinute}})
)

func told(l policy.Limit) *ratefields.Limit { return ratefields.New(&policy.Policy{}, l.Rule("", "")) }

func TestFields(t *testing.T) {
	limits := []*ratefields.Limit{tenant, reports}
	const policyField = `ratelimit-policy: "tenant";q=100;w=1, "reports/s";q=10;w=1, "reports/m";q=600;w=60`
	for _, c := range []struct {
		name string
		out  admission.Output
		want []string
		body map[string]any
	}{
		{
			name: "admitted",
			out: admission.Output{
				Verdict: admission.Admit, Demand: 0, Rate: tenant.Rates[0], Remaining: 42, Reset: 400 * time.Millisecond,
			},
			want: []string{
				policyField, `ratelimit: "tenant";r=42;t=1`,
			},
		},
		{
			name: "denied by the longer window",
			out: admission.Output{
				Verdict: admission.Deny, Demand: 1, Rate: perMinute, Reset: 59 * time.Second, RetryAfter: 12*time.Second + 1,
			},
			want: []string{
				"retry-after: 13", policyField, `ratelimit: "reports/m";r=0;t=59`,
			},
			body: map[string]any{
				"error": "rate_limited", "message": "Over the limit of 600/m. Retry in 13 s.", "limit": "reports", "retry_after": 13.0,
			},
		},
		{
			name: "costs more than the limit",
			out:  admission.Output{Verdict: admission.Deny, Demand: 1, Rate: perSecond, Remaining: 10, Never: true},
			want: []string{
				policyField, `ratelimit: "reports/s";r=10;t=0`,
			},
			body: map[string]any{
				"error": "rate_limited", "message": "The request costs more than its limit of 10/s holds.", "limit": "reports",
				"retry_after": nil,
			},
		},
		{
			name: "the service is away",
			out:  admission.Output{Verdict: admission.Deny, Demand: 0, Unavailable: true, RetryAfter: time.Second},
			want: []string{"retry-after: 1"},
			body: map[string]any{
				"error": "rate_limit_unavailable", "message": "The rate limit could not be checked. Retry in 1 s.",
				"limit": "tenant", "retry_after": 1.0,
			},
		},
		{name: "nothing known", out: admission.Output{Verdict: admission.Admit, Demand: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			ratefields.Each(limits, c.out, func(name, value string) { got = append(got, name+": "+value) })
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if c.body == nil {
				return
			}
			var body map[string]any
			text, kind := ratefields.Body(limits, c.out)
			if kind != "application/json" {
				t.Errorf("the body is %s", kind)
			}
			if err := json.Unmarshal([]byte(text), &body); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.body, body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSecondsRoundUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, 24 * time.Hour: 86_400,
	} {
		if got := ratefields.Seconds(d); got != want {
			t.Errorf("Seconds(%v) = %d, want %d", d, got, want)
		}
	}
}

func TestRetryAfterIsNeverZero(t *testing.T) {
	var got string
	ratefields.Each(nil, admission.Output{Verdict: admission.Deny, Demand: -1}, func(name, value string) {
		got += name + ": " + value
	})
	if !strings.Contains(got, "retry-after: 1") {
		t.Errorf("fields %q, want retry-after: 1", got)
	}
}
