package rpc

import (
	"bytes"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"sluice/shared/policy"
)

// message gives back what a question was read from, as far as it is read.
func (q *question) message() *ratelimitv3.RateLimitRequest {
	r := &ratelimitv3.RateLimitRequest{Domain: string(q.domain), HitsAddend: q.hits}
	for i := range q.descriptors {
		d := &q.descriptors[i]
		m := &commonv3.RateLimitDescriptor{IsNegativeHits: d.negative}
		if d.limited {
			m.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: d.rate.units, Unit: typev3.RateLimitUnit(d.rate.unit)}
			if d.rate.multiplied {
				m.Limit.UnitMultiplier = wrapperspb.UInt32(uint32(d.rate.multiplier))
			}
		}
		if d.counted {
			m.HitsAddend = wrapperspb.UInt64(d.hits)
		}
		for _, e := range q.of(d) {
			m.Entries = append(m.Entries, &commonv3.RateLimitDescriptor_Entry{Key: string(e.key), Value: string(e.value)})
		}
		r.Descriptors = append(r.Descriptors, m)
	}
	return r
}

// readAlike compares what is read of bytes with what protobuf reads of them.
func readAlike(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, q *question, message []byte,
) {
	t.Helper()
	var want ratelimitv3.RateLimitRequest
	wantErr := proto.Unmarshal(message, &want)
	err := q.parse(message)
	switch {
	case wantErr != nil && strings.Contains(wantErr.Error(), "UTF-8"):
		return // protobuf looks no further
	case len(want.GetDescriptors()) > maxDescriptors && err != nil && strings.Contains(err.Error(), "more than 64"):
		return
	case (err == nil) != (wantErr == nil):
		t.Fatalf("%x: %v; protobuf says %v", message, err, wantErr)
	case err != nil:
		return
	}
	for _, d := range want.GetDescriptors() {
		if all := d.GetEntries(); len(all) > policy.MaxDescriptorEntries {
			d.Entries = all[:policy.MaxDescriptorEntries+1]
		}
	}
	want.ProtoReflect().SetUnknown(nil)
	if diff := cmp.Diff(&want, q.message(), protocmp.Transform(), protocmp.IgnoreUnknown()); diff != "" {
		t.Fatalf("%x (-want +got):\n%s", message, diff)
	}
}

func drawRequest(t *rapid.T) *ratelimitv3.RateLimitRequest {
	text := rapid.StringN(-1, -1, 20)
	r := &ratelimitv3.RateLimitRequest{Domain: text.Draw(t, "domain"), HitsAddend: rapid.Uint32().Draw(t, "hits")}
	for range rapid.IntRange(0, 4).Draw(t, "descriptors") {
		d := &commonv3.RateLimitDescriptor{IsNegativeHits: rapid.Bool().Draw(t, "negative")}
		for range rapid.IntRange(0, policy.MaxDescriptorEntries+3).Draw(t, "entries") {
			d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: text.Draw(t, "key"), Value: text.Draw(t, "value")})
		}
		if rapid.Bool().Draw(t, "limited") {
			d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: rapid.Uint32().Draw(t, "units"), Unit: typev3.RateLimitUnit(rapid.Int32().Draw(t, "unit")),
			}
			if rapid.Bool().Draw(t, "multiplied") {
				d.Limit.UnitMultiplier = wrapperspb.UInt32(rapid.Uint32().Draw(t, "multiplier"))
			}
		}
		if rapid.Bool().Draw(t, "counted") {
			d.HitsAddend = wrapperspb.UInt64(rapid.Uint64().Draw(t, "own hits"))
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// What protobuf reads of a request is read of it, by space that another was read into before; of two that follow each other too,
// which protobuf merges, and of one that a byte was changed in.
func TestQuestionsAreReadAsProtobufReadsThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q question
		for range 2 {
			message, err := proto.Marshal(drawRequest(t))
			if err != nil {
				t.Fatal(err)
			}
			readAlike(t, &q, message)
			more, err := proto.Marshal(drawRequest(t))
			if err != nil {
				t.Fatal(err)
			}
			readAlike(t, &q, append(message, more...))
			if len(message) > 0 {
				message[rapid.IntRange(0, len(message)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
				readAlike(t, &q, message)
			}
		}
	})
}

// Texts are of any bytes, and stay what they are when the message's space is used again.
func TestTextsAreOfAnyBytes(t *testing.T) {
	const broken = "\xff\xc3\x00\xed\xa0\x80"
	clean, err := proto.Marshal(&ratelimitv3.RateLimitRequest{Domain: "######", Descriptors: []*commonv3.RateLimitDescriptor{
		{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "a", Value: "######"}, {Key: "######", Value: "b"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	message := bytes.ReplaceAll(clean, []byte("######"), []byte(broken))
	var q question
	if err := q.parse(message); err != nil {
		t.Fatal(err)
	}
	clear(message)
	if e := q.entries; string(q.domain) != broken || len(e) != 2 || string(e[0].value) != broken || string(e[1].key) != broken || string(e[1].value) != "b" {
		t.Errorf("read %q, %q; want %q in them", q.domain, q.entries, broken)
	}
}

func TestTooManyDescriptors(t *testing.T) {
	one := []byte{2<<3 | 2, 0}
	var q question
	if err := q.parse(bytes.Repeat(one, maxDescriptors)); err != nil || len(q.descriptors) != maxDescriptors {
		t.Errorf("%d descriptors: %v; want %d", len(q.descriptors), err, maxDescriptors)
	}
	if err := q.parse(bytes.Repeat(one, maxDescriptors+1)); err == nil {
		t.Error("one too many is taken")
	}
}

func FuzzQuestion(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0xff})
	f.Add([]byte{3 << 3, 1, 2<<3 | 2, 6, 2<<3 | 2, 4, 3<<3 | 2, 2, 8, 5})
	f.Add([]byte{9<<3 | 3, 9<<3 | 4, 1<<3 | 2, 1, 'a'})
	f.Add([]byte{0xe8, 0xd6, 0xd6, 0xd6, 0x30, 0xd6, 0x30})
	var q question
	f.Fuzz(func(t *testing.T, message []byte) { readAlike(t, &q, message) })
}
