package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"sluice/testharness/load"
	"sluice/testharness/oracle"
)

// The traffic: acme far over its limit, the other two below theirs but for globex's orders, which come a little too fast.
const (
	acmePerSecond    = 500
	globexPerSecond  = 50
	initechPerSecond = 30
	reportsPerSecond = 4
	ordersPerSecond  = 6
)

// The flows, in the order of traffic.
const (
	acme = iota
	globex
	initech
	reports
	orders
)

func traffic(seed uint64) []load.Flow {
	flow := func(name, method, path string, perSecond float64, number uint64) load.Flow {
		headers := [][2]string{{"x-tenant-id", name}}
		return load.Flow{
			Name:     name,
			Request:  load.NewRequest(method, path, headers, ""),
			Arrivals: load.Poisson(perSecond, rand.New(rand.NewPCG(seed, number))),
		}
	}
	return []load.Flow{
		acme:    flow("acme", http.MethodGet, "/", acmePerSecond, acme),
		globex:  flow("globex", http.MethodGet, "/", globexPerSecond, globex),
		initech: flow("initech", http.MethodGet, "/", initechPerSecond, initech),
		reports: flow("initech", http.MethodPost, "/v1/reports", reportsPerSecond, reports),
		orders:  flow("globex", http.MethodPost, "/v1/orders", ordersPerSecond, orders),
	}
}

// row is what is known of the requests under one key.
type row struct {
	name                           string
	sent, admitted, denied, failed int64
	latency                        load.Histogram
	rates                          []oracle.Rate
	judge                          *load.Judge
}

// tally is what the demo has seen so far.
type tally struct {
	elapsed, last time.Duration
	rows          []*row
	// of gives the rows of a flow: its tenant's, and its endpoint's.
	of  [][]*row
	all row
	saw counts
	// behind are requests that were never sent, for this machine did not keep up with them.
	behind int64
	first  error // of those requests that failed
}

func newTally() *tally {
	second := func(units int64) []oracle.Rate { return []oracle.Rate{{Units: units, Window: time.Second}} }
	newRow := func(name string, rates []oracle.Rate) *row {
		return &row{name: name, rates: rates, judge: load.NewJudge(rates...)}
	}
	tenant := func(name string) *row { return newRow(name, second(100)) }
	t := &tally{all: row{name: "all"}}
	t.rows = []*row{
		acme: tenant("acme"), globex: tenant("globex"), initech: tenant("initech"),
		reports: newRow("  of these, POST /v1/reports", append(second(10), oracle.Rate{Units: 600, Window: time.Minute})),
		orders:  newRow("  of globex, POST /v1/orders", second(5)),
	}
	t.of = [][]*row{
		acme: {t.rows[acme]}, globex: {t.rows[globex]}, initech: {t.rows[initech]},
		reports: {t.rows[initech], t.rows[reports]},
		orders:  {t.rows[globex], t.rows[orders]},
	}
	return t
}

func (t *tally) observe(r load.Record) {
	if errors.Is(r.Err, load.ErrBehind) {
		t.behind++
		return
	}
	t.last = max(t.last, r.Answered)
	for _, row := range t.of[r.Flow] {
		row.observe(r)
		if r.Admitted() {
			row.judge.Admitted(r.Left, r.Answered)
		}
	}
	t.all.observe(r)
	if t.first == nil && !r.Admitted() && !r.Denied() {
		t.first = r.Err
		if r.Err == nil {
			t.first = fmt.Errorf("status %d", r.Status)
		}
	}
}

func (r *row) observe(record load.Record) {
	r.sent++
	switch {
	case record.Admitted():
		r.admitted++
	case record.Denied():
		r.denied++
	default:
		r.failed++
		return
	}
	r.latency.Add(record.Latency())
}

// count asks the Envoys what their filters counted; where one does not answer, the last answer stands.
func (t *tally) count(ctx context.Context, fleet *fleet, base counts) {
	if now, err := fleet.counts(ctx); err == nil {
		t.saw = now.since(base)
	}
}

// verdict says what was not as it should be; nil where every window held, and there was something to hold. A limit's
// on_unavailable lets requests through besides while the service does not answer in time, as on a machine that is very busy.
func (t *tally) verdict() error {
	var all error
	for _, row := range t.rows {
		if !row.judge.Held(t.saw.fallback) {
			all = errors.Join(all, fmt.Errorf("%s: worst window %s", strings.TrimSpace(row.name), row.worst()))
		}
	}
	if t.all.admitted == 0 || t.all.denied == 0 {
		all = errors.Join(all, fmt.Errorf("%d requests were admitted and %d denied, where some of each were to be", t.all.admitted, t.all.denied))
	}
	if float64(t.all.failed) > maxFailed*float64(t.all.sent) {
		all = errors.Join(all, fmt.Errorf("%d of %d requests failed, the first with: %w", t.all.failed, t.all.sent, t.first))
	}
	return all
}
