package plugin_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// told sums up the tallies of all reports that the service has taken, in their order by limit, result and source.
func (s *service) told() []wire.Tally {
	sums := map[wire.Tally]wire.Tally{}
	for _, report := range s.reported {
		for _, t := range report.Tallies {
			what := t
			what.Count, what.Near = 0, 0
			sum := sums[what]
			t.Count, t.Near = t.Count+sum.Count, t.Near+sum.Near
			sums[what] = t
		}
	}
	var all []wire.Tally
	for _, t := range sums {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b wire.Tally) int {
		return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Route, b.Route), cmp.Compare(a.Result, b.Result), cmp.Compare(a.Source, b.Source))
	})
	return all
}

// toldKeys sums up the keys' tallies likewise, by limit and key.
func (s *service) toldKeys() []wire.KeyTally {
	var all []wire.KeyTally
	for _, report := range s.reported {
		for _, k := range report.Keys {
			i := slices.IndexFunc(all, func(other wire.KeyTally) bool { return other.KeyRef == k.KeyRef })
			if i < 0 {
				all = append(all, k)
				continue
			}
			all[i].Admitted += k.Admitted
			all[i].Denied += k.Denied
			all[i].ShadowAdmitted += k.ShadowAdmitted
			all[i].ShadowDenied += k.ShadowDenied
		}
	}
	slices.SortFunc(all, func(a, b wire.KeyTally) int { return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Key, b.Key)) })
	return all
}

