package cli

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"sluice/testharness/rig"
)

const operatedPolicy = `
domain: shop
identities:
  tenant: {header: x-tenant-id}
  client: {address: {}}
limits:
  - name: tenant
    key: [tenant]
    rates: [100/s, 1000/m]
  - name: login
    match: {path: {prefix: /login}}
    key: [client]
    rates: [5/m]
`

// Every command of docs/operations.md is run, in its order, and does what it is there for.
func TestOperationsGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, operatedPolicy)
	s := start(t, rig.ServiceOptions{Policy: file, Store: "memory"})
	aWorker(t, s, 1).ask(t, "tenant", 40)
	ran := 0
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh"
		case !inside:
		case strings.HasPrefix(line, "sluice "):
			args := strings.Fields(strings.ReplaceAll(line, "policy.yaml", file))[1:]
			if printed := does(t, s, args...); printed == "" {
				t.Errorf("%s: it prints nothing", line)
			}
			ran++
		case strings.HasPrefix(line, "curl -s "):
			asked, err := url.Parse(strings.TrimPrefix(line, "curl -s "))
			if err != nil {
				t.Fatal(err)
			}
			if status, body := get(t, s, asked.Path); status != 200 {
				t.Errorf("%s: %d %s", line, status, body)
			}
			ran++
		default:
			t.Errorf("nobody runs %q", line)
		}
	}
	if ran < 20 {
		t.Errorf("%d commands were run: the test does not find them", ran)
	}
	if left := does(t, s, "status"); strings.Contains(left, "acme") || strings.Contains(left, "evil") || !strings.Contains(left, "globex") {
		t.Errorf("what the guide leaves behind:\n%s", left)
	}
}
