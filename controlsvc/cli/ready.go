package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/telemetry"
)

// readiness is whether the service can answer.
type readiness struct {
	authority *authority.Authority
	store     authority.Store
	// warning says what about the store puts limits at risk; nil: nothing can.
	warning func(context.Context) (string, error)
	// timeout is how long the store may take to answer.
	timeout time.Duration
	logger  *slog.Logger
	// held tells of charges that could not be taken back.
	held *telemetry.Repeated
	// stopping is set once, when the service is about to end.
	stopping atomic.Bool
	// What the last check of attend's said.
	ready, known bool
}

var (
	errNoPolicy = errors.New("no policy is in force")
	errStopping = errors.New("the service is stopping")
)

// newReadiness gives that of a service, with what may warn of its store.
func newReadiness(s *serving, p Process, warning func(context.Context) (string, error)) *readiness {
	return &readiness{
		authority: s.authority, store: s.store, warning: warning, timeout: s.options.callTimeout, logger: s.logger,
		held: telemetry.NewRepeated(s.logger, p.After, "charges that nobody was admitted for are still held"),
	}
}

// check says why the service cannot answer; nil where it can.
func (r *readiness) check(ctx context.Context) error {
	if r.stopping.Load() {
		return errStopping
	}
	if r.authority.Policy() == nil {
		return errNoPolicy
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if err := r.store.Ping(ctx); err != nil {
		return fmt.Errorf("the store does not answer within %v: %w", r.timeout, err)
	}
	return nil
}

const (
	// attendEvery is how soon the store is tried again with what it is owed.
	attendEvery = 250 * time.Millisecond
	// checkEvery is after how many of those gRPC's health is brought up to date.
	checkEvery = 4
)

// attend keeps gRPC's health true and pays the store what it is owed, until the context ends.
func (r *readiness) attend(ctx context.Context, after func(time.Duration) <-chan time.Time, serving func(bool)) {
	defer r.held.Flush()
	for turn := 0; ctx.Err() == nil; turn++ {
		if turn%checkEvery == 0 {
			if err := r.check(ctx); r.update(err, serving) {
				r.warn(ctx)
			}
		}
		if r.authority.Owed() > 0 && r.ready {
			r.repay(ctx)
		}
		select {
		case <-ctx.Done():
		case <-after(attendEvery):
		}
	}
}

// update tells gRPC's health, and the log where it has changed; true where the service has become ready.
func (r *readiness) update(err error, serving func(bool)) (became bool) {
	ready := err == nil
	became = ready && !r.ready
	serving(ready)
	switch {
	case ready && r.known && !r.ready:
		r.logger.Info("ready again")
	case !ready && (r.ready || !r.known):
		r.logger.Warn("not ready", "why", err.Error())
	}
	r.ready, r.known = ready, true
	return became
}

// warn logs what about the store puts limits at risk, whenever it has come back: it may be another one.
func (r *readiness) warn(ctx context.Context) {
	if r.warning == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	warning, err := r.warning(ctx)
	switch {
	case err != nil:
		r.logger.Warn("the store cannot be asked how it is set up", "why", err.Error())
	case warning != "":
		r.logger.Warn("the store puts limits at risk", "why", warning)
	}
}

func (r *readiness) repay(ctx context.Context) {
	// What it does not get done comes next time: gRPC's health waits for this.
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if err := r.authority.Repay(ctx); err != nil {
		r.held.Note("charges", r.authority.Owed(), "why", err.Error())
	}
}

// newHandler serves what operators ask for.
func newHandler(r *readiness, metrics, dashboard http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", dashboard)
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, request *http.Request) {
		if err := r.check(request.Context()); err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		answer(w, http.StatusOK, "ready")
	})
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}
