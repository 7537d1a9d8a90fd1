package cli

import (
	"encoding/base64"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/controlsvc/policyfile"
	"sluice/shared/wire"
)

func TestCompile(t *testing.T) {
	file := write(t, goodPolicy)
	code, stdout, stderr := command(nil, "compile", file)
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	compiled, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(stdout, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.ParseGetPolicyResponse(compiled)
	if err != nil {
		t.Fatal(err)
	}
	want, err := policyfile.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Policy); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCompileRefuses(t *testing.T) {
	var many strings.Builder
	many.WriteString("domain: shop\nlimits:\n")
	for i := range 2000 {
		many.WriteString("- {name: limit-number-" + strconv.Itoa(i) + ", key: [], rates: [1/s]}\n")
	}
	for text, want := range map[string]string{"limits: [": "cannot be read as YAML", many.String(): "has room for 61440"} {
		code, stdout, stderr := command(nil, "compile", write(t, text))
		if code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, printed %q, said %q; want 1, nothing and %q", code, stdout, stderr, want)
		}
	}
}
