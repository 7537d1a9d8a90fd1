package host

import (
	"strings"
	"testing"
	"time"
)

func TestStreamIsToldOfOnceAndInOrder(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	plugin := w.plugins[0]
	w.begin(2, 1)
	w.in(2, func() { w.requestHeaders(2) })
	w.in(2, func() { w.responseHeaders(2) })
	w.in(2, func() { w.done(2) })
	w.in(2, func() { w.responseHeaders(2) })
	w.in(2, func() { w.requestHeaders(2) })
	w.in(2, func() { w.done(2) })
	same(t, "the plugin was told", plugin.took(), []string{"request 2", "response 2", "done 2"})

	// One whose answer never comes by, and one that the plugin never saw: Envoy creates them for its access log.
	w.begin(3, 1)
	w.in(3, func() { w.requestHeaders(3) })
	w.end(3)
	w.begin(4, 1)
	w.end(4)
	same(t, "the plugin was told", plugin.took(), []string{"request 3", "done 3"})
	if w.streams.n != 0 {
		t.Errorf("%d streams are kept, want none", w.streams.n)
	}
}

func TestEachRootHasItsPlugin(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	w.begin(2, 0)
	w.envoy.config = "{}"
	w.in(1, func() { w.configure(1, 2) })
	w.begin(3, 1)
	w.begin(4, 2)
	w.in(4, func() { w.requestHeaders(4) })
	w.in(3, func() { w.requestHeaders(3) })
	w.in(2, func() { w.tick(2) })
	same(t, "the first was told", w.plugins[0].took(), []string{"start {}", "request 3"})
	same(t, "the second was told", w.plugins[1].took(), []string{"request 4", "tick"})
	// One plugin cannot send on another's request.
	if w.plugins[0].proxy.Continue(4) {
		t.Error("a plugin has sent on the request of another")
	}
	if w.configure(9, 0) || w.hostErrors() != 1 {
		t.Errorf("a root that does not exist was configured, or not counted: %d errors, want 1", w.hostErrors())
	}
}

func TestConfigurationIsRefused(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	w.plugins[0].refuses = true
	if w.configure(1, 0) {
		t.Error("accepted, want what the plugin said")
	}
	w.plugins[0].refuses = false
	w.envoy.refuse = statusInternalFailure
	if w.configure(1, 7) {
		t.Error("accepted a configuration that could not be read")
	}
}

// A request is answered or sent on once, also where the plugin wants more.
func TestRequestIsSettledOnce(t *testing.T) {
	for _, step := range []struct {
		name   string
		during func(p Proxy, stream ContextID) Action // in RequestHeaders
		later  func(p Proxy, stream ContextID) bool   // in a tick
		action uint32
		did    []string
		ok     bool // of later
		faults int64
	}{
		{name: "goes on", during: func(Proxy, ContextID) Action { return Proceed }, action: actionContinue},
		{
			name:   "goes on, and again",
			during: func(Proxy, ContextID) Action { return Proceed },
			later:  func(p Proxy, s ContextID) bool { return p.Continue(s) },
			action: actionContinue, faults: 1,
		},
		{
			name:   "pauses, goes on later",
			during: func(Proxy, ContextID) Action { return Pause },
			later:  func(p Proxy, s ContextID) bool { return p.Continue(s) },
			action: actionPause, did: []string{"5 continue"}, ok: true,
		},
		{
			name:   "pauses, is answered later",
			during: func(Proxy, ContextID) Action { return Pause },
			later: func(p Proxy, s ContextID) bool {
				return p.Respond(s, 429, []Header{{"retry-after", "1"}}, "no", 8)
			},
			action: actionPause, did: []string{`5 respond 429 [[retry-after 1]] "no" 8`}, ok: true,
		},
		{
			name:   "is answered at once, and told to go on",
			during: func(p Proxy, s ContextID) Action { p.Respond(s, 429, nil, "", -7); return Proceed },
			later:  func(p Proxy, s ContextID) bool { return p.Respond(s, 429, nil, "", -1) || p.Continue(s) },
			action: actionPause, did: []string{`5 respond 429 [] "" -1`}, faults: 2,
		},
		{
			name:   "is sent on at once, and paused",
			during: func(p Proxy, s ContextID) Action { p.Continue(s); return Pause },
			later:  func(p Proxy, s ContextID) bool { return p.Respond(s, 429, nil, "", -1) },
			action: actionContinue, faults: 1, // the host is told by the action alone
		},
	} {
		t.Run(step.name, func(t *testing.T) {
			w := newWorld(t)
			w.begin(1, 0)
			w.begin(5, 1)
			w.envoy.took()
			plugin := w.plugins[0]
			plugin.onRequest = func(s ContextID) Action { return step.during(plugin.proxy, s) }
			w.in(5, func() {
				if action := w.requestHeaders(5); action != step.action {
					t.Errorf("the action is %d, want %d", action, step.action)
				}
			})
			if step.later != nil {
				plugin.onTick = func() {
					if ok := step.later(plugin.proxy, 5); ok != step.ok {
						t.Errorf("later gave %t, want %t", ok, step.ok)
					}
				}
				w.in(1, func() { w.tick(1) })
			}
			same(t, "the host did", w.envoy.took(), step.did)
			if w.hostErrors() != step.faults {
				t.Errorf("%d errors counted, want %d", w.hostErrors(), step.faults)
			}
		})
	}
}

