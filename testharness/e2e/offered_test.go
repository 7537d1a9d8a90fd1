package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// offeredPolicy says of each thing something that a policy can say of whom it limits by how much, and of what it answers.
const offeredPolicy = `
domain: e2e
identities:
  probe: {header: x-probe}
  tenant: {header: x-tenant-id}
  tier: {header: x-tier}
  client: {address: {trusted_hops: 2}} # the last is Envoy's own
plans: {by: tier, names: [paid, internal]}
shadow_header: true
allow: [{identity: tenant, values: [partner]}]
block: [{identity: tenant, values: [banned]}, {identity: client, cidrs: [203.0.113.0/24]}]
limits:
  - {name: offered, match: {path: {exact: /}}, key: [probe], rates: [1000000/s], mode: strict}
  - name: plan
    match: {path: {exact: /plan}}
    key: [tenant]
    rates: [2/h]
    mode: strict
    plans: {paid: {rates: [4/h]}, internal: unlimited}
    overrides: [{key: [acme], rates: [3/h]}, {key: [ours], rates: unlimited}]
  - {name: shaded, match: {path: {exact: /shadow}}, key: [tenant], rates: [2/h], shadow: true}
  - {name: shaded-too, match: {path: {exact: /shadow}}, key: [], rates: [3/h], shadow: true}
  - name: vip
    match: {path: {exact: /vip}}
    key: [tenant]
    rates: [1/h]
    mode: strict
    allow: [{identity: client, cidrs: [198.51.100.7]}]
    block: [{identity: tenant, values: [scraper]}]
  - {name: cost, match: {path: {exact: /cost}}, key: [tenant], rates: [10/h], mode: strict, cost: {header: x-cost, default: 2, max: 8}}
  - {name: bytes, match: {path: {exact: /bytes}}, key: [tenant], rates: [10/h], mode: strict, cost: {request_bytes: 100}}
  - name: text
    match: {path: {exact: /text}}
    key: [tenant]
    rates: [1/h]
    mode: strict
    response: {status: 420, body: {text: "{{limit}} holds {{rate}}: {{remaining}} left. 100 % \"calm\"\n"}, headers: {X-Help: "https://shop.test/limits?a=b"}}
  - name: json
    match: {path: {exact: /json}}
    key: [tenant]
    rates: [1/h]
    mode: strict
    response: {status: 503, body: {json: '{"why": "{{message}}", "reset": {{reset}}}'}, retry_after_jitter: 60s}
  - name: cart
    match: {path: {prefix: /shop.Cart}}
    key: [tenant]
    rates: [1/h]
    mode: strict
    response: {status: 420, body: {text: no}, headers: {x-help: me}}
`

