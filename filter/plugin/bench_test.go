package plugin_test

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/filter/plugin"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// bare is a proxy that costs next to nothing: what is measured on it is the filter's own.
type bare struct {
	clock  instant.Instant
	tenant string
	method string
	last   host.CallID
	body   []byte
	path   string
	// answered is the last call that lease has answered.
	answered host.CallID
}

func (b *bare) Now() instant.Instant              { return b.clock }
func (b *bare) Random() uint64                    { return 42 }
func (b *bare) Log(host.Level, string)            {}
func (b *bare) SetTick(time.Duration)             {}
func (b *bare) Property(...string) (string, bool) { return "", false }
func (b *bare) AddResponseHeader(string, string)  {}
func (b *bare) Continue(host.ContextID) bool      { return true }
func (b *bare) Counter(string) host.Metric        { return 0 }
func (b *bare) Gauge(string) host.Metric          { return 0 }
func (b *bare) Add(host.Metric, int64)            {}
func (b *bare) Record(host.Metric, int64)         {}

func (b *bare) Respond(host.ContextID, int, []host.Header, string, int) bool { return true }

func (b *bare) RequestHeader(name string) (string, int) {
	switch name {
	case "x-tenant-id":
		return b.tenant, 1
	case ":method":
		return b.method, 1
	case ":path":
		return "/v1/reports/7", 1
	}
	return "", 0
}

func (b *bare) Call(_ string, headers []host.Header, body []byte, _ time.Duration) (host.CallID, error) {
	for _, h := range headers {
		if h[0] == ":path" {
			b.path = h[1]
		}
	}
	b.last++
	b.body = append(b.body[:0], body...)
	return b.last, nil
}

// running gives a filter with a policy in force on a bare proxy.
func running(t testing.TB, configuration string, p *policy.Policy) (*bare, host.Plugin) {
	b := &bare{clock: instant.Instant(0).Add(time.Hour), tenant: "acme", method: "GET"}
	f := plugin.New(b)
	if !f.Start([]byte(configuration)) {
		t.Fatal("refused")
	}
	b.takePolicy(f, p)
	return b, f
}

func (b *bare) takePolicy(f host.Plugin, p *policy.Policy) {
	b.clock = b.clock.Add(10 * time.Second)
	f.Tick()
	reply := good(wire.AppendGetPolicyResponse(nil, &wire.GetPolicyResponse{Version: p.Version, Policy: p}))
	f.CallEnded(b.last, &reply)
}

// granted is the answer to one ask for one unit.
func granted(version string) *fake.Reply {
	reply := good(wire.AppendSyncResponse(nil, &wire.SyncResponse{PolicyVersion: version, Results: []wire.AskResult{
		{Lease: "lease", Units: 1, Limit: 1000, Window: time.Second, Remaining: 900, Reset: time.Second},
	}}))
	return &reply
}

// lease answers the last call with all the units that it wants, as a lease, where it has not been answered yet.
func (b *bare) lease(t testing.TB, f host.Plugin) {
	if b.answered == b.last || b.path != "/sluice.v1.Control/Sync" {
		return
	}
	b.answered = b.last
	request, err := wire.ParseSyncRequest(b.body[wire.FrameHeader:])
	if err != nil {
		t.Fatal(err)
	}
	response := wire.SyncResponse{PolicyVersion: request.PolicyVersion}
	for _, ask := range request.Asks {
		response.Results = append(response.Results, wire.AskResult{
			Lease: "lease", Units: ask.Want, EndIn: time.Second, Limit: limit.MaxUnits, Window: time.Minute, Remaining: 900, Reset: time.Second,
		})
	}
	reply := good(wire.AppendSyncResponse(nil, &response))
	f.CallEnded(b.last, &reply)
}

