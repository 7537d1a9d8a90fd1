package policyfile

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// badFile has files after lines "=== NAME", and what is said about each after a line "~~~".
const badFile = "testdata/bad.txt"

type badPolicy struct{ name, file, errors string }

func readBad(t testing.TB) (cases []badPolicy) {
	t.Helper()
	data, err := os.ReadFile(badFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split("\n"+string(data), "\n=== ")[1:] {
		name, rest, _ := strings.Cut(section, "\n")
		file, said, found := strings.Cut("\n"+rest+"\n", "\n~~~\n")
		if !found {
			t.Fatalf("%s: %q has no line ~~~", badFile, name)
		}
		cases = append(cases, badPolicy{name, strings.TrimPrefix(file+"\n", "\n"), strings.TrimSpace(said)})
	}
	return cases
}

func TestBadPolicies(t *testing.T) {
	cases := readBad(t)
	if len(cases) < 30 {
		t.Fatalf("%s has %d cases", badFile, len(cases))
	}
	var rewritten strings.Builder
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse("policy.yaml", []byte(c.file))
			var said Errors
			if !errors.As(err, &said) || p != nil {
				t.Fatalf("got %v, %v, want an error and no policy", p, err)
			}
			for _, e := range said {
				if e.File == "" || e.Path == "" || e.Problem == "" || strings.Contains(e.Error(), "\n") {
					t.Errorf("%q does not say file, path and problem on one line", e.Error())
				}
			}
			rewritten.WriteString("=== " + c.name + "\n" + c.file + "~~~\n" + err.Error() + "\n")
			if diff := cmp.Diff(c.errors, err.Error()); diff != "" && !*update {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(badFile, []byte(rewritten.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
