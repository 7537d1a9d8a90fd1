package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"
)

// Tracing makes spans of calls and of what they ask of the store. A nil Tracing makes none, and costs nothing.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// LogSpanErrors has what goes wrong with tracing logged, such as a collector that does not answer, in the form of all other lines.
func LogSpanErrors(logger *slog.Logger, after func(time.Duration) <-chan time.Time) {
	lost := NewRepeated(logger, after, "spans were lost")
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { lost.Note("why", err.Error()) }))
}

// StartTracing starts tracing where OpenTelemetry's variables ask for it, else it gives nil: OTEL_TRACES_EXPORTER is otlp, or
// it is unset and OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. OTEL_SDK_DISABLED=true is stronger.
// OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, or OTEL_EXPORTER_OTLP_PROTOCOL, is http/protobuf, the default, or grpc. What else there
// is the exporter and the SDK read: headers, certificates, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER.
func StartTracing(ctx context.Context, lookup func(name string) (string, bool)) (*Tracing, error) {
	first := func(names ...string) string {
		for _, name := range names {
			if value, _ := lookup(name); value != "" {
				return value
			}
		}
		return ""
	}
	if first("OTEL_SDK_DISABLED") == "true" {
		return nil, nil //nolint:nilnil // nil is tracing that is off
	}
	switch exporter := first("OTEL_TRACES_EXPORTER"); {
	case exporter == "otlp":
	case exporter == "none":
		return nil, nil //nolint:nilnil // nil is tracing that is off
	case exporter != "":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: want otlp or none", exporter)
	case first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "":
		return nil, nil //nolint:nilnil // nil is tracing that is off
	}
	var client otlptrace.Client
	switch protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "", "http/protobuf":
		client = otlptracehttp.NewClient()
	case "grpc":
		client = otlptracegrpc.NewClient()
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: want http/protobuf or grpc", protocol)
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	name := resource.NewSchemaless(attribute.String("service.name", "sluice"))
	if about, err := resource.Merge(name, resource.Environment()); err == nil {
		name = about
	}
	return newTracing(sdktrace.WithBatcher(exporter), sdktrace.WithResource(name)), nil
}

func newTracing(options ...sdktrace.TracerProviderOption) *Tracing {
	provider := sdktrace.NewTracerProvider(options...)
	return &Tracing{provider: provider, tracer: provider.Tracer("sluice/controlsvc")}
}

// Stop sends what has not been sent yet, until the context ends.
func (t *Tracing) Stop(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Server makes a span of every call but health's, beneath the one that the call's traceparent names; nil where tracing is off.
func (t *Tracing) Server() stats.Handler {
	if t == nil {
		return nil
	}
	return otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelgrpc.WithPropagators(propagation.TraceContext{}), otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
	)
}

// begin begins a span of an operation of the store; what it gives ends it.
func (t *Tracing) begin(ctx context.Context, operation string, keys int) (context.Context, func(failed int)) {
	//nolint:spancheck // what is given back ends it
	ctx, span := t.tracer.Start(ctx, "store "+operation, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("db.operation.name", operation), attribute.Int("db.operation.batch.size", keys)))
	return ctx, func(failed int) { //nolint:spancheck // the same
		if failed > 0 {
			span.SetStatus(otelcodes.Error, fmt.Sprintf("%d of %d failed", failed, max(keys, failed)))
		}
		span.End()
	}
}
