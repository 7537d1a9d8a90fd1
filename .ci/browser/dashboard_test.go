// Package browser looks at the dashboard as people do: in a real Chromium, of a real service, with what workers report to it
// over gRPC. SCREENSHOTS=FOLDER keeps what it saw.
package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	sluicev1 "sluice/shared/proto/sluice/v1"
	"sluice/testharness/rig"
)

const (
	sluice = "../../bin/sluice"
	axe    = "../../.cache/axe-4.14.1/node_modules/axe-core/axe.min.js"
	// within bounds what a page may take on a busy machine.
	within = 60 * time.Second
)

const policyFile = `domain: shop
identities: {tenant: {header: x-tenant-id}}
limits:
  - {name: tenant, key: [tenant], rates: [100/s, 600/m]}
  - {name: reports, match: {path: {template: "/v1/reports/{id}"}}, key: [tenant], rates: [30/m], mode: strict}
  - {name: tried, key: [tenant], rates: [50/s], shadow: true}
  - {name: unused, key: [tenant], rates: [10/h]}
`

// service is a control service that has been started for one test.
type service struct {
	grpc, http string
	process    *os.Process
}

var serves = regexp.MustCompile(`grpc (\S+), http (\S+),`)

func serve(t *testing.T, extra ...string) *service {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policyFile), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"serve", "--policy", file, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, extra...)
	command := exec.CommandContext(t.Context(), sluice, args...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if at := serves.FindStringSubmatch(lines.Text()); at != nil {
			go func() {
				for lines.Scan() { // it must not block
				}
			}()
			return &service{grpc: at[1], http: at[2], process: command.Process}
		}
	}
	t.Fatal("the service has ended")
	return nil
}

// report has a worker report for some seconds, as the filter does: a tenant far over its limit, one under it, one whose key is
// markup, a limit in shadow, upstream times that rise, and a moment without the service.
func (s *service) report(t *testing.T, seconds int) {
	t.Helper()
	connection, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	client := sluicev1.NewControlClient(connection)
	const tenths = 10
	for i := range uint64(seconds * tenths) {
		_, err := client.Sync(t.Context(), &sluicev1.SyncRequest{
			WorkerId: 42, CallId: i + 1, Active: true,
			Report: &sluicev1.Report{
				ReportId: i + 1, Age: 90_000_000 + i*100_000, Span: 100_000,
				Tallies: []*sluicev1.Tally{
					{Limit: "tenant", Window: 1_000_000, Result: sluicev1.Result_RESULT_ADMITTED, Source: 2, Count: 10 + i%5, Near: 1},
					{Limit: "tenant", Route: "/v1/reports/{id}", Window: 60_000_000, Result: sluicev1.Result_RESULT_DENIED, Source: 2, Count: 3 + i%7},
					{Limit: "tried", Window: 1_000_000, Result: sluicev1.Result_RESULT_SHADOW_ADMITTED, Source: 2, Count: 9},
					{Limit: "tried", Window: 1_000_000, Result: sluicev1.Result_RESULT_SHADOW_DENIED, Source: 2, Count: 1},
				},
				Keys: []*sluicev1.KeyTally{
					{Limit: "tenant", Key: "acme", Admitted: 8, Denied: 3 + i%7},
					{Limit: "tenant", Key: "<b>bold</b>", Admitted: 2, Denied: 1},
					{Limit: "tried", Key: "acme", ShadowAdmitted: 9, ShadowDenied: 1},
				},
				UpstreamMicros: []uint32{uint32(4000 + 40*i), uint32(9000 + 90*i)}, UpstreamOf: 64,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(time.Second / tenths):
		}
	}
}

// page is a tab, and what its console has said.
type page struct {
	t   *testing.T
	ctx context.Context
	// away: the service was, which the console rightly says, and may say late.
	away    bool
	mu      sync.Mutex
	console []string
}

// browse opens an address in a Chromium of its own, in a window of that size.
func browse(t *testing.T, address string, width, height int64, scheme string) *page {
	t.Helper()
	allocated, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)...)
	t.Cleanup(cancel)
	ctx, cancelTab := chromedp.NewContext(allocated)
	t.Cleanup(cancelTab)
	p := &page{t: t, ctx: ctx}
	do(p, chromedp.Steps(
		chromedp.EmulateViewport(width, height),
		chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
			_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
			return err
		}),
	))
	messages := chromedp.Console(ctx)
	go func() {
		for message, err := range messages {
			if err != nil {
				return
			}
			switch message.Type {
			case chromedp.ConsoleWarning, chromedp.ConsoleError, chromedp.ConsoleException:
				p.mu.Lock()
				p.console = append(p.console, message.String())
				p.mu.Unlock()
			}
		}
	}()
	do(p, chromedp.Navigate("http://"+address+"/"))
	return p
}

