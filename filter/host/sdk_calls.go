//go:build tinygo || !wasip1

package host

import (
	"strconv"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"
)

// The SDK forgets a call when the context that made it is gone, and in its view a call that is made while the end of
// another is told was made by that other's context: the whole chain of calls would depend on one request's stream. So
// every call is made in a callback of the root context's. To have one at once, the filter has a shared queue of its own
// and puts something into it: Envoy then calls the context that registered the queue, on its own worker thread, after the
// callback that is running. What is in the queue means nothing.

// sdkCall is a call that waits for a callback of the root context's.
type sdkCall struct {
	id            CallID
	cluster       string
	headers       [][2]string
	body          []byte
	timeoutMillis uint32
}

// openQueue registers a queue that nobody else has: they are one set for the whole proxy. It stays when the VM goes, some
// hundred bytes in the proxy for each VM that there ever was.
func (p *sdkPlugin) openQueue() {
	if p.hasQueue {
		return
	}
	id, err := proxywasm.RegisterSharedQueue("sluice-" + strconv.FormatUint(random(), 16))
	p.queue, p.hasQueue = id, err == nil
}

// httpCall numbers calls by itself, since the host's number comes later. What the host refuses later is a call that failed.
// Without a queue, the call is made at once and depends on the stream, or on the plugin's deadline for it.
func (s *sdk) httpCall(cluster string, headers []Header, body []byte, timeoutMillis uint32) (CallID, status) {
	p := s.plugins[s.effective]
	if p == nil {
		return 0, statusBadArgument
	}
	s.lastCall++
	c := sdkCall{id: s.lastCall, cluster: cluster, headers: s.pairs(headers), body: body, timeoutMillis: timeoutMillis}
	if s.active == p.id || !p.hasQueue {
		return c.id, p.make(c)
	}
	if len(p.calls) >= maxCalls {
		return 0, statusInternalFailure
	}
	c.headers = append([][2]string(nil), c.headers...)
	c.body = append([]byte(nil), c.body...)
	p.calls = append(p.calls, c)
	if err := proxywasm.EnqueueSharedQueue(p.queue, []byte{1}); err != nil {
		p.hasQueue = false // the next tick makes this call
	}
	return c.id, statusOK
}

// make has the host make a call, whose end the SDK tells to the context that it is in.
func (p *sdkPlugin) make(c sdkCall) status {
	owner := p.sdk.active
	_, err := proxywasm.DispatchHttpCall(c.cluster, c.headers, c.body, nil, c.timeoutMillis, func(headers, bodySize, trailers int) {
		p.sdk.enter(owner)
		p.sdk.vm.callEnded(p.id, uint32(c.id), uint32(headers), uint32(bodySize), uint32(trailers))
		p.sdk.leave()
	})
	return statusOf(err)
}

// OnQueueReady is proxy_on_queue_ready. Envoy calls it after the callback that asked for it; the emulator, within it.
func (p *sdkPlugin) OnQueueReady(queue uint32) {
	for {
		if _, err := proxywasm.DequeueSharedQueue(queue); err != nil {
			break
		}
	}
	if p.sdk.inside {
		p.sdk.ready = true
		return
	}
	p.dispatch()
}

// dispatch makes the calls that wait; outside any callback of the plugin's.
func (p *sdkPlugin) dispatch() {
	if len(p.calls) == 0 {
		return
	}
	p.sdk.enter(p.id)
	proxywasm.SetEffectiveContext(p.id) //nolint:errcheck // it is the one in effect already, but in the emulator
	for len(p.calls) > 0 {
		c := p.calls[0]
		p.calls = p.calls[1:]
		if st := p.make(c); st != statusOK {
			p.sdk.vm.callEnded(p.id, uint32(c.id), 0, 0, 0)
		}
	}
	p.calls = nil
	p.sdk.leave()
}
