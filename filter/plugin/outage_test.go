package plugin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/limit"
	"sluice/shared/wire"
)

// fail ends a call without an answer, as the proxy does when the connection breaks.
func (w *world) fail(calls ...*fake.Call) {
	for _, call := range calls {
		w.worker().finish(call, fake.Reply{})
	}
}

// breakDown lets calls fail until the worker asks no more.
func (w *world) breakDown() {
	w.t.Helper()
	for i := range 3 {
		w.get("down" + string(rune('a'+i)))
		w.fail(w.only())
	}
	w.get("downd")
	w.none()
}

func TestStoriesOfOutage(t *testing.T) {
	scenario(t, "a call that fails leaves its requests to on_unavailable, at once", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		r := w.get("acme")
		w.fail(w.only())
		w.want(r, "503")
		w.wantMetric("sluice.failures", 1)
		w.wantMetric("sluice.abandoned", 1)
		w.wantMetric("sluice.denied.fallback", 1)
	})

	scenario(t, "after three failures nothing is asked, and probes say when to ask again", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		first := w.get("acme")
		call := w.only()
		waits := w.get("acme")
		w.fail(call)
		second := w.only() // for the one that waited
		w.fail(second)
		w.want(first, "503")
		w.want(waits, "503")
		third := w.get("acme")
		call = w.only()
		behind := w.get("acme")
		w.fail(call)
		w.want(third, "503")
		w.want(behind, "503")
		r := w.get("acme")
		w.none()
		w.want(r, "503")

		// Probes ask for nothing; they come after 50–100 ms, then more and more rarely, at least once a second: the end of an outage is found out within two.
		var probes int
		for range 1500 {
			w.advance(tick)
			for _, probe := range w.worker().calls() {
				probes++
				if got := w.read(probe).Asks; len(got) != 0 {
					t.Fatalf("a probe asks for %+v", got)
				}
				w.fail(probe)
			}
		}
		if probes < 30 || probes > 60 {
			t.Errorf("%d probes in 30 s, want about 43", probes)
		}
		w.want(w.get("acme"), "503")

		w.pass(5 * time.Second) // a probe comes through
		r = w.get("acme")
		w.serve()
		w.want(r, "passed")
		if log := strings.Join(w.worker().log(), "\n"); !strings.Contains(log, "error: sluice: cluster sluice is not asked for now") ||
			!strings.Contains(log, "info: sluice: cluster sluice is asked again") {
			t.Errorf("the log says\n%s", log)
		}
	})

	scenario(t, "an answer between failures keeps the service asked", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(9, time.Second)))
		for range 4 {
			for range 2 {
				w.get("acme")
				w.fail(w.only())
			}
			r := w.get("acme")
			w.serve()
			w.want(r, "passed")
		}
	})

	scenario(t, "a service whose store is away is probed with one ask", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		w.service.storeDown = true
		for range 3 {
			r := w.get("acme")
			w.serve()
			w.want(r, "503")
		}
		r := w.get("acme")
		w.none()
		w.want(r, "503")
		w.pass(150 * milli) // a probe comes through: the service is there
		w.get("acme")
		call := w.only()
		w.worker().finish(call, w.execute(call)) // its store is not
		r = w.get("acme")
		w.none()
		w.want(r, "503")
		w.service.storeDown = false
		w.pass(300 * milli)
		r = w.get("acme")
		w.serve()
		w.want(r, "passed")
	})

	scenario(t, "what the store may have charged without saying is cancelled", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		w.service.storeDown, w.service.chargeAnyway = true, true
		r := w.get("acme")
		w.serve()
		w.want(r, "503")
		w.wantCharged("tenant", "acme", 1)
		w.service.storeDown = false
		r = w.get("acme")
		w.serve()
		w.want(r, "passed")
		w.wantCharged("tenant", "acme", 1)
	})

	scenario(t, "units spent are never cancelled with a neighbour's problem", func(t *testing.T, w *world) {
		w.with(withReports(shop("v1", limit.Deny, rate(9, time.Second)), rate(9, time.Second)))
		w.get("acme")
		call := w.only()
		one, both := w.get("acme"), w.worker().request(post("acme"), nil)
		w.worker().finish(call, w.execute(call))
		call = w.only() // asks for tenant, and for tenant and reports
		w.execute(call)
		w.worker().finish(call, good(wire.AppendSyncResponse(nil, &wire.SyncResponse{
			PolicyVersion: "v1",
			Results: []wire.AskResult{
				{Lease: "lease-2", Units: 1, Limit: 9, Window: time.Second, Remaining: 7},
				{Problem: wire.StoreProblem},
				{Problem: wire.StoreProblem},
			},
		})))
		w.want(one, "passed")
		w.want(both, "503")
		w.pass(300 * milli)
		var named []wire.Abandoned
		for _, heard := range w.service.heard {
			named = append(named, heard.Abandoned...)
		}
		want := []wire.Abandoned{{CallID: 2, Keys: []wire.KeyRef{{Limit: "reports", Key: "acme"}}}}
		if diff := cmp.Diff(want, named); diff != "" {
			t.Errorf("abandoned (-want +got):\n%s", diff)
		}
	})

	scenario(t, "local: the worker's share of the limit, and the store is told afterwards", func(t *testing.T, w *world) {
		w.service.workers, w.service.rank = 4, 1
		w.with(shop("v1", limit.Local, rate(10, 10*time.Second)))
		w.get("other")
		w.serve() // tells the share: 10 = 3 + 3 + 2 + 2
		for range 3 {
			w.get("down")
			w.fail(w.only())
		}
		for i, fate := range []string{"passed", "passed", "passed", "429"} {
			r := w.get("acme")
			w.none()
			if w.want(r, fate); i == 3 && w.worker().outcome(r).field("ratelimit") != `"tenant";r=0;t=10` {
				t.Errorf("headers %v", w.worker().outcome(r).headers)
			}
		}
		w.wantMetric("sluice.admitted.fallback", 6)
		w.pass(6 * time.Second)
		said := 0
		for _, heard := range w.service.heard {
			said += len(heard.Records)
		}
		for _, tenant := range []string{"acme", "down"} {
			if got := w.service.count(wire.KeyRef{Limit: "tenant", Key: tenant}, w.clock(), 10*time.Second); got != 3 {
				t.Errorf("%s: %d units recorded, want 3", tenant, got)
			}
		}
		w.pass(2 * time.Second)
		for _, heard := range w.service.heard {
			said -= len(heard.Records)
		}
		if said != 0 {
			t.Errorf("%d records were said again after they had been acknowledged", -said)
		}
	})

	scenario(t, "what a fallback admits after a record has gone out is another record", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Allow, rate(10, 10*time.Second)))
		for i := range 3 {
			r := w.get("acme")
			call := w.only()
			w.execute(call) // the service acts, and its answer is lost
			w.fail(call)
			w.want(r, "passed")
			if got := len(w.read(call).Records); got != i {
				t.Errorf("call %d carries %d records", i, got)
			}
		}
		w.pass(6 * time.Second)
		if got := w.service.count(wire.KeyRef{Limit: "tenant", Key: "acme"}, w.clock(), 10*time.Second); got != 3 {
			t.Errorf("%d units are counted, want the 3 that were admitted", got)
		}
	})

	scenario(t, "allow: every request passes", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Allow, rate(1, time.Second)))
		w.breakDown()
		for range 5 {
			w.want(w.get("acme"), "passed")
		}
	})

	scenario(t, "garbage is a failure, and admits nothing", func(t *testing.T, w *world) {
		grant := func(r ...wire.AskResult) []byte {
			return wire.AppendSyncResponse(nil, &wire.SyncResponse{PolicyVersion: "v1", Results: r})
		}
		status := func(code string) fake.Reply {
			reply := good(grant(wire.AskResult{Lease: "l", Units: 1}))
			reply.Trailers = []host.Header{{"grpc-status", code}, {"grpc-message", "no\nway"}}
			return reply
		}
		noStatus := good(grant(wire.AskResult{Lease: "l", Units: 1}))
		noStatus.Trailers = nil
		http := good(grant(wire.AskResult{Lease: "l", Units: 1}))
		http.Headers = []host.Header{{":status", "503"}}
		compressed := good(nil)
		compressed.Content[0] = 1
		huge := good(nil)
		huge.Content = make([]byte, wire.MaxMessageSize+100)
		for name, reply := range map[string]fake.Reply{
			"no answer": {}, "HTTP 503": http, "grpc-status 14": status("14"), "grpc-status nonsense": status("x"),
			"no grpc-status": noStatus, "compressed": compressed, "huge": huge,
			"random bytes":        good([]byte("\xff\xfe\xfd garbage")),
			"no results":          good(grant()),
			"too many results":    good(grant(wire.AskResult{Lease: "l", Units: 1}, wire.AskResult{Lease: "m", Units: 1})),
			"too many units":      good(grant(wire.AskResult{Lease: "l", Units: 2})),
			"units and problem":   good(grant(wire.AskResult{Lease: "l", Units: 1, Problem: wire.StoreProblem})),
			"a lease":             good(grant(wire.AskResult{Lease: "l", Units: 1, StartIn: time.Second, EndIn: time.Minute})),
			"trailers-only error": {Headers: []host.Header{{":status", "200"}, {"grpc-status", "8"}}},
		} {
			w := newWorld(t, 1, runners["native"]).with(shop("v1", limit.Deny, rate(1, time.Second)))
			r := w.get("acme")
			w.worker().finish(w.only(), reply)
			if got := fateOf(w.worker().outcome(r)); got != "503" {
				t.Errorf("%s: %s, want 503", name, got)
			}
			if got := w.worker().metric("sluice.failures"); got != 1 {
				t.Errorf("%s: %d failures", name, got)
			}
			next := w.get("acme")
			w.serve()
			if got := fateOf(w.worker().outcome(next)); got != "passed" {
				t.Errorf("after %s: %s, want passed", name, got)
			}
			for _, line := range w.worker().log() {
				if strings.ContainsAny(line, "\n\r") {
					t.Errorf("%s: a log line of two: %q", name, line)
				}
			}
		}
	})

	scenario(t, "acknowledgements of what was never said mean nothing", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		r := w.get("acme")
		w.worker().finish(w.only(), good(wire.AppendSyncResponse(nil, &wire.SyncResponse{
			PolicyVersion: "v1", Settled: []uint32{0, 7, 1 << 31}, Abandoned: []uint32{3}, Recorded: []uint32{1 << 31},
			Workers: 2, Rank: 9,
			Results: []wire.AskResult{{Lease: "l", Units: 1, Limit: 1, Window: time.Second}},
		})))
		w.want(r, "passed")
	})

	scenario(t, "a proxy that refuses calls", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		w.worker().refuse(true)
		for range 5 {
			w.want(w.get("acme"), "503")
		}
		w.worker().refuse(false)
		w.pass(300 * milli)
		r := w.get("acme")
		w.serve()
		w.want(r, "passed")
		w.wantMetric("sluice.abandoned", 0)
	})

	scenario(t, "more requests than may wait are decided as if the service were away", func(t *testing.T, w *world) {
		if !w.worker().start(`{"max_paused":3}`) {
			t.Fatal("refused")
		}
		w.with(shop("v1", limit.Deny, rate(9, time.Second)))
		for i := range 5 {
			r := w.get("acme")
			w.want(r, []string{"waiting", "waiting", "waiting", "503", "503"}[i])
		}
		w.serve()
		r := w.get("acme")
		w.serve()
		w.want(r, "passed")
	})
}
