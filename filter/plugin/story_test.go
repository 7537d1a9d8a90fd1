package plugin_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/limit"
	"sluice/shared/wire"
)

func TestStories(t *testing.T) {
	scenario(t, "a request waits for the store, and its answer says what is left", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(3, time.Second)))
		r := w.get("acme")
		w.want(r, "waiting")
		w.serve()
		w.want(r, "passed")
		want := []host.Header{
			{"ratelimit-policy", `"tenant";q=3;w=1`},
			{"ratelimit", `"tenant";r=2;t=1`},
		}
		if diff := cmp.Diff(want, w.worker().respond(r)); diff != "" {
			t.Errorf("the response's headers (-want +got):\n%s", diff)
		}
	})

	scenario(t, "over the limit the answer is 429, and then no call is made until the denial ends", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		first, second := w.get("acme"), w.get("acme")
		w.serve()
		w.want(first, "passed")
		w.want(second, "429")
		o := w.worker().outcome(second)
		if want := `{"error":"rate_limited","message":"Over the limit of 1/s. Retry in 1 s.","limit":"tenant","retry_after":1}` + "\n"; o.body != want {
			t.Errorf("body %s, want %s", o.body, want)
		}
		for name, want := range map[string]string{
			"content-type": "application/json", "retry-after": "1", "ratelimit-policy": `"tenant";q=1;w=1`,
			"ratelimit": `"tenant";r=0;t=1`,
		} {
			if got := o.field(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if o.grpcStatus != -1 {
			t.Errorf("grpc-status %d for a request that is not gRPC", o.grpcStatus)
		}
		// Envoy shows the filter its own answer too: nothing is added twice.
		if got := len(w.worker().respond(second)); got != len(o.headers) {
			t.Errorf("%d header fields, want the %d of the answer", got, len(o.headers))
		}

		w.advance(900 * milli)
		third := w.get("acme")
		w.none()
		w.want(third, "429")
		w.advance(110 * milli)
		fourth := w.get("acme")
		w.serve()
		w.want(fourth, "passed")
		w.wantMetric("sluice.requests", 4)
		w.wantMetric("sluice.admitted", 2)
		w.wantMetric("sluice.denied.log", 2) // the second, which waited, without a call of its own
	})

	scenario(t, "a gRPC client is told RESOURCE_EXHAUSTED", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(0, time.Second)))
		for kind, want := range map[string]int{"application/grpc": 8, "application/grpc+proto": 8, "application/grpc-web": -1, "text/html": -1} {
			r := w.worker().request(append(get("acme"), host.Header{"content-type", kind}), nil)
			w.want(r, "429")
			if got := w.worker().outcome(r).grpcStatus; got != want {
				t.Errorf("%s: grpc-status %d, want %d", kind, got, want)
			}
		}
	})

	scenario(t, "requests that come during a call go into the next one, in order", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(3, time.Second)))
		first := w.get("acme")
		call := w.only()
		var later []int
		for range 4 {
			later = append(later, w.get("acme"))
		}
		w.none()
		w.worker().finish(call, w.execute(call))
		w.want(first, "passed")
		call = w.only()
		want := []wire.Ask{{KeyRef: wire.KeyRef{Limit: "tenant", Key: "acme"}, Want: 4, Min: 1, Waiting: 4}}
		if diff := cmp.Diff(want, w.read(call).Asks); diff != "" {
			t.Errorf("asks (-want +got):\n%s", diff)
		}
		w.worker().finish(call, w.execute(call))
		for i, fate := range []string{"passed", "passed", "429", "429"} {
			w.want(later[i], fate)
		}
	})

	scenario(t, "many keys share a call, and few calls are under way at once", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		var requests []int
		for _, tenant := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
			requests = append(requests, w.get(tenant))
		}
		calls := w.worker().calls()
		if len(calls) != 8 {
			t.Fatalf("%d calls under way, want 8", len(calls))
		}
		w.worker().finish(calls[0], w.execute(calls[0]))
		next := w.only()
		if got := len(w.read(next).Asks); got != 18 {
			t.Errorf("the next call asks for %d keys, want the 18 that wait", got)
		}
		for _, call := range append(calls[1:], next) {
			w.worker().finish(call, w.execute(call))
		}
		for _, r := range requests {
			w.want(r, "passed")
		}
	})

	scenario(t, "a request under two limits needs both, and costs nothing where one denies", func(t *testing.T, w *world) {
		w.with(withReports(shop("v1", limit.Deny, rate(10, time.Second)), rate(1, time.Second)))
		first := w.worker().request(post("acme"), nil)
		second := w.worker().request(post("acme"), nil)
		w.serve()
		w.want(first, "passed")
		w.want(second, "429")
		if o := w.worker().outcome(second); !strings.Contains(o.body, `"limit":"reports"`) {
			t.Errorf("body %s, want the limit that denied", o.body)
		}
		w.wantCharged("tenant", "acme", 1)
		// A standing denial of the one does not touch requests that only the other binds.
		third, fourth := w.get("acme"), w.worker().request(post("acme"), nil)
		w.serve()
		w.want(third, "passed")
		w.want(fourth, "429")
		w.wantCharged("tenant", "acme", 2)
	})

	scenario(t, "a group of many keys is not passed over for ever", func(t *testing.T, w *world) {
		w.with(withReports(shop("v1", limit.Deny, rate(100, time.Second)), rate(100, time.Second)))
		w.get("acme")
		call := w.only()
		both := w.worker().request(post("acme"), nil) // waits for tenant
		w.get("acme")                                 // waits behind it
		w.worker().finish(call, w.execute(call))
		call = w.only()
		var asked []string
		for _, ask := range w.read(call).Asks {
			asked = append(asked, ask.Limit)
		}
		if diff := cmp.Diff([]string{"tenant", "reports", "tenant"}, asked); diff != "" {
			t.Errorf("the next call's asks (-want +got):\n%s", diff)
		}
		w.worker().finish(call, w.execute(call))
		w.want(both, "passed")
		w.wantCharged("tenant", "acme", 3)
	})

	scenario(t, "those behind a group of many keys do not take its keys one by one", func(t *testing.T, w *world) {
		p := shop("v1", limit.Deny, rate(100, time.Second))
		p.Limits = append(p.Limits, p.Limits[0])
		p.Limits[0].Name, p.Limits[0].Match.Methods = "reads", []string{"GET", "PUT"}
		p.Limits[1].Name, p.Limits[1].Match.Methods = "writes", []string{"POST", "PUT"}
		w.with(p)
		send := func(method string) int {
			return w.worker().request([]host.Header{{":method", method}, {":path", "/"}, {"x-tenant-id", "acme"}}, nil)
		}
		send("GET")
		reads := w.only()
		send("POST")
		writes := w.only()
		both, read, write := send("PUT"), send("GET"), send("POST")
		w.worker().finish(reads, w.execute(reads))
		w.none() // for the one that came first still lacks the other key
		w.worker().finish(writes, w.execute(writes))
		call := w.only()
		if asks := w.read(call).Asks; len(asks) != 4 || asks[0].Group == 0 || asks[0].Group != asks[1].Group {
			t.Errorf("asks %+v", asks)
		}
		w.worker().finish(call, w.execute(call))
		for _, r := range []int{both, read, write} {
			w.want(r, "passed")
		}
	})

	scenario(t, "without a policy requests pass, and are counted", func(t *testing.T, w *world) {
		r := w.get("acme")
		w.want(r, "passed")
		w.wantMetric("sluice.no_policy", 1)
	})

	scenario(t, "without a policy requests are denied, where the configuration says so", func(t *testing.T, w *world) {
		w.worker().start(`{"without_policy":"deny"}`)
		r := w.get("acme")
		w.want(r, "503")
		if o := w.worker().outcome(r); !strings.Contains(o.body, `"error":"rate_limit_unavailable"`) || !slices.Contains(o.headers, host.Header{"retry-after", "1"}) {
			t.Errorf("body %s, headers %v", o.body, o.headers)
		}
		grpc := w.worker().request(append(get("acme"), host.Header{"content-type", "application/grpc"}), nil)
		if o := w.worker().outcome(grpc); o.grpcStatus != 14 {
			t.Errorf("grpc-status %d, want 14", o.grpcStatus)
		}
		w.wantMetric("sluice.no_policy", 2)
		w.with(shop("v1", limit.Deny, rate(3, time.Second)))
		r = w.get("acme")
		w.serve()
		w.want(r, "passed")
	})

	scenario(t, "the configuration's policy is in force until the service has sent another", func(t *testing.T, w *world) {
		first := shop("v0", limit.Local, rate(2, time.Second))
		compiled := wire.AppendGetPolicyResponse(nil, &wire.GetPolicyResponse{Version: "v0", Policy: first})
		if !w.worker().start(`{"first_policy":"` + base64.StdEncoding.EncodeToString(compiled) + `"}`) {
			t.Fatalf("the configuration was refused: %q", w.worker().log())
		}
		for _, want := range []string{"passed", "passed", "429"} { // the service does not answer: local decides
			r := w.get("acme")
			w.advance(timeout + tick)
			w.want(r, want)
		}
		w.wantMetric("sluice.no_policy", 0)
		w.with(shop("v1", limit.Deny, rate(0, time.Second)))
		r := w.get("beta")
		w.serve()
		w.want(r, "429")
	})

	scenario(t, "a request that no limit binds passes", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(0, time.Second)))
		r := w.worker().request([]host.Header{{":method", "GET"}, {":path", "/"}}, nil)
		w.none()
		w.want(r, "passed")
		if got := w.worker().respond(r); len(got) != 0 {
			t.Errorf("the response says %v", got)
		}
	})

	scenario(t, "header values of any bytes and length are told apart", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		values := []string{strings.Repeat("x", 1<<16), strings.Repeat("x", 1<<16) + "y", "\xff\xfe\x00", "\xff\xfe\x01", "a/b", "a%2Fb", "", "{}"}
		for _, value := range values {
			first := w.get(value)
			w.serve()
			second := w.get(value)
			w.serve()
			w.want(first, "passed")
			w.want(second, "429")
		}
		w.wantMetric("sluice.keys", int64(len(values)))
	})
}

