package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/controlsvc/telemetry"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

const second = instant.Instant(1_000_000)

// lines gives what was logged, without what is always there.
func lines(t testing.TB, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		delete(one, "time")
		delete(one, "level")
		all = append(all, one)
	}
	return all
}

// ended is a context in which Run writes what waits, and no more.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A worker that decides without the service does not know what is left of a limit, so no line says so.
func TestFallbackDenialHasNoRemaining(t *testing.T) {
	var text bytes.Buffer
	l := telemetry.NewMetrics().DenialLog(telemetry.NewLogger(&text, slog.LevelInfo), func() instant.Instant { return second }, time.Second)
	l.SetPolicy(shop("tenant", "reports"))
	for limit, source := range map[string]admission.Source{"tenant": admission.FromFallback, "reports": admission.FromStore} {
		l.Reported(7, &wire.Report{
			Tallies: []wire.Tally{{Limit: limit, Result: wire.Denied, Count: 1}},
			Denials: []wire.DenialSample{{KeyRef: wire.KeyRef{Limit: limit, Key: "acme"}, Source: uint8(source), Remaining: 89}},
		})
	}
	l.Run(ended())
	told := map[any]any{}
	for _, line := range lines(t, text.String()) {
		told[line["source"]] = line["remaining"]
	}
	if diff := cmp.Diff(map[any]any{"fallback": nil, "store": 89.}, told); diff != "" {
		t.Errorf("what is said to be left (-want +got):\n%s", diff)
	}
}

func TestDenialLog(t *testing.T) {
	m := telemetry.NewMetrics()
	var text bytes.Buffer
	now := 1000 * second
	l := m.DenialLog(telemetry.NewLogger(&text, slog.LevelInfo), func() instant.Instant { return now }, time.Second)
	l.SetPolicy(shop("tenant", "reports"))
	sample := wire.DenialSample{
		KeyRef: wire.KeyRef{Limit: "tenant", Key: "ac\nme"}, Route: "/v1", Window: time.Minute, Source: uint8(admission.FromDenial),
		RetryAfter: 1500 * time.Microsecond, Age: time.Millisecond, TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
	}
	shadow := wire.DenialSample{KeyRef: wire.KeyRef{Limit: "tenant", Key: "globex"}, Shadow: true, Source: uint8(admission.FromStore), Remaining: 2}
	report := wire.Report{
		Tallies: []wire.Tally{
			{Limit: "tenant", Result: wire.Denied, Count: 40},
			{Limit: "tenant", Route: "/v1", Result: wire.Denied, Count: 2},
			{Limit: "tenant", Result: wire.ShadowDenied, Count: 7},
			{Limit: "tenant", Result: wire.Admitted, Count: 9},
		},
		Denials: []wire.DenialSample{sample, sample, shadow},
	}
	l.Reported(0xabc, &report)
	now += second / 2
	l.Reported(0xabc, &report) // too soon, but counted
	now += second / 2
	l.Reported(0xabc, &wire.Report{Denials: []wire.DenialSample{sample}})
	l.Run(ended())
	line := func(count float64) map[string]any {
		return map[string]any{
			"msg": "denied", "limit": "tenant", "key": "ac\nme", "shadow": false, "route": "/v1", "window": "1m0s", "source": "denial",
			"remaining": 0., "retry_after": "1.5ms", "age": "1ms", "worker": "0000000000000abc", "count": count,
			"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
		}
	}
	want := []map[string]any{line(42), {
		"msg": "denied", "limit": "tenant", "key": "globex", "shadow": true, "route": "", "window": "0s", "source": "store",
		"remaining": 2., "retry_after": "0s", "age": "0s", "worker": "0000000000000abc", "count": 7.,
	}, line(42)}
	if diff := cmp.Diff(want, lines(t, text.String())); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// However much is denied, and however much of that is lost, the lines' counts and what has none yet are all denials.
func TestDenialsAreCountedExactly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := telemetry.NewMetrics()
		var text bytes.Buffer
		now := second
		l := m.DenialLog(telemetry.NewLogger(&text, slog.LevelInfo), func() instant.Instant { return now }, time.Second)
		l.SetPolicy(shop("a", "b"))
		var denied, flushed int64
		limits := rapid.SampledFrom([]string{"a", "b", "c", ""})
		for range rapid.IntRange(1, 30).Draw(rt, "reports") {
			now += instant.Instant(rapid.Int64Range(0, 1_500_000).Draw(rt, "passes"))
			var r wire.Report
			for range rapid.IntRange(0, 3).Draw(rt, "tallies") {
				n := rapid.Int64Range(0, 100).Draw(rt, "count")
				denied += n
				r.Tallies = append(r.Tallies, wire.Tally{Limit: limits.Draw(rt, "limit"), Result: wire.Denied, Count: n})
			}
			for range rapid.IntRange(0, 3).Draw(rt, "samples") {
				r.Denials = append(r.Denials, wire.DenialSample{KeyRef: wire.KeyRef{Limit: limits.Draw(rt, "of")}})
			}
			l.Reported(1, &r)
		}
		now += 10 * second // whatever has no line yet gets one
		for _, limit := range []string{"a", "b", "c", ""} {
			l.Reported(1, &wire.Report{Denials: []wire.DenialSample{{KeyRef: wire.KeyRef{Limit: limit}}}})
		}
		l.Run(ended())
		for _, line := range lines(t, text.String()) {
			n, _ := line["count"].(float64)
			flushed += int64(n)
		}
		if flushed != denied {
			rt.Fatalf("the lines tell of %d denials of %d:\n%s", flushed, denied, text.String())
		}
	})
}

