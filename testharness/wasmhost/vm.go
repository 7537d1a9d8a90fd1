package wasmhost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
)

// vm is one life of an instance, from its instantiation to its trap.
type vm struct {
	worker *Worker
	host   *Host
	mod    api.Module
	ctx    context.Context
	funcs  map[string]api.Function
	stderr lineWriter

	contexts map[uint32]*guestContext
	lastID   uint32
	roots    []*rootContext
	root     *rootContext // the one that new streams belong to

	// The running callback: its context, and the one put in its place by
	// proxy_set_effective_context.
	current, effective *guestContext
	// starting: the module initialises itself and may only log.
	starting bool
	// stopNext: a local response was sent, so the callback's answer is "pause".
	stopNext bool
	// after is what the callback asked for and what happens once it returns.
	after []func()

	failed  bool
	calls   callTable
	metrics metricHandles
}

// guestContext is what a guest knows by a context id: a plugin (root) or one of
// its streams.
type guestContext struct {
	vm     *vm
	id     uint32
	root   *rootContext
	stream *Stream // nil for a root
}

type vmKey struct{}

// newVM instantiates the module. The vm is there even if that fails.
func (h *Host) newVM(w *Worker) (*vm, error) {
	v := &vm{worker: w, host: h, contexts: map[uint32]*guestContext{}, funcs: map[string]api.Function{}}
	v.root = &rootContext{} // Until there is one: a failed instance has none.
	v.calls.init()
	v.metrics.init()
	v.ctx = context.WithValue(h.ctx, vmKey{}, v)
	stdout := &lineWriter{line: func(s string) { v.log(LogInfo, s) }}
	v.stderr.line = func(s string) { v.log(LogError, s) }
	cfg := wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithStdout(stdout).WithStderr(&v.stderr).
		WithRandSource(rand.NewChaCha8(h.seed(w))).
		WithNanotime(func() int64 { return int64(h.clock.mono) }, 1).
		WithWalltime(func() (int64, int32) {
			t := h.clock.wall()
			return t.Unix(), int32(t.Nanosecond())
		}, 1)
	mod, err := h.runtime.InstantiateModule(v.ctx, h.compiled, cfg)
	if err != nil {
		return v, fmt.Errorf("cannot instantiate the module: %w", err)
	}
	v.mod = mod
	for name := range h.compiled.ExportedFunctions() {
		v.funcs[name] = mod.ExportedFunction(name)
	}
	if v.funcs["malloc"] == nil && v.funcs["proxy_on_memory_allocate"] == nil {
		return v, errors.New("the module exports neither malloc nor proxy_on_memory_allocate")
	}
	return v, nil
}

// seed is different for each life of each instance.
func (h *Host) seed(w *Worker) (seed [32]byte) {
	binary.LittleEndian.PutUint64(seed[0:], h.cfg.Seed)
	binary.LittleEndian.PutUint64(seed[8:], uint64(int64(w.index)))
	binary.LittleEndian.PutUint64(seed[16:], uint64(w.loads))
	return seed
}

// start runs the module's own initialisation, then starts and configures the
// plugin.
func (v *vm) start() error {
	v.starting = true
	err := v.initialise()
	v.starting = false
	if err != nil {
		return v.fail("initialise", err)
	}
	if err := v.addRoot(v.worker.config); err != nil {
		return v.fail("configure", err)
	}
	return nil
}

// initialise calls _initialize (and main, if that is exported) of a reactor, or
// _start of a command.
func (v *vm) initialise() error {
	if init := v.funcs["_initialize"]; init != nil {
		if _, err := init.Call(v.ctx); err != nil {
			return err
		}
		if main := v.funcs["main"]; main != nil && len(main.Definition().ParamTypes()) == 2 {
			_, err := main.Call(v.ctx, 0, 0)
			return err
		}
		return nil
	}
	if start := v.funcs["_start"]; start != nil {
		_, err := start.Call(v.ctx)
		return err
	}
	return nil
}

// addRoot makes a root context with the configuration, and makes it the one for
// new streams if the guest accepts.
func (v *vm) addRoot(config []byte) error {
	r := &rootContext{config: config}
	r.guestContext = v.addContext(r, nil)
	v.roots = append(v.roots, r)
	accepted, err := v.configure(r)
	if err == nil && !accepted {
		err = errors.New("the plugin refused its configuration")
	}
	if err != nil {
		v.dropRoot(r)
		return err
	}
	v.root = r
	return nil
}