func TestStoriesOfLossAndDelay(t *testing.T) {
	scenario(t, "a late answer admits nothing, and what it was granted is cancelled", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		r := w.get("acme")
		call := w.only()
		answer := w.execute(call)
		w.wantCharged("tenant", "acme", 1)
		w.advance(timeout + tick)
		w.want(r, "503")
		if o := w.worker().outcome(r); o.field("retry-after") != "1" || !strings.Contains(o.body, `"error":"rate_limit_unavailable"`) {
			t.Errorf("headers %v, body %s", o.headers, o.body)
		}
		if late := w.worker().outcome(r).decided.Sub(w.worker().outcome(r).arrived); late > timeout+tick {
			t.Errorf("decided after %v", late)
		}
		w.worker().finish(call, answer)
		w.want(r, "503")

		next := w.get("acme")
		call = w.only()
		want := []wire.Abandoned{{CallID: 1, Keys: []wire.KeyRef{{Limit: "tenant", Key: "acme"}}}}
		if diff := cmp.Diff(want, w.read(call).Abandoned); diff != "" {
			t.Errorf("abandoned (-want +got):\n%s", diff)
		}
		w.worker().finish(call, w.execute(call))
		w.want(next, "passed")
		w.wantCharged("tenant", "acme", 1)
		w.advance(1100 * milli)
		if got := w.read(w.only()).Abandoned; len(got) != 0 {
			t.Errorf("named again after it was acknowledged: %v", got)
		}
	})

	scenario(t, "an answer between the deadlines of two requests serves the one that still waits", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(5, time.Second)))
		w.get("acme")
		first := w.only()
		early := w.get("acme")
		w.advance(150 * milli)
		late := w.get("acme")
		w.worker().finish(first, w.execute(first))
		second := w.only() // for both
		answer := w.execute(second)
		w.advance(60 * milli) // the early one's deadline has passed
		w.worker().finish(second, answer)
		w.want(early, "503")
		w.want(late, "passed")
		// The unit that nobody took is given back, by a call of its own.
		w.wantCharged("tenant", "acme", 3)
		w.pass(300 * milli)
		w.wantCharged("tenant", "acme", 2)
		w.wantMetric("sluice.surplus", 1)
	})

	scenario(t, "between two ticks an answer after the deadline is late all the same", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(5, time.Second)))
		w.get("other")
		w.serve()
		w.advance(tick - milli)
		r := w.get("acme")
		call := w.only()
		answer := w.execute(call)
		// The tick comes at a multiple of 20 ms, the deadline 1 ms before one.
		w.advance(timeout)
		w.worker().finish(call, answer)
		w.want(r, "503")
	})

	scenario(t, "a call whose answer never comes holds up nobody but its own requests", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(5, time.Second)))
		lost := w.get("acme")
		w.only()
		w.advance(100 * milli)
		behind := w.get("acme")
		w.none()
		w.advance(110 * milli)
		w.want(lost, "503")
		w.serve()
		w.want(behind, "passed")
	})

	scenario(t, "a client that leaves is not answered, and its unit goes to those who came with it", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(2, time.Second)))
		first := w.get("acme")
		call := w.only()
		gone, one, two := w.get("acme"), w.get("acme"), w.get("acme")
		w.worker().finish(call, w.execute(call))
		call = w.only() // asks for three, one is granted
		answer := w.execute(call)
		w.worker().end(gone)
		w.worker().finish(call, answer)
		w.want(first, "passed")
		w.want(gone, "gone")
		w.want(one, "passed")
		w.want(two, "429")
		w.wantCharged("tenant", "acme", 2)
	})

	scenario(t, "where every client has left, what was granted is given back", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		gone := w.get("acme")
		call := w.only()
		w.worker().end(gone)
		w.worker().finish(call, w.execute(call))
		w.wantCharged("tenant", "acme", 1)
		next := w.get("acme") // the settle travels with its call
		w.serve()
		w.want(next, "passed")
		w.wantCharged("tenant", "acme", 1)
	})

	scenario(t, "a client that leaves before its call was sent is not asked for", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(9, time.Second)))
		w.get("acme")
		call := w.only()
		w.worker().end(w.get("acme"))
		w.worker().finish(call, w.execute(call))
		w.none()
		w.wantCharged("tenant", "acme", 1)
	})

	scenario(t, "a settle is repeated until it is acknowledged", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(9, time.Second)))
		gone := w.get("acme")
		call := w.only()
		w.worker().end(gone)
		w.worker().finish(call, w.execute(call))
		settled := func(within time.Duration) *fake.Call {
			t.Helper()
			w.advance(within)
			call := w.only()
			if got := w.read(call).Settles; len(got) != 1 || got[0].Unused != 1 {
				t.Fatalf("settles %+v", got)
			}
			return call
		}
		settled(250*milli + tick) // is lost
		call = settled(time.Second + tick)
		w.service.deaf = true
		w.worker().finish(call, w.execute(call))
		w.service.deaf = false
		call = settled(time.Second + tick)
		w.worker().finish(call, w.execute(call))
		w.wantCharged("tenant", "acme", 0)
		w.advance(time.Second + tick)
		if got := w.read(w.only()).Settles; len(got) != 0 {
			t.Errorf("settled again after it was acknowledged: %+v", got)
		}
	})

	scenario(t, "an answer that comes twice is taken once", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(2, time.Second)))
		first := w.get("acme")
		call := w.only()
		second, third := w.get("acme"), w.get("acme")
		answer := w.execute(call)
		w.worker().finish(call, answer)
		w.worker().finish(call, answer)
		w.want(first, "passed")
		w.want(second, "waiting")
		w.worker().finish(&fake.Call{ID: 12345}, answer)
		w.want(second, "waiting")
		w.serve()
		w.want(second, "passed")
		w.want(third, "429")
	})

	scenario(t, "the proxy's own answer to a paused request ends the pause", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		r := w.get("acme")
		if got := w.worker().respond(r); len(got) != 0 {
			t.Errorf("added %v to the proxy's answer", got)
		}
		w.serve()
		w.want(r, "waiting")
		w.worker().end(r)
		w.pass(300 * milli)
		w.wantCharged("tenant", "acme", 0)
	})
}
