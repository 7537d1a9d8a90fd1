package rpc_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/replica"
	"sluice/controlsvc/rpc"
	"sluice/controlsvc/store/memory"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	sluicev1 "sluice/shared/proto/sluice/v1"
	"sluice/shared/wire"
)

// observed counts what the server said that it did.
type observed struct {
	mu              sync.Mutex
	codes           []codes.Code
	sheds, panicked int
	strangers       int
	answered        []string
}

func (o *observed) Synced(code codes.Code) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.codes = append(o.codes, code)
}

func (o *observed) Answered(limit string, denied bool, source admission.Source) {
	o.mu.Lock()
	defer o.mu.Unlock()
	result := " admitted "
	if denied {
		result = " denied "
	}
	o.answered = append(o.answered, limit+result+source.String())
}

func (o *observed) UnknownDomain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.strangers++
}

func (o *observed) Shed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sheds++
}

func (o *observed) Panicked() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.panicked++
}

// world is a server and a connection to it.
type world struct {
	*observed

	authority  *authority.Authority
	server     *rpc.Server
	connection *grpc.ClientConn
	client     sluicev1.ControlClient
}

var testPolicy = &policy.Policy{
	Version: "v1", Domain: "shop",
	Identities: []policy.Identity{
		{Name: "tenant", Source: policy.FromHeader, Header: "x-tenant-id"},
		{Name: "client", Source: policy.FromAddress, TrustedHops: 2},
	},
	Limits: []policy.Limit{{
		Name: "reports", Match: policy.Match{PathPrefix: "/v1/reports", Methods: []string{"POST"}}, Key: []uint32{0, 1},
		Rates:     []limit.Rate{{Units: 10, Window: time.Second}, {Units: 600, Window: time.Minute}},
		Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Deny,
	}},
}

// serve starts a server on a store; wrap may put something before it.
func serve(t *testing.T, config rpc.Config, wrap func(authority.Store) authority.Store) *world {
	t.Helper()
	return serveAt(t, config, wrap, func() instant.Instant { return 1_764_000_000_000_000 })
}

// serveAt starts a server by a clock.
func serveAt(t *testing.T, config rpc.Config, wrap func(authority.Store) authority.Store, now func() instant.Instant) *world {
	t.Helper()
	if config.CallTimeout == 0 {
		config.CallTimeout = time.Minute // for a test that is of something else, on a machine that may be busy
	}
	var store authority.Store = memory.New(now, 100)
	if wrap != nil {
		store = wrap(store)
	}
	w := &world{observed: &observed{}}
	w.authority = authority.New(authority.Config{Store: store, Now: now, Random: func() uint64 { return 7 }})
	w.authority.SetPolicy(testPolicy)
	config.Authority, config.Observer, config.Logger = w.authority, w.observed, slog.New(slog.DiscardHandler)
	decisions := replica.New(replica.Config{
		Authority: w.authority, Now: now, Random: rand.Uint64, Logger: config.Logger, Workers: 2, Timeout: time.Minute,
		Left: time.Until,
	})
	go decisions.Run(t.Context(), time.After)
	config.Replica, config.Random = decisions, rand.Uint64
	w.server = rpc.New(config)
	listener := bufconn.Listen(1 << 16)
	done := make(chan error, 1)
	go func() { done <- w.server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(w.server.Stop(ctx), <-done); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	var err error
	w.connection, err = grpc.NewClient("passthrough:///test",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.connection.Close() })
	w.client = sluicev1.NewControlClient(w.connection)
	return w
}

func ask(of string, want, least uint64) *sluicev1.SyncRequest {
	return &sluicev1.SyncRequest{
		WorkerId: 1, CallId: 1, Active: true,
		Asks: []*sluicev1.Ask{{Limit: of, Key: "acme/1.2.3.4", Want: want, Min: least, Waiting: uint32(min(want, math.MaxUint32))}},
	}
}

// soon gives a context that ends before anybody would call it a hang.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func code(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("error %v; want %v", err, want)
	}
}

