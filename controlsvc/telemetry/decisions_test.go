package telemetry_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/controlsvc/overlay"
	"sluice/controlsvc/telemetry"
	"sluice/controlsvc/traffic"
	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

func shop(limits ...string) *policy.Policy {
	p := &policy.Policy{Version: "v1", Domain: "shop"}
	for _, name := range limits {
		p.Limits = append(p.Limits, policy.Limit{
			Name: name, Match: policy.Match{PathTemplate: "/" + name + "/{id}"},
			Rates: []limit.Rate{{Units: 5, Window: 500 * time.Millisecond}, {Units: 9, Window: time.Minute}},
		})
	}
	return p
}

func TestReportsAreCounted(t *testing.T) {
	m := telemetry.NewMetrics()
	m.Policy(shop("tenant", "reports"))
	m.Called(3)
	m.Reported(&wire.Report{
		Tallies: []wire.Tally{
			{Limit: "tenant", Route: "/tenant/{id}", Window: time.Minute, Result: wire.Admitted, Source: uint8(admission.FromLease), Count: 7, Near: 2},
			{Limit: "tenant", Window: 500 * time.Millisecond, Result: wire.Denied, Source: uint8(admission.FromDenial), Count: 3},
			{Limit: "reports", Result: wire.ShadowDenied, Source: uint8(admission.FromStore), Count: 1},
			{Result: wire.Left, Source: uint8(admission.FromStore), Count: 1},
			{Limit: "unheard of", Result: wire.Admitted, Source: 99, Count: 4, Near: 1},
			{Limit: "unheard of", Route: "", Window: time.Nanosecond, Result: wire.Admitted, Source: 98, Count: 1, Near: 1},
			{Limit: "tenant", Route: "/reports/{id}", Window: 3 * time.Second, Result: wire.Denied, Count: 1},
			{Limit: "tenant=10/h", Route: "/made-up", Window: time.Hour, Result: wire.Denied, Count: 1},
			{Limit: "tenant", Result: 77, Count: 5},
			{Limit: "tenant", Result: wire.Admitted, Count: -5},
		},
		KeysLost: 4, Waits: 2, Waited: 30 * time.Millisecond, Away: 2 * time.Second, UpstreamMicros: []uint32{1500},
	})
	contain(t, scrape(t, m),
		`sluice_decisions_total{limit="tenant",result="admitted",route="/tenant/{id}",source="lease",window="60s"} 7`,
		`sluice_decisions_total{limit="tenant",result="denied",route="",source="denial",window="0.5s"} 3`,
		`sluice_decisions_total{limit="reports",result="shadow_denied",route="",source="store",window=""} 1`,
		`sluice_decisions_total{limit="",result="left",route="",source="store",window=""} 1`,
		`sluice_decisions_total{limit="(other)",result="admitted",route="",source="unknown",window=""} 5`,
		`sluice_decisions_total{limit="tenant",result="denied",route="/reports/{id}",source="unknown",window=""} 1`,
		`sluice_decisions_total{limit="tenant",result="denied",route="(other)",source="unknown",window="3600s"} 1`,
		`sluice_near_misses_total{limit="tenant"} 2`, `sluice_near_misses_total{limit="reports"} 0`,
		`sluice_reports_total 1`, `sluice_report_keys_lost_total 4`, `sluice_waits_total 2`, `sluice_wait_seconds_total 0.03`,
		`sluice_fallback_seconds_total 2`, `sluice_upstream_seconds_bucket{le="0.0025"} 1`, `sluice_upstream_seconds_bucket{le="0.001"} 0`,
		`sluice_sync_asks_bucket{le="2"} 0`, `sluice_sync_asks_bucket{le="4"} 1`,
	)
}

// Whatever is reported, under whatever policies, every request is counted once, by how it ended.
func TestEveryRequestIsCountedOnce(t *testing.T) {
	line := regexp.MustCompile(`(?m)^sluice_decisions_total\{.*result="(\w+)".*\} (\S+)$`)
	rapid.Check(t, func(rt *rapid.T) {
		m := telemetry.NewMetrics()
		m.Policy(shop("a", "b"))
		want := map[string]float64{}
		for range rapid.IntRange(0, 10).Draw(rt, "reports") {
			var r wire.Report
			for range rapid.IntRange(0, 10).Draw(rt, "tallies") {
				one := wire.Tally{
					Limit: rapid.SampledFrom([]string{"", "a", "b", "c", "(other)"}).Draw(rt, "limit"), Route: rapid.SampledFrom([]string{"", "/a/{id}", "/b/{id}", "/made-up"}).Draw(rt, "route"),
					Window: time.Duration(rapid.IntRange(0, 2).Draw(rt, "window")) * time.Second, Result: wire.Result(rapid.IntRange(1, 5).Draw(rt, "result")),
					Source: rapid.Uint8Range(0, 9).Draw(rt, "source"), Count: rapid.Int64Range(0, 1000).Draw(rt, "count"),
				}
				want[one.Result.String()] += float64(one.Count)
				r.Tallies = append(r.Tallies, one)
			}
			m.Reported(&r)
			m.Policy(shop("a", "b", rapid.SampledFrom([]string{"d", "e"}).Draw(rt, "another")))
		}
		got := map[string]float64{}
		for _, match := range line.FindAllStringSubmatch(scrape(t, m), -1) {
			n, err := strconv.ParseFloat(match[2], 64)
			if err != nil {
				rt.Fatal(err)
			}
			got[match[1]] += n
		}
		for result, n := range want {
			if got[result] != n {
				rt.Fatalf("%v %s counted of %v", got[result], result, n)
			}
		}
	})
}

