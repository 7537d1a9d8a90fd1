//go:build !wasip1

package host

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/proxytest"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
)

// emulated is a recorder behind the SDK, in the SDK's emulator of a host.
type emulated struct {
	proxytest.HostEmulator
	plugin *recorder

	adapter *sdk
}

func emulate(t *testing.T, configuration string) *emulated {
	t.Helper()
	e := &emulated{}
	e.adapter = NewVMContext(func(p Proxy) Plugin {
		e.plugin = &recorder{proxy: p}
		return e.plugin
	}).(*sdk)
	var reset func()
	e.HostEmulator, reset = proxytest.NewHostEmulator(proxytest.NewEmulatorOption().
		WithVMContext(e.adapter).
		WithPluginConfiguration([]byte(configuration)).
		WithProperty([]string{"source", "address"}, []byte("192.0.2.1:1234")))
	t.Cleanup(reset)
	if e.StartVM() != types.OnVMStartStatusOK {
		t.Fatal("the VM does not start")
	}
	return e
}

func (e *emulated) calls() []proxytest.HttpCalloutAttribute {
	return e.GetCalloutAttributesFromContext(proxytest.PluginContextID)
}

func TestSDKStart(t *testing.T) {
	e := emulate(t, `{"a":1}`)
	var counter, gauge Metric
	e.plugin.onStart = func() {
		e.plugin.proxy.SetTick(49*time.Millisecond + 1)
		counter, gauge = e.plugin.proxy.Counter("c"), e.plugin.proxy.Gauge("g")
		e.plugin.proxy.Log(Debug, "1")
		e.plugin.proxy.Log(Info, "2")
		e.plugin.proxy.Log(Warn, "3")
		e.plugin.proxy.Log(Error, "4")
	}
	if e.StartPlugin() != types.OnPluginStartStatusOK {
		t.Error("the plugin was refused")
	}
	e.plugin.onTick = func() {
		e.plugin.proxy.Add(counter, 2)
		e.plugin.proxy.Add(counter, 0)
		e.plugin.proxy.Add(counter, -1) // the SDK would panic
		e.plugin.proxy.Record(gauge, 9)
		e.plugin.proxy.Add(gauge, -2)
	}
	e.Tick()
	c, err := e.GetCounterMetric("c")
	if err != nil || c != 2 {
		t.Errorf("the counter is %d, %v; want 2", c, err)
	}
	g, err := e.GetGaugeMetric("g")
	if err != nil || g != 7 {
		t.Errorf("the gauge is %d, %v; want 7", g, err)
	}
	if period := e.GetTickPeriod(); period != 50 {
		t.Errorf("it ticks every %d ms, want 50", period)
	}
	var lines []string
	for _, l := range [][]string{e.GetDebugLogs(), e.GetInfoLogs(), e.GetWarnLogs(), e.GetErrorLogs()} {
		lines = append(lines, l...)
	}
	same(t, "the log", lines, []string{"1", "2", "3", "4"})
	same(t, "the plugin was told", e.plugin.took(), []string{`start {"a":1}`, "tick"})
	if !e.FinishVM() {
		t.Error("the plugin does not stop")
	}
	if len(e.adapter.plugins) != 0 || len(e.adapter.vm.roots) != 0 {
		t.Error("a plugin that has stopped is kept")
	}
}

func TestSDKRefusesConfiguration(t *testing.T) {
	e := emulate(t, "")
	e.plugin.refuses = true
	if e.StartPlugin() != types.OnPluginStartStatusFailed {
		t.Error("accepted, want what the plugin said")
	}
	same(t, "the plugin was told", e.plugin.took(), []string{"start "})
}

