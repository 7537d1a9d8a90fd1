package host

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// envoy is the host's functions as Envoy 1.40 was seen to have them, for what instance and root ask of it. It writes down
// each call that changes something, with the context that it acts on.
type envoy struct {
	contexts  map[uint32]bool
	effective uint32
	did       []string
	request   map[uint32][]Header // by context
	reply     [callResponseTrailers + 1][]Header
	body      string
	config    string
	clusters  map[string]bool
	calls     CallID
	metrics   map[uint32]int64
	pairs     pairs
	refuse    status // what every function answers, unless it is 0
}

func newEnvoy() *envoy {
	return &envoy{
		contexts: map[uint32]bool{}, request: map[uint32][]Header{}, clusters: map[string]bool{"sluice": true},
		metrics: map[uint32]int64{},
	}
}

func (e *envoy) note(format string, args ...any) status {
	if e.refuse != statusOK {
		return e.refuse
	}
	e.did = append(e.did, fmt.Sprintf("%d ", e.effective)+fmt.Sprintf(format, args...))
	return statusOK
}

func (e *envoy) took() []string {
	did := e.did
	e.did = nil
	return did
}

func (e *envoy) log(level Level, message string) status {
	return e.note("log %d, %d bytes", level, len(message))
}

func (e *envoy) setTickPeriod(millis uint32) status { return e.note("tick %d", millis) }

func (e *envoy) setEffectiveContext(context uint32) status {
	if !e.contexts[context] {
		return statusBadArgument
	}
	e.effective = context
	return statusOK
}

func (e *envoy) done() status { return e.note("done") }

func (e *envoy) continueRequest() status { return e.note("continue") }

func (e *envoy) sendLocalResponse(code uint32, headers []Header, body string, grpcStatus int32) status {
	return e.note("respond %d %v %q %d", code, headers, body, grpcStatus)
}

func (e *envoy) headers(from mapType) (fields, status) {
	if e.refuse != statusOK {
		return nil, e.refuse
	}
	headers := e.reply[from]
	if from == requestHeaders {
		headers = e.request[e.effective]
	}
	e.pairs = appendPairs(e.pairs[:0], headers)
	return &e.pairs, statusOK
}

func (e *envoy) addResponseHeader(name, value string) status {
	return e.note("add %s: %s", name, value)
}

func (e *envoy) property(path []string) (string, status) {
	if e.refuse != statusOK {
		return "", e.refuse
	}
	if len(path) == 2 && path[0] == "source" && path[1] == "address" {
		return "192.0.2.1:1234", statusOK
	}
	return "", statusNotFound
}

func (e *envoy) buffer(from bufferType, size uint32) ([]byte, status) {
	content := e.body
	if from == pluginConfiguration {
		content = e.config
	}
	if e.refuse != statusOK {
		return nil, e.refuse
	}
	return []byte(content)[:size], statusOK
}

func (e *envoy) httpCall(cluster string, headers []Header, body []byte, timeoutMillis uint32) (CallID, status) {
	if !e.clusters[cluster] {
		return 0, statusBadArgument
	}
	e.calls++
	return e.calls, e.note("call %s %v %q %d", cluster, headers, body, timeoutMillis)
}

func (e *envoy) defineMetric(kind metricType, name string) (uint32, status) {
	id := uint32(4*len(e.metrics)) + uint32(kind)
	e.metrics[id] = 0
	return id, e.note("define %d %s", kind, name)
}

func (e *envoy) incrementMetric(metric uint32, delta int64) status {
	if metricType(metric&3) == counterMetric && delta <= 0 {
		return statusBadArgument
	}
	e.metrics[metric] += delta
	return statusOK
}

func (e *envoy) recordMetric(metric uint32, value uint64) status {
	e.metrics[metric] = int64(value)
	return statusOK
}

// recorder is a plugin that writes down what it is told, and does what a test has it do.
type recorder struct {
	proxy Proxy
	told  []string
	// What it does in the callback of that name, if anything.
	onStart, onTick  func()
	onRequest        func(stream ContextID) Action
	onResponse       func(stream ContextID)
	onCallEnded      func(call CallID, reply Reply)
	refuses, lingers bool
}

func (r *recorder) tell(format string, args ...any) {
	r.told = append(r.told, fmt.Sprintf(format, args...))
}

func (r *recorder) took() []string {
	told := r.told
	r.told = nil
	return told
}

func (r *recorder) Start(configuration []byte) bool {
	r.tell("start %s", configuration)
	if r.onStart != nil {
		r.onStart()
	}
	return !r.refuses
}

func (r *recorder) Tick() {
	r.tell("tick")
	if r.onTick != nil {
		r.onTick()
	}
}

func (r *recorder) RequestHeaders(stream ContextID) Action {
	r.tell("request %d", stream)
	if r.onRequest != nil {
		return r.onRequest(stream)
	}
	return Proceed
}

func (r *recorder) ResponseHeaders(stream ContextID) {
	r.tell("response %d", stream)
	if r.onResponse != nil {
		r.onResponse(stream)
	}
}

func (r *recorder) Done(stream ContextID) { r.tell("done %d", stream) }

func (r *recorder) CallEnded(call CallID, reply Reply) {
	r.tell("ended %d", call)
	if r.onCallEnded != nil {
		r.onCallEnded(call, reply)
	}
}

func (r *recorder) Stop() bool {
	r.tell("stop")
	return !r.lingers
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s, want - and got +:\n%s", what, diff)
	}
}

// world is an instance in an envoy, with one recorder for each root context.
type world struct {
	*instance

	t       *testing.T
	envoy   *envoy
	plugins []*recorder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, envoy: newEnvoy()}
	w.instance = newInstance(w.envoy, func(p Proxy) Plugin {
		r := &recorder{proxy: p}
		w.plugins = append(w.plugins, r)
		return r
	})
	return w
}

// begin has the host create a context and call back in it from then on.
func (w *world) begin(id, parent uint32) {
	w.envoy.contexts[id] = true
	w.envoy.effective = id
	w.contextCreate(id, parent)
}

// in has the host call back in a context, whose effects begin anew each time, and checks that it is left in effect.
func (w *world) in(id uint32, callback func()) {
	w.t.Helper()
	w.envoy.effective = id
	callback()
	if w.envoy.effective != id && w.envoy.contexts[id] {
		w.t.Errorf("context %d is left in effect after a callback in %d", w.envoy.effective, id)
	}
}

// end has the host end a context.
func (w *world) end(id uint32) {
	w.in(id, func() { w.done(id) })
	delete(w.envoy.contexts, id)
}

func (w *world) hostErrors() int64 { return w.envoy.metrics[0] }
