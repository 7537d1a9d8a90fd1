package wasmhost

import (
	"errors"
	"fmt"
	"time"
)

// mainThread is the index of the instance that sees no request.
const mainThread = -1

// Worker is one worker thread of the proxy and its instance of the filter.
// After a trap another instance may take the place of the first.
type Worker struct {
	host     *Host
	index    int
	loads    int
	loadedAt time.Duration
	config   []byte
	vm       *vm
}

func (h *Host) newWorker(index int) *Worker {
	return &Worker{host: h, index: index, config: h.cfg.PluginConfig}
}

// Index is the worker's place among the Host's, -1 for the main thread.
func (w *Worker) Index() int { return w.index }

// Loads is how many instances this worker has had, the present one included.
func (w *Worker) Loads() int { return w.loads }

// Failed tells whether the instance has trapped, or could not be loaded.
func (w *Worker) Failed() bool { return w.vm.failed }

// MemoryBytes is the size of the instance's memory. It never falls within one
// life of it.
func (w *Worker) MemoryBytes() uint64 { return uint64(w.vm.memorySize()) }

// OpenStreams is how many streams of the instance have not ended.
func (w *Worker) OpenStreams() int {
	n := 0
	for _, r := range w.vm.roots {
		n += r.streams
	}
	return n
}

// OutstandingCalls is how many HTTP and gRPC calls and gRPC streams the
// instance waits for.
func (w *Worker) OutstandingCalls() int { return w.vm.outstanding() }

// TickPeriod is what the plugin asked for last; 0 means that it does not tick.
func (w *Worker) TickPeriod() time.Duration { return w.vm.root.period }

// load puts a fresh instance in place: started and configured, or failed.
func (w *Worker) load() error {
	w.loads++
	w.loadedAt = w.host.clock.mono
	if w.vm != nil {
		w.vm.discard()
	}
	defer w.host.enter()()
	v, err := w.host.newVM(w)
	w.vm = v
	if err != nil {
		return v.fail("load", err)
	}
	return v.start()
}

// Reload throws the instance away, whatever its state, and makes a new one, as
// FAIL_RELOAD does. Calls of the old one are cancelled, and streams of it are
// told nothing more: one that is paused stays so, one that is under way fails
// by Config.Failure at its next event.
func (w *Worker) Reload() error { return w.load() }

// reloadIfDue is what a request meets: a failed instance may be replaced.
func (w *Worker) reloadIfDue() {
	h := w.host
	if w.vm.failed && h.cfg.Failure == FailReload && h.clock.mono-w.loadedAt >= h.cfg.ReloadBackoff {
		_ = w.load() // Recorded as a trap; the request fails.
	}
}

// Reconfigure gives the plugin another configuration without a new instance, as
// Envoy does when a listener or an ECDS resource changes: the same instance gets
// a second root context, which new streams belong to, and the first one ends
// with its last stream, and with it the calls that it waits for. A configuration
// that is refused leaves all as it was.
func (w *Worker) Reconfigure(config []byte) error {
	defer w.host.enter()()
	if w.vm.failed {
		return errors.New("wasmhost: the instance has failed and cannot be configured")
	}
	old := w.vm.root
	if err := w.vm.addRoot(config); err != nil {
		return err
	}
	w.config = config
	old.retired = true
	w.vm.retireIfIdle(old)
	return nil
}

// Reconfigure does so in every instance, and stops at the first that refuses.
func (h *Host) Reconfigure(config []byte) error {
	for _, w := range h.instances() {
		if err := w.Reconfigure(config); err != nil {
			return fmt.Errorf("worker %d: %w", w.index, err)
		}
	}
	h.cfg.PluginConfig = config
	return nil
}

// Stop tells the plugin that it is to end (proxy_on_done), and reports whether
// it has: a plugin may ask for time, and then ticks on until it calls
// proxy_done. Streams should have ended before.
func (w *Worker) Stop() bool {
	defer w.host.enter()()
	r := w.vm.root
	if w.vm.failed || r.deleted {
		return true
	}
	r.retired = true
	w.vm.retireIfIdle(r)
	return r.deleted
}
