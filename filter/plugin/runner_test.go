package plugin_test

import (
	"strings"
	"testing"
	"time"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/filter/plugin"
	"sluice/shared/instant"
)

// runner is one worker's filter on one way of running it: natively on the fake proxy, and, with the same scenarios, on
// whatever else runs the filter. Time stands still until advance.
type runner interface {
	// start configures the plugin, and says whether it accepted.
	start(configuration string) bool
	// now is the proxy's monotonic clock.
	now() instant.Instant
	// advance moves the clock, with ticks at the period that the plugin asked for.
	advance(d time.Duration)
	// request shows a request to the filter, and gives its number.
	request(headers []host.Header, properties map[string]string) int
	// outcome tells what has become of a request.
	outcome(request int) outcome
	// respond lets the upstream's answer, or the filter's own, pass the filter, and gives the header fields that the client sees.
	respond(request int) []host.Header
	// end ends the request's stream: answered, or its client left.
	end(request int)
	// calls gives the calls made since it was last asked.
	calls() []*fake.Call
	// finish ends a call; twice is what a confused proxy does.
	finish(call *fake.Call, reply fake.Reply)
	// refuse makes the proxy refuse calls, as for a cluster that it does not know.
	refuse(on bool)
	// metric reads a counter or gauge after the next tick.
	metric(name string) int64
	log() []string
	// misuse lists what the filter did that a proxy would not forgive.
	misuse() []string
}

// outcome is what has become of a request.
type outcome struct {
	fate             fake.Fate
	arrived, decided instant.Instant
	status           int
	body             string
	grpcStatus       int
	headers          []host.Header
}

func (o outcome) field(name string) string {
	for _, h := range o.headers {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}

// native runs the plugin on the fake proxy.
type native struct {
	proxy    *fake.Proxy
	plugin   host.Plugin
	streams  []*fake.Stream
	nextTick instant.Instant
}

func newNative(seed uint64) runner {
	proxy := fake.New(seed)
	return &native{proxy: proxy, plugin: plugin.New(proxy)}
}

func (n *native) start(configuration string) bool {
	ok := n.plugin.Start([]byte(configuration))
	n.nextTick = n.proxy.Clock.Add(n.proxy.Period)
	return ok
}

func (n *native) now() instant.Instant { return n.proxy.Clock }

func (n *native) advance(d time.Duration) {
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

func (n *native) request(headers []host.Header, properties map[string]string) int {
	n.streams = append(n.streams, n.proxy.Request(n.plugin, headers, properties))
	return len(n.streams) - 1
}

func (n *native) outcome(request int) outcome {
	s := n.streams[request]
	return outcome{s.Fate, s.Arrived, s.Decided, s.Status, s.Body, s.GRPCStatus, s.Response}
}

func (n *native) respond(request int) []host.Header {
	n.proxy.Reply(n.plugin, n.streams[request])
	return n.streams[request].Response
}

func (n *native) end(request int)     { n.proxy.End(n.plugin, n.streams[request]) }
func (n *native) calls() []*fake.Call { return n.proxy.TakeCalls() }
func (n *native) refuse(on bool)      { n.proxy.Refuse = on }
func (n *native) log() []string       { return n.proxy.Lines }
func (n *native) misuse() []string    { return n.proxy.Misuse }
func (n *native) metric(s string) int64 {
	n.advance(n.proxy.Period)
	value, there := n.proxy.Value(s)
	if !there {
		return -1
	}
	return value
}

func (n *native) finish(call *fake.Call, reply fake.Reply) {
	n.proxy.Finish(n.plugin, call.ID, reply)
}

// runners are the ways of running the filter that every scenario passes on.
var runners = map[string]func(seed uint64) runner{"native": newNative}

// scenario runs a story on every runner, and checks at its end that the filter did nothing that it must not do.
func scenario(t *testing.T, name string, tell func(t *testing.T, w *world)) {
	t.Helper()
	for by, make := range runners {
		t.Run(name+"/"+by, func(t *testing.T) {
			w := newWorld(t, 1, make)
			tell(t, w)
			for _, worker := range w.workers {
				if misuse := worker.misuse(); len(misuse) > 0 {
					t.Errorf("misuse of the proxy:\n%s", strings.Join(misuse, "\n"))
				}
			}
		})
	}
}
