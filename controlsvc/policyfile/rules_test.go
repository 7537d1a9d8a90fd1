package policyfile

import (
	"fmt"
	"strings"
	"testing"

	"sluice/shared/limit"
	"sluice/shared/wire"
)

func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

const tenants = "domain: shop\nidentities: {tenant: {header: x-tenant-id}}\n"

// Ten thousand overrides and as many blocked callers are compiled, and fit into what goes to the filter; more than the bound
// is refused, and not dropped.
func TestManyOverridesAndBlockedCallers(t *testing.T) {
	file := tenants + "block:\n- identity: tenant\n  values:\n" + many(10_000, "  - stolen-%d\n") +
		"limits:\n- name: a\n  key: [tenant]\n  rates: [1/s]\n  overrides:\n" + many(10_000, "  - {key: [tenant-%d], rates: [9/s]}\n")
	p, err := Parse("policy.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%.500v", err)
	}
	l := &p.Limits[0]
	if len(l.Overrides) != 10_000 || l.Rule("", "tenant-9999").Rates[0].Units != 9 || l.Rule("", "tenant-x").Rates[0].Units != 1 {
		t.Errorf("%d overrides", len(l.Overrides))
	}
	if len(p.Block[0].Values) != 10_000 {
		t.Errorf("%d are blocked", len(p.Block[0].Values))
	}
	body := wire.AppendGetPolicyResponse(nil, &wire.GetPolicyResponse{Version: p.Version, Policy: p})
	if _, err := wire.ParseGetPolicyResponse(body); err != nil {
		t.Errorf("%d bytes on the wire: %v", len(body), err)
	}
	more := tenants + "limits:\n- name: a\n  key: [tenant]\n  rates: [1/s]\n  overrides:\n" + many(16_385, "  - {key: [t%d], shadow: true}\n")
	if _, err := Parse("policy.yaml", []byte(more)); err == nil || !strings.Contains(err.Error(), "has 16385 elements, want 0 to 16384") {
		t.Errorf("more than there may be: %.200v", err)
	}
}

// The word auto looks at what plans and overrides hold, so that a key keeps its count when it changes its plan.
func TestAutoLooksAtEveryRule(t *testing.T) {
	for file, want := range map[string]limit.Algorithm{
		"": limit.SlidingLog,
		"  overrides: [{key: [a], rates: [1001/s]}]": limit.SlidingBuckets,
		"  plans: {paid: {rates: [1001/s]}}":         limit.SlidingBuckets,
		"  plans: {paid: {rates: [1000/s]}}":         limit.SlidingLog,
	} {
		p, err := Parse("policy.yaml", []byte(tenants+"plans: {by: tenant}\nlimits:\n- name: a\n  key: [tenant]\n  rates: [1/s]\n"+file+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Limits[0].Algorithm; got != want {
			t.Errorf("%q: %v, want %v", file, got, want)
		}
	}
}
