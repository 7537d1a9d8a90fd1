package main

import (
	"strings"
	"testing"

	"sluice/controlsvc/policyfile"
	binding "sluice/shared/policy"
)

// wanted is a request of the closed loop's.
type wanted struct{ path string }

func (a wanted) Header(name string) (string, int) {
	value, ok := map[string]string{":path": a.path, ":method": "GET", "x-tenant-id": "acme"}[name]
	if !ok {
		return "", 0
	}
	return value, 1
}

func (wanted) Property(...string) (string, bool) { return "127.0.0.1:40000", true }

// Each policy is what its name says, and binds the request that is sent by one limit.
func TestMatchings(t *testing.T) {
	for _, m := range matchings {
		p, err := policyfile.Parse("policy.yaml", m.policy())
		if err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
		if len(p.Limits) != m.limits+1 {
			t.Errorf("%s: %d limits, the probe's among them", m.name, len(p.Limits))
		}
		bounds := binding.NewBinder(p).Bind(wanted{m.contender(nil).path}, nil)
		if len(bounds) != 1 || strings.Count(bounds[0].Key, "/") != strings.Count(m.identities, ",") {
			t.Errorf("%s: the request is bound by %+v", m.name, bounds)
		}
	}
}
