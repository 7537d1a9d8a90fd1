// Package native runs the filter within the test's own process: the plugin on the fake proxy, and the plugin with the SDK's
// adapter in the SDK's emulator of a proxy, which is the code that TinyGo ships.
package native

import (
	"time"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/filter/plugin"
	"sluice/shared/instant"
	"sluice/testharness/filterrun"
)

// onFake runs the plugin on the fake proxy.
type onFake struct {
	proxy    *fake.Proxy
	plugin   host.Plugin
	streams  []*fake.Stream
	nextTick instant.Instant
}

// NewFake gives a runner on the fake proxy. Its random numbers follow from the seed.
func NewFake(seed uint64) filterrun.Runner {
	proxy := fake.New(seed)
	return &onFake{proxy: proxy, plugin: plugin.New(proxy)}
}

// Start implements filterrun.Runner.
func (n *onFake) Start(configuration string) bool {
	ok := n.plugin.Start([]byte(configuration))
	n.nextTick = n.proxy.Clock.Add(n.proxy.Period)
	return ok
}

// Now implements filterrun.Runner.
func (n *onFake) Now() instant.Instant { return n.proxy.Clock }

// NextTick implements filterrun.Runner.
func (n *onFake) NextTick() (time.Duration, bool) {
	return min(n.nextTick.Sub(n.proxy.Clock), n.proxy.Period), n.proxy.Period > 0
}

// Advance implements filterrun.Runner.
func (n *onFake) Advance(d time.Duration) {
	end := n.proxy.Clock.Add(d)
	for n.proxy.Period > 0 {
		n.nextTick = min(n.nextTick, n.proxy.Clock.Add(n.proxy.Period))
		if n.nextTick > end {
			break
		}
		n.proxy.Clock = n.nextTick
		n.nextTick = n.nextTick.Add(n.proxy.Period)
		n.plugin.Tick()
	}
	n.proxy.Clock = end
}

// StepWall implements filterrun.Runner.
func (*onFake) StepWall(time.Duration) {}

// Request implements filterrun.Runner.
func (n *onFake) Request(headers []host.Header, properties map[string]string) int {
	n.streams = append(n.streams, n.proxy.Request(n.plugin, headers, properties))
	return len(n.streams) - 1
}

// Outcome implements filterrun.Runner.
func (n *onFake) Outcome(request int) filterrun.Outcome {
	s := n.streams[request]
	return filterrun.Outcome{
		Fate: s.Fate, Arrived: s.Arrived, Decided: s.Decided, Status: s.Status, Body: s.Body, GRPCStatus: s.GRPCStatus,
		Headers: s.Response,
	}
}

// Respond implements filterrun.Runner.
func (n *onFake) Respond(request int) []host.Header {
	n.proxy.Reply(n.plugin, n.streams[request])
	return n.streams[request].Response
}

// End implements filterrun.Runner.
func (n *onFake) End(request int) { n.proxy.End(n.plugin, n.streams[request]) }

// Calls implements filterrun.Runner.
func (n *onFake) Calls() []*fake.Call { return n.proxy.TakeCalls() }

// Finish implements filterrun.Runner.
func (n *onFake) Finish(call *fake.Call, reply fake.Reply) { n.proxy.Finish(n.plugin, call.ID, reply) }

// Refuse implements filterrun.Runner.
func (n *onFake) Refuse(on bool) { n.proxy.Refuse = on }

// Metric implements filterrun.Runner.
func (n *onFake) Metric(name string) int64 {
	n.Advance(n.proxy.Period)
	value, there := n.proxy.Value(name)
	if !there {
		return -1
	}
	return value
}

// Log implements filterrun.Runner.
func (n *onFake) Log() []string { return n.proxy.Lines }

// Misuse implements filterrun.Runner.
func (n *onFake) Misuse() []string { return n.proxy.Misuse }

// Stop implements filterrun.Runner.
func (n *onFake) Stop() bool { return n.plugin.Stop() }

// Close implements filterrun.Runner.
func (*onFake) Close() {}
