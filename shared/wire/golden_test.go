package wire

import (
	"encoding/hex"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// One message of each kind, with every field set.
var (
	exampleRequest = SyncRequest{
		WorkerID: 0x0123456789abcdef, CallID: 300, PolicyVersion: "7c9e66",
		Abandoned: []Abandoned{{CallID: 299, Keys: []KeyRef{{"tenant", "acme"}, {"reports", "acme"}}}},
		Settles: []Settle{{
			KeyRef: KeyRef{"tenant", "acme"}, Lease: "l1", Unused: 3,
			Uses: []Use{{Age: 1500 * time.Microsecond, Units: 4}, {Units: 1}},
		}},
		Asks: []Ask{
			{KeyRef: KeyRef{"tenant", "acme"}, Want: 5, Min: 1, Waiting: 2, Group: 1},
			{KeyRef: KeyRef{"reports", "%2F/%"}, Want: MaxUnits, Min: 1, Plan: "paid"},
		},
		Records: []Record{{KeyRef: KeyRef{"tenant", "umbrella"}, Uses: []Use{{Age: time.Hour, Units: 7}}, ID: 9, Plan: "paid"}},
		Active:  true,
		Report: &Report{
			ID: 7, Age: time.Hour, Span: time.Second,
			Tallies: []Tally{
				{Limit: "tenant", Route: "/v1/reports/{id}", Window: time.Second, Result: Admitted, Source: 2, Count: 300, Near: 3},
				{Result: Left, Source: 1, Count: 1},
			},
			Keys: []KeyTally{{KeyRef: KeyRef{"tenant", "acme"}, Admitted: 200, Denied: 4, ShadowAdmitted: 3, ShadowDenied: 1}},
			Denials: []DenialSample{{
				KeyRef: KeyRef{"tenant", "acme"}, Route: "/v1", Window: time.Minute, Source: 4, Remaining: 2, RetryAfter: time.Second,
				Age: time.Millisecond, TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", Shadow: true,
			}},
			UpstreamMicros: []uint32{1500, 0}, UpstreamOf: 64, Unlisted: 1, KeysLost: 2, Away: time.Minute, Waits: 5, Waited: 9 * time.Millisecond,
		},
		Round: 1500 * time.Microsecond,
	}
	exampleResponse = SyncResponse{
		Results: []AskResult{
			{
				Lease: "l2", Units: 5, StartIn: 20 * time.Millisecond, EndIn: 520 * time.Millisecond,
				Limit: 100, Window: time.Second, Remaining: 42, Reset: 900 * time.Millisecond,
			},
			{
				Limit: 10, Window: time.Second, Reset: time.Second, Denied: true,
				Denial: Denial{DenyFor: 50 * time.Millisecond, RetryAfter: 70 * time.Millisecond},
			},
			{Denied: true, Denial: Denial{Never: true}},
			{Problem: UnknownLimit},
		},
		Settled: []uint32{0, 300}, Abandoned: []uint32{0}, Recorded: []uint32{0},
		PolicyVersion: "7c9e66", Workers: 4, Rank: 3, Reported: 7,
	}
	examplePolicy = GetPolicyResponse{Version: "7c9e66", Policy: &policy.Policy{
		Version: "7c9e66", Domain: "shop", HashKey: "0123456789abcdef",
		Identities: []policy.Identity{
			{Name: "tenant", Source: policy.FromHeader, Header: "x-tenant-id"},
			{Name: "client", Source: policy.FromAddress, TrustedHops: 1},
			{Name: "peer", Source: policy.FromAddress},
			{Name: "office", Source: policy.FromAddress, IPv4Prefix: 24, IPv6Prefix: 64, Networks: []policy.Network{{Name: "hq", CIDR: "10.0.0.0/8"}}},
			{Name: "session", Source: policy.FromCookie, Text: "sid", Hash: true},
			{Name: "region", Source: policy.FromQuery, Text: "r", Lowercase: true, MaxLength: 8, Default: "eu"},
			{Name: "user", Source: policy.FromClaim, Path: []string{"realm_access", "role"}, Header: "authorization"},
			{Name: "verified", Source: policy.FromClaim, Path: []string{"sub"}, Metadata: "payload"},
			{Name: "method", Source: policy.FromMethod},
			{Name: "host", Source: policy.FromHost},
			{Name: "path", Source: policy.FromPath},
			{Name: "route", Source: policy.FromPathTemplate, Path: []string{"/v1/reports/{id}", "/files/{rest=**}"}},
			{Name: "mtls", Source: policy.FromAttribute, Path: []string{"connection", "mtls"}},
			{Name: "env", Source: policy.FromConstant, Text: "prod"},
			{Name: "caller", Source: policy.FirstOf, FirstOf: []uint32{4, 1}},
		},
		Limits: []policy.Limit{
			{
				Name: "tenant", Key: []uint32{0}, Rates: []limit.Rate{{Units: 100, Window: time.Second}},
				Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Local,
			},
			{
				Name: "reports", Match: policy.Match{PathPrefix: "/v1/reports", Methods: []string{"POST", "PUT"}}, Key: []uint32{0, 1},
				Rates:     []limit.Rate{{Units: 10, Window: time.Second}, {Units: 600, Window: time.Minute}},
				Algorithm: limit.SlidingBuckets, Mode: limit.Lease, OnUnavailable: limit.Deny,
				MaxWait: 500 * time.Millisecond, Cost: 5,
			},
			{
				Name: "everything", Match: policy.Match{
					Host: "*.example.com", PathTemplate: "/v1/reports/{id}", PathRegex: "/v[0-9]/.*",
					Headers: []policy.FieldMatch{{Name: "x-beta", Kind: policy.FieldPresent}, {Name: "x-plan", Kind: policy.FieldExact, Value: "gold"}},
					Query:   []policy.FieldMatch{{Name: "q", Kind: policy.FieldRegex, Value: "a+"}},
					Not:     &policy.Match{PathPrefix: "/v1/reports/public"},
				},
				Rates: []limit.Rate{{Units: 1, Window: time.Second}}, Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Local,
			},
			{
				Name: "all", Match: policy.Match{PathExact: "/healthz"}, Rates: []limit.Rate{{Units: 9, Window: 24 * time.Hour, Burst: 20}},
				Algorithm: limit.TokenBucket, Mode: limit.Async, OnUnavailable: limit.Allow, Response: 1,
			},
			{
				Name: "tiers", Key: []uint32{0}, Unlimited: true, Shadow: 90, PlanBy: 1,
				Plans: []policy.Exception{
					{Name: "internal", Unlimited: true}, {Name: "paid", Rates: []limit.Rate{{Units: 9, Window: time.Hour}}, Enforce: true},
				},
				Overrides: []policy.Exception{{Name: "acme", Shadow: 100}},
				Allow:     []policy.List{{Identity: 1, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
				Block:     []policy.List{{Values: []string{"stolen"}}},
				Algorithm: limit.SlidingLog, Mode: limit.Lease, OnUnavailable: limit.Local,
				Measure: policy.Measure{Header: "x-cost", Max: 100},
			},
			{
				Name: "upload", Rates: []limit.Rate{{Units: 9, Window: time.Hour}},
				Algorithm: limit.SlidingLog, Mode: limit.Lease, OnUnavailable: limit.Local,
				Measure: policy.Measure{Bytes: 1024, Max: 5},
			},
		},
		Responses: []policy.Response{
			{},
			{
				Status: 503, Body: `{"wait":{{retry_after}}}`, JSON: true, RetryAfterJitter: 10 * time.Second,
				Headers: []policy.Field{{Name: "x-help", Value: "https://example.com/limits"}, {Name: "x-empty"}},
			},
		},
		FieldStyles:  policy.StandardFields | policy.XFields,
		Allow:        []policy.List{{Values: []string{"us"}}},
		Block:        []policy.List{{Identity: 2, Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}}},
		ShadowHeader: true,
	}}
)

// The bytes on the wire never change for a message that does not: workers and services of two versions talk to each other.
func TestGoldenBytes(t *testing.T) {
	for name, message := range map[string][]byte{
		"sync_request":        AppendSyncRequest(nil, &exampleRequest),
		"sync_response":       AppendSyncResponse(nil, &exampleResponse),
		"get_policy_request":  AppendGetPolicyRequest(nil, &GetPolicyRequest{Version: "7c9e66"}),
		"get_policy_response": AppendGetPolicyResponse(nil, &examplePolicy),
		"frame":               AppendFrame(nil, []byte("message")),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name+".golden")
			got := hex.Dump(message)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExamplesAreRead(t *testing.T) {
	requestCodec.roundTrips(t, exampleRequest)
	responseCodec.roundTrips(t, exampleResponse)
	policyResponseCodec.roundTrips(t, examplePolicy)
	policyResponseCodec.roundTrips(t, GetPolicyResponse{Version: "7c9e66"})
}
