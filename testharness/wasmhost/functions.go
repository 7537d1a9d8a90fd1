package wasmhost

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero/api"
)

// hostCall is one call of the guest into the proxy.
type hostCall struct {
	vm *vm
	// ctx is the context that the call is about: the effective one.
	ctx *guestContext
	mem api.Memory
	// args are the arguments: a copy, for the stack they came on may move when
	// the guest's allocator is called.
	args [maxParams]uint64
	// bad: an argument pointed outside the guest's memory.
	bad bool
}

// maxParams is what proxy_grpc_call takes.
const maxParams = 12

// hostFunction is one function of the ABI. Parameters are written as a string: i
// is 32 bits, l is 64. All return a status.
type hostFunction struct {
	name   string
	params string
	run    func(*hostCall) Status
}

// hostFunctions is all of ABI 0.2.1 that Envoy offers.
var hostFunctions = [][]hostFunction{mapFunctions, streamFunctions, stateFunctions, callFunctions}

// exportFunctions makes the module env.
func (h *Host) exportFunctions() error {
	b := h.runtime.NewHostModuleBuilder("env")
	for _, group := range hostFunctions {
		for _, f := range group {
			b.NewFunctionBuilder().WithGoModuleFunction(f.bind(), valueTypes(f.params), valueTypes("i")).Export(f.name)
		}
	}
	_, err := b.Instantiate(h.ctx)
	return err
}

func valueTypes(s string) []api.ValueType {
	out := make([]api.ValueType, len(s))
	for i, c := range s {
		out[i] = api.ValueTypeI32
		if c == 'l' {
			out[i] = api.ValueTypeI64
		}
	}
	return out
}

// bind wraps the function for wazero. Like Envoy's, a module that initialises
// itself may only log: anything else ends it.
func (f hostFunction) bind() api.GoModuleFunc {
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		v := ctx.Value(vmKey{}).(*vm)
		if v.starting && f.name != "proxy_log" {
			panic(fmt.Errorf("%s may not be called while the module initialises itself", f.name))
		}
		a := hostCall{vm: v, ctx: v.effectiveContext(), mem: mod.Memory()}
		copy(a.args[:len(f.params)], stack)
		if a.ctx == nil {
			a.ctx = &guestContext{vm: v, root: v.root}
		}
		status := f.run(&a)
		if a.bad {
			status = StatusInvalidMemoryAccess
		}
		stack[0] = uint64(status)
	}
}

// effectiveContext is the one that the guest has set, or else the callback's own.
// None ends while a callback runs.
func (v *vm) effectiveContext() *guestContext {
	if v.effective != nil {
		return v.effective
	}
	return v.current
}

func (a *hostCall) u32(i int) uint32 { return uint32(a.args[i]) }

// bytes reads the memory that the i-th argument points to, of the size that the
// next one gives. It is a copy.
func (a *hostCall) bytes(i int) []byte {
	b, ok := a.mem.Read(a.u32(i), a.u32(i+1))
	if !ok {
		a.bad = true
		return nil
	}
	return append([]byte{}, b...)
}

func (a *hostCall) text(i int) string { return string(a.bytes(i)) }

// pairs reads a header map. Like Envoy, it takes one that ends too early for an
// empty one, but that is recorded.
func (a *hostCall) pairs(i int) Headers {
	h, ok := unmarshalPairs(a.bytes(i))
	if !ok {
		a.vm.host.violate(a.ctx, MalformedMap, fmt.Sprintf("of %d bytes", a.u32(i+1)))
	}
	return h
}

// put32 writes a number where the i-th argument points.
func (a *hostCall) put32(i int, n uint32) {
	if !a.mem.WriteUint32Le(a.u32(i), n) {
		a.bad = true
	}
}

func (a *hostCall) put64(i int, n uint64) {
	if !a.mem.WriteUint64Le(a.u32(i), n) {
		a.bad = true
	}
}

// give copies data into memory of the guest's, and writes its place and size
// where the i-th and j-th arguments point. No data is a null pointer.
func (a *hostCall) give(i, j int, data []byte) {
	at := uint32(0)
	if len(data) > 0 {
		p, ok := a.vm.alloc(uint32(len(data)))
		if !ok || !a.mem.Write(p, data) {
			a.bad = true
			return
		}
		at = p
	}
	a.put32(i, at)
	a.put32(j, uint32(len(data)))
}