// do has the browser do something, and gives what comes of it.
func do[T any](p *page, action chromedp.Action[T]) T {
	p.t.Helper()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1) // the context of the first action is the browser's: it must not end with the action
	go func() {
		value, err := chromedp.Run(p.ctx, action)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			p.t.Fatal(r.err)
		}
		return r.value
	case <-time.After(within):
		p.t.Fatalf("not within %v", within)
	}
	panic("unreachable")
}

// eval gives what an expression of the page's comes to.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	return do(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// text gives what an element shows.
func (p *page) text(selector string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ''`, selector))
}

func (p *page) click(selector string) {
	p.t.Helper()
	eval[bool](p, fmt.Sprintf(`document.querySelector(%q).click(), true`, selector))
}

// await waits until an element shows the texts.
func (p *page) await(selector string, want ...string) {
	p.t.Helper()
	var text string
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		text = p.text(selector)
		missing := false
		for _, w := range want {
			missing = missing || !strings.Contains(text, w)
		}
		if !missing {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	p.t.Fatalf("%s shows %q, want %q", selector, text, want)
}

// judge looks for what a person would trip over: errors in the console, findings of axe-core, what is wider than the window.
func (p *page) judge(name string) {
	p.t.Helper()
	script, err := os.ReadFile(axe)
	if err != nil {
		p.t.Fatal(err)
	}
	eval[bool](p, string(script)+"; true")
	findings := eval[[]string](p, `axe.run().then(r => r.violations.map(v => v.impact + ' ' + v.id + ': ' +
		v.nodes.map(n => n.html + ' ' + n.failureSummary).join(' | ')))`)
	overflow := eval[bool](p, `document.documentElement.scrollWidth > document.documentElement.clientWidth`)
	for _, finding := range findings {
		p.t.Errorf("%s: axe: %s", name, finding)
	}
	if overflow {
		p.t.Errorf("%s: the page is wider than its window", name)
	}
	p.mu.Lock()
	for _, line := range p.console {
		if !p.away || !strings.Contains(line, "net::ERR_") {
			p.t.Errorf("%s: console: %s", name, line)
		}
	}
	p.mu.Unlock()
	if folder := os.Getenv("SCREENSHOTS"); folder != "" {
		const all = 100
		picture := do(p, chromedp.FullScreenshot(all))
		if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o600)); err != nil {
			p.t.Error(err)
		}
	}
}

// TestDashboard: what workers report is on the page within seconds, in every window, and the page goes on when another range
// or limit is chosen.
func TestDashboard(t *testing.T) {
	s := serve(t)
	empty := browse(t, s.http, 1280, 900, "light")
	empty.await("#state", "Live")
	empty.await("#empty", "No requests yet", "has been up for")
	empty.await("#limits", "unused", "10/h")
	empty.judge("empty")

	// Now is the last seconds, also where the range is a day, of which the page is told every 5 s.
	empty.click(`input[value="24h"]`)
	empty.await("#tiles", "in 24h")
	eval[bool](empty, `window.most = 0, new MutationObserver(() => {
		window.most = Math.max(window.most, parseFloat(document.querySelector('#tiles dd').innerText));
	}).observe(document.getElementById('tiles'), {childList: true, characterData: true, subtree: true}), true`)
	s.report(t, 6)
	empty.await("#tiles", "of 1,074")
	if most := eval[float64](empty, `window.most`); most < 1 {
		t.Errorf("at most %v a second were admitted at a time, under traffic", most)
	}
	for _, window := range []struct {
		name          string
		width, height int64
		scheme        string
	}{{"desktop", 1280, 900, "light"}, {"phone", 390, 844, "light"}, {"dark", 1280, 900, "dark"}} {
		p := browse(t, s.http, window.width, window.height, window.scheme)
		p.await("#state", "Live")
		p.await("#domain", "shop")
		p.await("#keys", "tenant/acme", "tenant/<b>bold</b>")
		p.await("#routes", "/v1/reports/{id}")
		p.await("#limits", "tenant", "100/s, 600/m", "reports", "tried")
		p.await("#shadow", "tried/acme", "10 %", "600")
		p.await("#workers", "000000000000002a")
		p.await("#partial", "the service began then")
		p.await("#tiles", "of 1,074")
		drawn := eval[int](p, `document.querySelectorAll('.plot canvas').length`)
		p.click("#decisions summary")
		p.await("#decisions details", "admitted")
		table := eval[int](p, `document.querySelectorAll('#decisions details table tbody tr').length`)
		if drawn != 2 || table < 10 {
			t.Errorf("%s: %d drawings and %d rows of numbers", window.name, drawn, table)
		}
		p.click("#decisions summary")
		p.judge(window.name)
		if window.name == "desktop" {
			p.click(`input[value="1h"]`)
			p.await("#tiles", "in 1h")
			eval[bool](p, `(l => { l.value = 'reports'; return l.dispatchEvent(new Event('change', {bubbles: true})) })(document.getElementById('limit'))`)
			p.await("#keys", "No key was denied anything")
			p.judge("chosen")
		}
	}
}

// TestToken: a browser without the token is asked for it, is told when it is wrong, and comes in with the right one.
func TestToken(t *testing.T) {
	const token = "a-token-of-the-operators"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--admin-token-file", file, "--admin", "off")
	p := browse(t, s.http, 390, 844, "light")
	p.await("h1", "Sluice")
	p.judge("login")
	enter := func(said string) {
		eval[bool](p, fmt.Sprintf(`document.getElementById('token').value = %q, document.querySelector('button').click(), true`, said))
	}
	enter("wrong")
	p.await("#wrong:not([hidden])", "not the token")
	enter(token)
	p.await("#state", "Live")
}

// TestRestart: the page says that the service is away, and is live again when it is back, honest about what it lacks.
func TestRestart(t *testing.T) { //nolint:tparallel // its subtest has to end before it goes on
	t.Parallel() // it waits more than it does
	var p *page
	// Not one of those that the system gives to connections: the page's own could take it while nobody listens.
	address, err := rig.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("before", func(inner *testing.T) {
		s := serve(inner, "--http", address)
		s.report(inner, 1)
		p = browse(t, s.http, 1280, 900, "light")
		p.await("#state", "Live")
		p.await("#keys", "tenant/acme")
	})
	p.await("#state", "Lost the service")
	s := serve(t, "--http", address)
	p.await("#state", "Live")
	s.report(t, 1)
	p.await("#partial", "is not known")
	p.mu.Lock()
	p.away, p.console = true, nil
	p.mu.Unlock()
	p.judge("restarted")
}

// TestHang: a service that hangs closes nothing; the page says since when it has had no word, and is live again when it has.
func TestHang(t *testing.T) {
	t.Parallel() // it waits more than it does
	s := serve(t)
	p := browse(t, s.http, 390, 844, "light")
	p.await("#state", "Live")
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := func() error { return s.process.Signal(syscall.SIGCONT) }
	t.Cleanup(func() { _ = resume() })
	p.await("#state", "No word from the service since", ", for ")
	p.judge("hangs")
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	p.await("#state", "Live")
}

// TestAnotherToken: a page whose token is no longer the service's is offered to sign in, and one page too many is told so.
func TestAnotherToken(t *testing.T) { //nolint:tparallel // as above
	t.Parallel() // it waits more than it does
	address, err := rig.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	token := func(t *testing.T, text string) string {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	enter := func(p *page, said string) {
		eval[bool](p, fmt.Sprintf(`document.getElementById('token').value = %q, document.querySelector('button').click(), true`, said))
	}
	var p *page
	t.Run("before", func(inner *testing.T) {
		s := serve(inner, "--http", address, "--admin", "off", "--admin-token-file", token(inner, "the-token-of-yesterday"))
		p = browse(t, s.http, 1280, 900, "light")
		p.await("h1", "Sluice")
		enter(p, "the-token-of-yesterday")
		p.await("#state", "Live")
	})
	p.await("#state", "Lost the service")
	s := serve(t, "--http", address, "--admin", "off", "--admin-token-file", token(t, "the-token-of-today"))
	p.await("#state", "Signed out")
	p.mu.Lock()
	p.away, p.console = true, nil
	p.mu.Unlock()
	p.judge("signed-out")
	p.click("#sign-in a")
	p.await("label", "Admin token")
	enter(p, "the-token-of-today")
	p.await("#state", "Live")

	for range 31 { // with the page that makes 32
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.http+"/events", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("authorization", "Bearer the-token-of-today")
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		t.Cleanup(func() { response.Body.Close() })
	}
	second := browse(t, s.http, 1280, 900, "light")
	second.await("label", "Admin token")
	enter(second, "the-token-of-today")
	second.await("#state", "Not up to date: too many pages are open: 32 at most")
}