// A worker that reports whatever comes to its mind makes no series, and takes none from those of the policy.
func TestNoSeriesAreMadeUp(t *testing.T) {
	m := telemetry.NewMetrics()
	m.Policy(shop("tenant"))
	for i := range 50 {
		var r wire.Report
		for j := range 512 {
			n := i*512 + j
			r.Tallies = append(r.Tallies, wire.Tally{
				Limit: fmt.Sprint("limit-", n), Route: fmt.Sprint("/", n), Window: time.Duration(n + 1), Result: wire.Denied, Source: uint8(n), Count: 1,
			})
		}
		m.Reported(&r)
	}
	tenant := wire.Tally{Limit: "tenant", Route: "/tenant/{id}", Window: time.Minute, Result: wire.Denied, Source: 1, Count: 1}
	m.Reported(&wire.Report{Tallies: []wire.Tally{tenant}})
	text := scrape(t, m)
	if n := strings.Count(text, "\nsluice_decisions_total{"); n > 1+2*int(admission.FromNoPolicy) {
		t.Errorf("%d series", n)
	}
	const line = `sluice_decisions_total{limit="tenant",result="denied",route="/tenant/{id}",source="policy",window="60s"} 1`
	contain(t, text, line)
	other := shop("tenant")
	other.Limits[0].Match.PathTemplate = "/renamed"
	for _, p := range []*policy.Policy{shop("another"), other} {
		m.Policy(p)
		if text := scrape(t, m); strings.Contains(text, "/tenant/") {
			t.Errorf("series of a limit or a route that has gone are left:\n%s", text)
		}
		m.Policy(shop("tenant"))
		m.Reported(&wire.Report{Tallies: []wire.Tally{tenant}})
		contain(t, scrape(t, m), line)
	}
}

// Where a policy has more limits and routes than there is room for, the rest is counted as one.
func TestSeriesAreBounded(t *testing.T) {
	m := telemetry.NewMetrics()
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("limit-", i))
	}
	m.Policy(shop(names...))
	for _, name := range names {
		var r wire.Report
		for _, of := range names {
			r.Tallies = append(r.Tallies, wire.Tally{Limit: name, Route: "/" + of + "/{id}", Result: wire.Denied, Source: 1, Count: 1})
		}
		m.Reported(&r)
	}
	text := scrape(t, m)
	if n := strings.Count(text, "\nsluice_decisions_total{"); n != 8192+1 {
		t.Errorf("%d series", n)
	}
	contain(t, text, `sluice_decisions_total{limit="(other)",result="denied",route="",source="policy",window=""} 1808`)
}

func TestTheOverlayIsGathered(t *testing.T) {
	m := telemetry.NewMetrics()
	m.Overlay(func() overlay.Health {
		return overlay.Health{Items: map[overlay.Kind]int{overlay.Override: 2, overlay.Block: 0}, Age: 1500 * time.Millisecond, Failures: 7}
	})
	contain(t, scrape(t, m), `sluice_overlay_items{kind="override"} 2`, `sluice_overlay_items{kind="block"} 0`,
		`sluice_overlay_age_seconds 1.5`, `sluice_overlay_failures_total 7`)
}

func TestTrafficIsGathered(t *testing.T) {
	m := telemetry.NewMetrics()
	m.Traffic(func() traffic.Now {
		return traffic.Now{
			Leases: map[string]traffic.LeaseUnits{"tenant": {Leases: 1, Granted: 20, Spent: 11, Returned: 4, Expired: 5, Elsewhere: 2}},
			Out:    3, OutUnits: 30, Filters: 6, Workers: 4, Stale: 1, Away: 2, Ages: []float64{9, 1, 5, 7},
		}
	})
	contain(t, scrape(t, m),
		`sluice_leases_total{limit="tenant"} 1`, `sluice_lease_units_total{event="granted",limit="tenant"} 20`,
		`sluice_lease_units_total{event="spent",limit="tenant"} 11`, `sluice_lease_units_total{event="returned",limit="tenant"} 4`,
		`sluice_lease_units_total{event="expired",limit="tenant"} 5`, `sluice_lease_units_total{event="elsewhere",limit="tenant"} 2`,
		`sluice_leases_out 3`, `sluice_lease_units_out 30`, `sluice_workers 4`, `sluice_workers_stale 1`,
		`sluice_filters 6`, `sluice_workers_away 2`,
		`sluice_worker_age_youngest_seconds 1`, `sluice_worker_age_median_seconds 5`, `sluice_worker_age_oldest_seconds 9`,
	)
}
