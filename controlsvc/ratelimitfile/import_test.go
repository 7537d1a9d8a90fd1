package ratelimitfile

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"sluice/controlsvc/policyfile"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden imports the configuration of each archive, and compares what comes of it: the policies, or errors, and notes.
func TestGolden(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) < 8 {
		t.Fatalf("%d archives, %v", len(archives), err)
	}
	for _, path := range archives {
		t.Run(filepath.Base(path), func(t *testing.T) {
			before, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			after := txtar.Format(imported(t, before))
			if *update {
				if err := os.WriteFile(path, after, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(txtar.Format(before)), string(after)); diff != "" && !*update {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// imported gives the archive with what comes of its configuration. The archive's comment may name an algorithm.
func imported(t *testing.T, a *txtar.Archive) *txtar.Archive {
	t.Helper()
	result := &txtar.Archive{Comment: a.Comment}
	for _, f := range a.Files {
		if strings.HasSuffix(f.Name, ".yaml") && !strings.HasPrefix(f.Name, "policy/") {
			result.Files = append(result.Files, f)
		}
	}
	_, algorithm, _ := strings.Cut(strings.TrimSpace(string(a.Comment)), "algorithm: ")
	policies, notes, err := Import(sources(result), algorithm)
	if bad := policyfile.Errors(nil); errors.As(err, &bad) == (err == nil) || err != nil && policies != nil {
		t.Fatalf("policies %v, error %v of type %T", policies, err, err)
	}
	if err != nil {
		result.Files = append(result.Files, txtar.File{Name: "errors", Data: []byte(err.Error() + "\n")})
	}
	if len(notes) > 0 {
		result.Files = append(result.Files, txtar.File{Name: "notes", Data: []byte(notes.Error() + "\n")})
	}
	for _, p := range policies {
		result.Files = append(result.Files, txtar.File{Name: "policy/" + p.Domain + ".yaml", Data: p.YAML})
		if read, err := policyfile.Parse("policy.yaml", p.YAML); err != nil || read.Domain != p.Domain || len(read.Limits) != p.Limits {
			t.Errorf("the policy of %s has other limits, or is none: %v", p.Domain, err)
		}
	}
	return result
}

func sources(a *txtar.Archive) []Source {
	var all []Source
	for _, f := range a.Files {
		all = append(all, Source{f.Name, f.Data})
	}
	return all
}

// FuzzImport: whatever is in a file, it is a policy or an error, and what is wrong is wrong in the file, not in the policy.
func FuzzImport(f *testing.F) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range archives {
		a, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files {
			f.Add(file.Data)
		}
	}
	f.Add([]byte("domain: d\ndescriptors: &a [{key: k, descriptors: *a}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		policies, notes, err := Import([]Source{{"file.yaml", data}}, "")
		var bad policyfile.Errors
		if errors.As(err, &bad) == (err == nil) || len(policies) > 1 || (len(policies) == 0) == (err == nil) {
			t.Fatalf("%d policies, error %v of type %T", len(policies), err, err)
		}
		for _, e := range append(bad, notes...) {
			if e.File != "file.yaml" || e.Path == "" || strings.ContainsAny(e.Error(), "\n\r") {
				t.Fatalf("%q does not say where in the file", e.Error())
			}
		}
	})
}
