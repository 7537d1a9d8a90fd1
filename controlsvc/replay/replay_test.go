package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"sluice/controlsvc/accesslog"
	"sluice/controlsvc/policyfile"
	"sluice/shared/instant"
	"sluice/shared/policy"
)

func parse(t *testing.T, text string) *policy.Policy {
	t.Helper()
	t.Setenv("REPLAY_HASH_KEY", "0123456789abcdef0123456789abcdef")
	p, err := policyfile.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// play replays a log of a file.
func play(t testing.TB, c Config, text string, log accesslog.Config) (*Report, *Player) {
	t.Helper()
	player, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	log.Want = player.Want()
	reader, err := accesslog.NewReader("access.log", strings.NewReader(text), log)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := accesslog.NewLog(reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := player.Play(merged, nil); err != nil {
		t.Fatal(err)
	}
	r := player.Report("policy.yaml", "today.yaml", merged)
	return r, player
}

const shop = `domain: shop
hash_key: {env: REPLAY_HASH_KEY}
identities:
  tenant: {header: x-tenant-id}
  secret: {header: x-api-key, hash: true}
  client: {address: {}}
block: [{identity: client, values: [192.0.2.66]}]
limits:
  - {name: tenant, key: [tenant], rates: [2/1m]}
  - {name: key, key: [secret], rates: [3/1m], match: {path: {prefix: /v1/reports}}}
  - {name: all, key: [], rates: [100/s], shadow: true}
`

// lines gives a request a second, as tenant acme by key k1.
func lines(n int, client string) string {
	var b strings.Builder
	for i := range n {
		s := sent{at: time.Duration(i) * time.Second, tenant: "acme", client: client, path: "/v1/reports/7"}
		b.WriteString(strings.Replace(s.line(), "{", `{"x-api-key":"k1",`, 1) + "\n")
	}
	return b.String()
}

func TestReport(t *testing.T) {
	today := strings.Replace(strings.Replace(shop, "2/1m", "5/1m", 1), "3/1m", "1/1m", 1)
	r, _ := play(t, Config{Policy: parse(t, shop), Today: parse(t, today)}, lines(10, "192.0.2.1")+"nonsense\n"+lines(1, "192.0.2.66"), accesslog.Config{})
	if want := (Totals{Requests: 11, Admitted: 2, Denied: 9, Blocked: 1, LimitedKeys: 1}); r.Totals != want {
		t.Errorf("%+v; want %+v", r.Totals, want)
	}
	// Today's key admits one, and the new tenant two: one is no longer denied.
	if diff := cmp.Diff(&Compared{DeniedToday: 10, DeniedBoth: 9, Newly: 0, Gone: 1}, r.Compared); diff != "" {
		t.Error(diff)
	}
	if len(r.Limits) != 3 || r.Limits[0].Denied != 8 || r.Limits[1].Requests != 10 || r.Limits[1].Denied != 0 || r.Limits[0].First == nil {
		t.Errorf("%+v", r.Limits)
	}
	if len(r.Keys) != 1 || r.Keys[0].Key != "acme" || r.Keys[0].Requests != 10 || r.Keys[0].Denied != 8 || r.Keys[0].Wait != 58 {
		t.Errorf("%+v", r.Keys)
	}
	if len(r.Gone) != 1 || r.Gone[0].Limit != "key" || r.Gone[0].Changed != 1 || strings.Contains(r.Gone[0].Key, "k1") || r.Gone[0].Key == "" {
		t.Errorf("what is hashed stands so: %+v", r.Gone)
	}
	if r.Log.Malformed != 1 || r.Log.Problems[0].Line != 11 || r.Log.Files[0] != (File{"access.log", "json"}) {
		t.Errorf("%+v", r.Log)
	}
	if len(r.Routes) != 2 || r.Routes[0].Route != "/v1/reports" || r.Routes[0].Requests != 10 || r.Routes[1].Denied != 1 {
		t.Errorf("%+v", r.Routes)
	}
	if len(r.Missing) != 0 || len(r.Minutes) == 0 || r.Minutes[0].Denied < 1 {
		t.Errorf("%+v, %+v", r.Missing, r.Minutes)
	}
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"11 requests of access.log (json)", "denied              9", "no longer denied", "LIMIT OF TODAY", " UTC\n", "acme  tenant", "/v1/reports", "WORST MINUTE",
		"1 of 12 lines could not be read", "access.log:11:", "in mode strict",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the table lacks %q:\n%s", part, &out)
		}
	}
	// Its key is denied nine times today, of which the new policy denies eight.
	row := regexp.MustCompile(`(?m)^KEY OF TODAY +LIMIT OF TODAY +REQUESTS +DENIED TODAY +NO LONGER +STILL .*\n.* key +10 +9 +90.00 % +1 +8 `)
	if !row.MatchString(out.String()) {
		t.Errorf("of the key that has a request no longer denied the table says:\n%s", &out)
	}
	out.Reset()
	if err := r.WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`<th scope="col">Limit of today</th><th scope="col" class="n">Denied today</th>`,
		`<th scope="col" class="n">No longer</th><th scope="col" class="n">Still</th>`, `<td class="n">1</td><td class="n">8</td>`,
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	out.Reset()
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back Report
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&back); err != nil || back.Totals.Denied != 9 || len(back.Keys) != 1 {
		t.Errorf("%v: %+v", err, back)
	}
}

