package wire

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"sluice/shared/policy"
	sluicev1 "sluice/shared/proto/sluice/v1"
)

// codec is one message with both ways to read and write it: ours, and the generated code's.
type codec[M any, G proto.Message] struct {
	write         func([]byte, *M) []byte
	read          func([]byte) (M, error)
	fresh         func() G
	fromGenerated func(G) M
}

var (
	requestCodec = codec[SyncRequest, *sluicev1.SyncRequest]{
		AppendSyncRequest, ParseSyncRequest, func() *sluicev1.SyncRequest { return &sluicev1.SyncRequest{} }, fromGeneratedRequest,
	}
	responseCodec = codec[SyncResponse, *sluicev1.SyncResponse]{
		AppendSyncResponse, ParseSyncResponse, func() *sluicev1.SyncResponse { return &sluicev1.SyncResponse{} }, fromGeneratedResponse,
	}
	policyRequestCodec = codec[GetPolicyRequest, *sluicev1.GetPolicyRequest]{
		AppendGetPolicyRequest, ParseGetPolicyRequest, func() *sluicev1.GetPolicyRequest { return &sluicev1.GetPolicyRequest{} },
		func(m *sluicev1.GetPolicyRequest) GetPolicyRequest { return GetPolicyRequest{Version: m.GetVersion()} },
	}
	policyResponseCodec = codec[GetPolicyResponse, *sluicev1.GetPolicyResponse]{
		AppendGetPolicyResponse, ParseGetPolicyResponse, func() *sluicev1.GetPolicyResponse { return &sluicev1.GetPolicyResponse{} },
		fromGeneratedPolicyResponse,
	}
)

// failer is what rapid.T and testing.T share.
type failer interface {
	Helper()
	Fatalf(format string, arguments ...any)
}

func same[M any](t failer, what string, want, got M) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// roundTrips checks a message within the bounds: what either side writes, both read.
func (c codec[M, G]) roundTrips(t failer, m M) {
	t.Helper()
	written := c.write([]byte("before"), &m)
	if string(written[:6]) != "before" {
		t.Fatalf("what stood before the message was changed")
	}
	ours := written[6:]
	read, err := c.read(ours)
	if err != nil {
		t.Fatalf("ours refuses what ours wrote: %v", err)
	}
	same(t, "ours reads what ours wrote", m, read)
	generated := c.fresh()
	if err := proto.Unmarshal(ours, generated); err != nil {
		t.Fatalf("the generated code refuses what ours wrote: %v", err)
	}
	if hasUnknown(generated.ProtoReflect()) {
		t.Fatalf("ours wrote fields that the generated code does not know")
	}
	same(t, "the generated code reads what ours wrote", m, c.fromGenerated(generated))
	theirs, err := proto.MarshalOptions{Deterministic: true}.Marshal(generated)
	if err != nil {
		t.Fatalf("the generated code does not write what it read: %v", err)
	}
	read, err = c.read(theirs)
	if err != nil {
		t.Fatalf("ours refuses what the generated code wrote: %v", err)
	}
	same(t, "ours reads what the generated code wrote", m, read)
}

// agrees checks any bytes: what ours accepts, the generated code reads alike; what only the generated code accepts is out
// of bounds, or not in the one form in which it would write it.
func (c codec[M, G]) agrees(t failer, data []byte) {
	t.Helper()
	generated := c.fresh()
	theirErr := proto.Unmarshal(data, generated)
	m, err := c.read(data)
	if err == nil {
		if theirErr != nil {
			t.Fatalf("ours accepts what the generated code refuses: %v", theirErr)
		}
		same(t, "the same bytes, generated code against ours", c.fromGenerated(generated), m)
		again, err := c.read(c.write(nil, &m))
		if err != nil {
			t.Fatalf("ours refuses what it read and wrote: %v", err)
		}
		same(t, "read, written and read again", m, again)
		return
	}
	namesField(t, err)
	if theirErr != nil {
		return
	}
	discardUnknown(generated.ProtoReflect())
	theirs, err := proto.Marshal(generated)
	if err != nil {
		t.Fatalf("the generated code does not write what it read: %v", err)
	}
	m, err = c.read(theirs)
	switch {
	case err == nil:
		same(t, "rewritten by the generated code", c.fromGenerated(generated), m)
	case errors.Is(err, policy.ErrInvalid):
	case strings.Contains(err.Error(), "is more than"), strings.Contains(err.Error(), "want at most"), strings.Contains(err.Error(), "has more than"):
	default:
		t.Fatalf("ours refuses what the generated code writes, and not for its bounds: %v", err)
	}
}

// accepts checks that both sides read the bytes as this message.
func (c codec[M, G]) accepts(t failer, body []byte, want M) {
	t.Helper()
	got, err := c.read(body)
	if err != nil {
		t.Fatalf("%x: %v", body, err)
	}
	same(t, "ours", want, got)
	c.agrees(t, body)
}

