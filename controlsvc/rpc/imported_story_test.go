package rpc_test

import (
	"strings"
	"testing"

	"sluice/controlsvc/ratelimitfile"
)

// TestImportedIsAnswered: a configuration of envoyproxy/ratelimit, made a policy, answers calls as its README says it would.
func TestImportedIsAnswered(t *testing.T) {
	policies, notes, err := ratelimitfile.Import([]ratelimitfile.Source{{Name: "shop.yaml", Data: []byte(`
domain: shop
descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: remote_address, value: 203.0.113.5, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: remote_address, value: 198.51.100.*, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: remote_address, value: 192.0.2.1}
  - {key: directory, rate_limit: {unlimited: true}}
  - {key: watched, rate_limit: {unit: hour, requests_per_unit: 1}, shadow_mode: true}
  - key: a
    value: x
    descriptors:
      - {key: user, rate_limit: {name: narrow, requests_per_unit: 1, unit: hour}}
  - key: b
    descriptors:
      - {key: user, value: ann, rate_limit: {replaces: [{name: narrow}], requests_per_unit: 3, unit: minute, unit_multiplier: 90}}
`)}}, "")
	if err != nil || len(notes) > 0 {
		t.Fatal(err, notes)
	}
	_, client := envoys(t, string(policies[0].YAML), nil)
	for _, step := range []struct{ ask, codes string }{
		{"remote_address=10.0.0.1", "O"},
		{"remote_address=10.0.0.1", "O"},
		{"remote_address=10.0.0.1", "X"},
		{"remote_address=10.0.0.2", "O"},
		{"remote_address=203.0.113.5", "X"},
		{"remote_address=198.51.100.7", "O"},
		{"remote_address=198.51.100.7", "X"},
		{"remote_address=198.51.100.8", "O"},
		{"remote_address=192.0.2.1", "O"},
		{"remote_address=192.0.2.1", "O"},
		{"remote_address=192.0.2.1", "O"},
		{"directory=1", "O"},
		{"directory=1", "O"},
		{"watched=1", "O"},
		{"watched=1", "O"},
		{"watched=1", "O"},
		{"a=x user=ann", "O"},
		{"a=x user=ann", "X"},
		{"a=x", "O"},
		{"a=x user=ann more=1", "O"},
		// In the place of the limit that has just denied.
		{"a=x user=ann|b=y user=ann", "O"},
		{"a=x user=ann|b=y user=ann", "O"},
		{"b=y user=ann", "O"},
		{"a=x user=ann|b=y user=ann", "X"},
		{"b=z user=ann", "O"},
		{"b=y user=bob|a=x user=bob", "O"},
		{"b=y user=bob|a=x user=bob", "X"},
	} {
		answer, err := client.ShouldRateLimit(t.Context(), question(step.ask))
		if err != nil {
			t.Fatal(err)
		}
		if got := says(answer); !strings.HasPrefix(got, step.codes) {
			t.Errorf("%s: %s, want %s", step.ask, got, step.codes)
		}
	}
}