func BenchmarkRequest(b *testing.B) {
	b.Run("no limit binds", func(b *testing.B) {
		p := shop("v1", limit.Deny, rate(1, time.Second))
		p.Limits[0].Match.Methods = []string{"PUT"}
		_, f := running(b, configuration, p)
		b.ReportAllocs()
		for i := range b.N {
			id := host.ContextID(i + 2)
			f.RequestHeaders(id)
			f.ResponseHeaders(id)
			f.Done(id)
		}
	})
	b.Run("a denial stands", func(b *testing.B) {
		proxy, f := running(b, configuration, shop("v1", limit.Deny, rate(1, time.Hour)))
		f.RequestHeaders(1)
		f.CallEnded(proxy.last, granted("v1"))
		b.ReportAllocs()
		for i := range b.N {
			id := host.ContextID(i + 2)
			f.RequestHeaders(id)
			f.ResponseHeaders(id)
			f.Done(id)
		}
	})
	b.Run("strict, admitted by a call of its own", func(b *testing.B) {
		proxy, f := running(b, configuration, shop("v1", limit.Deny, rate(1000, time.Second)))
		answer := granted("v1")
		b.ReportAllocs()
		for i := range b.N {
			id := host.ContextID(i + 2)
			f.RequestHeaders(id)
			f.CallEnded(proxy.last, answer)
			f.ResponseHeaders(id)
			f.Done(id)
			proxy.clock = proxy.clock.Add(10 * time.Millisecond)
		}
	})
	b.Run("lease, admitted on the spot", func(b *testing.B) {
		p := shop("v1", limit.Deny, rate(limit.MaxUnits, time.Minute))
		p.Limits[0].Mode = limit.Lease
		proxy, f := running(b, configuration, p)
		b.ReportAllocs()
		for i := range b.N {
			id := host.ContextID(i + 2)
			f.RequestHeaders(id)
			proxy.lease(b, f)
			f.ResponseHeaders(id)
			f.Done(id)
			proxy.clock = proxy.clock.Add(10 * time.Microsecond)
		}
	})
	b.Run("away, admitted locally", func(b *testing.B) {
		proxy, f := running(b, configuration, shop("v1", limit.Allow, rate(1000, time.Second)))
		for i := range 3 {
			f.RequestHeaders(host.ContextID(i + 2))
			f.CallEnded(proxy.last, &fake.Reply{})
		}
		b.ReportAllocs()
		for i := range b.N {
			id := host.ContextID(i + 9)
			f.RequestHeaders(id)
			f.ResponseHeaders(id)
			f.Done(id)
			proxy.clock = proxy.clock.Add(time.Millisecond)
		}
	})
}

// BenchmarkPolicyChange is the longest for which a worker stands still when a new policy arrives, with as many keys as it
// may have.
func BenchmarkPolicyChange(b *testing.B) {
	one, two := shop("v1", limit.Allow, rate(1000, time.Second)), shop("v2", limit.Allow, rate(1001, time.Second))
	proxy, f := running(b, configuration, one)
	for i := range 100_003 {
		proxy.tenant = "tenant-" + strconv.Itoa(i)
		f.RequestHeaders(host.ContextID(i + 2))
		f.CallEnded(proxy.last, &fake.Reply{})
		f.Done(host.ContextID(i + 2))
	}
	versions := []*policy.Policy{two, one}
	b.ResetTimer()
	for i := range b.N {
		next := versions[i%2]
		b.StopTimer()
		proxy.clock = proxy.clock.Add(10 * time.Second)
		f.Tick() // a probe or a heartbeat
		heard := good(wire.AppendSyncResponse(nil, &wire.SyncResponse{PolicyVersion: next.Version}))
		f.CallEnded(proxy.last, &heard)
		f.Tick() // a fetch
		if proxy.path != "/sluice.v1.Control/GetPolicy" {
			b.Fatal("no fetch")
		}
		reply := good(wire.AppendGetPolicyResponse(nil, &wire.GetPolicyResponse{Version: next.Version, Policy: next}))
		b.StartTimer()
		f.CallEnded(proxy.last, &reply)
		f.Tick()
		b.StopTimer()
		for range 50 { // the rest of the keys
			f.Tick()
		}
		b.StartTimer()
	}
}

// Many requests, most of them of callers never seen before, leave no more behind than the keys that are kept.
func TestMemoryStaysFlat(t *testing.T) {
	const requests = 300_000
	proxy, f := running(t, `{"max_keys":1000}`, shop("v1", limit.Local, rate(1000, time.Second)))
	answer := granted("v1")
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var early uint64
	for i := range requests {
		if i == requests/10 {
			early = heap()
		}
		id := host.ContextID(i + 2)
		proxy.tenant = "tenant-" + strconv.Itoa(i%20_000)
		f.RequestHeaders(id)
		switch i % 10 {
		case 7: // the client leaves; its unit is given back
			f.Done(id)
			f.CallEnded(proxy.last, answer)
		case 8: // no answer
			f.CallEnded(proxy.last, &fake.Reply{})
			f.ResponseHeaders(id)
		default:
			f.CallEnded(proxy.last, answer)
			f.ResponseHeaders(id)
		}
		f.Done(id)
		if i%16 == 0 {
			proxy.clock = proxy.clock.Add(tick)
			f.Tick()
		}
	}
	if late := heap(); late > early+1<<20 {
		t.Errorf("%d kB in use after %d requests, %d kB after a tenth of them", late>>10, requests, early>>10)
	}
}
