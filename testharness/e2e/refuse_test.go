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

// emptyWasm is a module with hardly anything in it: what says that it speaks proxy-wasm 0.2.1, a malloc that has nothing to
// give, and a memory. Envoy compiles it in no time.
const emptyWasm = "\x00asm\x01\x00\x00\x00\x01\x09\x02`\x00\x00`\x01\x7f\x01\x7f\x03\x03\x02\x00\x01\x05\x03\x01\x00\x01" +
	"\x07-\x03\x17proxy_abi_version_0_2_1\x00\x00\x06malloc\x00\x01\x06memory\x02\x00\x0a\x09\x02\x02\x00\x0b\x04\x00A\x00\x0b"

// TestExample: Envoy takes envoy/envoy.yaml as it stands, from a checkout where a filter is built.
func TestExample(t *testing.T) {
	t.Parallel()
	checkout := t.TempDir()
	if err := os.Mkdir(filepath.Join(checkout, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(checkout, "bin", "sluice.wasm"), []byte(emptyWasm), 0o600); err != nil {
		t.Fatal(err)
	}
	options := rig.EnvoyOptions{Binary: fleet.envoyBinary, Bootstrap: envoy.Example(), Dir: checkout}
	if err := rig.ValidateBootstrap(t.Context(), options); err != nil {
		t.Error(err)
	}
}
