package demo

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/testharness/load"
)

// at makes a record of an answer that came a millisecond after the request.
func at(flow int, seconds float64, status int) load.Record {
	left := time.Duration(seconds * float64(time.Second))
	r := load.Record{Flow: flow, Due: left, Left: left, Answered: left + time.Millisecond, Status: status}
	if status == 0 {
		r.Err = errors.New("connection refused")
	}
	return r
}

func TestTable(t *testing.T) {
	tally := newTally()
	tally.elapsed = 2500 * time.Millisecond
	for i := range 150 {
		status := 200
		if i >= 100 {
			status = 429
		}
		tally.observe(at(acme, float64(i)/1000, status))
	}
	tally.observe(at(globex, 1, 200))
	tally.observe(at(initech, 1, 200))
	for i := range 7 {
		tally.observe(at(reports, 1+float64(i)/10, 200))
	}
	tally.observe(at(orders, 1, 200))
	tally.saw = counts{requests: 160, onTheSpot: 50, calls: 80, held: 4}
	const want = `
after 2.5 s                       sent  admitted    denied       p50       p99   worst window
acme                               150       100        50    1.0 ms    1.0 ms   100 of 100/s
globex                               2         2         0    1.0 ms    1.0 ms   2 of 100/s
initech                              8         8         0    1.0 ms    1.0 ms   8 of 100/s
  of these, POST /v1/reports         7         7         0    1.0 ms    1.0 ms   7 of 10/s, 7 of 600/m
  of globex, POST /v1/orders         1         1         0    1.0 ms    1.0 ms   1 of 5/s
all                                160       110        50    1.0 ms    1.0 ms
decided without a call: 31.2 %; calls of the service per request: 0.50
held until a unit was free, instead of denied: 4
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), tally.table()); diff != "" {
		t.Error(diff)
	}
	if err := tally.verdict(); err != nil {
		t.Error(err)
	}
	if summary := tally.summary(nil); !strings.Contains(summary, "Every window held") {
		t.Error(summary)
	}
}

func TestVerdict(t *testing.T) {
	fill := func(tally *tally, flow, admitted, denied, failed int) {
		for i := range admitted {
			tally.observe(at(flow, float64(i)/1000, 200))
		}
		for range denied {
			tally.observe(at(flow, 0.5, 429))
		}
		for range failed {
			tally.observe(at(flow, 0.5, 0))
		}
	}
	for _, test := range []struct {
		name                           string
		flow, admitted, denied, failed int
		fallback                       int64
		want                           []string
	}{
		{"held", acme, 100, 10, 0, 0, nil},
		{"one over", globex, 101, 10, 0, 0, []string{"globex: worst window 101 of 100/s"}},
		{"one over, without the service", globex, 101, 10, 0, 1, nil},
		{"two over, one of them without the service", globex, 102, 10, 0, 1, []string{"globex: worst window 102 of 100/s"}},
		{"one report over", reports, 11, 10, 0, 0, []string{"of these, POST /v1/reports: worst window 11 of 10/s, 11 of 600/m"}},
		{"nothing denied", acme, 10, 0, 0, 0, []string{"10 requests were admitted and 0 denied"}},
		{"nothing admitted", acme, 0, 10, 0, 0, []string{"0 requests were admitted and 10 denied"}},
		{"nothing at all", acme, 0, 0, 0, 0, []string{"0 requests were admitted and 0 denied"}},
		{"a few failed", acme, 99, 100, 1, 0, nil},
		{"many failed", acme, 90, 90, 20, 0, []string{"20 of 200 requests failed", "connection refused"}},
	} {
		tally := newTally()
		fill(tally, test.flow, test.admitted, test.denied, test.failed)
		tally.observe(load.Record{Flow: test.flow, Err: load.ErrBehind}) // no request at all
		tally.saw.fallback = test.fallback
		err := tally.verdict()
		if (err == nil) != (test.want == nil) {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", test.name, err, want)
			}
		}
	}
}

func TestCounts(t *testing.T) {
	got := countsOf(map[string]int64{
		"wasmcustom.sluice.requests": 100, "wasmcustom.sluice.admitted": 40, "wasmcustom.sluice.admitted.fallback": 3,
		"wasmcustom.sluice.denied.store": 10, "wasmcustom.sluice.denied.denial": 30, "wasmcustom.sluice.denied.log": 20,
		"wasmcustom.sluice.calls": 45, "wasmcustom.sluice.held": 2,
	})
	if want := (counts{requests: 100, onTheSpot: 50, calls: 45, fallback: 3, held: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestScreen(t *testing.T) {
	for _, test := range []struct {
		name    string
		inPlace bool
		want    string
	}{
		{"on a terminal", true, "a\nb b\n\x1b[2A\x1b[Jc\n"},
		{"in a file", false, "a\nb b b\n\nc\n\n"},
	} {
		var b strings.Builder
		s := screen{out: &b, inPlace: test.inPlace, width: func() int { return 3 }}
		s.draw("a\nb b b\n")
		s.draw("c\n")
		if diff := cmp.Diff(test.want, b.String()); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestMissingFilter(t *testing.T) {
	executable := filepath.Join(t.TempDir(), "sluice")
	err := Run(t.Context(), Config{Executable: executable, Out: os.Stderr, Progress: os.Stderr})
	if err == nil || !strings.Contains(err.Error(), "make build") || !strings.Contains(err.Error(), "sluice.wasm") {
		t.Error(err)
	}
}
