package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writeTo puts a file into a folder.
func writeTo(t *testing.T, folder, name, text string) (file string) {
	t.Helper()
	file = filepath.Join(folder, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestImportRatelimit(t *testing.T) {
	folder := t.TempDir()
	a := writeTo(t, folder, "a.yaml", "domain: a\ndescriptors:\n  - {key: k, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 7}}\n")
	a2 := writeTo(t, folder, "a2.yaml", "domain: a\ndescriptors:\n  - {key: l, rate_limit: {unlimited: true}}\n")
	b := writeTo(t, folder, "b.yaml", "domain: b\ndescriptors:\n  - {key: k, rate_limit: {unit: hour, requests_per_unit: 9}}\n")
	bad := writeTo(t, folder, "bad.yaml", "descriptors:\n  - {kee: k}\n")

	code, stdout, stderr := command(nil, "import", "ratelimit", a, a2)
	if code != 0 {
		t.Fatalf("code %d: %s", code, stderr)
	}
	contain(t, "the policy", stdout, "domain: a\n", "rates: [7/m]", "rates: unlimited", "# "+a+":3")
	contain(t, "what is told", stderr, "note: "+a+":3:31: $.descriptors[0].detailed_metric: is not carried over", "stdout: domain a, 2 limits",
		"note: windows slide")

	policy := filepath.Join(folder, "policy.yaml")
	code, stdout, stderr = command(nil, "import", "ratelimit", "--output", policy, "--algorithm", "fixed_window", b)
	if code != 0 || stdout != "" || strings.Contains(stderr, "slide") {
		t.Fatalf("code %d, printed %q, told %q", code, stdout, stderr)
	}
	contain(t, "the policy", read(t, policy), "rates: [9/h]\n    algorithm: fixed_window\n")
	if code, _, stderr := command(nil, "validate", policy); code != 0 {
		t.Errorf("not a valid policy: %s", stderr)
	}

	code, stdout, stderr = command(nil, "import", "ratelimit", a, b)
	if code != 1 || stdout != "" {
		t.Errorf("of two domains: code %d, printed %q", code, stdout)
	}
	contain(t, "what is told of two domains", stderr, "2 domains, a, b", "--output-dir")
	there := filepath.Join(t.TempDir(), "made", "now")
	if code, _, stderr := command(nil, "import", "ratelimit", "--output-dir", there, a2, b); code != 0 {
		t.Fatalf("code %d: %s", code, stderr)
	}
	contain(t, "the policy of b", read(t, filepath.Join(there, "b.yaml")), "domain: b\n", "[9/h]")

	code, stdout, stderr = command(nil, "import", "ratelimit", a, bad)
	if code != 1 || stdout != "" {
		t.Errorf("of a bad file: code %d, printed %q", code, stdout)
	}
	contain(t, "what is told of a bad file", stderr, bad+":1:1: $: has no domain", bad+`:2:6: $.descriptors[0]: unknown field "kee", did you mean "key"?`,
		"3 errors in 2 files, nothing is written")

	for _, args := range [][]string{
		{"import", "ratelimit"},
		{"import", "ratelimit", "--output", policy, "--output-dir", folder, b},
	} {
		if code, _, _ := command(nil, args...); code != 2 {
			t.Errorf("%v: code %d, want 2", args, code)
		}
	}
	for _, args := range [][]string{
		{"import", "ratelimit", filepath.Join(folder, "none.yaml")},
		{"import", "ratelimit", "--algorithm", "leaky", b},
		{"import", "ratelimit", "--output", filepath.Join(folder, "none", "policy.yaml"), b},
		{"import", "ratelimit", "--output-dir", folder, b}, // where b.yaml is
	} {
		if code, stdout, stderr := command(nil, args...); code != 1 || stdout != "" || stderr == "" {
			t.Errorf("%v: code %d, printed %q, told %q", args, code, stdout, stderr)
		}
	}
}

// TestMigrationDocument runs the commands of docs/migration.md, and compares what they print with what it says.
func TestMigrationDocument(t *testing.T) {
	text := read(t, "../../docs/migration.md")
	block := func(language string) string {
		_, rest, found := strings.Cut(text, "\n```"+language+"\n")
		inner, _, ended := strings.Cut(rest, "```\n")
		if !found || !ended {
			t.Fatalf("docs/migration.md has no block of %s", language)
		}
		return inner
	}
	t.Chdir(t.TempDir())
	writeTo(t, ".", "ratelimit.yaml", block("yaml"))
	session := block("console")
	var ran strings.Builder
	commands := 0
	for line := range strings.Lines(session) {
		typed, isCommand := strings.CutPrefix(line, "$ bin/sluice ")
		if !isCommand {
			continue
		}
		commands++
		code, stdout, stderr := command(nil, strings.Fields(typed)...)
		if code != 0 {
			t.Fatalf("%s: code %d: %s", typed, code, stderr)
		}
		if stdout != "" {
			stderr = "" // of a command that prints a policy only that is shown
		}
		ran.WriteString(line + stdout + stderr)
	}
	shown := regexp.MustCompile(`version [0-9a-f]{16}`).ReplaceAllString(ran.String(), "version VERSION")
	if diff := cmp.Diff(session, shown); diff != "" || commands < 3 {
		t.Errorf("%d commands (-docs/migration.md +printed):\n%s", commands, diff)
	}
}
