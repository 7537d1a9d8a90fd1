package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/credentials/insecure"

	adminv1 "sluice/shared/proto/sluice/admin/v1"
	sluicev1 "sluice/shared/proto/sluice/v1"
	"sluice/testharness/rig"
)

// operate runs a command for operators against a service.
func operate(t *testing.T, s *rig.Service, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return command(map[string]string{"SLUICE_ADDRESS": s.Admin, "SLUICE_TIMEOUT": "20s"}, args...)
}

// does runs a command that has to succeed, and gives what it prints.
func does(t *testing.T, s *rig.Service, args ...string) string {
	t.Helper()
	code, stdout, stderr := operate(t, s, args...)
	if code != 0 {
		t.Fatalf("sluice %s: code %d: %s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

var (
	durations = regexp.MustCompile(`( )\d[\d.]*(?:µs|ms|s|m|h)(?:\d[\d.]*(?:s|m))*( |\n)`)
	hexes     = regexp.MustCompile(`\b[0-9a-f]{16}\b`)
	builds    = regexp.MustCompile(`(?m)^service +.*, up`)
	blanks    = regexp.MustCompile(` {2,}`)
)

// steady gives a table without what differs from run to run: durations, versions, and how wide its columns are for those.
func steady(text string) string {
	text = builds.ReplaceAllString(text, "service  BUILD, up")
	text = hexes.ReplaceAllString(text, "HEX")
	for range 2 { // what ends one match may begin the next
		text = durations.ReplaceAllString(text, "${1}TIME${2}")
	}
	return blanks.ReplaceAllString(text, "  ")
}

// table compares what was printed with what is wanted, which may be indented by tabs.
func table(t *testing.T, what, got, want string) {
	t.Helper()
	lines := func(text string) string {
		var kept []string
		for line := range strings.Lines(strings.TrimSpace(text)) {
			kept = append(kept, strings.TrimSpace(blanks.ReplaceAllString(line, "  ")))
		}
		return strings.Join(kept, "\n")
	}
	if diff := cmp.Diff(lines(want), lines(steady(got))); diff != "" {
		t.Errorf("%s (-want +got):\n%s\nin full:\n%s", what, diff, got)
	}
}

func aWorker(t *testing.T, s *rig.Service, id uint64) *worker {
	t.Helper()
	return &worker{client: sluicev1.NewControlClient(connect(t, s.GRPC, insecure.NewCredentials())), id: id}
}

func TestInspectTellsHolders(t *testing.T) {
	lease := func(worker, replica, units, endIn uint64, parts ...*adminv1.Lease) *adminv1.Lease {
		return &adminv1.Lease{WorkerId: worker, ReplicaId: replica, Units: units, EndIn: endIn, Parts: parts}
	}
	r := &adminv1.InspectResponse{Limit: "slow", Key: "acme", Algorithm: "sliding_log", Mode: "lease", Leases: []*adminv1.Lease{
		lease(0xa, 0, 3, 100_000), lease(0, 0xa, 10, 200_000, lease(0xb, 0, 2, 150_000), lease(0xc, 0, 4, 150_000)),
		lease(0xa, 0, 2, 300_000), lease(0, 0xa, 10, 200_000, lease(0xb, 0, 3, 180_000)),
	}}
	var text strings.Builder
	if err := printInspected(&text, r); err != nil {
		t.Fatal(err)
	}
	_, holders, _ := strings.Cut(text.String(), "\n\n")
	want := `HELD BY                          LEASES  UNITS  ENDS IN
replica 000000000000000a         2       20     200ms
  of it worker 000000000000000b  2       5      180ms
  of it worker 000000000000000c  1       4      150ms
worker 000000000000000a          2       5      300ms
`
	if diff := cmp.Diff(want, holders); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	told := inspectedOf(r).Leases
	if told[0].Worker != "000000000000000a" || told[0].Replica != "" || told[1].Replica != "000000000000000a" || told[1].Worker != "" ||
		len(told[1].Parts) != 2 || told[1].Parts[1].Worker != "000000000000000c" {
		t.Errorf("inspect -o json: %+v", told)
	}
}

// The story of a key, told by the commands: used up, looked at, reset, raised, blocked.
func TestOperator(t *testing.T) {
	redis := startRedis(t)
	for name, store := range map[string]string{"memory": "memory", "redis": patient(redis)} {
		t.Run(name, func(t *testing.T) {
			s := start(t, rig.ServiceOptions{Store: store})
			says(t, s.Process, "sluice admin: "+s.Admin+", without a token: everybody on this machine may use it")
			w := aWorker(t, s, 0xabc)
			w.ask(t, "slow", 5)
			table(t, "inspect", does(t, s, "inspect", "slow/acme"), `
				limit slow, key acme: sliding_log, mode strict
				RATE    USED  REMAINING  NEXT FREE  EMPTY IN
				5/100s  5  0  TIME  TIME

				no leases are out`)
			if got := w.ask(t, "slow", 1); got.GetUnits() != 0 {
				t.Errorf("the limit does not hold: %v", got)
			}
			table(t, "reset", does(t, s, "reset", "--limit", "slow", "--identity", "acme"),
				"limit slow, key acme: nothing is spent any more; workers that deny it find out within TIME")
			if got := w.ask(t, "slow", 2); got.GetUnits() != 2 {
				t.Errorf("after the reset: %v", got)
			}
			table(t, "override set", does(t, s, "override", "set", "slow/acme", "--rate", "8/100s", "--for", "90s"), `
				WHAT      LIMIT  FOR   SAYS    ENDS IN  IN FORCE
				override  slow   acme  8/100s  TIME  yes`)
			var told inspected
			if err := json.Unmarshal([]byte(does(t, s, "inspect", "slow/acme", "-o", "json")), &told); err != nil {
				t.Fatal(err)
			}
			if r := told.Rates; len(r) != 1 || r[0].Rate != "8/100s" || r[0].Used != 2 || r[0].Remaining != 6 || r[0].Window != 100 || r[0].FreeIn != 0 ||
				r[0].ResetIn < 60 || r[0].ResetIn > 100 {
				t.Errorf("inspect -o json: %+v", told)
			}
			if got := w.ask(t, "slow", 9); got.GetUnits() != 6 {
				t.Errorf("with 6 of 8 left: %v", got)
			}
			does(t, s, "block", "tenant", "evil", "--for", "1h")
			does(t, s, "allow", "tenant", "good", "--limit", "slow", "--for", "1h")
			table(t, "status", does(t, s, "status"), `
				service  BUILD, up for TIME
				policy   shop, version HEX, the file's is HEX, 2 limits, for TIME
				file     in force
				reloads  not read again since the start
				store    `+storeName(store)+` answers in TIME
				replicas  1
				workers   1
				fallback  none; 0 periods within the last hour

				REPLICA  POLICY  UP FOR  HEARD OF
				HEX  HEX  TIME  this one

				WORKER  POLICY  UP FOR  LAST CALL  REQUESTS  AWAY
				HEX  none  not known  TIME ago  0  TIME

				WHAT  LIMIT  FOR  SAYS  ENDS IN  IN FORCE
				allow  slow  tenant good  TIME  yes
				block  (all)  tenant evil  TIME  yes
				override  slow  acme  8/100s  TIME  yes`)
			table(t, "override rm", does(t, s, "override", "rm", "slow/acme"), "limit slow, key acme: no override any more")
			table(t, "block --remove", does(t, s, "block", "tenant", "evil", "--remove"), "no block any more: tenant evil")
			table(t, "block list", does(t, s, "block", "list"), "no blocks are set")
			table(t, "allow list", does(t, s, "allow", "list"), `
				WHAT   LIMIT  FOR  SAYS  ENDS IN  IN FORCE
				allow  slow   tenant good  TIME  yes`)
			says(t, s.Process, `"action":"reset"`, `"action":"set override"`, `"action":"remove block"`, `"key":"acme"`)
		})
	}
}

// What is set at one replica is in force at the other within two seconds, and at one that starts later; it ends by itself.
func TestOperatorOfTwoReplicas(t *testing.T) {
	redis := startRedis(t)
	policy := write(t, goodPolicy)
	one := start(t, rig.ServiceOptions{Policy: policy, Store: redis.URL()})
	other := start(t, rig.ServiceOptions{Policy: policy, Store: redis.URL()})
	does(t, one, "override", "set", "slow/acme", "--rate", "9/100s", "--for", "1h")
	does(t, one, "override", "set", "slow/globex", "--rate", "7/100s", "--for", "1h")
	rate := func(s *rig.Service, key string) string {
		var told inspected
		if err := json.Unmarshal([]byte(does(t, s, "inspect", "slow/"+key, "-o", "json")), &told); err != nil {
			t.Fatal(err)
		}
		return told.Rates[0].Rate
	}
	becomes := func(s *rig.Service, key, want string) {
		t.Helper()
		eventually(t, func() error {
			if got := rate(s, key); got != want {
				return fmt.Errorf("%s is under %s, want %s", key, got, want)
			}
			return nil
		})
	}
	becomes(one, "acme", "9/100s")
	becomes(other, "acme", "9/100s")
	if got := aWorker(t, other, 7).ask(t, "slow", 9); got.GetUnits() != 9 {
		t.Errorf("9 asked of the other replica: %v", got)
	}
	does(t, one, "override", "set", "slow/acme", "--rate", "9/100s", "--for", "2s")
	becomes(one, "acme", "5/100s")
	becomes(other, "acme", "5/100s")

	eventually(t, func() error {
		if text := does(t, one, "status"); !strings.Contains(text, "replicas  2") {
			return fmt.Errorf("status:\n%s", text)
		}
		return nil
	})
	end(t, one)
	again := start(t, rig.ServiceOptions{Policy: policy, Store: redis.URL()})
	if got := rate(again, "globex"); got != "7/100s" {
		t.Errorf("after a restart globex is under %s", got)
	}
	// A file without the limit: the override stays, and is said not to be in force.
	if err := os.WriteFile(policy, []byte(strings.Replace(goodPolicy, "name: slow", "name: other", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if text := does(t, other, "override", "list"); !strings.Contains(text, `no: the policy has no limit "slow"`) {
			return fmt.Errorf("override list:\n%s", text)
		}
		return nil
	})
	// While the store is away the other goes on with what it has, and says so.
	redis.Pause()
	t.Cleanup(redis.Resume)
	eventually(t, func() error {
		if text := does(t, other, "status"); !strings.Contains(text, "DOES NOT ANSWER") || !strings.Contains(text, "globex") {
			return fmt.Errorf("status:\n%s", text)
		}
		return nil
	})
	code, _, stderr := operate(t, other, "override", "set", "other/acme", "--unlimited")
	if code != 1 || !strings.Contains(stderr, "did not answer") || strings.Contains(stderr, "--address") {
		t.Errorf("set without a store, at a service that answers: code %d, %s", code, stderr)
	}
}

func TestOperatorWithToken(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(t.TempDir(), "wrong")
	if err := os.WriteFile(wrong, []byte("0123456789abcdeg\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, rig.ServiceOptions{Store: "memory", Args: []string{"--admin-token-file", token}})
	says(t, s.Process, "sluice admin: "+s.Admin+", with a token")
	for name, test := range map[string]struct {
		file, says string
		code       int
	}{
		"none":    {"", "the service asks for a token: give --token-file", 1},
		"another": {wrong, "does not take this token", 1},
		"it":      {token, "", 0},
	} {
		for _, variable := range []string{"SLUICE_TOKEN_FILE", "SLUICE_ADMIN_TOKEN_FILE"} {
			code, _, stderr := command(map[string]string{"SLUICE_ADDRESS": s.Admin, variable: test.file}, "status")
			if code != test.code || !strings.Contains(stderr, test.says) {
				t.Errorf("%s in %s: code %d, %s", name, variable, code, stderr)
			}
		}
	}
	for name, args := range map[string][]string{
		"without a token":   {"--admin", "0.0.0.0:0"},
		"of all addresses":  {"--admin", ":0"},
		"no address":        {"--admin", "9093"},
		"a token too short": {"--admin-token-file", write(t, "short")},
	} {
		code, _, stderr := command(nil, append([]string{"serve", "--policy", write(t, goodPolicy), "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"}, args...)...)
		if code == 0 || !strings.Contains(stderr, "--admin") {
			t.Errorf("%s: serve ends with %d: %s", name, code, stderr)
		}
	}
}

func TestOperatorsMistakes(t *testing.T) {
	s := start(t, rig.ServiceOptions{Store: "memory"})
	for args, test := range map[string]struct {
		code int
		says string
	}{
		"inspect":                                       {2, "want either KEY, or --limit with --identity"},
		"inspect slow/acme --limit slow":                {2, "want either KEY"},
		"inspect slow/acme -o xml":                      {2, "want table or json"},
		"inspect --limit slow --identity a\xff":         {2, `--identity (SLUICE_IDENTITY): "[a\xff]": want UTF-8`},
		"block tenant a\xff":                            {2, `argument "a\xff": want UTF-8`},
		"inspect slow":                                  {1, "0 parts, and keys of limit slow have 1"},
		"inspect fast/acme":                             {1, `no limit of that name: "fast"`},
		"inspect --limit slow --identity a --plan":      {2, "plan"},
		"override set slow/acme":                        {2, "want --rate, --unlimited, --shadow or --enforce"},
		"override set slow/acme --rate fast":            {2, "fast"},
		"override set slow/acme --rate 1/s --for 10ms":  {2, "--for (SLUICE_FOR): 10ms"},
		"override set slow/acme --rate 1/s --unlimited": {2, "rate unlimited"},
		"override set slow/acme --rate 1/s --burst 5":   {1, "burst"},
		"override rm slow/acme":                         {1, "there is no such override"},
		"block tenant":                                  {2, "want either VALUE or --cidr"},
		"block tenant acme --cidr 10.0.0.0/8":           {2, "want either VALUE or --cidr"},
		"block tenant --cidr 10.0.0.0/8":                {1, "no address as it is"},
		"block user acme":                               {1, `no identity of that name: "user"`},
		"allow tenant acme --remove":                    {1, "there is no such allow"},
		"top --range 2d":                                {2, "want 5m, 1h or 24h"},
		"top --by tenants":                              {2, "want keys, routes, limits or shadow"},
		"top --limit fast":                              {1, `no limit "fast"`},
		"status --address 127.0.0.1:1 --timeout 5s":     {1, "is it the admin address of a service that runs?"},
		"status --address " + s.GRPC:                    {1, "is it the address that filters ask?"},
		"status --tls-ca /nowhere.pem":                  {1, "/nowhere.pem"},
		"status --token-file /nowhere":                  {1, "/nowhere"},
	} {
		code, stdout, stderr := operate(t, s, strings.Fields(args)...)
		if code != test.code || !strings.Contains(stderr, test.says) || stdout != "" {
			t.Errorf("sluice %s: code %d, printed %q and %q; want %d and that it says %q", args, code, stdout, stderr, test.code, test.says)
		}
	}
}

func TestCompletion(t *testing.T) {
	s := start(t, rig.ServiceOptions{Store: "memory"})
	for args, want := range map[string]string{
		"__complete|inspect|s": "slow/\n:6\n", "__complete|inspect|--limit|t": "tenant\n:4\n", "__complete|block|": "list\tList the blocks that were set\ntenant\n:4\n",
		"__complete|override|set|": "tenant/\nslow/\n:6\n", "__complete|top|--limit|": "tenant\nslow\n:4\n",
	} {
		eventually(t, func() error { // what is typed is not held up for more than a second, in which a busy machine may have no answer
			if got := does(t, s, strings.Split(args, "|")...); got != want {
				return fmt.Errorf("%s: %q; want %q", args, got, want)
			}
			return nil
		})
	}
	// Without a service there is nothing to complete, and nothing goes wrong.
	code, stdout, _ := command(map[string]string{"SLUICE_ADDRESS": "127.0.0.1:1"}, "__complete", "inspect", "")
	if code != 0 || stdout != ":6\n" {
		t.Errorf("without a service: code %d, %q", code, stdout)
	}
	if code, stdout, _ := command(nil, "completion", "bash"); code != 0 || !strings.Contains(stdout, "__start_sluice") {
		t.Errorf("completion bash: code %d", code)
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 3 * time.Microsecond: "3µs", 9_996 * time.Microsecond: "10ms", 9_876 * time.Microsecond: "9.88ms", 1234 * time.Microsecond * 100: "123ms", 1234 * time.Millisecond: "1.23s",
		83 * time.Second: "1m23s", 10*time.Minute + 2*time.Second: "10m", 2 * time.Hour: "2h", 50*time.Hour + 90*time.Second: "50h2m",
	} {
		if got := brief(uint64(d.Microseconds())); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