func TestSync(t *testing.T) {
	w := serve(t, rpc.Config{}, nil)
	got, err := w.client.Sync(soon(t), ask("reports", 12, 1))
	if err != nil {
		t.Fatal(err)
	}
	if got.GetResults()[0].GetLease() == "" {
		t.Error("the grant has no name")
	}
	got.GetResults()[0].Lease = ""
	want := &sluicev1.SyncResponse{
		PolicyVersion: "v1", Workers: 1,
		Results: []*sluicev1.AskResult{{
			Units: 10, Limit: 10, Window: 1_000_000, Reset_: 1_000_000,
			Denial: &sluicev1.Denial{DenyFor: 1_000_000, RetryAfter: 1_000_000},
		}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

// A number that no count, age or window can reach is told with its place, and nothing of the call is done.
func TestNumbersOutOfRange(t *testing.T) {
	w := serve(t, rpc.Config{}, nil)
	request := ask("reports", 1, 1)
	request.Asks = append(request.Asks, ask("reports", math.MaxUint64, 1).GetAsks()...)
	_, err := w.client.Sync(soon(t), request)
	code(t, err, codes.InvalidArgument)
	if want := "SyncRequest.asks[1].want"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %s in it", err, want)
	}
	got, err := w.client.Sync(soon(t), ask("reports", 10, 1))
	if err != nil || got.GetResults()[0].GetUnits() != 10 {
		t.Errorf("afterwards %v, %v; want all 10 units, for the refused call took none", got, err)
	}
}

func TestGetPolicy(t *testing.T) {
	w := serve(t, rpc.Config{}, nil)
	got, err := w.client.GetPolicy(t.Context(), &sluicev1.GetPolicyRequest{Version: "v0"})
	if err != nil {
		t.Fatal(err)
	}
	want := &sluicev1.GetPolicyResponse{Version: "v1", Policy: &sluicev1.Policy{
		Domain: "shop",
		Identities: []*sluicev1.Identity{
			{Name: "tenant", Source: &sluicev1.Identity_Header{Header: "x-tenant-id"}},
			{Name: "client", Source: &sluicev1.Identity_Address{Address: &sluicev1.ClientAddress{TrustedHops: 2}}},
		},
		Limits: []*sluicev1.Limit{{
			Name: "reports", Match: &sluicev1.Match{PathPrefix: "/v1/reports", Methods: []string{"POST"}}, Key: []uint32{0, 1},
			Rates:     []*sluicev1.Rate{{Units: 10, Window: 1_000_000}, {Units: 600, Window: 60_000_000}},
			Algorithm: 1, Mode: 1, OnUnavailable: 3,
		}},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	got, err = w.client.GetPolicy(t.Context(), &sluicev1.GetPolicyRequest{Version: "v1"})
	if diff := cmp.Diff(&sluicev1.GetPolicyResponse{Version: "v1"}, got, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("the version in force: %v (-want +got):\n%s", err, diff)
	}
}

// raw sends bytes as they are, and hands over those that come where somebody wants them.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (raw) Name() string                  { return "proto" }

func (raw) Unmarshal(data []byte, v any) error {
	if into, wanted := v.(*[]byte); wanted {
		*into = slices.Clone(data)
	}
	return nil
}

func TestGarbageIsTheCallersFault(t *testing.T) {
	w := serve(t, rpc.Config{}, nil)
	for name, bytes := range map[string][]byte{
		"no message":     {0xff, 0xff, 0xff, 0xff},
		"cut off":        {0x32, 0x7f, 0x01},
		"not UTF-8":      {0x1a, 0x02, 0xff, 0xfe},
		"another's type": {0x08, 0x01}, // worker_id as a varint: an unknown field, so the worker is 0
		"nothing":        {},
	} {
		t.Run(name, func(t *testing.T) {
			err := w.connection.Invoke(t.Context(), sluicev1.Control_Sync_FullMethodName, bytes, new(any), grpc.ForceCodec(raw{}))
			code(t, err, codes.InvalidArgument)
		})
	}
	err := w.connection.Invoke(t.Context(), sluicev1.Control_Sync_FullMethodName, make([]byte, 5<<20), new(any), grpc.ForceCodec(raw{}))
	code(t, err, codes.ResourceExhausted)
	if len(w.codes) != 5 || w.panicked != 0 {
		t.Errorf("%d calls counted, %d panics; want 5 and none", len(w.codes), w.panicked)
	}
}

func FuzzSync(f *testing.F) {
	seed, err := proto.Marshal(ask("reports", 3, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{0xff})
	now := func() instant.Instant { return 1 }
	a := authority.New(authority.Config{Store: memory.New(now, 100), Now: now, Random: func() uint64 { return 7 }})
	a.SetPolicy(testPolicy)
	f.Fuzz(func(t *testing.T, bytes []byte) {
		request, err := wire.ParseSyncRequest(bytes)
		if err != nil {
			return
		}
		response, err := rpc.Answer(t.Context(), a, &request)
		if err != nil {
			code(t, err, codes.InvalidArgument)
			return
		}
		if len(response.Results) != len(request.Asks) {
			t.Errorf("%d results for %d asks", len(response.Results), len(request.Asks))
		}
	})
}

// stuck is a store that answers when it is let go, or when its caller's deadline has passed.
type stuck struct {
	authority.Store

	entered, release chan struct{}
}

func (s *stuck) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	s.entered <- struct{}{}
	select {
	case <-s.release:
		return s.Store.Reserve(ctx, operations)
	case <-ctx.Done():
		all := make([]authority.Reserved, len(operations))
		for i := range all {
			all[i].Err = errors.Join(authority.ErrUnavailable, ctx.Err())
		}
		return all
	}
}

func TestTooManyCallsAreShed(t *testing.T) {
	s := &stuck{entered: make(chan struct{}, 10), release: make(chan struct{})}
	w := serve(t, rpc.Config{MaxInFlight: 2, CallTimeout: time.Minute}, func(store authority.Store) authority.Store {
		s.Store = store
		return s
	})
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			_, err := w.client.Sync(soon(t), ask("reports", 1, 1))
			code(t, err, codes.OK)
		})
		<-s.entered
	}
	_, err := w.client.Sync(soon(t), ask("reports", 1, 1))
	code(t, err, codes.ResourceExhausted)
	w.server.SetServing(true)
	health, err := healthv1.NewHealthClient(w.connection).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health while busy: %v, %v; want SERVING", health, err)
	}
	close(s.release)
	calls.Wait()
	_, err = w.client.Sync(soon(t), ask("reports", 1, 1))
	code(t, err, codes.OK)
	if w.sheds != 1 {
		t.Errorf("%d calls counted as shed; want 1", w.sheds)
	}
}

