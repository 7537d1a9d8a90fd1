package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/shared/instant"
)

// logged writes a log of Envoy's default format with so many requests of a client, one a second from a time on.
func logged(from time.Time, n int, client string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `[%s] "GET /v1/x HTTP/2" 200 - 0 5 1 1 "%s" "ua" "id" "shop" "10.0.0.1:80" "acme"`+"\n",
			from.Add(time.Duration(i)*time.Second).Format("2006-01-02T15:04:05.000Z"), client)
	}
	return b.String()
}

const byClient = `domain: shop
identities: {client: {address: {}}, tenant: {header: x-tenant-id}}
limits:
  - {name: client, key: [client], rates: [5/1m]}
  - {name: tenant, key: [tenant], rates: [1000/1m]}
`

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	tried, today := file("new.yaml", byClient), file("today.yaml", strings.Replace(byClient, "5/1m", "8/1m", 1))
	began := time.Date(2026, 4, 15, 20, 0, 0, 0, time.UTC)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, logged(began, 10, "192.0.2.1"))
	z.Close()
	first, second := file("access.log.1", zipped.String()), file("access.log", logged(began.Add(5*time.Second), 10, "192.0.2.2"))
	page := filepath.Join(dir, "report.html")

	code, out, said := command(nil, "replay", "--policy", tried, "--against", today, "--header", "X-Tenant-ID=extra1", "--html", page, first, second)
	if code != 0 || said != "" {
		t.Fatalf("%d: %s", code, said)
	}
	contain(t, "the table", out, "20 requests of "+first+" (envoy), "+second+" (envoy)", "denied            10", "newly denied       6", "192.0.2.1  client")
	if text, err := os.ReadFile(page); err != nil || !bytes.HasSuffix(bytes.TrimSpace(text), []byte("</html>")) {
		t.Errorf("%v: %d bytes", err, len(text))
	}

	code, out, said = command(nil, "replay", "--policy", tried, "-o", "json", first)
	var report struct {
		Totals struct {
			Requests int64 `json:"requests"`
			Denied   int64 `json:"denied"`
		} `json:"totals"`
		Missing []struct {
			What string `json:"what"`
		} `json:"missing"`
	}
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || report.Totals.Requests != 10 || report.Totals.Denied != 5 {
		t.Errorf("%d, %v, %+v: %s", code, err, report, said)
	}
	if len(report.Missing) != 1 || report.Missing[0].What != "header x-tenant-id" {
		t.Errorf("%+v", report.Missing)
	}

	var stdout, stderr bytes.Buffer
	code = Run(Process{
		Args: []string{"replay", "--policy", tried, "--identity", "tenant=extra1", "-"}, Stdin: &zipped, Stdout: &stdout, Stderr: &stderr,
		LookupEnv: func(string) (string, bool) { return "", false }, Now: func() instant.Instant { return 0 },
	})
	if code != 0 || !strings.Contains(stdout.String(), "10 requests of standard input (envoy)") {
		t.Errorf("%d: %s%s", code, &stdout, &stderr)
	}
}