// TestPage: the page is whole without anything else, escapes what stands in logs, and has a text beside each plot.
func TestPage(t *testing.T) {
	text := strings.ReplaceAll(lines(20, "192.0.2.1"), "acme", `<script>alert(1)</script>`)
	r, _ := play(t, Config{Policy: parse(t, shop), Today: parse(t, strings.Replace(shop, "2/1m", "5/1m", 1))}, text+"<b>bad\n", accesslog.Config{})
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"Who would be limited by", "Newly denied", "prefers-color-scheme: dark", "viewport", "&lt;script&gt;alert", "&lt;b&gt;bad", "</html>"} {
		if !strings.Contains(page.String(), part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	if from := regexp.MustCompile(`(?i)<script|src=|href=|url\(|@import|https?://`).FindString(page.String()); from != "" {
		t.Errorf("the page has %q", from)
	}
	root, err := html.Parse(bytes.NewReader(page.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	plots, headings := 0, 0
	for n := range root.Descendants() {
		switch n.Data {
		case "svg":
			plots++
			if label := attribute(n, "aria-label"); attribute(n, "role") != "img" || len(label) < 20 {
				t.Errorf("a plot without words: %q", label)
			}
		case "th":
			headings++
			if attribute(n, "scope") == "" {
				t.Error("a table's heading that says not of what")
			}
		}
	}
	if plots < 3 || headings < 30 {
		t.Errorf("%d plots, %d headings", plots, headings)
	}
	writePage(t, page.Bytes())
}

// writePage leaves the page for eyes where SLUICE_PAGE names a file.
func writePage(t *testing.T, page []byte) {
	t.Helper()
	if file := os.Getenv("SLUICE_PAGE"); file != "" {
		if err := os.WriteFile(file, page, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// TestPageInABrowser: nothing is wider than a phone but what can be scrolled.
func TestPageInABrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil || testing.Short() {
		t.Skip("no chromium here")
	}
	r, _ := play(t, Config{Policy: parse(t, shop), Today: parse(t, strings.Replace(shop, "2/1m", "5/1m", 1))}, lines(50, "192.0.2.1"), accesslog.Config{})
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	inner := strings.Replace(page.String(), "default-src 'none'; ", "default-src 'none'; script-src 'unsafe-inline'; ", 1)
	inner = strings.Replace(inner, "</body>", `<script>document.documentElement.dataset.wide = document.documentElement.scrollWidth</script></body>`, 1)
	if err := os.WriteFile(dir+"/r.html", []byte(inner), 0o600); err != nil {
		t.Fatal(err)
	}
	outer := `<iframe src="r.html" width="375" height="900" onload="document.body.dataset.wide = this.contentDocument.documentElement.dataset.wide"></iframe>`
	if err := os.WriteFile(dir+"/o.html", []byte(outer), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
		"--user-data-dir="+dir+"/chrome", "--virtual-time-budget=3000", "--dump-dom", "file://"+dir+"/o.html").Output()
	if err != nil {
		t.Fatal(err)
	}
	// Less by what a bar to scroll with takes.
	if wide := regexp.MustCompile(`data-wide="3[67]\d"`).Find(out); wide == nil {
		t.Errorf("on a phone of 375 the page is %q wide", regexp.MustCompile(`data-wide="\d+"`).Find(out))
	}
}

// TestMissing: what the policy reads and the log never has is told of, with a way to have it.
func TestMissing(t *testing.T) {
	const line = `192.0.2.1 - acme [10/Oct/2026:13:55:36 +0000] "GET /v1/reports HTTP/1.0" 200 1 "-" "curl" "k1"` + "\n"
	const claims = `domain: shop
identities:
  tenant: {jwt: {claim: org.tenant, metadata: payload}}
  key: {header: x-api-key}
  host: {request: host}
  unused: {cookie: session}
limits:
  - {name: tenant, key: [tenant], rates: [1/m]}
  - {name: key, key: [key, host], rates: [1/m], match: {headers: [{name: x-beta, present: true}]}}
`
	c := Config{Policy: parse(t, claims)}
	r, _ := play(t, c, strings.Repeat(line, 5), accesslog.Config{})
	var told []string
	for _, m := range r.Missing {
		told = append(told, m.What+" by "+strings.Join(m.By, ","))
	}
	want := []string{":authority by identity host", "claim org.tenant by identity tenant", "header x-api-key by identity key", "header x-beta by limit key"}
	if diff := cmp.Diff(want, told); diff != "" || r.Totals.Denied != 0 || r.Totals.Unlimited != 5 {
		t.Errorf("%s\n%+v", diff, r.Totals)
	}
	if !strings.Contains(r.Missing[2].Help, "--header x-api-key=FIELD") || !strings.Contains(r.Missing[2].Help, "user_agent, extra1") {
		t.Errorf("%+v", r.Missing[2])
	}
	c.Identities, c.Headers = map[string]string{"tenant": "user"}, map[string]string{"x-api-key": "extra1", "x-beta": "user_agent"}
	r, _ = play(t, c, strings.Repeat(line, 5), accesslog.Config{Fields: map[accesslog.Role]string{accesslog.Authority: "logname"}})
	if r.Totals.Denied != 4 || len(r.Missing) != 1 || r.Keys[0].Key != "acme" {
		t.Errorf("%+v, %+v", r.Totals, r.Missing)
	}
	for _, bad := range []Config{
		{Policy: c.Policy, Headers: map[string]string{"x-none": "a"}},
		{Policy: c.Policy, Identities: map[string]string{"nobody": "a"}},
		{Policy: parse(t, shop), Identities: map[string]string{"client": "a"}},
	} {
		if _, err := New(bad); err == nil {
			t.Errorf("%v, %v: no error", bad.Headers, bad.Identities)
		}
	}
}

// TestBoundedKeys: of more keys than there may be the one goes whose use is longest ago, and it is said where that counts.
func TestBoundedKeys(t *testing.T) {
	trace := func(keys int, apart time.Duration) string {
		var b strings.Builder
		for i := range 4 * keys {
			s := sent{at: time.Duration(i) * apart, tenant: fmt.Sprint("t", i%keys), client: "192.0.2.1", path: "/"}
			b.WriteString(s.line() + "\n")
		}
		return b.String()
	}
	const one = "domain: shop\nidentities: {tenant: {header: x-tenant-id}}\nlimits: [{name: tenant, key: [tenant], rates: [1/1m]}]\n"
	r, p := play(t, Config{Policy: parse(t, one), MaxKeys: 100}, trace(90, time.Millisecond), accesslog.Config{})
	if r.Totals.Denied != 270 || p.new.keys.evicted != 0 || len(r.Notes) > 0 {
		t.Errorf("%+v, %d evicted: %v", r.Totals, p.new.keys.evicted, r.Notes)
	}
	r, p = play(t, Config{Policy: parse(t, one), MaxKeys: 100}, trace(400, time.Millisecond), accesslog.Config{})
	if p.new.keys.n > 100 || p.new.keys.evicted == 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "--max-keys 100") {
		t.Errorf("%d keys, %d evicted: %v", p.new.keys.n, p.new.keys.evicted, r.Notes)
	}
	// Those that nothing counts of any more may go, and nothing is wrong for it.
	r, p = play(t, Config{Policy: parse(t, one), MaxKeys: 100}, trace(400, time.Second), accesslog.Config{})
	if p.new.keys.n > 100 || p.new.keys.evicted != 0 || len(r.Notes) > 0 || r.Totals.Denied != 0 {
		t.Errorf("%d keys, %d evicted: %v, %+v", p.new.keys.n, p.new.keys.evicted, r.Notes, r.Totals)
	}
}

// TestHeld: a limit with max_wait holds what it can admit in time, and denies the rest.
func TestHeld(t *testing.T) {
	const shaped = "domain: shop\nlimits: [{name: all, key: [], rates: [1/s], algorithm: token_bucket, mode: lease, max_wait: 2500ms}]\n"
	var text strings.Builder
	for range 5 {
		s := sent{client: "192.0.2.1", path: "/"}
		text.WriteString(s.line() + "\n")
	}
	r, _ := play(t, Config{Policy: parse(t, shaped)}, text.String(), accesslog.Config{})
	if r.Totals.Admitted != 3 || r.Totals.Held != 2 || r.Totals.Denied != 2 || r.Totals.longestHeld != 2*time.Second {
		t.Errorf("%+v", r.Totals)
	}
}

// TestCourse: whatever comes when, the intervals have all of it, in their places.
func TestCourse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCourse(2)
		at := int64(1_764_000_000_000_000)
		step := rapid.SampledFrom([]int64{1e6, 1e8, 1e11}).Draw(t, "step")
		var all []int64
		for range rapid.IntRange(1, 300).Draw(t, "requests") {
			at += rapid.Int64Range(0, step).Draw(t, "pause")
			all = append(all, at)
			c.add(instant.Instant(at), moment{requests: 1, denied: 1}, 1)
		}
		c.closeMinute()
		if len(c.bins) > maxBins {
			t.Fatalf("%d intervals", len(c.bins))
		}
		for i, bin := range c.bins {
			var want int64
			for _, at := range all {
				if at/c.width()-c.first == int64(i) {
					want++
				}
			}
			if bin.requests != want || c.limits[1][i] != want {
				t.Fatalf("interval %d of %v: %d and %d; want %d", i, steps[c.step], bin.requests, c.limits[1][i], want)
			}
		}
		minutes := map[int64]int64{}
		var most int64
		for _, at := range all {
			minutes[at/60e6]++
			most = max(most, minutes[at/60e6])
		}
		if c.worst[0].denied != most || len(c.worst) != min(maxWorst, len(minutes)) {
			t.Fatalf("the worst of %d minutes has %d; want %d", len(minutes), c.worst[0].denied, most)
		}
	})
}

// TestKeyStats: of too many keys the ones with many denials stay.
func TestKeyStats(t *testing.T) {
	s := keyStats{most: 10, byKey: map[statID]*keyStat{}}
	random := rand.New(rand.NewPCG(1, 2))
	keys := make([]*key, 100)
	for i := range keys {
		keys[i] = &key{name: fmt.Sprint(i)}
	}
	for range 5000 {
		i := random.IntN(100)
		if random.IntN(2) == 0 {
			i = random.IntN(3)
		}
		keys[i].requests++
		s.of(keys[i]).denied++
	}
	top := s.top(3, (*keyStat).compare, func(*keyStat) bool { return true })
	for _, stat := range top {
		if len(stat.id.key) != 1 || stat.id.key > "2" {
			t.Errorf("%+v", *stat)
		}
	}
	if len(s.byKey) > 10 || s.forgotten == 0 {
		t.Errorf("%d keys, %d forgotten", len(s.byKey), s.forgotten)
	}
}
