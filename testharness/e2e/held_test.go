package e2e

import (
	"net/http"
	"testing"
	"time"

	"sluice/testharness/load"
	"sluice/testharness/oracle"
	"sluice/testharness/pace"
)

// TestHeld: a limit with max_wait, under twice its load through all workers. What is admitted comes at the limit's pace, and
// waits for it no longer than it may; no window holds more.
func TestHeld(t *testing.T) {
	pace.Try(t, held)
}

func held(p *pace.Trial) {
	p.Helper()
	t := p.T
	serve(t, onRedis)
	rate := oracle.Rate{Units: 10, Window: time.Second}
	const maxWait = time.Second
	const spare = 300 * time.Millisecond // a busy machine, on the way there and back
	const lasts = 5 * time.Second
	var held seen
	var admitted []oracle.Interval
	err := load.Run(t.Context(), load.Options{
		Targets: listeners(),
		Flows:   []load.Flow{{Request: request(http.MethodGet, "/held", p.Name), Arrivals: poisson(20, 11), Connections: 64}},
		For:     lasts,
		Observe: func(r load.Record) {
			held.observe(r)
			if r.Admitted() {
				// It was let pass when it was answered, or a little before: a wait hides nothing from the judge.
				admitted = append(admitted, oracle.Interval{Left: max(r.Left, r.Answered-spare), Answered: r.Answered, Units: 1})
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	held.log(t, "held")
	checkHeld(t, "held", held.admitted, rate)
	if worst := oracle.WorstWindow(admitted, rate.Window); worst > rate.Units {
		p.Shortf("%d were answered within %v, where %d may be admitted", worst, rate.Window, rate.Units)
	}
	if got := len(held.admitted); got < int(rate.Units)*int(lasts/rate.Window)*9/10 {
		p.Shortf("%d admitted within %v, want nine tenths of ten a second at least", got, lasts)
	}
	if worst := held.admittedLatency.Max(); worst > maxWait+spare {
		p.Shortf("a request waited %v, want at most %v", worst, maxWait)
	}
	if typical := held.admittedLatency.Quantile(0.5); typical < maxWait/4 {
		p.Shortf("half of the admitted waited less than %v: hardly any was held", typical)
	}
	if held.denied == 0 {
		p.Shortf("nobody was denied at twice the load")
	}
	if failed := held.refused + held.lost; failed > 0 {
		p.Shortf("%d failed", failed)
	}
}
