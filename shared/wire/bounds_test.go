package wire

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

// tag and the like build bytes by protobuf's own package, so that this package's mistakes are not in them.
func number(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func inside(b []byte, field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), content)
}

func repeated(field protowire.Number, content []byte, n int) (b []byte) {
	for range n {
		b = inside(b, field, content)
	}
	return b
}

func request(body []byte) error  { _, err := ParseSyncRequest(body); return err }
func response(body []byte) error { _, err := ParseSyncResponse(body); return err }
func compiled(body []byte) error { _, err := ParseGetPolicyResponse(inside(nil, 2, body)); return err }

func TestRefusalsNameTheField(t *testing.T) {
	long := []byte(strings.Repeat("x", MaxTextLength+1))
	overUnits, overTime := uint64(MaxUnits+1), uint64(MaxDuration.Microseconds()+1)
	type parse = func([]byte) error
	for _, c := range []struct {
		parse parse
		body  []byte
		want  string
	}{
		{request, bytes.Repeat([]byte{0x40, 1}, MaxMessageSize/2+1), "SyncRequest: has 4194306 bytes, want at most 4194304"},
		{request, []byte{0x80}, "SyncRequest: the message ends within a number"},
		{request, bytes.Repeat([]byte{0xff}, 12), "SyncRequest: a number has more than 64 bits"},
		{request, []byte{0x00, 0x01}, "SyncRequest: the field number 0 does not exist"},
		{request, number(nil, 1, 7), "SyncRequest.worker_id: has wire type 0, want 1"},
		{request, []byte{0x09, 1, 2, 3}, "SyncRequest.worker_id: claims 8 bytes, the message has 3 left"},
		{request, inside(nil, 2, nil), "SyncRequest.call_id: has wire type 2, want 0"},
		{request, inside(nil, 3, long), "SyncRequest.policy_version: has 4097 bytes, want at most 4096"},
		{request, inside(nil, 3, []byte("\xff")), "SyncRequest.policy_version: is not UTF-8"},
		{request, append(protowire.AppendTag(nil, 6, 2), 0xff, 0xff, 0xff, 0xff, 0x7f, 1), "SyncRequest.asks: claims 34359738367 bytes, the message has 1 left"},
		{request, append(protowire.AppendTag(nil, 6, 2), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), "SyncRequest.asks: claims 18446744073709551615 bytes, the message has 0 left"},
		{request, []byte("\xa3\x06\xa4\x06"), "SyncRequest.an unknown field: has wire type 3, want 0, 1, 2 or 5"},
		{request, repeated(4, nil, MaxAbandoned+1), "SyncRequest.abandoned: has more than 64 elements"},
		{request, repeated(5, nil, MaxSettles+1), "SyncRequest.settles: has more than 1024 elements"},
		{request, repeated(6, nil, MaxAsks+1), "SyncRequest.asks: has more than 1024 elements"},
		{request, repeated(7, nil, MaxRecords+1), "SyncRequest.records: has more than 1024 elements"},
		{request, inside(nil, 4, repeated(2, nil, MaxKeysPerCall+1)), "SyncRequest.abandoned[0].keys: has more than 1024 elements"},
		{request, inside(inside(nil, 4, nil), 4, inside(nil, 2, inside(nil, 2, long))), "SyncRequest.abandoned[1].keys[0].key: has 4097 bytes, want at most 4096"},
		{request, inside(nil, 5, repeated(4, nil, MaxUses+1)), "SyncRequest.settles[0].uses: has more than 64 elements"},
		{request, inside(nil, 5, inside(nil, 4, number(nil, 1, overTime))), "SyncRequest.settles[0].uses[0].age: 316224000000001 is more than 316224000000000"},
		{request, inside(nil, 5, inside(nil, 4, number(nil, 1, 1<<63))), "SyncRequest.settles[0].uses[0].age: 9223372036854775808 is more than 316224000000000"},
		{request, inside(nil, 5, inside(nil, 4, number(nil, 2, overUnits))), "SyncRequest.settles[0].uses[0].units: 1000000000001 is more than 1000000000000"},
		{request, inside(nil, 5, number(nil, 5, 1<<64-1)), "SyncRequest.settles[0].unused: 18446744073709551615 is more than 1000000000000"},
		{request, inside(inside(inside(nil, 6, nil), 6, nil), 6, number(nil, 3, overUnits)), "SyncRequest.asks[2].want: 1000000000001 is more than 1000000000000"},
		{request, inside(nil, 6, number(nil, 4, overUnits)), "SyncRequest.asks[0].min: 1000000000001 is more than 1000000000000"},
		{request, inside(nil, 6, number(nil, 5, 1<<32)), "SyncRequest.asks[0].waiting: 4294967296 is more than 4294967295"},
		{request, inside(nil, 7, inside(nil, 3, []byte{0x08})), "SyncRequest.records[0].uses[0]: the message ends within a number"},
		{request, inside(nil, 9, repeated(4, nil, MaxTallies+1)), "SyncRequest.report.tallies: has more than 512 elements"},
		{request, inside(nil, 9, repeated(5, nil, MaxKeyTallies+1)), "SyncRequest.report.keys: has more than 256 elements"},
		{request, inside(nil, 9, repeated(6, nil, MaxDenialSamples+1)), "SyncRequest.report.denials: has more than 8 elements"},
		{request, inside(nil, 9, inside(nil, 7, make([]byte, MaxUpstream+1))), "SyncRequest.report.upstream_micros: has more than 64 elements"},
		{request, inside(nil, 9, number(nil, 12, overUnits)), "SyncRequest.report.waits: 1000000000001 is more than 1000000000000"},
		{request, inside(nil, 9, inside(nil, 4, inside(nil, 1, long))), "SyncRequest.report.tallies[0].limit: has 4097 bytes, want at most 4096"},
		{request, inside(nil, 9, inside(nil, 4, number(nil, 4, 256))), "SyncRequest.report.tallies[0].result: 256 is more than 255"},
		{request, inside(nil, 9, inside(nil, 5, inside(nil, 2, long))), "SyncRequest.report.keys[0].key: has 4097 bytes, want at most 4096"},
		{request, inside(nil, 9, inside(nil, 6, inside(nil, 9, long[:33]))), "SyncRequest.report.denials[0].trace_id: has 33 bytes, want at most 32"},
		{response, repeated(1, nil, MaxAsks+1), "SyncResponse.results: has more than 1024 elements"},
		{response, inside(nil, 1, number(nil, 1, 256)), "SyncResponse.results[0].problem: 256 is more than 255"},
		{response, inside(nil, 1, number(nil, 5, overTime)), "SyncResponse.results[0].end_in: 316224000000001 is more than 316224000000000"},
		{response, inside(nil, 1, inside(nil, 10, number(nil, 2, overTime))), "SyncResponse.results[0].denial.retry_after: 316224000000001 is more than 316224000000000"},
		{response, inside(nil, 2, bytes.Repeat([]byte{1}, MaxSettles+1)), "SyncResponse.settled: has more than 1024 elements"},
		{response, bytes.Repeat(number(nil, 3, 1), MaxAbandoned+1), "SyncResponse.abandoned: has more than 64 elements"},
		{response, inside(nil, 4, []byte{0xff}), "SyncResponse.recorded: the message ends within a number"},
		{response, inside(nil, 4, protowire.AppendVarint(nil, 1<<32)), "SyncResponse.recorded: 4294967296 is more than 4294967295"},
		{response, number(nil, 6, 1<<32), "SyncResponse.workers: 4294967296 is more than 4294967295"},
		{compiled, repeated(2, nil, policy.MaxIdentities+1), "GetPolicyResponse.policy.identities: has more than 256 elements"},
		{compiled, repeated(3, nil, policy.MaxLimits+1), "GetPolicyResponse.policy.limits: has more than 16384 elements"},
		{compiled, inside(nil, 2, inside(nil, 3, number(nil, 1, 65))), "GetPolicyResponse.policy.identities[0].address.trusted_hops: 65 is more than 64"},
		{compiled, inside(nil, 3, repeated(4, nil, limit.MaxRates+1)), "GetPolicyResponse.policy.limits[0].rates: has more than 8 elements"},
		{compiled, inside(nil, 3, inside(nil, 3, make([]byte, policy.MaxKeyParts+1))), "GetPolicyResponse.policy.limits[0].key: has more than 8 elements"},
		{compiled, inside(nil, 3, inside(nil, 2, repeated(3, nil, policy.MaxMethods+1))), "GetPolicyResponse.policy.limits[0].match.methods: has more than 32 elements"},
		{compiled, inside(nil, 3, number(nil, 6, 256)), "GetPolicyResponse.policy.limits[0].mode: 256 is more than 255"},
	} {
		err := c.parse(c.body)
		if err == nil || err.Error() != c.want || !errors.Is(err, ErrMessage) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// A policy that can be read but not decided by never reaches the filter.
func TestAPolicyOffTheWireIsValid(t *testing.T) {
	m := examplePolicy
	p := *m.Policy
	p.Limits = append([]policy.Limit(nil), p.Limits...)
	p.Limits[1].Key = []uint32{0, 99}
	m.Policy = &p
	_, err := ParseGetPolicyResponse(AppendGetPolicyResponse(nil, &m))
	if want := "limits[1].key[1]: 99 is no index into the 15 identities"; !errors.Is(err, policy.ErrInvalid) || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestUnknownFieldsArePassedOver(t *testing.T) {
	extra := number(nil, 99, 1<<63)
	extra = inside(extra, 100, []byte("something newer"))
	extra = protowire.AppendFixed32(protowire.AppendTag(extra, 101, protowire.Fixed32Type), 1)
	extra = protowire.AppendFixed64(protowire.AppendTag(extra, 102, protowire.Fixed64Type), 1)
	body := append(append([]byte(nil), extra...), inside(nil, 6, append(inside(nil, 1, []byte("tenant")), extra...))...)
	got, err := ParseSyncRequest(body)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the rest", SyncRequest{Asks: []Ask{{KeyRef: KeyRef{Limit: "tenant"}}}}, got)
}

// Numbers out of range are written as the nearest in range, so that one odd ask does not lose all others of its call.
func TestWritersKeepTheRange(t *testing.T) {
	got, err := ParseSyncRequest(AppendSyncRequest(nil, &SyncRequest{
		Asks:    []Ask{{Want: MaxUnits + 1, Min: -1}},
		Settles: []Settle{{Uses: []Use{{Age: -1}, {Age: 1<<63 - 1}, {Age: 1999 * time.Nanosecond}}}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "clamped", SyncRequest{
		Asks:    []Ask{{Want: MaxUnits}},
		Settles: []Settle{{Uses: []Use{{}, {Age: MaxDuration}, {Age: time.Microsecond}}}},
	}, got)
}

// What is read must outlive the bytes that it was read from: those belong to the proxy, and only during a callback.
func TestNothingOfTheBytesIsKept(t *testing.T) {
	outlives(t, requestCodec, exampleRequest)
	outlives(t, responseCodec, exampleResponse)
	outlives(t, policyResponseCodec, examplePolicy)
}

func outlives[M any, G proto.Message](t *testing.T, c codec[M, G], m M) {
	t.Helper()
	body := c.write(nil, &m)
	got, err := c.read(body)
	if err != nil {
		t.Fatal(err)
	}
	clear(body)
	same(t, "after the bytes were overwritten", m, got)
}

// A body's claims cost nothing; only its bytes do.
func TestAllocationFollowsTheBytes(t *testing.T) {
	claim := append(protowire.AppendTag(nil, 6, protowire.BytesType), 0xff, 0xff, 0xff, 0x7f)
	packed := append(protowire.AppendTag(nil, 2, protowire.BytesType), 0xff, 0xff, 0xff, 0x7f, 1, 1, 1)
	for name, parse := range map[string]func(){
		"a message of 256 MiB": func() { _, _ = ParseSyncRequest(claim) },
		"a list of 256 MiB":    func() { _, _ = ParseSyncResponse(packed) },
	} {
		const runs, most = 100, 1 << 10
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			parse()
		}
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) / runs; got > most {
			t.Errorf("%s: %d bytes allocated, want at most %d", name, got, most)
		}
	}
}

// Forms that the generated code never writes and other writers may.
func TestUnusualForms(t *testing.T) {
	overlong := append(protowire.AppendTag(nil, 2, protowire.VarintType), 0x85, 0x80, 0x80, 0x00)
	requestCodec.accepts(t, overlong, SyncRequest{CallID: 5})
	widest := append(protowire.AppendTag(nil, 2, protowire.VarintType), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)
	requestCodec.accepts(t, widest, SyncRequest{CallID: 1<<64 - 1})
	widest[len(widest)-1] = 0x02
	if err := request(widest); err == nil || err.Error() != "SyncRequest: a number has more than 64 bits" {
		t.Fatalf("a number of 65 bits: %v", err)
	}
	requestCodec.accepts(t, number(nil, 8, 1<<40), SyncRequest{Active: true})
	requestCodec.accepts(t, number(number(nil, 2, 5), 2, 0), SyncRequest{})

	unpacked := inside(number(inside(nil, 2, []byte{1, 2}), 2, 3), 2, nil)
	responseCodec.accepts(t, unpacked, SyncResponse{Settled: []uint32{1, 2, 3}})
	responseCodec.accepts(t, inside(nil, 1, inside(nil, 10, nil)), SyncResponse{Results: []AskResult{{Denied: true}}})
	twice := inside(inside(nil, 10, number(nil, 1, 7)), 10, number(nil, 3, 1))
	responseCodec.accepts(t, inside(nil, 1, twice), SyncResponse{Results: []AskResult{
		{Denied: true, Denial: Denial{DenyFor: 7 * time.Microsecond, Never: true}},
	}})

	header, address := inside(nil, 2, []byte("x-a")), inside(nil, 3, number(nil, 1, 2))
	name := inside(nil, 1, []byte("a"))
	identity := func(parts ...[]byte) []byte {
		return inside(nil, 2, inside(inside(nil, 1, []byte("shop")), 2, bytes.Join(append(parts, name), nil)))
	}
	want := func(id policy.Identity) GetPolicyResponse {
		return GetPolicyResponse{Policy: &policy.Policy{Domain: "shop", Identities: []policy.Identity{id}}}
	}
	fromHeader := policy.Identity{Name: "a", Source: policy.FromHeader, Header: "x-a"}
	fromAddress := policy.Identity{Name: "a", Source: policy.FromAddress, TrustedHops: 2}
	policyResponseCodec.accepts(t, identity(header, address), want(fromAddress))
	policyResponseCodec.accepts(t, identity(address, header), want(fromHeader))
	policyResponseCodec.accepts(t, identity(address, inside(nil, 3, nil)), want(fromAddress))
	policyResponseCodec.accepts(t, identity(address, header, inside(nil, 3, nil)), want(policy.Identity{Name: "a", Source: policy.FromAddress}))
}
