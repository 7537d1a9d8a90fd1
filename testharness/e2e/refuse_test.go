package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/envoy"
	"sluice/testharness/rig"
)

// TestEnvoyRefusesBadConfiguration: Envoy does not start, and its log says what is wrong.
func TestEnvoyRefusesBadConfiguration(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		plugin any
		want   []string
	}{
		{"unknown key", map[string]any{"control_cluster": "sluice", "timeout": 200}, []string{`unknown key "timeout"`, "timeout_ms"}},
		{"not JSON", `{"control_cluster": sluice}`, []string{"configuration", "not JSON at byte"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			bootstrap, err := envoy.Bootstrap{Control: fleet.control, Wasm: fleet.wasm, Plugin: test.plugin}.JSON()
			if err != nil {
				t.Fatal(err)
			}
			e, err := rig.StartEnvoy(t.Context(), rig.EnvoyOptions{Binary: fleet.envoyBinary, Bootstrap: bootstrap})
			if err == nil {
				e.Stop()
				t.Fatal("Envoy starts")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
}

// TestExample: Envoy takes envoy/envoy.yaml as it stands, from a checkout where the filter is built.
func TestExample(t *testing.T) {
	t.Parallel()
	checkout := t.TempDir()
	if err := os.Mkdir(filepath.Join(checkout, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(fleet.wasm, filepath.Join(checkout, "bin", "sluice.wasm")); err != nil {
		t.Fatal(err)
	}
	options := rig.EnvoyOptions{Binary: fleet.envoyBinary, Bootstrap: envoy.Example(), Dir: checkout}
	if err := rig.ValidateBootstrap(t.Context(), options); err != nil {
		t.Error(err)
	}
}
