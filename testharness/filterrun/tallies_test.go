package filterrun_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
	"sluice/testharness/filterrun"
	"sluice/testharness/wasmhost"
)

// counting are the places where the filter counts what it decides.
var counting = []struct{ file, at string }{
	{"control/tally.go", "func (c *Client) Count(now instant.Instant, r *Request, ref wire.KeyRef, out *admission.Output) {\n"},
	{"control/tally.go", "func (c *Client) count(now instant.Instant, r *Request, keys []*Key, out *admission.Output) {\n"},
	{"control/tally.go", "func (c *Client) CountUnbound(now instant.Instant) {\n"},
	{"control/tally.go", "func (c *Client) Upstream(took time.Duration) {\n"},
}

// BenchmarkTallies is what it costs a request in the filter to be counted for the service: the reports, the samples of denials
// and those of the upstream's time are in it. Each filter runs in a wasmhost of its own; they take turns at
// a thousand requests a second, and cost-% is the median of the seconds' own. The filters are built alike, but for the value of a variable: where functions lie in the processor's
// caches makes more of a difference than what is measured.
func BenchmarkTallies(b *testing.B) {
	modules := [2][]byte{build(b, true), build(b, false)}
	for _, of := range []struct {
		name   string
		method string
		left   int64
		source admission.Source
	}{
		{"no limit binds", "PUT", 0, admission.FromPolicy},
		{"lease", "GET", limit.MaxUnits, admission.FromLease},
		{"a denial stands", "GET", 0, admission.FromDenial},
	} {
		b.Run(of.name, func(b *testing.B) {
			const turn, turns = 100, 10 // of a second's, so that its report is among them
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var proxies [2]*proxy
			for i, module := range modules {
				proxies[i] = serve(b, module, of.left)
			}
			took := func(p *proxy) time.Duration {
				before := threadTime(b)
				for range turn {
					s := p.Worker(0).Request(wasmhost.Headers{
						{":method", of.method}, {":path", "/v1/reports/7"}, {":authority", "shop"}, {"x-tenant-id", "acme"},
					})
					if s.Outcome().Kind == wasmhost.Continued {
						s.RespondUpstream(wasmhost.Headers{{":status", "200"}})
					}
					p.Advance(time.Second / (turn * turns))
				}
				return threadTime(b) - before
			}
			var costs, each []float64
			for b.Loop() {
				times := [2]time.Duration{}
				for i := range 2 * turns {
					i = i%2 ^ i/2%2
					times[i] += took(proxies[i])
				}
				costs = append(costs, 100*(times[0].Seconds()/times[1].Seconds()-1))
				each = append(each, float64(times[1].Nanoseconds())/(turn*turns))
			}
			b.ReportMetric(median(costs), "cost-%")
			b.ReportMetric(median(each), "ns/uncounted")
			b.ReportMetric(0, "ns/op")
			for i, want := range [2]int64{int64(len(costs)) * turn * turns, 0} {
				p := proxies[i]
				p.Advance(3 * time.Second)
				others := p.reported - p.from[of.source]
				if p.reported != want || others > want/100 {
					b.Errorf("filter %d of 2 reported %d requests, of which %d were decided otherwise than by %v; want %d", i+1, p.reported, others, of.source, want)
				}
				if logs := p.Logs(); len(logs) > 0 {
					b.Errorf("filter %d of 2 logged %v", i+1, logs)
				}
			}
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

// build builds a filter that counts what it decides, or one that does not: from the same sources, in which a variable says so.
func build(b *testing.B, counts bool) []byte {
	b.Helper()
	texts := map[string]string{}
	for _, place := range counting {
		path, err := filepath.Abs(filepath.Join("..", "..", "filter", place.file))
		if err != nil {
			b.Fatal(err)
		}
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				b.Fatal(err)
			}
			texts[path] = string(text) + "\nvar counts = " + strconv.FormatBool(counts) + "\n"
		}
		if strings.Count(texts[path], place.at) != 1 {
			b.Fatalf("%s has no longer %q", place.file, place.at)
		}
		texts[path] = strings.Replace(texts[path], place.at, place.at+"\tif !counts {\n\t\treturn\n\t}\n", 1)
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
	module, err := filterrun.Build(b.Context(), "../../filter", "-overlay="+file)
	if err != nil {
		b.Fatal(err)
	}
	return module
}

// proxy runs a filter, whose reports it adds up.
type proxy struct {
	*wasmhost.Host
	reported int64
	from     map[admission.Source]int64
}

// serve gives a proxy with the filter, and a service that grants whatever is asked for of a limit on GET while units are left.
func serve(b *testing.B, module []byte, left int64) *proxy {
	b.Helper()
	rate := limit.Rate{Units: limit.MaxUnits, Window: time.Hour}
	p := &policy.Policy{
		Version: "v1", Domain: "shop", Identities: []policy.Identity{{Name: "tenant", Source: policy.FromHeader, Header: "x-tenant-id"}},
		Limits: []policy.Limit{{
			Name: "tenant", Key: []uint32{0}, Rates: []limit.Rate{rate}, Algorithm: limit.SlidingLog, Mode: limit.Lease,
			OnUnavailable: limit.Local,
			Match:         policy.Match{Methods: []string{"GET"}, PathPrefix: "/v1/reports"},
		}},
	}
	counted := &proxy{from: map[admission.Source]int64{}}
	h, err := wasmhost.New(b.Context(), module, wasmhost.Config{
		PluginConfig: []byte(`{"control_cluster":"sluice"}`), LogLevel: wasmhost.LogWarn,
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
				for _, tally := range request.Report.Tallies {
					counted.reported += tally.Count
					counted.from[admission.Source(tally.Source)] += tally.Count
				}
			}
			for _, ask := range request.Asks {
				r := wire.AskResult{Limit: rate.Units, Window: rate.Window, Reset: rate.Window}
				if units := min(ask.Want, left); units > 0 {
					left -= units
					r.Lease, r.Units, r.EndIn, r.Remaining = "lease", units, time.Second, left
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
	counted.Host = h
	return counted
}

func answered(message []byte) wasmhost.Reply {
	return wasmhost.Reply{
		Headers:  wasmhost.Headers{{":status", "200"}, {"content-type", "application/grpc"}},
		Trailers: wasmhost.Headers{{"grpc-status", "0"}}, Body: wire.AppendFrame(nil, message),
	}
}