func TestClientLeavesWhilePaused(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	plugin := w.plugins[0]
	plugin.onRequest = func(ContextID) Action { return Pause }
	w.begin(2, 1)
	w.in(2, func() { w.requestHeaders(2) })
	w.end(2)
	w.envoy.took()
	plugin.onTick = func() {
		if plugin.proxy.Continue(2) || plugin.proxy.Respond(2, 429, nil, "", -1) {
			t.Error("a stream that is gone was sent on or answered")
		}
	}
	w.in(1, func() { w.tick(1) })
	same(t, "the host did", w.envoy.took(), nil)
	same(t, "the plugin was told", plugin.took(), []string{"request 2", "done 2", "tick"})
	if w.hostErrors() != 0 {
		t.Errorf("%d errors counted, want none: clients leave", w.hostErrors())
	}
}

// The stream that made a call has gone when the call ends: the plugin is told all the same, once, in its root context, and
// sends on the requests that wait.
func TestCallEndsOnce(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	plugin := w.plugins[0]
	plugin.onRequest = func(ContextID) Action {
		if _, err := plugin.proxy.Call("sluice", []Header{{":path", "/"}}, []byte("x"), 1500*time.Millisecond+1); err != nil {
			t.Error(err)
		}
		return Pause
	}
	for id := uint32(2); id <= 4; id++ {
		w.begin(id, 1)
		w.in(id, func() { w.requestHeaders(id) })
	}
	w.end(2)
	w.envoy.took()
	plugin.took()

	w.envoy.reply[callResponseHeaders] = []Header{{":status", "200"}, {"a", "1"}, {"a", "2"}}
	w.envoy.reply[callResponseTrailers] = []Header{{"grpc-status", "0"}}
	w.envoy.body = "granted"
	plugin.onCallEnded = func(_ CallID, reply Reply) {
		st, _ := reply.Header(":status")
		list, _ := reply.Header("a")
		none, found := reply.Header("grpc-status")
		grpc, _ := reply.Trailer("grpc-status")
		body, fits := reply.Body(7)
		_, fitsLess := reply.Body(6)
		if st != "200" || list != "1,2" || none != "" || found || grpc != "0" || string(body) != "granted" || !fits || fitsLess {
			t.Errorf("the reply is %s %s %s %s %s, fits %t and %t", st, list, none, grpc, body, fits, fitsLess)
		}
		if plugin.proxy.Continue(2) || !plugin.proxy.Continue(3) || !plugin.proxy.Respond(4, 429, nil, "", -1) {
			t.Error("want the first gone, the second sent on and the third answered")
		}
		if _, err := plugin.proxy.Call("sluice", nil, nil, 0); err != nil {
			t.Error(err)
		}
	}
	w.in(1, func() { w.callEnded(1, 1, 3, 7, 1) })
	same(t, "the host did", w.envoy.took(), []string{
		"3 continue", `4 respond 429 [] "" -1`, `1 call sluice [] "" 1`,
	})
	plugin.onCallEnded = nil
	w.in(1, func() { w.callEnded(1, 1, 3, 7, 1) }) // repeated
	w.in(1, func() { w.callEnded(1, 77, 0, 0, 0) })
	w.in(1, func() { w.callEnded(9, 2, 0, 0, 0) })
	same(t, "the plugin was told", plugin.took(), []string{"ended 1"})
}

