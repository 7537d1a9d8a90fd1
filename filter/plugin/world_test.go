package plugin_test

import (
	"strconv"
	"testing"
	"time"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

const (
	milli   = time.Millisecond
	timeout = 200 * milli
	// tick is the longest time between two ticks of a worker that has seen a request.
	tick = 20 * milli
	// epoch is the service's clock when the workers' is 0: no clock is compared across machines.
	epoch = instant.Instant(1_763_719_200_123_456)

	configuration = `{"control_cluster":"sluice","timeout_ms":200}`
)

// world is workers and the service, and what lies between them.
type world struct {
	t       *testing.T
	workers []runner
	service *service
	// drift is how much faster the service's clock runs than the workers', in millionths.
	drift int64
}

// newWorld gives workers that are configured and have no policy yet.
func newWorld(t *testing.T, workers int, make func(seed uint64) runner) *world {
	w := &world{t: t, service: newService(shop("v1", limit.Deny, rate(3, time.Second)))}
	for i := range workers {
		r := make(uint64(i + 1))
		if !r.start(configuration) {
			t.Fatalf("the configuration was refused: %q", r.log())
		}
		w.workers = append(w.workers, r)
	}
	return w
}

func rate(units int64, window time.Duration) limit.Rate {
	return limit.Rate{Units: units, Window: window}
}

// shop is a policy with one limit for each tenant, of the given rates.
func shop(version string, unavailable limit.Unavailable, rates ...limit.Rate) *policy.Policy {
	return &policy.Policy{
		Version: version, Domain: "shop",
		Identities: []policy.Identity{{Name: "tenant", Source: policy.FromHeader, Header: "x-tenant-id"}},
		Limits: []policy.Limit{{
			Name: "tenant", Key: []uint32{0}, Rates: rates,
			Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: unavailable,
		}},
	}
}

// withReports adds a limit on POST /v1/reports.
func withReports(p *policy.Policy, rates ...limit.Rate) *policy.Policy {
	l := p.Limits[0]
	l.Name, l.Rates = "reports", rates
	l.Match = policy.Match{PathPrefix: "/v1/reports", Methods: []string{"POST"}}
	p.Limits = append(p.Limits, l)
	return p
}

// with sets the policy, and lets every worker fetch it.
func (w *world) with(p *policy.Policy) *world {
	w.t.Helper()
	w.service.policy = p
	w.advance(100 * milli)
	w.serve()
	return w
}

func (w *world) worker() runner { return w.workers[0] }

func (w *world) advance(d time.Duration) {
	for _, worker := range w.workers {
		worker.advance(d)
	}
}

// clock is the service's.
func (w *world) clock() instant.Instant {
	now := w.worker().now()
	return epoch + now + now*instant.Instant(w.drift)/1_000_000
}

// execute lets the service act on a call, and gives its answer.
func (w *world) execute(call *fake.Call) fake.Reply { return w.service.answer(w.clock(), call) }

// serve answers every call at once, and those that follow from the answers.
func (w *world) serve() {
	w.t.Helper()
	for range 1000 {
		quiet := true
		for _, worker := range w.workers {
			for _, call := range worker.calls() {
				quiet = false
				worker.finish(call, w.execute(call))
			}
		}
		if quiet {
			return
		}
	}
	w.t.Fatal("the worker never stops calling")
}

// pass lets time pass, with every call answered as it comes.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for ; d > 0; d -= tick {
		w.advance(min(d, tick))
		w.serve()
	}
}

// get shows the first worker a request of a tenant's.
func (w *world) get(tenant string) int { return w.worker().request(get(tenant), nil) }

func get(tenant string) []host.Header {
	return []host.Header{{":method", "GET"}, {":path", "/"}, {"x-tenant-id", tenant}}
}

func post(tenant string) []host.Header {
	return []host.Header{{":method", "POST"}, {":path", "/v1/reports"}, {"x-tenant-id", tenant}}
}

// only gives the one call that was made since the last look.
func (w *world) only() *fake.Call {
	w.t.Helper()
	calls := w.worker().calls()
	if len(calls) != 1 {
		w.t.Fatalf("%d calls, want 1", len(calls))
	}
	return calls[0]
}

func (w *world) none() {
	w.t.Helper()
	if calls := w.worker().calls(); len(calls) != 0 {
		w.t.Fatalf("%d calls, want none; the first says %+v", len(calls), w.read(calls[0]))
	}
}

// read gives what a call says, without executing it.
func (w *world) read(call *fake.Call) wire.SyncRequest {
	w.t.Helper()
	message, err := wire.Unframe(call.Body, wire.MaxMessageSize)
	if err != nil {
		w.t.Fatal(err)
	}
	if path, _ := call.Header(":path"); path != "/sluice.v1.Control/Sync" {
		w.t.Fatalf("a call to %s, want a Sync", path)
	}
	request, err := wire.ParseSyncRequest(message)
	if err != nil {
		w.t.Fatal(err)
	}
	return request
}

// want checks what has become of a request: "waiting", "passed", "gone", or the status of its answer.
func (w *world) want(request int, fate string) {
	w.t.Helper()
	if got := fateOf(w.worker().outcome(request)); got != fate {
		w.t.Errorf("request %d: %s, want %s", request, got, fate)
	}
}

func fateOf(o outcome) string {
	if o.fate == fake.Answered {
		return strconv.Itoa(o.status)
	}
	return o.fate.String()
}

func (w *world) wantMetric(name string, want int64) {
	w.t.Helper()
	if got := w.worker().metric(name); got != want {
		w.t.Errorf("%s = %d, want %d", name, got, want)
	}
}

// charged is what the service counts for a tenant in the last second.
func (w *world) charged(limit, tenant string) int64 {
	return w.service.count(wire.KeyRef{Limit: limit, Key: tenant}, w.clock(), time.Second)
}

func (w *world) wantCharged(limit, tenant string, want int64) {
	w.t.Helper()
	if got := w.charged(limit, tenant); got != want {
		w.t.Errorf("%d units of %s/%s are charged, want %d", got, limit, tenant, want)
	}
}