// TestWhatAPolicyOffers: plans, overrides, lists, shadows, costs and responses, by what a client sees of them.
func TestWhatAPolicyOffers(t *testing.T) {
	serve(t, onRedis)
	reloadPolicy(t, offeredPolicy)
	defer reloadPolicy(t, policy)
	awaitPolicy(t, "offered")
	const (
		blocked = `{"error":"blocked","message":"The request is blocked.","limit":"","retry_after":null}` + "\n"
		none    = "-"
	)
	for i, c := range []struct {
		path, headers string // name=value, by blanks
		times         int
		status        int    // of the last
		field         string // name: value, of the last; none: it has no field of limits
		body          string // of the last, where it says something
	}{
		{"/plan", "x-tenant-id=a", 2, 200, `ratelimit: "plan";r=0`, ""},
		{"/plan", "x-tenant-id=a", 1, 429, `ratelimit-policy: "plan";q=2;w=3600`, ""},
		{"/plan", "x-tenant-id=b x-tier=paid", 4, 200, `ratelimit-policy: "plan";q=4;w=3600`, ""},
		{"/plan", "x-tenant-id=b x-tier=paid", 1, 429, "", ""},
		{"/plan", "x-tenant-id=c x-tier=unknown", 3, 429, `ratelimit-policy: "plan";q=2;w=3600`, ""},
		{"/plan", "x-tenant-id=d x-tier=internal", 9, 200, none, ""},
		{"/plan", "x-tenant-id=acme x-tier=paid", 4, 429, `ratelimit-policy: "plan";q=3;w=3600`, ""},
		{"/plan", "x-tenant-id=ours", 9, 200, none, ""},

		{"/plan", "x-tenant-id=partner", 9, 200, none, ""},
		{"/plan", "x-tenant-id=banned", 1, 403, none, blocked},
		{"/anything", "x-tenant-id=banned", 1, 403, none, blocked},
		{"/plan", "x-tenant-id=partner x-forwarded-for=203.0.113.9", 1, 403, none, blocked},
		{"/plan", "x-tenant-id=e x-forwarded-for=203.0.113.9,192.0.2.1", 1, 200, "", ""}, // said by the client
		{"/vip", "x-tenant-id=a x-forwarded-for=198.51.100.7", 9, 200, none, ""},
		{"/vip", "x-tenant-id=a", 2, 429, "", ""},
		{"/vip", "x-tenant-id=scraper x-forwarded-for=198.51.100.7", 1, 403, none, strings.Replace(blocked, `""`, `"vip"`, 1)},
		{"/plan", "x-tenant-id=scraper", 1, 200, "", ""},

		{"/cost", "x-tenant-id=a x-cost=5", 1, 200, `ratelimit: "cost";r=5`, ""},
		{"/cost", "x-tenant-id=a", 1, 200, `ratelimit: "cost";r=3`, ""},
		{"/cost", "x-tenant-id=a x-cost=4", 1, 429, `ratelimit: "cost";r=3`, ""},
		{"/cost", "x-tenant-id=a x-cost=3", 1, 200, `ratelimit: "cost";r=0`, ""},
		{"/cost", "x-tenant-id=b x-cost=99999", 1, 200, `ratelimit: "cost";r=2`, ""},
		{"/bytes", "x-tenant-id=a body=101", 1, 200, `ratelimit: "bytes";r=8`, ""},
		{"/bytes", "x-tenant-id=a body=0", 1, 200, `ratelimit: "bytes";r=7`, ""},
		{"/bytes", "x-tenant-id=a body=5000", 1, 429, "", ""},

		{"/text", "x-tenant-id=a", 2, 420, "x-help: https://shop.test/limits?a=b", "text holds 1/h: 0 left. 100 % \"calm\"\n"},
		{"/text", "x-tenant-id=a", 1, 420, "content-type: text/plain; charset=utf-8", ""},
		{"/json", "x-tenant-id=a", 2, 503, "content-type: application/json", ""},
	} {
		var a answer
		for range c.times {
			a = offered(t, i%envoyCount, c.path, strings.Fields(c.headers)...)
		}
		if a.status != c.status || c.body != "" && a.body != c.body {
			t.Errorf("%s %s: status %d with %q, want %d with %q", c.path, c.headers, a.status, a.body, c.status, c.body)
		}
		switch name, want, _ := strings.Cut(c.field, ": "); {
		case c.field == none:
			if fields := rateFields(a); len(fields) > 0 {
				t.Errorf("%s %s: says %v", c.path, c.headers, fields)
			}
		case name == "ratelimit": // how many seconds later is the clock's business
			if got, _, _ := strings.Cut(a.header.Get(name), ";t="); got != want {
				t.Errorf("%s %s: %s: %q, want %q", c.path, c.headers, name, a.header.Get(name), want)
			}
		case name != "" && a.header.Get(name) != want:
			t.Errorf("%s %s: %s: %q, want %q", c.path, c.headers, name, a.header.Get(name), want)
		}
	}
	denied := offered(t, 0, "/json", "x-tenant-id=a")
	if body := denied.json(t); body["why"] == "" || body["reset"] == 0.0 || len(body) != 2 {
		t.Errorf("body %q", denied.body)
	}
	if wait, err := strconv.Atoi(denied.header.Get("retry-after")); err != nil || wait < 3500 || wait > 3660 {
		t.Errorf("retry-after %q, want an hour and up to a minute", denied.header.Get("retry-after"))
	}
	t.Run("shadow", offeredInShadow)
	t.Run("gRPC", offeredToGRPC)
	t.Run("styles", offeredStyles)
}