func (w *world) wantTold(want ...wire.Tally) {
	w.t.Helper()
	w.pass(3 * time.Second)
	if diff := gocmp.Diff(want, w.service.told()); diff != "" {
		w.t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestStoriesOfReports(t *testing.T) {
	const (
		store, log, lists = uint8(admission.FromStore), uint8(admission.FromLog), uint8(admission.FromBlock)
		nothing, allowed  = uint8(admission.FromPolicy), uint8(admission.FromAllow)
	)

	scenario(t, "each request is told of once, by the limit that decided it", func(t *testing.T, w *world) {
		p := withReports(shop("v1", limit.Deny, rate(40, time.Hour)), rate(2, time.Minute))
		p.Limits[0].Match.Methods = []string{"GET", "POST"}
		w.with(p)
		for range 3 {
			w.worker().request(post("acme"), nil)
			w.serve()
		}
		w.worker().request(post("acme"), nil)
		w.get("acme")
		w.serve()
		w.worker().request([]host.Header{{":method", "PUT"}, {":path", "/"}}, nil)
		w.wantTold(
			wire.Tally{Result: wire.Admitted, Source: nothing, Count: 1},
			wire.Tally{Limit: "reports", Route: "/v1/reports", Window: time.Minute, Result: wire.Admitted, Source: store, Count: 2, Near: 1},
			wire.Tally{Limit: "reports", Route: "/v1/reports", Window: time.Minute, Result: wire.Denied, Source: log, Count: 2},
			wire.Tally{Limit: "tenant", Window: time.Hour, Result: wire.Admitted, Source: store, Count: 1},
		)
		want := []wire.KeyTally{
			{KeyRef: wire.KeyRef{Limit: "reports", Key: "acme"}, Admitted: 2, Denied: 2},
			{KeyRef: wire.KeyRef{Limit: "tenant", Key: "acme"}, Admitted: 1},
		}
		if diff := gocmp.Diff(want, w.service.toldKeys()); diff != "" {
			t.Errorf("keys (-want +got):\n%s", diff)
		}
	})

	scenario(t, "what leaves 5 % of a limit or less comes near it", func(_ *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(20, time.Hour)))
		for range 20 {
			w.get("acme")
			w.serve()
		}
		w.wantTold(wire.Tally{Limit: "tenant", Window: time.Hour, Result: wire.Admitted, Source: store, Count: 20, Near: 2})
	})

	scenario(t, "lists, and clients that leave, are told of", func(t *testing.T, w *world) {
		p := shop("v1", limit.Deny, rate(5, time.Hour))
		p.Limits[0].Allow = []policy.List{{Values: []string{"friend"}}}
		p.Limits[0].Block = []policy.List{{Values: []string{"thief"}}}
		p.Block = []policy.List{{Values: []string{"robber"}}}
		w.with(p)
		for _, tenant := range []string{"friend", "thief", "robber", "friend"} {
			w.get(tenant)
		}
		w.worker().end(w.get("acme"))
		w.wantTold(
			wire.Tally{Result: wire.Admitted, Source: allowed, Count: 2},
			wire.Tally{Result: wire.Left, Count: 1},
			wire.Tally{Limit: policy.BlockList, Result: wire.Denied, Source: lists, Count: 1},
			wire.Tally{Limit: "tenant", Result: wire.Denied, Source: lists, Count: 1},
		)
		robber, thief := wire.KeyRef{Limit: policy.BlockList, Key: "tenant=robber"}, wire.KeyRef{Limit: "tenant", Key: "tenant=thief"}
		if diff := gocmp.Diff([]wire.KeyTally{{KeyRef: robber, Denied: 1}, {KeyRef: thief, Denied: 1}}, w.service.toldKeys()); diff != "" {
			t.Errorf("who was blocked (-want +got):\n%s", diff)
		}
		var samples []wire.KeyRef
		for _, report := range w.service.reported {
			for _, sample := range report.Denials {
				samples = append(samples, sample.KeyRef)
			}
		}
		if diff := gocmp.Diff([]wire.KeyRef{thief, robber}, samples); diff != "" {
			t.Errorf("samples (-want +got):\n%s", diff)
		}
	})

	scenario(t, "what passes before there is a policy is told of afterwards", func(_ *testing.T, w *world) {
		w.get("acme")
		w.with(shop("v1", limit.Deny, rate(5, time.Hour)))
		w.wantTold(wire.Tally{Result: wire.Admitted, Source: uint8(admission.FromNoPolicy), Count: 1})
	})

	scenario(t, "what a limit in shadow would have done is told of, once for each", func(_ *testing.T, w *world) {
		p := withReports(shop("v1", limit.Deny, rate(2, time.Hour)), rate(100, time.Hour))
		p.Limits[0].Shadow = 100
		w.with(p)
		for range 3 {
			w.worker().request(post("acme"), nil)
			w.serve()
		}
		w.wantTold(
			wire.Tally{Limit: "reports", Route: "/v1/reports", Window: time.Hour, Result: wire.Admitted, Source: store, Count: 3},
			wire.Tally{Limit: "tenant", Window: time.Hour, Result: wire.ShadowAdmitted, Source: store, Count: 2, Near: 1},
			wire.Tally{Limit: "tenant", Window: time.Hour, Result: wire.ShadowDenied, Source: log, Count: 1},
		)
	})

	scenario(t, "while the service is away reports wait, and afterwards nothing is missing", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Allow, rate(1000, time.Hour)))
		w.breakDown()
		before := int64(0)
		for _, tally := range w.service.told() {
			before += tally.Count
		}
		for range 50 {
			w.get("acme")
			w.worker().advance(100 * milli)
			for _, call := range w.worker().calls() {
				w.worker().finish(call, fake.Reply{})
			}
		}
		w.pass(5 * time.Second)
		sum, away := int64(0), time.Duration(0)
		for _, tally := range w.service.told() {
			sum += tally.Count
		}
		for _, report := range w.service.reported {
			away += report.Away
		}
		if requests := w.worker().metric("sluice.requests"); sum != requests {
			t.Errorf("%d requests are told of, there were %d", sum, requests)
		}
		if away < 4*time.Second || away > 11*time.Second {
			t.Errorf("away for %v, of more than 5 s", away)
		}
	})

	scenario(t, lastReport, func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Hour)))
		w.get("acme")
		w.serve()
		w.pass(2 * time.Second)
		w.get("acme")
		w.worker().stop()
		var last wire.SyncRequest
		for _, call := range w.worker().calls() {
			w.execute(call)
			last = w.service.heard[len(w.service.heard)-1]
		}
		if last.Report == nil || len(last.Report.Tallies) != 1 || last.Report.Tallies[0].Result != wire.Denied {
			t.Errorf("the last call reports %+v", last.Report)
		}
	})
}