// Where nobody writes, lines are lost and counted, and nobody waits; limits that are gone are not remembered.
func TestDenialLogIsBounded(t *testing.T) {
	m := telemetry.NewMetrics()
	var text bytes.Buffer
	now := second
	l := m.DenialLog(telemetry.NewLogger(&text, slog.LevelInfo), func() instant.Instant { return now }, time.Second)
	for i := range 1124 {
		limit := fmt.Sprint("limit-", i)
		l.SetPolicy(shop(limit))
		l.Reported(1, &wire.Report{
			Tallies: []wire.Tally{{Limit: limit, Result: wire.Denied, Count: 1}}, Denials: []wire.DenialSample{{KeyRef: wire.KeyRef{Limit: limit}}},
		})
	}
	contain(t, scrape(t, m), `sluice_log_lost_total 100`)
	l.Reported(1, &wire.Report{Denials: []wire.DenialSample{{KeyRef: wire.KeyRef{Limit: "limit-1123"}}}})
	l.Run(ended())
	if n := len(lines(t, text.String())); n != 1024 {
		t.Errorf("%d lines", n)
	}
	l.Reported(1, &wire.Report{Denials: []wire.DenialSample{{KeyRef: wire.KeyRef{Limit: "limit-1123"}}}})
	text.Reset()
	l.Run(ended())
	if all := lines(t, text.String()); len(all) != 1 || all[0]["count"] != 1. {
		t.Errorf("%v; want the one that was lost", all)
	}
	quiet := m.DenialLog(telemetry.NewLogger(&text, slog.LevelInfo), func() instant.Instant { return now }, 0)
	text.Reset()
	quiet.Reported(1, &wire.Report{Tallies: []wire.Tally{{Result: wire.Denied, Count: 1}}, Denials: make([]wire.DenialSample, 1)})
	if quiet.Run(ended()); text.Len() > 0 {
		t.Errorf("logged, but told not to: %s", text.String())
	}
}

func TestAuditPolicy(t *testing.T) {
	var text bytes.Buffer
	logger := telemetry.NewLogger(&text, slog.LevelInfo)
	before := &policy.Policy{
		Version: "v1", Domain: "shop", Identities: []policy.Identity{{Name: "tenant"}, {Name: "client"}},
		Limits: []policy.Limit{{Name: "stays", Key: []uint32{0}}, {Name: "goes"}, {Name: "changes"}, {Name: "other key", Key: []uint32{0}}},
	}
	// The identities have changed places, so that numbers alone tell nothing.
	after := &policy.Policy{
		Version: "v2", Domain: "shop", Identities: []policy.Identity{{Name: "client"}, {Name: "tenant"}},
		Limits: []policy.Limit{
			{Name: "stays", Key: []uint32{1}}, {Name: "changes", Cost: 2}, {Name: "comes"}, {Name: "other key", Key: []uint32{0}},
		},
	}
	after.Limits[0].PlanBy = 1
	before.Limits[0].PlanBy = 0
	telemetry.AuditPolicy(logger, nil, before)
	telemetry.AuditPolicy(logger, before, after)
	many := shop()
	for i := range 60 {
		many.Limits = append(many.Limits, policy.Limit{Name: fmt.Sprintf("limit-%02d", i)})
	}
	telemetry.AuditPolicy(logger, &policy.Policy{}, many)
	all := lines(t, text.String())
	list := func(n int, of string) string { return fmt.Sprint(all[n][of]) }
	if list(0, "added") != "[changes goes other key stays]" || list(0, "old_version") != "" || list(0, "version") != "v1" {
		t.Errorf("%v", all[0])
	}
	if list(1, "added") != "[comes]" || list(1, "removed") != "[goes]" || !strings.Contains(list(1, "changed"), "changes") ||
		!strings.Contains(list(1, "changed"), "other key") || strings.Contains(list(1, "changed"), "stays") {
		t.Errorf("%v", all[1])
	}
	if added := list(2, "added"); !strings.HasSuffix(added, "limit-49 and 10 more]") {
		t.Errorf("%v", added)
	}
}