// offered sends a request of fields, name=value each, over a connection of its own; body is how many bytes it has.
func offered(t *testing.T, proxy int, path string, fields ...string) answer {
	t.Helper()
	header := http.Header{}
	body := 0
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		if name == "body" {
			body, _ = strconv.Atoi(value)
			continue
		}
		header.Set(name, value)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listeners()[proxy]+path, strings.NewReader(strings.Repeat("x", body)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header, request.Close = header, true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

// offeredInShadow: what a limit in shadow would have denied goes through, and says so as soon as its worker knows, which is
// not before it has asked.
func offeredInShadow(t *testing.T) {
	wasmLogs(t, "info")
	defer wasmLogs(t, "warning")
	before := filterStats(t, "shadow.denied")
	told := map[string]int{}
	for i := 0; i < 400 && told["shaded, shaded-too"] < 16; i++ {
		a := offered(t, i%envoyCount, "/shadow", "x-tenant-id=a")
		if a.status != http.StatusOK || len(rateFields(a)) > 0 {
			t.Fatalf("request %d: status %d, %v", i, a.status, rateFields(a))
		}
		if told[a.header.Get("x-sluice-shadow")]++; i < 2 && told[""] != i+1 {
			t.Errorf("request %d of 2/h is told %v", i, told)
		}
	}
	if told["shaded, shaded-too"] < 16 {
		t.Errorf("in 400 requests clients are told %v", told)
	}
	awaitFilterStat(t, "shadow.denied", before+1)
	wantShadowLog(t, map[string]string{"shaded": "key a, over 2/h", "shaded-too": "a request, over 3/h"})
}

// wasmLogs sets the level from which Envoy writes what the filter logs.
func wasmLogs(t *testing.T, level string) {
	t.Helper()
	for _, e := range fleet.envoys {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+e.Admin+"/logging?wasm="+level, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Fatalf("Envoy's level of logs: %s", response.Status)
		}
	}
}

// shadowLine is a line of Envoy's log: when, the worker's thread, the limit, and what is said of it.
var shadowLine = regexp.MustCompile(`(?m)^\[([-0-9]+ [:.0-9]+)\]\[(\d+)\]\[info\]\[wasm\].* sluice: limit (\S+) in shadow would have denied (.*)$`)

// wantShadowLog: Envoy's log tells of each limit in shadow whom it would have denied, by its name, and a worker does so
// once in ten seconds, of many denials.
func wantShadowLog(t *testing.T, want map[string]string) {
	t.Helper()
	seen := map[string]bool{}
	// What an Envoy prints comes through a pipe.
	err := until(recoverWithin, func() error {
		for _, e := range fleet.envoys {
			for _, line := range shadowLine.FindAllStringSubmatch(e.Output(), -1) {
				seen[line[3]] = true
			}
		}
		if len(seen) != len(want) {
			return fmt.Errorf("Envoy's logs tell of limits %v, want %d", slices.Sorted(maps.Keys(seen)), len(want))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, e := range fleet.envoys {
		last := map[string]time.Time{} // by thread and limit
		for _, line := range shadowLine.FindAllStringSubmatch(e.Output(), -1) {
			at, err := time.Parse("2006-01-02 15:04:05.000", line[1])
			if err != nil {
				t.Fatal(err)
			}
			limit, says := line[3], line[4]
			if head, _, _ := strings.Cut(says, ";"); head != want[limit] {
				t.Errorf("%q, want %q", line[0], want[limit])
			}
			if before, again := last[line[2]+limit]; again && at.Sub(before) < 10*time.Second-time.Millisecond {
				t.Errorf("%q is %v after the line before", line[0], at.Sub(before))
			}
			last[line[2]+limit] = at
		}
	}
}

// offeredToGRPC: a gRPC client has a status and a sentence, whatever HTTP clients are told.
func offeredToGRPC(t *testing.T) {
	client, err := grpc.NewClient(listeners()[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, c := range []struct {
		tenant string
		calls  int
		want   codes.Code
		says   string
	}{
		{"grpc", 2, codes.ResourceExhausted, "Over the limit of 1/h. Retry in 3600 s."},
		{"banned", 1, codes.PermissionDenied, "The request is blocked."},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-tenant-id", c.tenant)
		var header, trailer metadata.MD
		for range c.calls {
			err = client.Invoke(ctx, "/shop.Cart/Get", &emptypb.Empty{}, &emptypb.Empty{}, grpc.Header(&header), grpc.Trailer(&trailer))
		}
		if said := status.Convert(err); said.Code() != c.want || said.Message() != c.says {
			t.Errorf("%s is told %v %q, want %v %q", c.tenant, said.Code(), said.Message(), c.want, c.says)
		}
		if got := metadata.Join(header, trailer); c.want == codes.ResourceExhausted &&
			(len(got["retry-after"]) != 1 || len(got["x-help"]) != 1 || len(got["ratelimit"]) != 1) {
			t.Errorf("%s is told %v", c.tenant, got)
		}
	}
}

// offeredStyles: each style of fields, by name.
func offeredStyles(t *testing.T) {
	for style, want := range map[string]string{
		"ratelimit":                     "ratelimit,ratelimit-policy",
		"ratelimit-legacy":              "ratelimit-limit,ratelimit-remaining,ratelimit-reset",
		"x-ratelimit":                   "x-ratelimit-limit,x-ratelimit-remaining,x-ratelimit-reset",
		"none":                          "",
		"[ratelimit, ratelimit-legacy]": "ratelimit,ratelimit-limit,ratelimit-policy,ratelimit-remaining,ratelimit-reset",
	} {
		reloadPolicy(t, offeredPolicy+"header_style: "+style+"\n")
		inARow := 0
		var got string
		for began := time.Now(); inARow < 8 && time.Since(began) < recoverWithin; time.Sleep(5 * time.Millisecond) {
			a := offered(t, inARow%envoyCount, "/", "x-probe=1")
			got = strings.Join(slices.Sorted(maps.Keys(rateFields(a))), ",")
			if inARow++; got != want || a.status != http.StatusOK {
				inARow = 0
			}
		}
		if inARow == 0 {
			t.Errorf("%s: admitted clients are told %q, want %q", style, got, want)
			continue
		}
		tenant := "x-tenant-id=" + strings.Trim(strings.ReplaceAll(style, ", ", "-"), "[]")
		offered(t, 0, "/plan", tenant)
		offered(t, 0, "/plan", tenant)
		denied := offered(t, 1, "/plan", tenant)
		fields := rateFields(denied)
		_, waits := fields["retry-after"]
		delete(fields, "retry-after")
		if got := strings.Join(slices.Sorted(maps.Keys(fields)), ","); got != want || !waits || denied.status != http.StatusTooManyRequests {
			t.Errorf("%s: a denied client is told %q, retry-after %v, want %q", style, got, waits, want)
		}
	}
}
