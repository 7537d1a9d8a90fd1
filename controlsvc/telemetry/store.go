package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/controlsvc/authority"
	"sluice/shared/instant"
)

// operation is the metrics of one of the store's methods.
type operation struct {
	latency prometheus.Observer
	errors  prometheus.Counter
	awaited bool // decisions rest on it
	name    string
}

// measured is a store whose calls are timed and whose failures are counted.
type measured struct {
	authority.Store

	now     func() instant.Instant
	took    func(time.Duration)
	tracing *Tracing

	reserve, settle, cancel, record, peek, reset, connected, exchange, ping operation
}

// Bounded is a store that has room for so many keys, and forgets the one used longest ago where another one comes.
type Bounded interface {
	// Len is how many keys there are.
	Len() int64
	// Evicted is how many were forgotten that still counted.
	Evicted() int64
}

// Store gives the store with its calls measured, by a clock that never steps back. What those took that decisions rest on is
// told to took, which may be nil; with tracing they are spans. Where the store is Bounded its keys are counted too; that may be once.
func (m *Metrics) Store(store authority.Store, now func() instant.Instant, took func(time.Duration), tracing *Tracing) authority.Store {
	if took == nil {
		took = func(time.Duration) {}
	}
	if bounded, is := store.(Bounded); is {
		m.registry.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "sluice_memory_keys", Help: "Keys in the memory store.",
			}, func() float64 { return float64(bounded.Len()) }),
			prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "sluice_memory_evicted_keys_total",
				Help: "Keys that the memory store forgot, with what was spent of them, to make room for others.",
			}, func() float64 { return float64(bounded.Evicted()) }),
		)
	}
	of := func(name string) operation {
		return operation{latency: m.store.WithLabelValues(name), errors: m.storeErrs.WithLabelValues(name), name: name}
	}
	s := &measured{
		Store: store, now: now, took: took, tracing: tracing,
		reserve: of("reserve"), settle: of("settle"), cancel: of("cancel"), record: of("record"),
		peek: of("peek"), reset: of("reset"), connected: of("connected"), exchange: of("exchange"), ping: of("ping"),
	}
	// In mode async a decision rests on what was recorded and looked at. The alert on a slow store looks at the same ones.
	s.reserve.awaited, s.record.awaited, s.peek.awaited = true, true, true
	return s
}

// begin starts a measurement of an operation on so many keys; what it gives ends it.
func (s *measured) begin(ctx context.Context, o *operation, keys int) (_ context.Context, end func(failed int)) {
	began := s.now()
	measure := func(failed int) {
		took := s.now().Sub(began)
		o.latency.Observe(took.Seconds())
		o.errors.Add(float64(failed))
		if o.awaited {
			s.took(took)
		}
	}
	if s.tracing == nil {
		return ctx, measure
	}
	ctx, endSpan := s.tracing.begin(ctx, o.name, keys)
	return ctx, func(failed int) {
		measure(failed)
		endSpan(failed)
	}
}

func (s *measured) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	ctx, end := s.begin(ctx, &s.reserve, len(operations))
	all := s.Store.Reserve(ctx, operations)
	failed := 0
	for i := range all {
		if all[i].Err != nil {
			failed++
		}
	}
	end(failed)
	return all
}

func (s *measured) Settle(ctx context.Context, operations []authority.Settle) []error {
	ctx, end := s.begin(ctx, &s.settle, len(operations))
	errs := s.Store.Settle(ctx, operations)
	end(failures(errs...))
	return errs
}

func (s *measured) Cancel(ctx context.Context, operations []authority.Cancel) []error {
	ctx, end := s.begin(ctx, &s.cancel, len(operations))
	errs := s.Store.Cancel(ctx, operations)
	end(failures(errs...))
	return errs
}

func (s *measured) Record(ctx context.Context, operations []authority.Record) []error {
	ctx, end := s.begin(ctx, &s.record, len(operations))
	errs := s.Store.Record(ctx, operations)
	end(failures(errs...))
	return errs
}

func (s *measured) Peek(ctx context.Context, key authority.Key) ([]authority.State, error) {
	ctx, end := s.begin(ctx, &s.peek, 1)
	states, err := s.Store.Peek(ctx, key)
	end(failures(err))
	return states, err
}

func (s *measured) Reset(ctx context.Context, key authority.Key) error {
	ctx, end := s.begin(ctx, &s.reset, 1)
	err := s.Store.Reset(ctx, key)
	end(failures(err))
	return err
}

func (s *measured) Connected(ctx context.Context, domain string, worker uint64, ttl time.Duration) (authority.Share, error) {
	ctx, end := s.begin(ctx, &s.connected, 1)
	share, err := s.Store.Connected(ctx, domain, worker, ttl)
	end(failures(err))
	return share, err
}

func (s *measured) Exchange(ctx context.Context, domain string, replica uint64, says []byte, ttl time.Duration) ([][]byte, error) {
	ctx, end := s.begin(ctx, &s.exchange, 1)
	others, err := s.Store.Exchange(ctx, domain, replica, says, ttl)
	end(failures(err))
	return others, err
}

func (s *measured) Ping(ctx context.Context) error {
	ctx, end := s.begin(ctx, &s.ping, 1)
	err := s.Store.Ping(ctx)
	end(failures(err))
	return err
}

func failures(errs ...error) (n int) {
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	return n
}
