package browser

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"sluice/controlsvc/traffic"
	"sluice/controlsvc/web"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// stage is a dashboard of a service whose clock, policy and traffic a test has in its hands.
type stage struct {
	*traffic.Traffic

	address string
	mu      sync.Mutex
	now     instant.Instant
	policy  *policy.Policy
	reports uint64
	lacks   time.Duration // how long ago another replica has gone; 0: none has
}

// began is when a stage does: at 12:07 UTC, so that five minutes before it no day begins, in any time zone.
const began instant.Instant = 1_764_072_420_000_000

func newStage(t *testing.T, limits ...policy.Limit) *stage {
	t.Helper()
	s := &stage{now: began}
	s.Traffic = traffic.New(traffic.Config{Now: s.read, Replica: 1})
	s.force(limits...)
	done := make(chan struct{})
	server := httptest.NewServer(web.Handler(web.Config{
		Snapshot: s.snapshot, Refused: func(...any) {}, Now: s.read, Done: done,
		// The page hears often, and something new when the stage's clock has gone on.
		After: func(d time.Duration) <-chan time.Time { return time.After(d / 20) },
		Policy: func() *policy.Policy {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.policy
		},
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(done) })
	s.address = strings.TrimPrefix(server.URL, "http://")
	return s
}

func (s *stage) read() instant.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *stage) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *stage) snapshot(q traffic.Query) traffic.Snapshot {
	told := s.Snapshot(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lacks > 0 {
		told.Whole = told.At - s.lacks.Seconds()
	}
	return told
}

// force has a policy in force with these limits.
func (s *stage) force(limits ...policy.Limit) {
	p := &policy.Policy{Domain: "shop", Version: fmt.Sprint("v", len(limits)), Limits: limits}
	s.mu.Lock()
	s.policy = p
	s.mu.Unlock()
	s.SetPolicy(p)
}

// report takes a worker's report, and lets so much time pass after it that the page is told of it.
func (s *stage) report(r *wire.Report) {
	s.reports++
	r.ID = s.reports
	s.Reported(7, r)
	s.pass(time.Second)
}

func named(name string) policy.Limit {
	return policy.Limit{
		Name: name, Rates: []limit.Rate{{Units: 10, Window: time.Second}}, Algorithm: limit.SlidingLog, Mode: limit.Lease,
		Match: policy.Match{PathPrefix: "/v1"},
	}
}

func denials(of, key string, n int64) *wire.Report {
	return &wire.Report{
		Tallies: []wire.Tally{{Limit: of, Route: "/v1", Window: time.Second, Result: wire.Denied, Count: n}},
		Keys:    []wire.KeyTally{{KeyRef: wire.KeyRef{Limit: of, Key: key}, Denied: n}},
	}
}

// visit has a page show a stage, for a test of its own.
func (p *page) visit(t *testing.T, s *stage) {
	t.Helper()
	p.t = t
	do(p, chromedp.Navigate("http://"+s.address+"/"))
	p.await("#state", "Live")
	p.await("#domain", "shop")
}

// limit has the page show one limit.
func (p *page) limit(name string) {
	p.t.Helper()
	eval[bool](p, fmt.Sprintf(`(l => { l.value = %q; return l.dispatchEvent(new Event('change', {bubbles: true})) })(document.getElementById('limit'))`, name))
}

// choose has the page show another range.
func (p *page) choose(of traffic.Range) {
	p.t.Helper()
	p.click(fmt.Sprintf(`input[value=%q]`, of))
	p.await("#tiles", fmt.Sprint("in ", of))
}

// TestPage: what the page makes of one thing and another, in one browser.
func TestPage(t *testing.T) { //nolint:tparallel // its subtests share the browser
	t.Parallel() // it waits more than it does
	p := browse(t, newStage(t).address, 390, 844, "light")
	t.Run("what somebody looks at stays", p.stays)
	t.Run("all numbers of a drawing", p.numbers)
	t.Run("what is missing", p.missing)
	t.Run("a limit in shadow", p.shadow)
	t.Run("a limit that goes", p.gone)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.console {
		t.Errorf("console: %s", line)
	}
}

// stays: new figures leave alone where somebody has scrolled to, what is selected and what has the focus, also where rows change
// places.
func (p *page) stays(t *testing.T) {
	s := newStage(t, named("tenant"))
	s.report(denials("tenant", "acme", 5))
	s.report(denials("tenant", "globex", 4))
	s.report(denials("tenant", "initech", 3))
	p.visit(t, s)
	p.await("#keys", "tenant/initech")
	p.click("#decisions summary")
	p.await("#decisions details", "admitted")
	eval[bool](p, `(box => { box.scrollLeft = 60; box.focus({preventScroll: true}); return true })(document.querySelector('#limits .scroll'))`)
	eval[bool](p, `(box => { box.scrollTop = 100; return true })(document.querySelector('#decisions .scroll'))`)
	eval[bool](p, `getSelection().selectAllChildren(document.querySelectorAll('#keys tbody th')[2]), true`)
	s.report(denials("tenant", "initech", 7)) // the last of them becomes the first
	s.report(denials("tenant", "umbrella", 6))
	p.await("#keys tbody tr:nth-child(1)", "tenant/initech", "10")
	p.await("#keys tbody tr:nth-child(2)", "tenant/umbrella", "6")
	p.await("#keys tbody tr:nth-child(4)", "tenant/globex", "4")
	p.await("#limits tbody tr", "25")
	want := "tenant/initech, 60, true, limits"
	if got := eval[string](p, `[getSelection(), document.querySelector('#limits .scroll').scrollLeft,
		document.querySelector('#decisions .scroll').scrollTop >= 100, document.activeElement.parentElement.id].join(', ')`); got != want {
		t.Errorf("selected, scrolled, focused: %s; want %s", got, want)
	}
	s.report(denials("tenant", "globex", 20)) // and another one passes by
	p.await("#keys tbody tr:nth-child(1)", "tenant/globex", "24")
	p.await("#keys tbody tr:nth-child(2)", "tenant/initech")
	if got := eval[string](p, `String(getSelection())`); got != "tenant/initech" {
		t.Errorf("selected: %q", got)
	}
}

// numbers: a drawing's table has all of its points, and says of which day each is where there are several.
func (p *page) numbers(t *testing.T) {
	s := newStage(t, named("tenant"))
	s.pass(24 * time.Hour)
	s.report(denials("tenant", "acme", 60))
	p.visit(t, s)
	p.click("#decisions summary")
	for _, want := range []struct {
		of      traffic.Range
		step    time.Duration
		points  int
		options string
	}{
		{traffic.FiveMinutes, time.Second, 300, `{timeStyle: 'medium'}`},
		{traffic.Day, 15 * time.Minute, 97, `{dateStyle: 'medium', timeStyle: 'medium'}`},
	} {
		p.choose(want.of)
		last := int64(s.read()) / 1e6 / int64(want.step.Seconds()) * int64(want.step.Seconds())
		p.await("#decisions details tbody tr:first-child", eval[string](p, fmt.Sprintf(`new Intl.DateTimeFormat(undefined, %s).format(%d000)`, want.options, last)))
		first := last - int64(want.points-1)*int64(want.step.Seconds())
		p.await("#decisions details tbody tr:last-child", eval[string](p, fmt.Sprintf(`new Intl.DateTimeFormat(undefined, %s).format(%d000)`, want.options, first)))
		if got := eval[int](p, `document.querySelectorAll('#decisions details tbody tr').length`); got != want.points {
			t.Errorf("%s: %d points, want %d", want.of, got, want.points)
		}
	}
}

// missing: the page tells a quiet time from one in which nothing was ever reported, and says what part of the range is not known,
// and since when keys are counted.
func (p *page) missing(t *testing.T) {
	s := newStage(t, named("tenant"))
	s.pass(2 * time.Minute)
	p.visit(t, s)
	p.await("#empty", "No requests yet", "up for 2 min", "no worker has reported")
	s.report(denials("tenant", "acme", 5))
	p.await("#tiles", "of 5")
	p.await("#partial:not([hidden])", "is not known: the service began then")
	if text := p.text("#empty:not([hidden])"); text != "" {
		t.Errorf("with a request: %q", text)
	}
	s.pass(8 * time.Minute)
	p.await("#tiles", "of 0")
	p.await("#empty", "No requests in the last 5 min", "8 min ago")
	if text := p.text("main"); strings.Contains(text, "No requests yet") || strings.Contains(text, "no worker has reported") || p.text("#partial:not([hidden])") != "" {
		t.Errorf("after a quiet time: %q", text)
	}
	s.mu.Lock()
	s.lacks = time.Minute
	s.mu.Unlock()
	s.report(denials("tenant", "globex", 3))
	p.await("#tiles", "of 3")
	since := func(instant float64) string {
		return eval[string](p, fmt.Sprintf(`new Intl.DateTimeFormat(undefined, {timeStyle: 'medium'}).format(%f)`, instant*1000))
	}
	told := s.snapshot(traffic.Query{})
	p.await("#partial", "Of what was before "+since(told.Whole)+" a part may be missing")
	for _, section := range []string{"keys", "routes", "shadow"} {
		p.await(fmt.Sprintf("[aria-labelledby=%s-title]", section), "Since "+since(told.Ranked)+": keys and routes are counted by the minute")
	}
	p.await("[aria-labelledby=limits-title]", "A request counts under one limit only")
}

// shadow: of a limit in shadow that is chosen the page shows what it would have done.
func (p *page) shadow(t *testing.T) {
	tried := named("tried")
	tried.Shadow = 100
	s := newStage(t, named("tenant"), tried)
	for range 8 {
		s.report(&wire.Report{
			Tallies: []wire.Tally{
				{Limit: "tenant", Window: time.Second, Result: wire.Admitted, Count: 10},
				{Limit: "tried", Window: time.Second, Result: wire.ShadowAdmitted, Count: 8},
				{Limit: "tried", Window: time.Second, Result: wire.ShadowDenied, Count: 2},
			},
			Keys: []wire.KeyTally{{KeyRef: wire.KeyRef{Limit: "tried", Key: "acme"}, ShadowAdmitted: 8, ShadowDenied: 2}},
		})
	}
	p.visit(t, s)
	p.await("#tiles", "Admitted", "80 in 5m")
	p.await("#limits tbody tr:nth-child(2)", "tried", "100 % in shadow", "16 of 80 (20 %)")
	if all := p.text("#tiles") + p.text("#decisions .u-legend"); strings.Contains(all, "shadow") {
		t.Errorf("all limits: %s", all)
	}
	p.limit("tried")
	p.await("#tiles", "In shadow: would admit", "8.0/s", "64 in 5m", "In shadow: would deny", "2.0/s", "20 % of 80")
	p.await("#decisions .u-legend", "in shadow: would admit", "in shadow: would deny")
	p.await("#latency .u-legend", "in shadow: would deny", "store p95")
	p.click("#decisions summary")
	p.await("#decisions details tbody tr:nth-child(3)", "8.0", "2.0")
	if all := p.text("#tiles"); strings.Contains(all, "Admitted") || strings.Contains(all, "Near") {
		t.Errorf("a limit in shadow decides nothing: %s", all)
	}
	p.limit("tenant")
	p.await("#tiles", "Admitted", "80 in 5m")
	p.await("#decisions .u-legend", "near the limit")
}

// gone: when the limit that is chosen leaves the policy the page shows all, and says so.
func (p *page) gone(t *testing.T) {
	s := newStage(t, named("tenant"), named("trial"))
	s.report(denials("tenant", "acme", 5))
	p.visit(t, s)
	p.await("#limit", "trial")
	p.limit("trial")
	p.await("#keys", "No key was denied")
	s.force(named("tenant"))
	s.pass(time.Second)
	p.await("#gone:not([hidden])", "trial is not in the policy any more")
	p.await("#keys", "tenant/acme")
	p.await("#limits", "tenant", "10/s")
	if chosen := eval[string](p, `document.getElementById('limit').selectedOptions[0]?.text ?? 'none'`); chosen != "all" {
		t.Errorf("chosen: %s", chosen)
	}
	p.limit("tenant")
	p.await("#tiles", "of 5")
	if text := p.text("#gone:not([hidden])"); text != "" {
		t.Errorf("after another choice: %q", text)
	}
}
