package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/testharness/filterrun"
)

// The policies that people start from: the command finds them valid, and each does what its scenario says, in the filter that
// ships.
func TestTheProfiles(t *testing.T) {
	t.Setenv("SLUICE_HASH_KEY", "a key of at least 16 bytes")
	policies, err := filepath.Glob("../../envoy/policies/*.yaml")
	if err != nil || len(policies) < 5 {
		t.Fatalf("%d policies, %v", len(policies), err)
	}
	if code, _, stderr := command(nil, append([]string{"validate"}, policies...)...); code != 0 {
		t.Error(stderr)
	}
	module, err := filterrun.Build(t.Context(), "../../filter")
	if err != nil {
		t.Fatal(err)
	}
	wasm := filepath.Join(t.TempDir(), "filter.wasm")
	if err := os.WriteFile(wasm, module, 0o600); err != nil {
		t.Fatal(err)
	}
	scenarios := make([]string, 0, len(policies))
	for _, policy := range policies {
		scenarios = append(scenarios, strings.TrimSuffix(policy, ".yaml")+".txtar")
		text, err := os.ReadFile(policy)
		if err != nil || !strings.HasPrefix(string(text), "# yaml-language-server: $schema=policy.schema.json\n") {
			t.Errorf("%s does not begin with the line that has editors read the schema (%v)", policy, err)
		}
	}
	code, stdout, stderr := command(nil, append([]string{"test", "--wasm", wasm}, scenarios...)...)
	t.Log(stdout)
	if code != 0 {
		t.Error(stderr)
	}
}