// The trace of a sampled denial is that of the request, as far as it says one.
func TestADenialsSample(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for header, want := range map[string]string{
		"00-" + id + "-00f067aa0ba902b7-01":     id,
		"cc-" + id + "-00f067aa0ba902b7-01-new": id,
		"":                                      "",
		"00-" + id:                              "",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": "",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01": "",
		"00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01": "",
	} {
		w := newWorld(t, 1, newNative).with(shop("v1", limit.Deny, rate(1, time.Hour)))
		for range 3 {
			w.worker().request(append(get("acme"), host.Header{"traceparent", header}), nil)
			w.serve()
		}
		w.pass(2 * time.Second)
		var samples []wire.DenialSample
		for _, report := range w.service.reported {
			for _, sample := range report.Denials {
				if sample.Source == uint8(admission.FromLog) { // on the spot, while the headers could be read
					samples = append(samples, sample)
				}
			}
		}
		if len(samples) == 0 || samples[0].TraceID != want || samples[0].Key != "acme" || samples[0].RetryAfter <= 0 {
			t.Errorf("traceparent %q: %+v", header, samples)
		}
	}
}

// traced gives what a sample of a denial says of its trace, by limit, source and whether it is a shadow's.
func (s *service) traced() map[string]string {
	all := map[string]string{}
	for _, report := range s.reported {
		for _, sample := range report.Denials {
			what := sample.Limit + " " + admission.Source(sample.Source).String()
			if sample.Shadow {
				what += " in shadow"
			}
			all[what] = sample.TraceID
		}
	}
	return all
}

// A denial has its request's trace id wherever it is decided, also where nobody keeps the trace and calls have no part in it.
func TestStoriesOfTraces(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	traced := append(get("acme"), host.Header{"traceparent", "00-" + id + "-00f067aa0ba902b7-00"})
	for name, c := range map[string]struct {
		of   func(p *policy.Policy)
		want string
	}{
		"of a request that waits": {of: func(*policy.Policy) {}, want: "tenant store"},
		"of a limit in shadow that waits": {
			of: func(p *policy.Policy) { p.Limits[0].Shadow = 100 }, want: "tenant store in shadow",
		},
		"of a limit in shadow, of a request that waits": {
			of: func(p *policy.Policy) {
				second := p.Limits[0]
				second.Name, second.Shadow, second.Rates = "second", 100, p.Limits[0].Rates
				p.Limits[0].Rates = []limit.Rate{rate(9, 10*time.Second)}
				p.Limits = append(p.Limits, second)
			},
			want: "second store in shadow",
		},
	} {
		scenario(t, name, func(t *testing.T, w *world) {
			p := shop("v1", limit.Deny, rate(2, 10*time.Second))
			c.of(p)
			w.with(p)
			others := wire.KeyRef{Limit: p.Limits[len(p.Limits)-1].Name, Key: "acme"}
			w.service.charges[others] = append(w.service.charges[others], &charge{units: 1, at: w.clock()})
			for range 2 { // the second is one too many, of which only the store knows
				w.worker().request(traced, nil)
				w.serve()
			}
			w.pass(2 * time.Second)
			got := w.service.traced()
			if got[c.want] != id {
				t.Errorf("%s: trace %q, want %q; told %v", c.want, got[c.want], id, got)
			}
		})
	}
}

// With tracing a call is a part of the trace of the request that waits for it, if that trace is kept; without, of none.
func TestTheTraceOfACall(t *testing.T) {
	const kept = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, c := range []struct{ configuration, header, want string }{
		{`{"tracing": true}`, kept, kept},
		{`{"tracing": true}`, kept[:54] + "b", kept[:54] + "b"},
		{`{"tracing": true}`, "cc" + kept[2:] + "-more\r\nx: y", "cc" + kept[2:]},
		{`{"tracing": true}`, kept[:54] + "0", ""},
		{`{"tracing": true}`, kept[:54] + "a", ""},
		{`{"tracing": true}`, kept[:52] + "x01", ""},
		{`{"tracing": true}`, strings.Replace(kept, "f067", "f\r\n7", 1), ""},
		{`{"tracing": true}`, "", ""},
		{`{}`, kept, ""},
	} {
		w := newWorld(t, 1, newNative).with(shop("v1", limit.Deny, rate(1, time.Hour)))
		if !w.worker().start(c.configuration) {
			t.Fatal(w.worker().log())
		}
		w.worker().request(append(get("acme"), host.Header{"traceparent", c.header}), nil)
		if got, _ := w.only().Header("traceparent"); got != c.want {
			t.Errorf("%s, traceparent %q: the call has %q, want %q", c.configuration, c.header, got, c.want)
		}
	}
}
