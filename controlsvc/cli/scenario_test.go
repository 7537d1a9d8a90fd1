package cli

import (
	"os"
	"path/filepath"
	"testing"

	"sluice/testharness/filterrun"
)

func TestTestCommand(t *testing.T) {
	module, err := filterrun.Build(t.Context(), "../../filter")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const policy = "-- policy.yaml --" + goodPolicy + "-- requests --\n"
	wasm := file("filter.wasm", string(module))
	good := file("good.txtar", policy+"at 0s GET / x-tenant-id: acme -> 200 remaining 4\n")
	wrong := file("wrong.txtar", policy+"at 0s GET / x-tenant-id: acme -> 429\n")
	broken := file("broken.txtar", policy+"at noon GET / -> 200\n")

	code, stdout, stderr := command(nil, "test", "--wasm", wasm, good)
	if code != 0 || stderr != "" {
		t.Errorf("a good scenario: code %d, %s", code, stderr)
	}
	contain(t, "what it says of a good one", stdout, "ok    "+good+": 1 request, 1 call asked, ")

	code, stdout, stderr = command(nil, "test", "--wasm", wasm, wrong, good, broken)
	if code != 1 {
		t.Errorf("wrong and broken ones: code %d; want 1", code)
	}
	contain(t, "what it says of all three", stdout, "FAIL  "+wrong, wrong+":16: at 0s on worker 1: it is 200, want 429",
		"ok    "+good, "FAIL  "+broken, broken+`:16: "noon"; want the time`)
	contain(t, "what it says in the end", stderr, "2 of 3 scenarios failed")

	for name, wasm := range map[string]string{"no such file": filepath.Join(dir, "none.wasm"), "no filter": good} {
		code, stdout, stderr = command(nil, "test", "--wasm", wasm, good)
		if code != 1 || stdout+stderr == "" {
			t.Errorf("%s: code %d, %q %q; want 1 and the reason", name, code, stdout, stderr)
		}
	}
	// Beside the test's own binary there is no filter.
	code, _, stderr = command(nil, "test", good)
	if code != 1 {
		t.Errorf("no filter beside the command: code %d; want 1", code)
	}
	contain(t, "what it says without a filter", stderr, "sluice.wasm", "make build", "--wasm")
	if code, _, _ = command(nil, "test"); code != 2 {
		t.Errorf("no file: code %d; want 2", code)
	}
}
