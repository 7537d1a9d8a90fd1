package policytest_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"sluice/controlsvc/policyfile"
	"sluice/testharness/filterrun/native"
	"sluice/testharness/policytest"
)

// fenced finds the blocks of a page, with what they are marked as.
var fenced = regexp.MustCompile("\n```([a-z]+)\n((?s).*?\n)```\n")

// parts completes the examples that are no whole policies.
const parts = `domain: shop
identities:
  tenant: {header: x-tenant-id}
  client: {address: {}}
  api_key: {header: x-api-key}
  tier: {header: x-tier}
`

// TestTheDocumentsExamples: every policy on the page is valid, and every scenario comes out as it says.
func TestTheDocumentsExamples(t *testing.T) {
	t.Setenv("SLUICE_HASH_KEY", "a key of at least 16 bytes")
	page, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	policies, scenarios := 0, 0
	for _, block := range fenced.FindAllSubmatchIndex(page, -1) {
		kind, text := string(page[block[2]:block[3]]), string(page[block[4]:block[5]])
		line := 1 + strings.Count(string(page[:block[4]]), "\n")
		switch kind {
		case "yaml":
			policies++
			switch {
			case strings.HasPrefix(text, "domain:"):
			case strings.HasPrefix(text, "- "):
				text = parts + "limits:\n" + text
			default:
				text = parts + text
			}
			if _, err := policyfile.Parse("policy", []byte(text)); err != nil {
				t.Errorf("docs/policy.md:%d: %v", line, err)
			}
		case "txtar":
			scenarios++
			s, err := policytest.ParseScenario("docs/policy.md", append([]byte(strings.Repeat("\n", line-1)), text...))
			if err != nil {
				t.Error(err)
				continue
			}
			result, err := s.Run(t.Context(), native.NewFake)
			if err != nil || !result.Passed() {
				t.Error(result, err)
			}
		}
	}
	if policies < 10 || scenarios < 3 {
		t.Errorf("%d policies, %d scenarios", policies, scenarios)
	}
}

// TestTheReadmesPolicy: it is valid, and what the README says of it afterwards holds.
func TestTheReadmesPolicy(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "\n   ```yaml\n")
	block, _, found := strings.Cut(after, "\n   ```\n")
	if !found {
		t.Fatal("README.md has no policy")
	}
	const requests = `
-- requests --
workers 2
at 0s worker * 10 times POST /v1/reports x-tenant-id: acme -> 200
at 0s worker * 2 times POST /v1/reports x-tenant-id: acme -> 429 body "\"limit\":\"reports\""
at 0s worker * 90 times GET / x-tenant-id: acme -> 200
at 0s GET / x-tenant-id: acme -> 429 retry-after 1 header ratelimit "\"tenant\";r=0;t=1" body "Over the limit of 100/s. Retry in 1 s."
at 0s GET / -> 200 no ratelimit
`
	s, err := policytest.ParseScenario("README.md", []byte("-- policy.yaml --\n"+strings.ReplaceAll(block, "\n   ", "\n")[len("   "):]+requests))
	if err != nil {
		t.Fatal(err)
	}
	if result, err := s.Run(t.Context(), native.NewFake); err != nil || !result.Passed() {
		t.Error(result, err)
	}
}

// inlineCode gives what stands between backticks within the text of a page, a line for each.
func inlineCode(page string) string {
	var b strings.Builder
	for i, part := range strings.Split(fenced.ReplaceAllString(page, "\n"), "`") {
		if i%2 == 1 {
			b.WriteString(part + "\n")
		}
	}
	return b.String()
}

// TestTheDocumentNamesEveryField: the page's text names every field and every word of the schema.
func TestTheDocumentNamesEveryField(t *testing.T) {
	page, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	var schema any
	if err := json.Unmarshal(policyfile.JSONSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	named := inlineCode(string(page))
	seen := map[string]bool{}
	need := func(word string) {
		if seen[word] {
			return
		}
		seen[word] = true
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).MatchString(named) {
			t.Errorf("docs/policy.md does not name `%s`", word)
		}
	}
	var look func(node any)
	look = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			properties, _ := node["properties"].(map[string]any)
			for name := range properties {
				need(name)
			}
			words, _ := node["enum"].([]any)
			for _, word := range words {
				need(word.(string))
			}
			for _, inner := range node {
				look(inner)
			}
		case []any:
			for _, inner := range node {
				look(inner)
			}
		}
	}
	look(schema)
	if len(seen) < 80 {
		t.Errorf("the schema has %d fields and words", len(seen))
	}
}
