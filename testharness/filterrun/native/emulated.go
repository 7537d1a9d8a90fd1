//go:build !wasip1

package native

import (
	"io"
	"log"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/proxytest"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/filter/plugin"
	"sluice/shared/instant"
	"sluice/testharness/filterrun"
)

// emulated runs the plugin, behind the SDK's adapter, in the SDK's emulator, with a clock and random numbers of the test's.
//
// The emulator is no whole proxy. It numbers a call by how many are under way, so that two calls get one number where an
// earlier one of several has ended; it can neither refuse a call nor end one twice; and all emulators of a process share
// one state, so that there is one at a time, until Close.
type emulated struct {
	proxytest.HostEmulator

	reset    func()
	clock    instant.Instant
	random   *fake.Proxy
	nextTick instant.Instant
	refuse   bool
	streams  []*emulatedStream
	taken    int // of the calls that the emulator holds
	under    map[uint32]bool
	faults   []string
}

// running says that there is an emulator: the SDK would wait for its end, for ever.
var running atomic.Bool

type emulatedStream struct {
	id       uint32
	outcome  filterrun.Outcome
	over     bool
	response []host.Header
}

// NewEmulated gives a runner in the SDK's emulator. Its random numbers follow from the seed.
func NewEmulated(seed uint64) filterrun.Runner {
	log.SetOutput(io.Discard) // the emulator tells all that it does
	e := &emulated{random: fake.New(seed)}
	e.clock = e.random.Clock
	return e
}

// timed is the SDK's proxy with the test's clock and random numbers.
type timed struct {
	host.Proxy

	of *emulated
}

// Now is the test's clock.
func (t timed) Now() instant.Instant { return t.of.clock }

// Random is the test's.
func (t timed) Random() uint64 { return t.of.random.Random() }

// Call refuses where the test says so, for the emulator accepts every call.
func (t timed) Call(cluster string, headers []host.Header, body []byte, timeout time.Duration) (host.CallID, error) {
	if t.of.refuse {
		return 0, fake.ErrRefused
	}
	return t.Proxy.Call(cluster, headers, body, timeout)
}

// Start implements filterrun.Runner. Configured anew, it is another VM.
func (e *emulated) Start(configuration string) bool {
	e.Close()
	if !running.CompareAndSwap(false, true) {
		e.faults = append(e.faults, "a process has one emulator at a time, and one is running")
		return false
	}
	e.HostEmulator, e.reset = proxytest.NewHostEmulator(proxytest.NewEmulatorOption().
		WithVMContext(host.NewVMContext(func(p host.Proxy) host.Plugin { return plugin.New(timed{p, e}) })).
		WithPluginConfiguration([]byte(configuration)))
	e.taken, e.under = 0, map[uint32]bool{}
	ok := e.StartVM() == types.OnVMStartStatusOK && e.StartPlugin() == types.OnPluginStartStatusOK
	e.nextTick = e.clock.Add(e.period())
	return ok
}

func (e *emulated) period() time.Duration { return time.Duration(e.GetTickPeriod()) * time.Millisecond }

// Now implements filterrun.Runner.
func (e *emulated) Now() instant.Instant { return e.clock }

// NextTick implements filterrun.Runner.
func (e *emulated) NextTick() (time.Duration, bool) {
	return min(e.nextTick.Sub(e.clock), e.period()), e.period() > 0
}

// Advance implements filterrun.Runner.
func (e *emulated) Advance(d time.Duration) {
	end := e.clock.Add(d)
	for e.period() > 0 {
		e.nextTick = min(e.nextTick, e.clock.Add(e.period()))
		if e.nextTick > end {
			break
		}
		e.clock = e.nextTick
		e.nextTick = e.nextTick.Add(e.period())
		e.Tick()
		e.look()
	}
	e.clock = end
}

// look notes what has become of the requests that waited.
func (e *emulated) look() {
	for _, s := range e.streams {
		if s.over || s.outcome.Fate != fake.Waiting {
			continue
		}
		if answer := e.GetSentLocalResponse(s.id); answer != nil {
			s.outcome.Fate, s.outcome.Decided = fake.Answered, e.clock
			s.outcome.Status, s.outcome.Body = int(answer.StatusCode), strings.Clone(string(answer.Data))
			s.outcome.GRPCStatus = int(answer.GRPCStatus)
			for _, h := range answer.Headers {
				s.outcome.Headers = append(s.outcome.Headers, host.Header{strings.Clone(h[0]), strings.Clone(h[1])})
			}
		} else if e.GetCurrentHttpStreamAction(s.id) == types.ActionContinue {
			s.outcome.Fate, s.outcome.Decided = fake.Passed, e.clock
		}
	}
}

// StepWall implements filterrun.Runner.
func (*emulated) StepWall(time.Duration) {}

