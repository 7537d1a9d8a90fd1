package filterrun_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
	"sluice/testharness/filterrun"
	"sluice/testharness/wasmhost"
)

// uncounted are the places where the filter counts what it decides, which the other filter leaves out.
var uncounted = []struct{ file, at string }{
	{"control/tally.go", "func (c *Client) Count(now instant.Instant, r *Request, ref wire.KeyRef, out *admission.Output) {\n"},
	{"control/tally.go", "func (c *Client) count(now instant.Instant, r *Request, keys []*Key, out *admission.Output) {\n"},
	{"control/tally.go", "func (c *Client) CountUnbound(now instant.Instant) {\n"},
	{"control/tally.go", "func (c *Client) Upstream(took time.Duration) {\n"},
}

// BenchmarkTallies is what it costs a request in the filter, as it is shipped, to be counted for the service: the reports, the
// samples of denials and those of the upstream's time are in it. Each filter runs in a wasmhost of its own; they take turns,
// and cost-% is the median of the turns' own.
func BenchmarkTallies(b *testing.B) {
	counting, err := filterrun.Build(b.Context(), "../../filter")
	if err != nil {
		b.Fatal(err)
	}
	other, err := filterrun.Build(b.Context(), "../../filter", "-overlay="+withoutTallies(b))
	if err != nil {
		b.Fatal(err)
	}
	for _, of := range []struct {
		name   string
		method string
		rate   limit.Rate
		status int
	}{
		{"no limit binds", "PUT", limit.Rate{Units: 1, Window: time.Second}, 200},
		{"lease", "GET", limit.Rate{Units: limit.MaxUnits, Window: time.Minute}, 200},
		{"a denial stands", "GET", limit.Rate{Units: 1, Window: time.Hour}, 429},
	} {
		b.Run(of.name, func(b *testing.B) {
			const turn = 100
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			proxies := []*wasmhost.Host{serve(b, counting, of.rate), serve(b, other, of.rate)}
			var costs, each []float64
			took := func(h *wasmhost.Host) time.Duration {
				before := threadTime(b)
				for range turn {
					s := h.Worker(0).Request(wasmhost.Headers{
						{":method", of.method}, {":path", "/v1/reports/7"}, {":authority", "shop"}, {"x-tenant-id", "acme"},
					})
					if s.Outcome().Kind == wasmhost.Continued {
						s.RespondUpstream(wasmhost.Headers{{":status", "200"}})
					} else if s.Outcome().Status != of.status {
						b.Fatalf("%v; want %d", s.Outcome(), of.status)
					}
				}
				h.Advance(turn * 10 * time.Microsecond)
				return threadTime(b) - before
			}
			for _, h := range proxies {
				took(h)
			}
			for turns := 0; b.Loop(); turns++ {
				times := [2]time.Duration{}
				for i := range proxies {
					i = (i + turns) % 2
					times[i] = took(proxies[i])
				}
				costs = append(costs, 100*(times[0].Seconds()/times[1].Seconds()-1))
				each = append(each, float64(times[1].Nanoseconds())/turn)
			}
			b.ReportMetric(median(costs), "cost-%")
			b.ReportMetric(median(each), "ns/uncounted")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// threadTime is how long this thread has had a processor: what else the machine does is not in it.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		b.Fatal(err)
	}
	return time.Duration(at.Nano())
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// withoutTallies writes the sources of a filter that counts nothing, and gives what go build's -overlay wants.
func withoutTallies(b *testing.B) string {
	b.Helper()
	texts := map[string]string{}
	for _, place := range uncounted {
		path, err := filepath.Abs(filepath.Join("..", "..", "filter", place.file))
		if err != nil {
			b.Fatal(err)
		}
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				b.Fatal(err)
			}
			texts[path] = string(text)
		}
		if strings.Count(texts[path], place.at) != 1 {
			b.Fatalf("%s has no longer %q", place.file, place.at)
		}
		texts[path] = strings.Replace(texts[path], place.at, place.at+"\treturn\n", 1)
	}
	dir := b.TempDir()
	overlay := struct {
		Replace map[string]string `json:"Replace"`
	}{map[string]string{}}
	for path, text := range texts {
		overlay.Replace[path] = filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(overlay.Replace[path], []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	said, err := json.Marshal(overlay)
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, said, 0o600); err != nil {
		b.Fatal(err)
	}
	return file
}

// serve gives a proxy with the filter, and a service that grants whatever is asked for, of a limit of that rate on GET; of a
// limit of 1 one unit.
func serve(b *testing.B, module []byte, rate limit.Rate) *wasmhost.Host {
	b.Helper()
	p := &policy.Policy{
		Version: "v1", Domain: "shop", Identities: []policy.Identity{{Name: "tenant", Source: policy.FromHeader, Header: "x-tenant-id"}},
		Limits: []policy.Limit{{
			Name: "tenant", Key: []uint32{0}, Rates: []limit.Rate{rate}, Algorithm: limit.SlidingLog, Mode: limit.Lease,
			Match: policy.Match{Methods: []string{"GET"}, PathPrefix: "/v1/reports"},
		}},
	}
	granted := int64(0)
	h, err := wasmhost.New(b.Context(), module, wasmhost.Config{
		PluginConfig: []byte(`{"control_cluster":"sluice"}`), LogLevel: wasmhost.LogCritical,
		HTTPCall: func(c *wasmhost.Call) wasmhost.Reply {
			if c.Headers.Get(":path") == "/sluice.v1.Control/GetPolicy" {
				return answered(wire.AppendGetPolicyResponse(nil, &wire.GetPolicyResponse{Version: p.Version, Policy: p}))
			}
			request, err := wire.ParseSyncRequest(c.Body[wire.FrameHeader:])
			if err != nil {
				b.Error(err)
			}
			response := wire.SyncResponse{PolicyVersion: p.Version}
			if request.Report != nil {
				response.Reported = request.Report.ID
			}
			for _, ask := range request.Asks {
				r := wire.AskResult{Limit: rate.Units, Window: rate.Window, Reset: rate.Window}
				if units := min(ask.Want, rate.Units-granted); units > 0 {
					granted += units
					r.Lease, r.Units, r.EndIn, r.Remaining = "lease", units, time.Second, rate.Units-granted
				} else {
					r.Denied, r.Denial = true, wire.Denial{RetryAfter: rate.Window, DenyFor: rate.Window}
				}
				response.Results = append(response.Results, r)
			}
			return answered(wire.AppendSyncResponse(nil, &response))
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close() })
	h.Advance(time.Second)
	return h
}

func answered(message []byte) wasmhost.Reply {
	return wasmhost.Reply{
		Headers:  wasmhost.Headers{{":status", "200"}, {"content-type", "application/grpc"}},
		Trailers: wasmhost.Headers{{"grpc-status", "0"}}, Body: wire.AppendFrame(nil, message),
	}
}
