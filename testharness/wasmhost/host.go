package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// Host is one proxy: a compiled filter, its workers, and what they share: the
// clock, metrics, shared data and queues.
type Host struct {
	cfg      Config
	ctx      context.Context
	clock    clock
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	closers  []func(context.Context) error

	workers []*Worker
	main    *Worker

	metrics metricStore
	shared  sharedData
	queues  sharedQueues
	hostLog

	// down are clusters that have no healthy host.
	down map[string]bool
	// properties is Config.Properties as a tree.
	properties *propertyNode
	// depth counts the callbacks under way; outbox holds what has to wait until
	// none is: handlers given by the user may then use the Host freely.
	depth    int
	outbox   []func()
	flushing bool

	lastConnection uint64
}

// New compiles the module (or takes it from the cache), starts the workers and
// configures the plugin in each. It fails if the module is no proxy-wasm filter
// of ABI 0.2, imports what is neither Envoy's nor WASI's, traps, or refuses its
// configuration. The context is used for all calls into guests.
func New(ctx context.Context, wasm []byte, cfg Config) (*Host, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, ctx: ctx, down: map[string]bool{}}
	h.clock.mono = cfg.Monotonic
	h.clock.setWall(cfg.Wall)
	h.properties = buildProperties(cfg.Properties)
	h.metrics.init()
	h.shared.init()
	h.queues.init()
	if err := h.compile(wasm); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	for i := range cfg.Workers {
		w := h.newWorker(i)
		h.workers = append(h.workers, w)
		if err := w.load(); err != nil {
			return nil, errors.Join(fmt.Errorf("wasmhost: worker %d: %w", i, err), h.Close())
		}
	}
	return h, nil
}

// compile makes the runtime, with the host's functions, and the module.
func (h *Host) compile(wasm []byte) error {
	cache, own, err := compilationCache(h.cfg.CacheDir)
	if err != nil {
		return err
	}
	if own {
		h.closers = append(h.closers, cache.Close)
	}
	rc := wazero.NewRuntimeConfig().WithCompilationCache(cache).WithMemoryLimitPages(h.cfg.pages())
	h.runtime = wazero.NewRuntimeWithConfig(h.ctx, rc)
	if _, err := wasi_snapshot_preview1.Instantiate(h.ctx, h.runtime); err != nil {
		return fmt.Errorf("wasmhost: cannot offer WASI: %w", err)
	}
	if err := h.exportFunctions(); err != nil {
		return fmt.Errorf("wasmhost: cannot offer the proxy's functions: %w", err)
	}
	h.compiled, err = h.runtime.CompileModule(h.ctx, wasm)
	if err != nil {
		return fmt.Errorf("wasmhost: cannot compile the module: %w", err)
	}
	return checkABI(h.compiled)
}

// checkABI looks for the version export that ABI 0.2 asks for.
func checkABI(m wazero.CompiledModule) error {
	const prefix = "proxy_abi_version_"
	var versions []string
	for name := range m.ExportedFunctions() {
		if v, ok := strings.CutPrefix(name, prefix); ok {
			versions = append(versions, v)
		}
	}
	if slices.Contains(versions, "0_2_1") || slices.Contains(versions, "0_2_0") {
		return nil
	}
	return fmt.Errorf("wasmhost: the module exports the ABI versions %q, expected %s0_2_1 or %s0_2_0", versions, prefix, prefix)
}

// Close ends everything at once, without telling the guests; [Worker.Stop]
// does. It may be called more than once.
func (h *Host) Close() error {
	var errs []error
	if h.runtime != nil {
		errs = append(errs, h.runtime.Close(h.ctx))
		h.runtime = nil
	}
	for _, c := range h.closers {
		errs = append(errs, c(h.ctx))
	}
	h.closers = nil
	return errors.Join(errs...)
}

// Workers is how many workers there are.
func (h *Host) Workers() int { return len(h.workers) }