// Request implements filterrun.Runner.
func (e *emulated) Request(headers []host.Header, properties map[string]string) int {
	for path, value := range properties {
		if err := e.SetProperty(filterrun.PropertyPath(path), []byte(value)); err != nil {
			e.faults = append(e.faults, "the emulator does not take a property: "+err.Error())
		}
	}
	s := &emulatedStream{id: e.InitializeHttpContext(), outcome: filterrun.Outcome{Arrived: e.clock, GRPCStatus: -1}}
	e.streams = append(e.streams, s)
	fields := make([][2]string, 0, len(headers))
	for _, h := range headers {
		fields = append(fields, h)
	}
	e.CallOnRequestHeaders(s.id, fields, true)
	e.look()
	return len(e.streams) - 1
}

// Outcome implements filterrun.Runner.
func (e *emulated) Outcome(request int) filterrun.Outcome { return e.streams[request].outcome }

// Respond implements filterrun.Runner.
func (e *emulated) Respond(request int) []host.Header {
	s := e.streams[request]
	if s.over {
		return s.response
	}
	fields := [][2]string{{":status", "200"}}
	if s.outcome.Fate == fake.Answered {
		fields[0][1] = strconv.Itoa(s.outcome.Status)
		for _, h := range s.outcome.Headers {
			fields = append(fields, h)
		}
	}
	waited := s.outcome.Fate == fake.Waiting
	e.CallOnResponseHeaders(s.id, fields, true)
	s.response = nil
	for _, h := range e.GetCurrentResponseHeaders(s.id)[1:] {
		s.response = append(s.response, h)
	}
	if !waited { // else the emulator's action is the answer's, and says nothing of the request
		e.look()
	}
	return s.response
}

// End implements filterrun.Runner.
func (e *emulated) End(request int) {
	s := e.streams[request]
	if s.over {
		return
	}
	s.over = true
	if s.outcome.Fate == fake.Waiting {
		s.outcome.Fate, s.outcome.Decided = fake.Gone, e.clock
	}
	e.CompleteHttpContext(s.id)
	e.look()
}

// Calls implements filterrun.Runner.
func (e *emulated) Calls() []*fake.Call {
	all := e.GetCalloutAttributesFromContext(proxytest.PluginContextID)
	var made []*fake.Call
	for _, c := range all[e.taken:] {
		if e.under[c.CalloutID] {
			e.faults = append(e.faults, "the emulator gave two calls under way the number "+strconv.Itoa(int(c.CalloutID)))
		}
		e.under[c.CalloutID] = true
		call := &fake.Call{
			ID: host.CallID(c.CalloutID), Cluster: strings.Clone(c.Upstream), Body: append([]byte(nil), c.Body...), Sent: e.clock,
		}
		for _, h := range c.Headers {
			call.Headers = append(call.Headers, host.Header{strings.Clone(h[0]), strings.Clone(h[1])})
			if millis, ok := strings.CutSuffix(h[1], "m"); ok && h[0] == "grpc-timeout" {
				n, _ := strconv.Atoi(millis)
				call.Timeout = time.Duration(n) * time.Millisecond // the emulator does not keep it
			}
		}
		made = append(made, call)
	}
	e.taken = len(all)
	return made
}

// Finish implements filterrun.Runner. A call that is not under way is left alone: the SDK panics at the end of one that it
// does not know.
func (e *emulated) Finish(call *fake.Call, reply fake.Reply) {
	id := uint32(call.ID)
	if !e.under[id] {
		return
	}
	delete(e.under, id)
	e.CallOnHttpCallResponse(id, pairs(reply.Headers), pairs(reply.Trailers), append([]byte(nil), reply.Content...))
	e.look()
}

func pairs(from []host.Header) [][2]string {
	var out [][2]string
	for _, h := range from {
		out = append(out, h)
	}
	return out
}

// Refuse implements filterrun.Runner.
func (e *emulated) Refuse(on bool) { e.refuse = on }

// Metric implements filterrun.Runner.
func (e *emulated) Metric(name string) int64 {
	e.Advance(e.period())
	if value, err := e.GetCounterMetric(name); err == nil {
		return int64(value)
	}
	if value, err := e.GetGaugeMetric(name); err == nil {
		return int64(value)
	}
	return -1
}

// Log implements filterrun.Runner.
func (e *emulated) Log() []string {
	var lines []string
	if e.HostEmulator == nil {
		return lines
	}
	for _, level := range []struct {
		name  string
		lines []string
	}{{"debug", e.GetDebugLogs()}, {"info", e.GetInfoLogs()}, {"warn", e.GetWarnLogs()}, {"error", e.GetErrorLogs()}} {
		for _, line := range level.lines {
			lines = append(lines, level.name+": "+line)
		}
	}
	return lines
}

// Misuse implements filterrun.Runner. What a filter did twice the emulator does not notice.
func (e *emulated) Misuse() []string { return e.faults }

// Stop implements filterrun.Runner.
func (e *emulated) Stop() bool { return e.FinishVM() }

// Close implements filterrun.Runner.
func (e *emulated) Close() {
	if e.reset != nil {
		e.reset()
		e.reset = nil
		running.Store(false)
	}
}
