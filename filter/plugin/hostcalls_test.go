package plugin_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/filter/plugin"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// counting is a proxy that counts by name what the filter calls it for. Each of these is a call out of the VM, but that all
// headers of a request are one call, and random numbers none.
type counting struct {
	bare
	calls map[string]int
}

func (c *counting) Now() instant.Instant {
	c.calls["clock"]++
	return c.bare.Now()
}

func (c *counting) RequestHeader(name string) (string, int) {
	c.calls["headers"] = 1
	return c.bare.RequestHeader(name)
}

func (c *counting) Property(path ...string) (string, bool) {
	c.calls["property"]++
	if path[0] == "source" {
		return "192.0.2.1:40000", true
	}
	return "", false
}

func (c *counting) SetTick(time.Duration) { c.calls["tick"]++ }

func (c *counting) Log(host.Level, string) { c.calls["log"]++ }

func (c *counting) AddResponseHeader(string, string) { c.calls["add"]++ }

func (c *counting) Continue(host.ContextID) bool {
	c.calls["continue"]++
	return true
}

func (c *counting) Respond(host.ContextID, int, []host.Header, string, int) bool {
	c.calls["respond"]++
	return true
}

func (c *counting) Add(host.Metric, int64) { c.calls["metric"]++ }

func (c *counting) Record(host.Metric, int64) { c.calls["metric"]++ }

func (c *counting) Call(cluster string, headers []host.Header, body []byte, timeout time.Duration) (host.CallID, error) {
	c.calls["call"]++
	return c.bare.Call(cluster, headers, body, timeout)
}

// Each call out of the VM costs a request a microsecond or so, which is more than a decision: this is all that there are.
func TestHostCallsOfARequest(t *testing.T) {
	type calls map[string]int
	leased := func(p *policy.Policy) *policy.Policy { return inMode(limit.Lease, p) }
	hourly := func() *policy.Policy { return shop("v1", limit.Deny, rate(1_000_000, time.Hour)) }
	three := func() *policy.Policy {
		p := hourly()
		p.Identities = append(p.Identities, policy.Identity{Name: "client", Source: policy.FromAddress})
		path, client := p.Limits[0], p.Limits[0]
		path.Name, path.Match = "reports", policy.Match{PathPrefix: "/v1/reports", Methods: []string{"GET"}}
		client.Name, client.Key = "client", []uint32{1}
		p.Limits = append(p.Limits, path, client)
		return p
	}
	elsewhere := hourly()
	elsewhere.Limits[0].Match.Methods = []string{"PUT"}
	inShadow := hourly()
	inShadow.Limits[0].Shadow = 100
	for _, c := range []struct {
		name   string
		policy *policy.Policy
		denied bool // by the store, for long; else it leases what is asked for
		want   calls
	}{
		{"no limit binds", elsewhere, false, calls{"clock": 1, "headers": 1}},
		{"one limit, admitted by a lease", leased(hourly()), false, calls{"clock": 1, "headers": 1, "add": 2}},
		{"three limits, one of the client's address", leased(three()), false, calls{"clock": 1, "headers": 1, "property": 1, "add": 2}},
		{"a limit in shadow", leased(inShadow), false, calls{"clock": 1, "headers": 1}},
		{
			"a denial that stands", leased(hourly()), true, calls{"clock": 1, "headers": 1, "respond": 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy := &counting{bare{clock: instant.Instant(0).Add(time.Hour), tenant: "acme", method: "GET"}, map[string]int{}}
			f := plugin.New(proxy)
			if !f.Start([]byte(configuration)) {
				t.Fatal("refused")
			}
			proxy.takePolicy(f, c.policy)
			request := func(id host.ContextID) {
				clear(proxy.calls)
				f.RequestHeaders(id)
				f.ResponseHeaders(id)
				f.Done(id)
			}
			id := host.ContextID(2)
			for range 400 { // demand enough for a lease that the rest can spend of
				f.RequestHeaders(id)
				id++
			}
			for answered := host.CallID(0); answered != proxy.last; {
				answered = proxy.last
				reply := proxy.answer(t, c.denied)
				f.CallEnded(answered, &reply)
			}
			for range 20 { // the same for each of many
				request(id)
				id++
				if diff := cmp.Diff(c.want, calls(proxy.calls)); diff != "" {
					t.Fatalf("request %d (-want +got):\n%s", id, diff)
				}
			}
		})
	}
}

// answer is that of the service to the call that was made last.
func (c *counting) answer(t *testing.T, denied bool) fake.Reply {
	message, err := wire.Unframe(c.body, wire.MaxMessageSize)
	if err != nil {
		t.Fatal(err)
	}
	request, err := wire.ParseSyncRequest(message)
	if err != nil {
		t.Fatal(err)
	}
	response := wire.SyncResponse{PolicyVersion: "v1"}
	for _, ask := range request.Asks {
		result := wire.AskResult{Lease: "lease", Units: ask.Want, EndIn: 30 * time.Minute, Remaining: 900_000}
		if denied {
			result = wire.AskResult{Denied: true, Denial: wire.Denial{DenyFor: time.Hour, RetryAfter: time.Hour}}
		}
		result.Limit, result.Window, result.Reset = 1_000_000, time.Hour, time.Hour
		response.Results = append(response.Results, result)
	}
	return good(wire.AppendSyncResponse(nil, &response))
}