func TestSDKRequest(t *testing.T) {
	e := emulate(t, "")
	e.StartPlugin()
	e.plugin.took()
	found := map[string]string{}
	e.plugin.onRequest = func(ContextID) Action {
		for _, name := range []string{":path", "x", "host", "cookie", "none"} {
			if value, n := e.plugin.proxy.RequestHeader(name); n > 0 {
				found[name] = value
			}
		}
		if address, ok := e.plugin.proxy.Property("source", "address"); ok {
			found["source"] = address
		}
		if value, ok := e.plugin.proxy.Property("no", "such"); ok {
			found["such"] = value
		}
		if value, ok := e.plugin.proxy.Property(); ok {
			found[""] = value
		}
		return Proceed
	}
	e.plugin.onResponse = func(ContextID) { e.plugin.proxy.AddResponseHeader("ratelimit", "r=1") }
	s := e.InitializeHttpContext()
	action := e.CallOnRequestHeaders(s, [][2]string{
		{":path", "/"}, {"X", "1"}, {":authority", "a.test"}, {"x", "2"}, {"cookie", "a=1"}, {"cookie", "b=2"},
	}, true)
	if action != types.ActionContinue {
		t.Errorf("the action is %d, want to go on", action)
	}
	e.CallOnResponseHeaders(s, [][2]string{{":status", "200"}}, true)
	want := map[string]string{
		":path": "/", "x": "1,2", "host": "a.test", "cookie": "a=1; b=2", "source": "192.0.2.1:1234",
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if diff := cmp.Diff([][2]string{{":status", "200"}, {"ratelimit", "r=1"}}, e.GetCurrentResponseHeaders(s)); diff != "" {
		t.Errorf("the response, want -, got +:\n%s", diff)
	}
	e.CompleteHttpContext(s)
	if told := e.plugin.took(); len(told) != 3 || told[2] != told[0][:0]+"done"+told[0][len("request"):] {
		t.Errorf("the plugin was told %q, want request, response and done of one stream", told)
	}
	if e.adapter.vm.streams.n != 0 {
		t.Error("a stream that is over is kept")
	}
}

func TestSDKAnswersOnce(t *testing.T) {
	e := emulate(t, "")
	e.StartPlugin()
	e.plugin.onRequest = func(s ContextID) Action {
		if !e.plugin.proxy.Respond(s, 429, []Header{{"retry-after", "2"}}, "no", 8) || e.plugin.proxy.Respond(s, 500, nil, "", -1) {
			t.Error("want one answer, and no second one")
		}
		return Proceed
	}
	s := e.InitializeHttpContext()
	if e.CallOnRequestHeaders(s, nil, true) != types.ActionPause {
		t.Error("a request that was answered goes on")
	}
	answer := e.GetSentLocalResponse(s)
	if answer == nil || answer.StatusCode != http.StatusTooManyRequests || string(answer.Data) != "no" || answer.GRPCStatus != 8 ||
		!cmp.Equal(answer.Headers, [][2]string{{"retry-after", "2"}}) {
		t.Errorf("the answer is %+v", answer)
	}
}

// A call that a stream makes is the root context's own, and its end is told when the stream has gone. The end of a call
// makes another one, which is the root's own too, and not that of the stream that made the first.
func TestSDKCallOutlivesItsStream(t *testing.T) {
	e := emulate(t, "")
	e.StartPlugin()
	var made []CallID
	call := func() {
		body := []byte("x")
		id, err := e.plugin.proxy.Call("sluice", []Header{{":path", "/"}}, body, time.Second)
		if err != nil {
			t.Error(err)
		}
		body[0] = 'y' // the plugin may use it again
		made = append(made, id)
	}
	e.plugin.onRequest = func(ContextID) Action {
		before := len(e.calls())
		call()
		// A host goes by the callback that is running, whatever context is in effect; the emulator goes by the latter.
		if len(e.calls()) != before {
			t.Error("the call was made in the stream's callback, want it in one of the root's")
		}
		// What comes after it is still about the stream.
		if path, _ := e.plugin.proxy.RequestHeader(":path"); path != "/a" {
			t.Errorf("the path has become %q", path)
		}
		return Pause
	}
	first, second := e.InitializeHttpContext(), e.InitializeHttpContext()
	for _, s := range []uint32{first, second} {
		if e.CallOnRequestHeaders(s, [][2]string{{":path", "/a"}}, true) != types.ActionPause {
			t.Error("a request that waits goes on")
		}
	}
	calls := e.calls()
	if len(calls) != 2 || calls[0].Upstream != "sluice" || string(calls[0].Body) != "x" {
		t.Fatalf("the root's calls are %+v, want both", calls)
	}
	e.CompleteHttpContext(first)
	e.plugin.took()
	e.plugin.onCallEnded = func(_ CallID, reply Reply) {
		st, _ := reply.Header(":status")
		grpc, _ := reply.Trailer("grpc-status")
		body, ok := reply.Body(7)
		_, less := reply.Body(6)
		if st != "200" || grpc != "0" || string(body) != "granted" || !ok || less {
			t.Errorf("the reply is %s, %s, %q", st, grpc, body)
		}
		if e.plugin.proxy.Continue(ContextID(first)) || !e.plugin.proxy.Continue(ContextID(second)) {
			t.Error("want the first gone and the second sent on")
		}
		call()
	}
	e.CallOnHttpCallResponse(calls[0].CalloutID, [][2]string{{":status", "200"}}, [][2]string{{"grpc-status", "0"}}, []byte("granted"))
	if e.GetCurrentHttpStreamAction(second) != types.ActionContinue {
		t.Error("the second was not sent on")
	}
	e.CompleteHttpContext(second)
	e.plugin.onCallEnded = nil
	calls = e.calls()
	if len(calls) != 3 {
		t.Fatalf("the root's calls are %+v, want three", calls)
	}
	// The other two fail.
	e.CallOnHttpCallResponse(calls[1].CalloutID, nil, nil, nil)
	e.CallOnHttpCallResponse(calls[2].CalloutID, nil, nil, nil)
	ended := 0
	for _, line := range e.plugin.took() {
		if line[:5] == "ended" {
			ended++
		}
	}
	if ended != 3 || made[0] == made[1] || made[1] == made[2] {
		t.Errorf("of the calls %v, the ends of %d were told, want all three", made, ended)
	}
}

func TestSDKCallOfATick(t *testing.T) {
	e := emulate(t, "")
	e.StartPlugin()
	var id CallID
	e.plugin.onTick = func() {
		var err error
		if id, err = e.plugin.proxy.Call("sluice", nil, nil, 0); err != nil {
			t.Error(err)
		}
	}
	e.Tick()
	calls := e.calls()
	if len(calls) != 1 {
		t.Fatalf("the calls are %+v, want one", calls)
	}
	e.plugin.onCallEnded = func(ended CallID, reply Reply) {
		_, header := reply.Header(":status")
		if body, ok := reply.Body(0); ended != id || header || len(body) > 0 || !ok {
			t.Errorf("call %d ended, want %d, with nothing", ended, id)
		}
	}
	e.CallOnHttpCallResponse(calls[0].CalloutID, nil, nil, nil)
	same(t, "the plugin was told", e.plugin.took()[1:], []string{"tick", "ended 1"})
}

// The queue fails: what waits is called at the next tick, and what comes is called at once.
func TestSDKWithoutQueue(t *testing.T) {
	e := emulate(t, "")
	e.StartPlugin()
	p := e.adapter.plugins[proxytest.PluginContextID]
	p.queue = 999
	e.plugin.onRequest = func(ContextID) Action {
		if _, err := e.plugin.proxy.Call("sluice", nil, nil, time.Second); err != nil {
			t.Error(err)
		}
		return Pause
	}
	e.CallOnRequestHeaders(e.InitializeHttpContext(), nil, true)
	if len(e.calls()) != 0 || p.hasQueue {
		t.Fatalf("%d calls were made, want none yet", len(e.calls()))
	}
	e.Tick()
	if len(e.calls()) != 1 {
		t.Errorf("%d calls were made, want one", len(e.calls()))
	}
	s := e.InitializeHttpContext()
	e.CallOnRequestHeaders(s, nil, true)
	if n := len(e.calls()) + len(e.GetCalloutAttributesFromContext(s)); n != 2 {
		t.Errorf("%d calls were made, want two", n)
	}
}

func TestSDKStopsLater(t *testing.T) {
	e := emulate(t, "")
	e.StartPlugin()
	e.plugin.lingers = true
	if e.FinishVM() {
		t.Error("the plugin is done, want the host to wait")
	}
	e.Tick()
	e.plugin.lingers = false
	e.Tick()
	if len(e.adapter.plugins) != 0 || len(e.adapter.vm.roots) != 0 {
		t.Error("a plugin that has stopped is kept")
	}
}

func TestSDKRunsManyRequestsInBoundedMemory(t *testing.T) {
	e := emulate(t, "")
	e.StartPlugin()
	e.plugin.onRequest = func(ContextID) Action { e.plugin.told = e.plugin.told[:0]; return Proceed }
	for range 3000 {
		s := e.InitializeHttpContext()
		e.CallOnRequestHeaders(s, nil, true)
		e.CompleteHttpContext(s)
	}
	if e.adapter.vm.streams.n != 0 || len(e.adapter.vm.streams.free) != 1 {
		t.Errorf("%d streams are kept, and %d for later, want 0 and 1", e.adapter.vm.streams.n, len(e.adapter.vm.streams.free))
	}
}