// Worker is the i-th worker, counted from 0, or nil if there is none.
func (h *Host) Worker(i int) *Worker {
	if i < 0 || i >= len(h.workers) {
		return nil
	}
	return h.workers[i]
}

// MainThread is the instance on the proxy's main thread: it is configured and
// ticks like any other, but sees no request. Envoy always has one; here it is
// made when it is first asked for. Its index is -1.
func (h *Host) MainThread() (*Worker, error) {
	if h.main == nil {
		w := h.newWorker(mainThread)
		if err := w.load(); err != nil {
			return nil, fmt.Errorf("wasmhost: main thread: %w", err)
		}
		h.main = w
	}
	return h.main, nil
}

// instances are all workers and, if there is one, the main thread's.
func (h *Host) instances() []*Worker {
	if h.main == nil {
		return h.workers
	}
	return append(slices.Clip(h.workers), h.main)
}

// Now is the monotonic clock.
func (h *Host) Now() time.Duration { return h.clock.mono }

// Wall is the wall clock.
func (h *Host) Wall() time.Time { return h.clock.wall() }

// SetWall steps the wall clock, to before or after. The monotonic clock, and all
// that is due, stay as they are.
func (h *Host) SetWall(t time.Time) { h.clock.setWall(t) }

// After runs f on the way through the instant d from now. It may use the Host.
func (h *Host) After(d time.Duration, f func()) { h.clock.after(d, f) }

// maxEventsAtOnce bounds what happens in one instant: a guest that makes a call
// for each reply, answered without delay, would otherwise never end.
const maxEventsAtOnce = 100_000

// Advance moves both clocks forward by d and makes happen what is due on the
// way, in order: ticks, replies, timeouts, queue notices and After's functions.
// Each sees the clock at the instant at which it is due. Advance(0) makes happen
// what is due now. It returns how many things happened. A negative d is 0.
func (h *Host) Advance(d time.Duration) int {
	until, count, atOnce := h.clock.mono+max(d, 0), 0, 0
	for {
		e := h.clock.next(until)
		if e == nil {
			break
		}
		if e.due > h.clock.mono {
			h.clock.mono, atOnce = e.due, 0
		}
		if atOnce++; atOnce > maxEventsAtOnce {
			h.violate(nil, Livelock, fmt.Sprintf("more than %d events at %v", maxEventsAtOnce, h.clock.mono))
			break
		}
		e.run()
		h.flush()
		count++
	}
	h.clock.mono = max(h.clock.mono, until)
	return count
}

// NextEvent is how long it is until something happens by itself; ok is false if
// nothing will.
func (h *Host) NextEvent() (d time.Duration, ok bool) {
	due, ok := h.clock.nextDue()
	if !ok {
		return 0, false
	}
	return max(due-h.clock.mono, 0), true
}

// SetClusterDown says whether a cluster has no healthy host: a call to it then
// fails at once, with StatusInternalFailure, as in Envoy.
func (h *Host) SetClusterDown(cluster string, down bool) {
	delete(h.down, cluster)
	if down {
		h.down[cluster] = true
	}
}

// clusterStatus is what a call to the cluster meets before it is sent.
func (h *Host) clusterStatus(name string) Status {
	if h.cfg.Clusters != nil && !slices.Contains(h.cfg.Clusters, name) {
		return StatusBadArgument
	}
	if h.down[name] {
		return StatusInternalFailure
	}
	return StatusOK
}

// later queues f until no guest is running.
func (h *Host) later(f func()) { h.outbox = append(h.outbox, f) }

// flush runs what was queued, unless a guest is running.
func (h *Host) flush() {
	if h.depth > 0 || h.flushing {
		return
	}
	h.flushing = true
	for len(h.outbox) > 0 {
		f := h.outbox[0]
		h.outbox = h.outbox[1:]
		f()
	}
	h.outbox = nil
	h.flushing = false
}