func TestCallIsTheRootsOwn(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	w.begin(2, 1)
	w.envoy.took()
	plugin := w.plugins[0]
	plugin.onRequest = func(ContextID) Action {
		plugin.proxy.Call("sluice", []Header{{":path", "/"}}, []byte("x"), 1500*time.Millisecond+1)
		plugin.proxy.AddResponseHeader("in", "the stream's context again")
		return Proceed
	}
	w.in(2, func() { w.requestHeaders(2) })
	same(t, "the host did", w.envoy.took(), []string{
		`1 call sluice [[:path /]] "x" 1501`, "2 add in: the stream's context again",
	})
}

func TestCallFails(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	plugin := w.plugins[0]
	if _, err := plugin.proxy.Call("nowhere", nil, nil, time.Second); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("calling an unknown cluster gave %v, want an error with its name", err)
	}
	call, err := plugin.proxy.Call("sluice", nil, nil, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	plugin.onCallEnded = func(_ CallID, reply Reply) {
		_, header := reply.Header(":status")
		_, trailer := reply.Trailer("grpc-status")
		if body, ok := reply.Body(100); header || trailer || len(body) > 0 || !ok {
			t.Errorf("a reply that never came has a header %t, a trailer %t or a body %q", header, trailer, body)
		}
	}
	w.envoy.reply[callResponseHeaders] = []Header{{":status", "200"}} // of some other call
	w.in(1, func() { w.callEnded(1, uint32(call), 0, 0, 0) })
	same(t, "the plugin was told", plugin.took(), []string{"ended 1"})
}

func TestLostCallsAreBounded(t *testing.T) {
	var c calls
	for id := CallID(1); id <= 2*maxCalls; id++ {
		c.add(id)
	}
	if len(c.ids) != maxCalls || c.end(maxCalls) || !c.end(maxCalls+1) || c.end(maxCalls+1) || !c.end(2*maxCalls) {
		t.Errorf("of %d calls %d are kept, from %d on", 2*maxCalls, len(c.ids), c.ids[0])
	}
}

// A plugin that is not through yet is asked again after the next that it is told, and tells the host when it is.
func TestStopLater(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	w.begin(2, 1)
	w.in(2, func() { w.requestHeaders(2) })
	plugin := w.plugins[0]
	plugin.took()
	plugin.lingers = true
	call, err := plugin.proxy.Call("sluice", nil, nil, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if w.done(1) {
		t.Error("the root is done, want it to wait for the plugin")
	}
	w.in(1, func() { w.tick(1) })
	plugin.onCallEnded = func(CallID, Reply) { plugin.lingers = false }
	w.envoy.took()
	w.in(1, func() { w.callEnded(1, uint32(call), 0, 0, 0) })
	w.in(1, func() { w.tick(1) })
	same(t, "the host did", w.envoy.took(), []string{"1 done"})
	w.in(2, func() { w.responseHeaders(2) })
	w.end(2)
	same(t, "the plugin was told", plugin.took(), []string{"stop", "tick", "stop", "ended 1", "stop"})
	if len(w.roots) != 0 {
		t.Error("the root is kept")
	}
}

// Whatever the host refuses, nothing panics, and what cannot be returned is counted.
func TestHostRefusesEverything(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	w.begin(2, 1)
	plugin := w.plugins[0]
	gauge := plugin.proxy.Gauge("before")
	w.envoy.refuse = statusInternalFailure
	metric := plugin.proxy.Counter("after")
	plugin.onRequest = func(s ContextID) Action {
		p := plugin.proxy
		p.Log(Error, "x")
		p.SetTick(time.Second)
		_, header := p.RequestHeader("x")
		_, property := p.Property("x")
		_, err := p.Call("sluice", nil, nil, time.Second)
		p.AddResponseHeader("x", "y")
		p.Add(metric, 1)
		p.Record(metric, 1)
		p.Add(gauge, 0)
		if header > 0 || property || err == nil || p.Respond(s, 429, nil, "", -1) || p.Continue(s) {
			t.Error("something went well")
		}
		return Pause
	}
	w.in(2, func() { w.requestHeaders(2) })
	const refused = 7 // all but Call, which says so, and Continue after it
	if w.hostErrors() != refused {
		t.Errorf("%d errors counted, want %d", w.hostErrors(), refused)
	}
}
