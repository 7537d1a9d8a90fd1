//go:build tinygo || !wasip1

package host

import (
	"errors"
	"strings"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"
)

// Run makes the filter of plugins that newPlugin makes, one for each root context. It is called from an init function, and
// returns at once: the host calls the filter from then on, through the SDK.
func Run(newPlugin func(Proxy) Plugin) { proxywasm.SetVMContext(NewVMContext(newPlugin)) }

// NewVMContext is what Run gives to the SDK, for tests under its emulator (proxytest).
func NewVMContext(newPlugin func(Proxy) Plugin) types.VMContext {
	s := &sdk{plugins: map[uint32]*sdkPlugin{}}
	s.vm = newInstance(s, newPlugin)
	return s
}

// sdk is the host's functions as the SDK has them, and the SDK's callbacks as an instance has them.
type sdk struct {
	types.DefaultVMContext

	vm      *instance
	plugins map[uint32]*sdkPlugin
	// active is the context that the SDK thinks it is in: it says who is told of a call's end. effective is the one that
	// the host acts on.
	active, effective uint32
	// inside: a callback is running. ready: the host called for a queue meanwhile, as the emulator does.
	inside, ready bool
	lastCall      CallID
	scratch       [][2]string
}

var _ abi = (*sdk)(nil)

// enter and leave stand around every callback.
func (s *sdk) enter(context uint32) { s.active, s.effective, s.inside = context, context, true }

func (s *sdk) leave() {
	s.inside = false
	if s.ready {
		s.ready = false
		for _, p := range s.plugins {
			p.dispatch()
		}
	}
}

// NewPluginContext is proxy_on_context_create for a root context.
func (s *sdk) NewPluginContext(id uint32) types.PluginContext {
	p := &sdkPlugin{sdk: s, id: id}
	s.plugins[id] = p
	s.vm.contextCreate(id, 0)
	return p
}

// sdkPlugin is a root context.
type sdkPlugin struct {
	types.DefaultPluginContext

	sdk *sdk
	id  uint32
	// Calls made in a stream's callback wait for a callback of the root context's.
	calls    []sdkCall
	queue    uint32
	hasQueue bool
}

func (p *sdkPlugin) OnPluginStart(size int) types.OnPluginStartStatus {
	p.openQueue()
	p.sdk.enter(p.id)
	accepted := p.sdk.vm.configure(p.id, uint32(size))
	p.sdk.leave()
	return types.OnPluginStartStatus(accepted)
}

func (p *sdkPlugin) OnTick() {
	p.sdk.enter(p.id)
	p.sdk.vm.tick(p.id)
	p.sdk.leave()
	p.dispatch() // should the queue have failed
}

// OnPluginDone is proxy_on_done for a root context.
func (p *sdkPlugin) OnPluginDone() bool {
	p.sdk.enter(p.id)
	gone := p.sdk.vm.done(p.id)
	p.sdk.leave()
	if gone {
		delete(p.sdk.plugins, p.id)
	}
	return gone
}

// NewHttpContext is proxy_on_context_create for a stream.
func (p *sdkPlugin) NewHttpContext(id uint32) types.HttpContext {
	p.sdk.vm.contextCreate(id, p.id)
	return &sdkStream{sdk: p.sdk, id: id}
}

// sdkStream is a stream.
type sdkStream struct {
	types.DefaultHttpContext

	sdk *sdk
	id  uint32
}

func (c *sdkStream) OnHttpRequestHeaders(int, bool) types.Action {
	c.sdk.enter(c.id)
	action := c.sdk.vm.requestHeaders(c.id)
	c.sdk.leave()
	return types.Action(action)
}

func (c *sdkStream) OnHttpResponseHeaders(int, bool) types.Action {
	c.sdk.enter(c.id)
	action := c.sdk.vm.responseHeaders(c.id)
	c.sdk.leave()
	return types.Action(action)
}

// OnHttpStreamDone is proxy_on_log, and the last that the SDK tells of a stream.
func (c *sdkStream) OnHttpStreamDone() {
	c.sdk.enter(c.id)
	c.sdk.vm.done(c.id)
	c.sdk.leave()
}