// A log that breaks off is told of as far as it goes, with a warning and an exit status; where nothing of it can be read, the
// report of before stays as it was.
func TestReplayOfABrokenLog(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	began := time.Date(2026, 4, 15, 20, 0, 0, 0, time.UTC)
	fmt.Fprint(z, logged(began, 3000, "192.0.2.1"))
	z.Flush()
	whole := zipped.Len()
	fmt.Fprint(z, logged(began.Add(time.Hour), 3000, "192.0.2.1"))
	z.Close()
	policy, page := file("p.yaml", []byte(byClient)), file("report.html", []byte("the last one"))
	cut, other := file("cut.log.gz", zipped.Bytes()[:whole+10]), file("other.log", []byte(logged(began.Add(2*time.Hour), 7, "192.0.2.2")))
	code, out, said := command(nil, "replay", "--policy", policy, "--identity", "tenant=extra1", "--html", page, cut, other)
	if code != exitFailed {
		t.Errorf("exit %d", code)
	}
	contain(t, "the table", out, "INCOMPLETE", "cut.log.gz: after line", "unexpected EOF", "007 requests of")
	contain(t, "the error", said, "the report is of what could be", "unexpected EOF")
	text, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(text, []byte("The log could not be read to its end")) {
		t.Errorf("%v: %.200s", err, text)
	}
	var told struct {
		Incomplete string `json:"incomplete"`
		Totals     struct {
			Requests int64 `json:"requests"`
		} `json:"totals"`
	}
	if code, out, _ = command(nil, "replay", "--policy", policy, "--identity", "tenant=extra1", "-o", "json", cut); code != exitFailed {
		t.Errorf("exit %d", code)
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil || told.Totals.Requests < 3000 || !strings.Contains(told.Incomplete, "unexpected EOF") {
		t.Errorf("%v: %+v", err, told)
	}
	if code, _, _ = command(nil, "replay", "--policy", policy, "--html", page, file("empty.log.gz", zipped.Bytes()[:12])); code != exitFailed {
		t.Errorf("exit %d", code)
	}
	if after, err := os.ReadFile(page); err != nil || !bytes.Equal(after, text) {
		t.Errorf("%v: the report of before is now %d bytes", err, len(after))
	}
	if names, err := filepath.Glob(filepath.Join(dir, "report*")); err != nil || len(names) != 1 {
		t.Errorf("%v: %v", err, names)
	}
}

func TestReplayWhatIsWrong(t *testing.T) {
	policy := write(t, byClient)
	for _, step := range []struct {
		name  string
		args  []string
		code  int
		parts []string
	}{
		{"no policy", []string{"x.log"}, exitUsage, []string{"--policy (SLUICE_POLICY)"}},
		{"no log", []string{"--policy", policy}, exitUsage, []string{"requires at least 1 arg"}},
		{
			"nonsense",
			[]string{"--policy", policy, "--format", "xml", "--header", "x", "--field", "foo=bar", "--top", "0", "--max-keys", "0", "-o", "yaml", "-", "-"},
			exitUsage,
			[]string{"xml", "--header", "ROLE=FIELD", "--top", "--max-keys", "--output", "more than once"},
		},
		{"no such log", []string{"--policy", policy, "/nowhere/x.log"}, exitFailed, []string{"/nowhere/x.log"}},
		{"no such policy", []string{"--policy", "/nowhere/p.yaml", "x"}, exitFailed, []string{"/nowhere/p.yaml"}},
		{"no log at all", []string{"--policy", policy, policy}, exitFailed, []string{"none of the formats"}},
		{"a header that nobody reads", []string{"--policy", policy, "--header", "x-none=y", policy}, exitFailed, []string{"x-none", "x-tenant-id"}},
		{"no input", []string{"--policy", policy, "-"}, exitFailed, []string{"no standard input"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			code, _, said := command(nil, append([]string{"replay"}, step.args...)...)
			if code != step.code {
				t.Errorf("exit %d; want %d", code, step.code)
			}
			contain(t, "the error", said, step.parts...)
		})
	}
}

// TestTheFirstBarHasNoRate: nothing has been read by then in no time.
func TestTheFirstBarHasNoRate(t *testing.T) {
	var drawn bytes.Buffer
	l := &logFiles{size: 1 << 30}
	bar := l.bar(&drawn)
	if err := bar.Set64(1 << 29); err != nil {
		t.Fatal(err)
	}
	first := slices.DeleteFunc(strings.Split(drawn.String(), "\r"), func(frame string) bool { return strings.TrimSpace(frame) == "" })[0]
	if !strings.Contains(first, "replaying") || strings.Contains(first, "B/s") {
		t.Errorf("it begins with %q", first)
	}
}

func TestReplayCompletes(t *testing.T) {
	for flag, want := range map[string]string{"--format": "auto envoy istio json common combined :4", "-o": "table json :4"} {
		if code, out, _ := command(nil, "__complete", "replay", flag, ""); code != 0 || strings.Join(strings.Fields(out), " ") != want {
			t.Errorf("%s: exit %d, %q; want %q", flag, code, out, want)
		}
	}
}

// TestTheReplayDocument: what docs/replay.md shows is what the command says.
func TestTheReplayDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/replay.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)\n`([a-z.]+)`:\n\n```[a-z]*\n(.*?)```\n").FindAllSubmatch(text, -1)
	if len(blocks) != 3 {
		t.Fatalf("%d files in docs/replay.md; want 3", len(blocks))
	}
	t.Chdir(t.TempDir())
	for _, b := range blocks {
		if err := os.WriteFile(string(b[1]), b[2], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shown := regexp.MustCompile("(?s)```console\n\\$ sluice (replay [^\n]+)\n(.*?)```\n").FindSubmatch(text)
	if shown == nil {
		t.Fatal("docs/replay.md shows no replay")
	}
	code, out, said := command(nil, strings.Fields(string(shown[1]))...)
	if code != 0 || out != string(shown[2]) {
		t.Errorf("%d: %s; it says\n%s\nand the document\n%s", code, said, out, shown[2])
	}
}