func TestStoreThatHangsIsAnsweredForInTime(t *testing.T) {
	s := &stuck{entered: make(chan struct{}, 1)}
	w := serve(t, rpc.Config{CallTimeout: 20 * time.Millisecond}, func(store authority.Store) authority.Store {
		s.Store = store
		return s
	})
	request := ask("reports", 1, 1)
	request.Report = &sluicev1.Report{ReportId: 3}
	got, err := w.client.Sync(soon(t), request)
	if err != nil || got.GetResults()[0].GetProblem() != sluicev1.AskResult_PROBLEM_STORE {
		t.Errorf("%v, %v; want PROBLEM_STORE", got, err)
	}
	if got.GetReported() != 3 {
		t.Errorf("report %d is taken while the store hangs, want 3", got.GetReported())
	}
}

// broken is a store with a bug.
type broken struct{ authority.Store }

func (broken) Reserve(context.Context, []authority.Reserve) []authority.Reserved { panic("a bug") }

func TestPanicIsOneCallsError(t *testing.T) {
	w := serve(t, rpc.Config{}, func(store authority.Store) authority.Store { return broken{store} })
	for range 2 {
		_, err := w.client.Sync(soon(t), ask("reports", 1, 1))
		code(t, err, codes.Internal)
	}
	if w.panicked != 2 {
		t.Errorf("%d panics counted; want 2", w.panicked)
	}
	if diff := cmp.Diff([]codes.Code{codes.Internal, codes.Internal}, w.codes); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

func TestHealthFollows(t *testing.T) {
	w := serve(t, rpc.Config{}, nil)
	client := healthv1.NewHealthClient(w.connection)
	for _, serving := range []bool{false, true, false} {
		w.server.SetServing(serving)
		want := healthv1.HealthCheckResponse_NOT_SERVING
		if serving {
			want = healthv1.HealthCheckResponse_SERVING
		}
		for _, service := range []string{"", "sluice.v1.Control"} {
			got, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
			if err != nil || got.GetStatus() != want {
				t.Errorf("health of %q: %v, %v; want %v", service, got, err, want)
			}
		}
	}
}

func TestReflection(t *testing.T) {
	w := serve(t, rpc.Config{}, nil)
	stream, err := reflectionv1.NewServerReflectionClient(w.connection).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "sluice.v1.Control"},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil || len(answer.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("%v, %v; want the service's description", answer, err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
}