func (s *sdk) log(level Level, message string) status {
	switch level {
	case Debug:
		proxywasm.LogDebug(message)
	case Info:
		proxywasm.LogInfo(message)
	case Warn:
		proxywasm.LogWarn(message)
	default:
		proxywasm.LogError(message)
	}
	return statusOK
}

func (s *sdk) setTickPeriod(millis uint32) status {
	return statusOf(proxywasm.SetTickPeriodMilliSeconds(millis))
}

func (s *sdk) setEffectiveContext(context uint32) status {
	st := statusOf(proxywasm.SetEffectiveContext(context))
	if st == statusOK {
		s.effective = context
	}
	return st
}

func (s *sdk) done() status {
	proxywasm.PluginDone()
	delete(s.plugins, s.effective)
	return statusOK
}

func (s *sdk) continueRequest() status { return statusOf(proxywasm.ResumeHttpRequest()) }

func (s *sdk) sendLocalResponse(code uint32, headers []Header, body string, grpcStatus int32) status {
	return statusOf(proxywasm.SendHttpResponse(code, s.pairs(headers), []byte(body), grpcStatus))
}

func (s *sdk) headers(from mapType) (fields, status) {
	var found [][2]string
	var err error
	switch from {
	case requestHeaders:
		found, err = proxywasm.GetHttpRequestHeaders()
	case callResponseHeaders:
		found, err = proxywasm.GetHttpCallResponseHeaders()
	default:
		found, err = proxywasm.GetHttpCallResponseTrailers()
	}
	return sdkFields(found), statusOf(err)
}

func (s *sdk) addResponseHeader(name, value string) status {
	return statusOf(proxywasm.AddHttpResponseHeader(name, value))
}

func (s *sdk) property(path []string) (string, status) {
	if len(path) == 0 {
		return "", statusNotFound
	}
	value, err := proxywasm.GetProperty(path)
	return string(value), statusOf(err)
}

func (s *sdk) buffer(from bufferType, size uint32) ([]byte, status) {
	var found []byte
	var err error
	if from == pluginConfiguration {
		found, err = proxywasm.GetPluginConfiguration()
	} else {
		found, err = proxywasm.GetHttpCallResponseBody(0, int(size))
	}
	return found, statusOf(err)
}

// The SDK panics where the host refuses a metric, which Envoy does for none that instance and root let through.

func (s *sdk) defineMetric(kind metricType, name string) (uint32, status) {
	if kind == counterMetric {
		return uint32(proxywasm.DefineCounterMetric(name)), statusOK
	}
	return uint32(proxywasm.DefineGaugeMetric(name)), statusOK
}

// incrementMetric goes for both kinds: the SDK's two functions are the same one of the host's.
func (s *sdk) incrementMetric(metric uint32, delta int64) status {
	proxywasm.MetricGauge(metric).Add(delta)
	return statusOK
}

// recordMetric takes the way of histograms, since the SDK has none for a gauge; it is the same function of the host's.
func (s *sdk) recordMetric(metric uint32, value uint64) status {
	proxywasm.MetricHistogram(metric).Record(value)
	return statusOK
}

// pairs gives headers in the SDK's type; valid until the next call of it.
func (s *sdk) pairs(headers []Header) [][2]string {
	s.scratch = s.scratch[:0]
	for _, h := range headers {
		s.scratch = append(s.scratch, h)
	}
	return s.scratch
}

// sdkFields is a header map as the SDK gives it: strings that share one piece of memory.
type sdkFields [][2]string

func (f sdkFields) find(name string) (string, int) {
	name, separator := fieldRules(name)
	first, found := 0, 0
	for i := range f {
		if f[i][0] == name {
			if found == 0 {
				first = i
			}
			found++
		}
	}
	switch found {
	case 0:
		return "", 0
	case 1:
		return f[first][1], 1
	}
	values := make([]string, 0, found)
	for i := range f {
		if f[i][0] == name {
			values = append(values, f[i][1])
		}
	}
	return strings.Join(values, separator), found
}

// statusOf takes back what the SDK makes of a status.
func statusOf(err error) status {
	switch {
	case err == nil:
		return statusOK
	case errors.Is(err, types.ErrorStatusNotFound):
		return statusNotFound
	case errors.Is(err, types.ErrorStatusBadArgument):
		return statusBadArgument
	default:
		return statusInternalFailure
	}
}
