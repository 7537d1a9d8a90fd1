package e2e

import (
	"net/http"
	"testing"
	"time"

	"sluice/testharness/load"
	"sluice/testharness/oracle"
	"sluice/testharness/pace"
)

// TestAllOrNothing: a request under two limits is charged to both or to none, to the unit.
func TestAllOrNothing(t *testing.T) {
	serve(t, onRedis)
	tenant := []string{"x-tenant-id", "sparing"}
	if n := admitted(t, 6, http.MethodPost, "/hours", tenant...); n != 2 {
		t.Errorf("%d POSTs came through under 2/h", n)
	}
	// The four denied ones have not taken anything of the other limit.
	if n := admitted(t, 6, http.MethodGet, "/hours", tenant...); n != 3 {
		t.Errorf("%d GETs came through where 2 of 5/h were taken", n)
	}
	// And the other way round: the wider limit denies, the narrower one is not charged.
	other := []string{"x-tenant-id", "lavish"}
	if n := admitted(t, 4, http.MethodGet, "/hours", other...); n != 4 {
		t.Errorf("%d GETs came through, want 4", n)
	}
	if n := admitted(t, 3, http.MethodPost, "/hours", other...); n != 1 {
		t.Errorf("%d POSTs came through where 1 of 5/h was left", n)
	}
	if a := ask(t, 0, http.MethodPost, "/hours", other...); a.status != 429 || a.json(t)["limit"] != "all-hours" {
		t.Errorf("denied by another limit than the one that is used up: %d %s", a.status, a.body)
	}
}

// TestSeveralRates: two rates of one limit and another limit over it, all flooded at once. None is passed, and what the
// denied ones would have taken is there for the others.
func TestSeveralRates(t *testing.T) {
	pace.Try(t, severalRates)
}

func severalRates(p *pace.Trial) {
	p.Helper()
	t := p.T
	serve(t, onRedis)
	var all, posts seen
	err := load.Run(t.Context(), load.Options{
		Targets: listeners(),
		Flows: []load.Flow{
			{Request: request(http.MethodGet, "/rates", p.Name), Arrivals: poisson(200, 3)},
			{Request: request(http.MethodPost, "/rates", p.Name), Arrivals: poisson(200, 4)},
		},
		For: 3 * time.Second,
		Observe: func(r load.Record) {
			all.observe(r)
			if r.Flow == 1 {
				posts.observe(r)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	all.log(t, "all")
	posts.log(t, "POST")
	wide := oracle.Rate{Units: 100, Window: time.Second}
	narrow := []oracle.Rate{{Units: 10, Window: time.Second}, {Units: 25, Window: 10 * time.Second}}
	checkHeld(t, "all", all.admitted, wide)
	checkHeld(t, "POST", posts.admitted, narrow...)
	if failed := all.refused + all.lost; failed > 0 {
		p.Shortf("%d failed", failed)
	}
	// GETs alone could fill the wide limit, whatever becomes of the POSTs.
	if possible := load.Possible(all.left, wide); float64(len(all.admitted)) < 0.95*float64(possible) {
		p.Shortf("%d of %d possible were admitted: denied ones were charged, or units stood idle", len(all.admitted), possible)
	}
	// Both rates of the narrow limit can be filled: there are ten POSTs to be had in each of the first two seconds.
	if len(posts.admitted) < 20 {
		p.Shortf("%d POSTs were admitted, want at least 20 of 25", len(posts.admitted))
	}
}