func (v *vm) configure(r *rootContext) (accepted bool, err error) {
	r.configuring = true
	v.callback(r.guestContext, "proxy_on_context_create", uint64(r.id), 0)
	r.configuring = false
	started, called := v.callback(r.guestContext, "proxy_on_vm_start", uint64(r.id), uint64(len(v.host.cfg.VMConfig)))
	if called && started == 0 && !v.failed {
		return false, errors.New("the plugin did not start: proxy_on_vm_start returned false")
	}
	r.configuring = true
	accepted = true
	ret, called := v.callback(r.guestContext, "proxy_on_configure", uint64(r.id), uint64(len(r.config)))
	if called {
		accepted = ret != 0
	}
	r.configuring = false
	if v.failed {
		return false, errors.New("the plugin trapped while it was configured")
	}
	return accepted, nil
}

// addContext gives out the next context id.
func (v *vm) addContext(r *rootContext, s *Stream) *guestContext {
	v.lastID++
	c := &guestContext{vm: v, id: v.lastID, root: r, stream: s}
	v.contexts[c.id] = c
	return c
}

// callback calls an export of the guest in a context, and does afterwards what
// the guest asked for meanwhile. called is false if there is no such export, or
// the instance has failed, be it in this very call.
func (v *vm) callback(c *guestContext, name string, args ...uint64) (ret uint64, called bool) {
	fn := v.funcs[name]
	if v.failed || fn == nil {
		return 0, false
	}
	current, effective := v.current, v.effective
	v.current, v.effective = c, nil
	results, err := fn.Call(v.ctx, args...)
	v.current, v.effective = current, effective
	if err != nil {
		_ = v.fail(name, err)
	} else {
		called = true
	}
	if len(results) > 0 {
		ret = results[0] & 0xffffffff
	}
	if v.stopNext {
		ret, v.stopNext = actionPause, false
	}
	for len(v.after) > 0 {
		f := v.after[0]
		v.after = v.after[1:]
		f()
	}
	v.after = nil
	return ret, called
}

// alloc asks the guest for memory. A trap in there ends the calling guest code
// too, by a panic that wazero turns into that call's error.
func (v *vm) alloc(size uint32) (uint32, bool) {
	fn := v.funcs["malloc"]
	if fn == nil {
		fn = v.funcs["proxy_on_memory_allocate"]
	}
	results, err := fn.Call(v.ctx, uint64(size))
	if err != nil {
		panic(v.fail("malloc", err))
	}
	if len(results) == 0 || uint32(results[0]) == 0 {
		return 0, false
	}
	return uint32(results[0]), true
}

// fail ends this life, and records it, once.
func (v *vm) fail(callback string, err error) error {
	wrapped := fmt.Errorf("%s: %w", callback, err)
	if v.failed {
		return wrapped
	}
	v.failed = true
	v.stopTimers()
	message := err.Error()
	if exit, ok := errors.AsType[*sys.ExitError](err); ok {
		message = "exited with status " + strconv.FormatUint(uint64(exit.ExitCode()), 10)
	}
	v.host.addTrap(Trap{
		At: v.host.clock.mono, Worker: v.worker.index, Callback: callback,
		Message: message, Stderr: string(v.stderr.tail),
	})
	return wrapped
}

// stopTimers cancels what would call the guest.
func (v *vm) stopTimers() {
	for _, r := range v.roots {
		v.host.clock.cancel(r.tick)
		r.period = 0
	}
	v.calls.cancelAll(&v.host.clock)
}

// discard ends this life for good.
func (v *vm) discard() {
	v.failed = true
	v.stopTimers()
	if v.mod != nil {
		_ = v.mod.Close(v.host.ctx)
	}
}

func (v *vm) memorySize() uint32 {
	if v.mod == nil || v.mod.Memory() == nil {
		return 0
	}
	return v.mod.Memory().Size()
}

func (v *vm) log(level LogLevel, message string) {
	if level < v.host.cfg.LogLevel {
		return
	}
	v.host.addLog(LogEntry{At: v.host.clock.mono, Worker: v.worker.index, Level: level, Message: message})
}

// enter brackets whatever may call a guest; what was put off until no guest is
// running happens when the outermost bracket closes.
func (h *Host) enter() (leave func()) {
	h.depth++
	return func() {
		h.depth--
		h.flush()
	}
}
