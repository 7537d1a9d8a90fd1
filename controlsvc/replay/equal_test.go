package replay

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/controlsvc/accesslog"
	"sluice/controlsvc/policyfile"
	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/testharness/filterrun"
	"sluice/testharness/filterrun/native"
	"sluice/testharness/oracle"
	"sluice/testharness/policytest"
)

// sent is a request of a trace, and since when the trace has been going on.
type sent struct {
	at                         time.Duration
	tenant, plan, client, path string
	cost                       string
}

// epoch is when traces begin.
const epoch = instant.Instant(1_764_000_000_123_457)

// line is the request as a proxy logs it that has been told to log headers.
func (s *sent) line() string {
	fields := map[string]any{
		"start_time": time.UnixMicro(int64(epoch.Add(s.at))).UTC().Format("2006-01-02T15:04:05.000000Z"), "method": "GET", "path": s.path,
		"authority": "shop.example", "downstream_remote_address": s.client + ":4000", "response_code": 200,
	}
	for name, value := range map[string]string{"x-tenant-id": s.tenant, "x_plan": s.plan, "x-cost": s.cost} {
		if value != "" {
			fields[name] = value
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (s *sent) headers() []host.Header {
	headers := []host.Header{{":method", "GET"}, {":path", s.path}, {":authority", "shop.example"}, {":scheme", "http"}}
	for _, h := range []host.Header{{"x-tenant-id", s.tenant}, {"x-plan", s.plan}, {"x-cost", s.cost}} {
		if h[1] != "" {
			headers = append(headers, h)
		}
	}
	return headers
}

// verdict is what became of a request: whether it was denied, by which limits, and which limits in shadow would have denied it.
type verdict struct {
	denied  bool
	limits  []string
	shadows string
}

// as says whether an enforced request was told the same. Of several limits that deny it, enforcement names one that the worker
// knows of.
func (v verdict) as(enforced verdict) bool {
	return v.denied == enforced.denied && v.shadows == enforced.shadows && (len(v.limits) > 0) == (len(enforced.limits) > 0) &&
		(len(enforced.limits) == 0 || slices.Contains(v.limits, enforced.limits[0]))
}

// replayed plays a trace from its log.
func replayed(t testing.TB, p *policy.Policy, trace []sent) []verdict {
	t.Helper()
	var text strings.Builder
	for i := range trace {
		text.WriteString(trace[i].line() + "\n")
	}
	player, err := New(Config{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := accesslog.NewReader("log", strings.NewReader(text.String()), accesslog.Config{Want: player.Want(), Format: accesslog.JSON})
	if err != nil {
		t.Fatal(err)
	}
	var all []verdict
	b := &batch{}
	for {
		e, err := reader.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		b.entries = append(b.entries, accesslog.Entry{})
		b.entries[len(b.entries)-1].CopyFrom(e)
	}
	player.bind(b)
	player.look(b)
	for i := range b.entries {
		before := slices.Clone(player.tally.limits)
		d := player.play(b, i)
		v := verdict{denied: d.denied}
		for i, after := range player.tally.limits {
			if after.denied+after.deniedToo > before[i].denied+before[i].deniedToo {
				v.limits = append(v.limits, p.Limits[i].Name)
			}
			if after.shadowDenied > before[i].shadowDenied {
				v.shadows += p.Limits[i].Name + " "
			}
		}
		all = append(all, v)
	}
	if player.seen.lines != int64(len(trace)) || reader.Counts.Malformed > 0 {
		t.Fatalf("%d of %d lines: %+v", player.seen.lines, len(trace), reader.Counts)
	}
	return all
}

// enforced sends a trace through the filter with the service behind it, in virtual time.
func enforced(t testing.TB, p *policy.Policy, trace []sent) []verdict {
	t.Helper()
	r := native.NewFake(7)
	defer r.Close()
	var origin instant.Instant
	service := policytest.NewService(p, func() instant.Instant { return epoch.Add(r.Now().Sub(origin)) })
	settle := func() {
		for calls := r.Calls(); len(calls) > 0; calls = r.Calls() {
			for _, call := range calls {
				path, _ := call.Header(":path")
				r.Finish(call, service.Answer(t.Context(), path, call.Body))
			}
		}
	}
	if !r.Start("{}") {
		t.Fatal(r.Log())
	}
	advance := func(d time.Duration) {
		for settle(); d > 0; settle() {
			step := d
			if tick, ticks := r.NextTick(); ticks {
				step = min(step, max(tick, time.Microsecond))
			}
			r.Advance(step)
			d -= step
		}
	}
	advance(2 * time.Second) // it gets its policy
	origin = r.Now()
	var all []verdict
	for i := range trace {
		s := &trace[i]
		advance(s.at - r.Now().Sub(origin))
		n := r.Request(s.headers(), map[string]string{"source.address": s.client + ":4000"})
		settle()
		all = append(all, answered(t, r, n))
		r.End(n)
	}
	if misuse := r.Misuse(); len(misuse) > 0 {
		t.Fatal(misuse)
	}
	return all
}

func answered(t testing.TB, r filterrun.Runner, request int) verdict {
	t.Helper()
	o := r.Outcome(request)
	if o.Fate == fake.Waiting {
		t.Fatalf("request %d waits, though every call is answered at once", request)
	}
	v := verdict{denied: o.Fate == fake.Answered}
	if o.Fate == fake.Answered {
		var body struct {
			Limit string `json:"limit"`
		}
		if err := json.Unmarshal([]byte(o.Body), &body); err != nil {
			t.Fatal(err)
		}
		if body.Limit != "" { // else it is a list of the whole policy that denies
			v.limits = []string{body.Limit}
		}
	}
	for _, h := range r.Respond(request) {
		if h[0] == "x-sluice-shadow" {
			names := strings.Split(h[1], ", ") // in the order in which they were decided
			slices.Sort(names)
			v.shadows = strings.Join(names, " ") + " "
		}
	}
	return v
}

const head = `domain: shop
shadow_header: true
identities:
  tenant: {header: x-tenant-id}
  client: {address: {}}
  plan: {header: x-plan}
  caller: {first_of: [tenant, client]}
plans: {by: plan, names: [free, paid]}
allow: [{identity: tenant, values: [vip]}]
block: [{identity: client, values: [192.0.2.66]}]
limits:
`

// drawPolicy gives a policy of strict limits.
func drawPolicy(t *rapid.T) *policy.Policy {
	var b strings.Builder
	b.WriteString(head)
	algorithms := []string{"sliding_log", "sliding_buckets", "sliding_window_counter", "fixed_window", "token_bucket"}
	limits := rapid.IntRange(1, 3).Draw(t, "limits")
	units := 0
	rate := func(window string, more int) string {
		units = more + rapid.IntRange(0, 6).Draw(t, "units")
		return fmt.Sprintf("%d/%s", units, window)
	}
	for i := range limits {
		fmt.Fprintf(&b, "  - name: limit%d\n    mode: strict\n    key: [%s]\n    algorithm: %s\n", i,
			rapid.SampledFrom([]string{"tenant", "client", "caller", "tenant, client", ""}).Draw(t, "key"),
			rapid.SampledFrom(algorithms).Draw(t, "algorithm"))
		rates := rate(rapid.SampledFrom([]string{"50ms", "1s", "3s", "7s"}).Draw(t, "window"), 0)
		if rapid.Bool().Draw(t, "several") {
			rates += ", " + rate("11s", units+1)
		}
		fmt.Fprintf(&b, "    rates: [%s]\n", rates)
		b.WriteString(rapid.SampledFrom([]string{"", "", "    match: {path: {prefix: /v1/a}}\n", "    match: {not: {path: {prefix: /v1/a}}}\n"}).Draw(t, "match"))
		b.WriteString(rapid.SampledFrom([]string{"", "", "    shadow: true\n"}).Draw(t, "shadow"))
		b.WriteString(rapid.SampledFrom([]string{"", "    cost: {header: x-cost, max: 5}\n"}).Draw(t, "cost"))
		b.WriteString(rapid.SampledFrom([]string{"", "    plans: {free: {rates: [1/1s]}, paid: {rates: unlimited}}\n"}).Draw(t, "plans"))
	}
	p, err := policyfile.Parse("policy.yaml", []byte(b.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	return p
}

func drawTrace(t *rapid.T) []sent {
	var trace []sent
	at := time.Duration(0)
	pause := rapid.SampledFrom([]int{1000, 60_000, 700_000}).Draw(t, "pause")
	some := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(t, label) }
	for range rapid.IntRange(1, 60).Draw(t, "requests") {
		at += time.Duration(rapid.IntRange(0, pause).Draw(t, "after")) * time.Microsecond
		trace = append(trace, sent{
			at: at, tenant: some("tenant", "a", "a", "a", "b", "", "vip"), plan: some("plan", "", "", "free", "paid"),
			client: some("client", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.66"), path: some("path", "/v1/a?x=1", "/v1/a/b", "/v1/c", "/"),
			cost: some("cost", "", "1", "2", "9", "x"),
		})
	}
	return trace
}

// TestAsEnforced: of any trace under any strict policy, the verdict on each request is what the filter and the service gave it.
func TestAsEnforced(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, trace := drawPolicy(rt), drawTrace(rt)
		want, got := enforced(t, p, trace), replayed(t, p, trace)
		for i := range want {
			if !got[i].as(want[i]) {
				rt.Fatalf("request %d, %+v: %+v; enforced: %+v", i, trace[i], got[i], want[i])
			}
		}
	})
}

// TestAsTheOracle: the same of exact limits, by the limiter that sums up every charge anew.
func TestAsTheOracle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const text = `domain: shop
identities: {tenant: {header: x-tenant-id}, client: {address: {}}}
limits:
  - {name: tenant, key: [tenant], rates: [%d/1s, %d/9s], algorithm: sliding_log, mode: strict}
  - {name: client, key: [client], rates: [%d/5s], algorithm: sliding_log, mode: strict, cost: {header: x-cost, max: 5}}
`
		units := func() int64 { return rapid.Int64Range(1, 9).Draw(rt, "units") }
		a, c := units(), units()
		b := a + units()
		p, err := policyfile.Parse("policy.yaml", fmt.Appendf(nil, text, a, b, c))
		if err != nil {
			rt.Fatal(err)
		}
		trace := drawTrace(rt)
		got := replayed(t, p, trace)
		limiters := map[string]*oracle.Limiter{}
		limiter := func(name string, rates ...oracle.Rate) *oracle.Limiter {
			if limiters[name] == nil {
				limiters[name] = oracle.New(rates...)
			}
			return limiters[name]
		}
		for i, s := range trace {
			cost := map[string]int64{"2": 2, "9": 5}[s.cost]
			asked := map[*oracle.Limiter]int64{limiter("client "+s.client, oracle.Rate{Units: c, Window: 5 * time.Second}): max(1, cost)}
			if s.tenant != "" {
				asked[limiter("tenant "+s.tenant, oracle.Rate{Units: a, Window: time.Second}, oracle.Rate{Units: b, Window: 9 * time.Second})] = 1
			}
			call, denied := fmt.Sprint(i), false
			for l, units := range asked {
				denied = l.Reserve(s.at, call, units, units, 0, 0).Units == 0 || denied
			}
			if denied {
				for l := range asked {
					l.Cancel(call)
				}
			}
			if got[i].denied != denied {
				rt.Fatalf("request %d, %+v: %+v; the oracle: denied %v", i, s, got[i], denied)
			}
		}
	})
}
