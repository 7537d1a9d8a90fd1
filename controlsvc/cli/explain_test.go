package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExplain(t *testing.T) {
	file := write(t, `
domain: shop
identities:
  tenant: {header: x-tenant-id}
  session: {cookie: sid}
  client: {address: {trusted_hops: 0}}
  san: {attribute: [connection, uri_san_peer_certificate]}
limits:
- {name: tenant, key: [tenant], rates: [100/s, 600/m]}
- {name: reports, match: {methods: [POST], path: {prefix: /v1/reports}}, key: [tenant, client], rates: [10/s], mode: strict, cost: 5}
- {name: hosts, match: {host: "*.example.com"}, key: [], rates: [1/s]}
- {name: sessions, key: [session, san], rates: [1/s]}
`)
	status, stdout, stderr := command(nil, "explain", "--policy", file, "--request", "POST /v1/reports/7?x=1", "-H", "X-Tenant-Id: acme",
		"-H", "Host: shop.example.org:8443", "-H", "Cookie: a=b", "-H", "cookie: sid=7", "--client", "2001:DB8::1",
		"--attribute", "connection.uri_san_peer_certificate=spiffe://x/y")
	if status != 0 || stderr != "" {
		t.Fatalf("status %d: %s", status, stderr)
	}
	want := `LIMIT     BINDS  KEY                 RATES        COST  WHY
tenant    yes    acme                100/s 600/m  1     mode lease, sliding_log
reports   yes    acme/2001:db8::1    10/s         5     mode strict, sliding_log
hosts     no                                            the host is shop.example.org, not *.example.com
sessions  yes    7/spiffe:%2F%2Fx%2Fy  1/s          1     mode lease, sliding_log
`
	squeeze := func(text string) string {
		var lines []string
		for line := range strings.Lines(text) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return strings.Join(lines, "\n")
	}
	if diff := cmp.Diff(squeeze(want), squeeze(stdout)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestExplainRefuses(t *testing.T) {
	file := write(t, goodPolicy)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--policy"},
		{[]string{"--policy", file}, `--request (SLUICE_REQUEST): "": want METHOD PATH`},
		{[]string{"--policy", file, "--request", "reports"}, "want METHOD PATH"},
		{[]string{"--policy", file, "--request", "/x", "-H", "x"}, `--header (SLUICE_HEADER): "x": want NAME: VALUE`},
		{[]string{"--policy", file, "--request", "/x", "--client", "nobody"}, `--client (SLUICE_CLIENT): "nobody": want an IP address`},
		{[]string{"--policy", file, "--request", "/x", "--attribute", "x"}, "want PATH=VALUE"},
		{[]string{"--policy", write(t, "limits: ["), "--request", "/x"}, "cannot be read as YAML"},
	} {
		status, _, stderr := command(nil, append([]string{"explain"}, c.args...)...)
		if status == 0 || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: status %d, said %q; want %q", c.args, status, stderr, c.want)
		}
	}
}
