package telemetry

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/rpc"
	"sluice/controlsvc/store/memory"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	sluicev1 "sluice/shared/proto/sluice/v1"
)

func still() instant.Instant { return 1_763_719_200_000_000 }

// serveTraced answers Sync out of a memory store, and gives a connection to it.
func serveTraced(t *testing.T, tracing *Tracing) *grpc.ClientConn {
	t.Helper()
	m := NewMetrics()
	next := uint64(0)
	random := func() uint64 { next++; return next }
	a := authority.New(authority.Config{Store: m.Store(memory.New(still, 10), still, nil, tracing), Now: still, Random: random})
	a.SetPolicy(&policy.Policy{Version: "v1", Domain: "shop", Limits: []policy.Limit{{
		Name: "tenant", Rates: []limit.Rate{{Units: 10, Window: time.Second}}, Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Deny,
	}}})
	server := rpc.New(rpc.Config{Authority: a, Observer: m, Logger: slog.New(slog.DiscardHandler), Random: random, Trace: tracing.Server()})
	listener := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	connection, err := grpc.NewClient("passthrough:///service", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		connection.Close()
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return connection
}

// The traceparent of a Sync is the parent of the call's span, and that of the store's.
func TestTraceFromSyncToStore(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracing := newTracing(sdktrace.WithSyncer(spans))
	t.Run("calls", func(t *testing.T) {
		connection := serveTraced(t, tracing)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		_, err := sluicev1.NewControlClient(connection).Sync(ctx, &sluicev1.SyncRequest{
			WorkerId: 1, CallId: 1, Asks: []*sluicev1.Ask{{Limit: "tenant", Key: "acme", Want: 1, Min: 1, Waiting: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := healthv1.NewHealthClient(connection).Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	})
	by := map[string]tracetest.SpanStub{}
	for _, span := range spans.GetSpans() {
		by[span.Name] = span
	}
	call, store := by["sluice.v1.Control/Sync"], by["store reserve"]
	if len(by) != 2 {
		t.Fatalf("spans: %v", by)
	}
	for _, span := range []tracetest.SpanStub{call, store} {
		if id := span.SpanContext.TraceID().String(); id != "4bf92f3577b34da6a3ce929d0e0e4736" {
			t.Errorf("%s is of the trace %s", span.Name, id)
		}
	}
	if parent := call.Parent.SpanID().String(); parent != "00f067aa0ba902b7" {
		t.Errorf("the call's parent is %s", parent)
	}
	if store.Parent.SpanID() != call.SpanContext.SpanID() {
		t.Errorf("the store's parent is %s; want the call's span %s", store.Parent.SpanID(), call.SpanContext.SpanID())
	}
}

// A failed operation is a failed span.
func TestTraceOfAFailure(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	s := NewMetrics().Store(memory.New(still, 10), still, nil, newTracing(sdktrace.WithSyncer(spans)))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Settle(t.Context(), make([]authority.Settle, 3))
	if all := spans.GetSpans(); len(all) != 1 || all[0].Status.Code != codes.Error || all[0].Status.Description != "3 of 3 failed" {
		t.Errorf("%+v", all)
	}
}

func TestStartTracing(t *testing.T) {
	for _, step := range []struct {
		variables string
		on        bool
		problem   string
	}{
		{"", false, ""},
		{"OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", false, ""},
		{"OTEL_SDK_DISABLED=true OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", false, ""},
		{"OTEL_SERVICE_NAME=x", false, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", true, ""},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1 OTEL_EXPORTER_OTLP_PROTOCOL=grpc", true, ""},
		{"OTEL_TRACES_EXPORTER=otlp", true, ""},
		{"OTEL_TRACES_EXPORTER=zipkin", false, "zipkin"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=carrier-pigeon", false, "carrier-pigeon"},
	} {
		tracing, err := StartTracing(t.Context(), func(name string) (string, bool) {
			for variable := range strings.FieldsSeq(step.variables) {
				if value, is := strings.CutPrefix(variable, name+"="); is {
					return value, true
				}
			}
			return "", false
		})
		if (tracing != nil) != step.on || (err != nil) != (step.problem != "") || err != nil && !strings.Contains(err.Error(), step.problem) {
			t.Errorf("%s: on %v, %v", step.variables, tracing != nil, err)
		}
		if (tracing.Server() != nil) != step.on {
			t.Errorf("%s: the server is traced: %v", step.variables, tracing.Server() != nil)
		}
		if err := tracing.Stop(t.Context()); err != nil {
			t.Errorf("%s: %v", step.variables, err)
		}
	}
}

// BenchmarkMeasured compares a measured store without tracing, and with it where nobody keeps the spans.
func BenchmarkMeasured(b *testing.B) {
	for name, tracing := range map[string]*Tracing{"off": nil, "on": newTracing(sdktrace.WithSyncer(tracetest.NewNoopExporter()))} {
		b.Run("tracing="+name, func(b *testing.B) {
			s := NewMetrics().Store(empty{}, still, nil, tracing)
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				s.Settle(ctx, nil)
			}
		})
	}
}

// empty is a store that does nothing, at once.
type empty struct{ authority.Store }

func (empty) Settle(context.Context, []authority.Settle) []error { return nil }