// namesField checks what an error has to be.
func namesField(t failer, err error) {
	t.Helper()
	var field *FieldError
	switch {
	case errors.Is(err, policy.ErrInvalid):
	case !errors.Is(err, ErrMessage) || !errors.As(err, &field):
		t.Fatalf("%v is no error of this package", err)
	case !strings.HasPrefix(field.Field, "Sync") && !strings.HasPrefix(field.Field, "GetPolicy"):
		t.Fatalf("%v does not name the message", err)
	}
}

func hasUnknown(m protoreflect.Message) bool {
	found := len(m.GetUnknown()) > 0
	walk(m, func(inner protoreflect.Message) { found = found || hasUnknown(inner) })
	return found
}

func discardUnknown(m protoreflect.Message) {
	m.SetUnknown(nil)
	walk(m, discardUnknown)
}

func walk(m protoreflect.Message, visit func(protoreflect.Message)) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() != protoreflect.MessageKind:
		case f.IsList():
			for i := range v.List().Len() {
				visit(v.List().Get(i).Message())
			}
		default:
			visit(v.Message())
		}
		return true
	})
}

func TestBothSidesReadWhatEitherWrites(t *testing.T) {
	t.Run("SyncRequest", rapid.MakeCheck(func(t *rapid.T) { requestCodec.roundTrips(t, drawRequest(t)) }))
	t.Run("SyncResponse", rapid.MakeCheck(func(t *rapid.T) { responseCodec.roundTrips(t, drawResponse(t)) }))
	t.Run("GetPolicyRequest", rapid.MakeCheck(func(t *rapid.T) {
		policyRequestCodec.roundTrips(t, GetPolicyRequest{Version: rapid.StringN(0, 20, 100).Draw(t, "version")})
	}))
	t.Run("GetPolicyResponse", rapid.MakeCheck(func(t *rapid.T) { policyResponseCodec.roundTrips(t, drawPolicyResponse(t)) }))
}

// Bytes of a real message with a few of them changed reach further into a reader than garbage does.
func TestBothSidesAgreeOnDamagedMessages(t *testing.T) {
	damaged := func(draw func(*rapid.T) []byte, check func(failer, []byte)) func(*testing.T) {
		return rapid.MakeCheck(func(t *rapid.T) {
			b := draw(t)
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				if len(b) == 0 {
					break
				}
				i := rapid.IntRange(0, len(b)-1).Draw(t, "at")
				switch rapid.IntRange(0, 3).Draw(t, "how") {
				case 0:
					b[i] = rapid.Byte().Draw(t, "byte")
				case 1:
					b = b[:i]
				case 2:
					b = append(b[:i:i], b[i+1:]...)
				case 3:
					j := rapid.IntRange(i, len(b)).Draw(t, "to")
					b = append(b[:j:j], b[i:]...)
				}
			}
			check(t, b)
		})
	}
	t.Run("SyncRequest", damaged(func(t *rapid.T) []byte {
		m := drawRequest(t)
		return AppendSyncRequest(nil, &m)
	}, requestCodec.agrees))
	t.Run("SyncResponse", damaged(func(t *rapid.T) []byte {
		m := drawResponse(t)
		return AppendSyncResponse(nil, &m)
	}, responseCodec.agrees))
	t.Run("GetPolicyResponse", damaged(func(t *rapid.T) []byte {
		m := drawPolicyResponse(t)
		return AppendGetPolicyResponse(nil, &m)
	}, policyResponseCodec.agrees))
}

func seed(f *testing.F, messages ...[]byte) {
	f.Helper()
	f.Add([]byte(nil))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"))
	f.Add([]byte("\x0b\x0c")) // a group
	for _, m := range messages {
		f.Add(m)
	}
}

func FuzzParseSyncRequest(f *testing.F) {
	seed(f, AppendSyncRequest(nil, &exampleRequest))
	f.Fuzz(func(t *testing.T, data []byte) { requestCodec.agrees(t, data) })
}

func FuzzParseSyncResponse(f *testing.F) {
	seed(f, AppendSyncResponse(nil, &exampleResponse))
	f.Fuzz(func(t *testing.T, data []byte) { responseCodec.agrees(t, data) })
}

func FuzzParseGetPolicyRequest(f *testing.F) {
	seed(f, AppendGetPolicyRequest(nil, &GetPolicyRequest{Version: "7c9e66"}))
	f.Fuzz(func(t *testing.T, data []byte) { policyRequestCodec.agrees(t, data) })
}

func FuzzParseGetPolicyResponse(f *testing.F) {
	seed(f, AppendGetPolicyResponse(nil, &examplePolicy))
	f.Fuzz(func(t *testing.T, data []byte) { policyResponseCodec.agrees(t, data) })
}
