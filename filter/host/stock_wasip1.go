//go:build !tinygo

//nolint:gosec,unused // a binding is made of addresses; what it exports, the host calls
package host

import (
	"runtime"
	"unsafe"
)

// maxAllocation bounds what the host may ask for at once: well above what Envoy lets through (64 kB of headers, and the
// body of a call's answer as the plugin limits it).
const maxAllocation = 16 << 20

// maxKept is up to what size memory is kept for the next use.
const maxKept = 64 << 10

// The functions that the host exports, with the section "Functions exposed by the host" of Proxy-Wasm ABI 0.2.1 for each:
// https://github.com/proxy-wasm/spec/tree/main/abi-versions/v0.2.1. A string is passed as the ABI wants it, as its address
// and its size. What the host gives, it writes into memory that it gets from proxy_on_memory_allocate while the function
// runs, and writes that memory's address and size to where the last two arguments point: given below.

//go:wasmimport env proxy_log
func proxyLog(level uint32, message string) uint32

//go:wasmimport env proxy_set_tick_period_milliseconds
func proxySetTickPeriodMilliseconds(millis uint32) uint32

//go:wasmimport env proxy_set_effective_context
func proxySetEffectiveContext(context uint32) uint32

//go:wasmimport env proxy_done
func proxyDone() uint32

//go:wasmimport env proxy_continue_stream
func proxyContinueStream(kind uint32) uint32

//go:wasmimport env proxy_send_local_response
func proxySendLocalResponse(
	code uint32, details, body string, headers unsafe.Pointer, headersSize uint32, grpcStatus int32,
) uint32

//go:wasmimport env proxy_get_header_map_pairs
func proxyGetHeaderMapPairs(from uint32, value, size unsafe.Pointer) uint32

//go:wasmimport env proxy_add_header_map_value
func proxyAddHeaderMapValue(to uint32, name, value string) uint32

//go:wasmimport env proxy_get_property
func proxyGetProperty(path unsafe.Pointer, pathSize uint32, value, size unsafe.Pointer) uint32

//go:wasmimport env proxy_get_buffer_bytes
func proxyGetBufferBytes(from, start, maxSize uint32, value, size unsafe.Pointer) uint32

//go:wasmimport env proxy_http_call
func proxyHTTPCall(
	cluster string, headers unsafe.Pointer, headersSize uint32, body unsafe.Pointer, bodySize uint32,
	trailers unsafe.Pointer, trailersSize uint32, timeoutMillis uint32, call unsafe.Pointer,
) uint32

//go:wasmimport env proxy_define_metric
func proxyDefineMetric(kind uint32, name string, metric unsafe.Pointer) uint32

//go:wasmimport env proxy_increment_metric
func proxyIncrementMetric(metric uint32, delta int64) uint32

//go:wasmimport env proxy_record_metric
func proxyRecordMetric(metric uint32, value uint64) uint32

// given is what the host writes during one function: variables of the package, since a stack may move while the host
// holds an address in it.
var given struct {
	address, size uint32
	number        uint32
	// memory is what proxy_on_memory_allocate gave last. It is held here until the function that wanted it has taken it
	// over, for the collector sees no reference in the host.
	memory []byte
	// lent is memory to give out instead, where it is large enough.
	lent []byte
}

// takeOver gives the bytes that the host has just written, which are now the caller's alone.
func takeOver() []byte {
	b := given.memory
	given.memory = nil
	if given.size == 0 || uint64(given.size) > uint64(len(b)) || given.address != address(b) {
		return nil
	}
	return b[:given.size]
}

// takeOverString does the same without a copy: nobody else writes to those bytes any more.
func takeOverString() string {
	b := takeOver()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func address(b []byte) uint32 { return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func addressOut() unsafe.Pointer { return unsafe.Pointer(&given.address) }

func sizeOut() unsafe.Pointer { return unsafe.Pointer(&given.size) }

func numberOut() unsafe.Pointer { return unsafe.Pointer(&given.number) }

// imports calls the host. Its buffers are for what is written for one function, which copies it, and for header maps.
type imports struct {
	scratch []byte
	maps    [callResponseTrailers + 1]pairs
}

var _ abi = (*imports)(nil)

func (*imports) log(level Level, message string) status {
	return status(proxyLog(uint32(level)+1, message))
}

func (*imports) setTickPeriod(millis uint32) status {
	return status(proxySetTickPeriodMilliseconds(millis))
}

func (*imports) setEffectiveContext(context uint32) status {
	return status(proxySetEffectiveContext(context))
}

func (*imports) done() status { return status(proxyDone()) }

// proxy_stream_type_t has the request at 0.
func (*imports) continueRequest() status { return status(proxyContinueStream(0)) }

func (i *imports) sendLocalResponse(code uint32, headers []Header, body string, grpcStatus int32) status {
	h := appendPairs(i.scratch[:0], headers)
	i.keep(h)
	return status(proxySendLocalResponse(code, "", body, pointer(h), uint32(len(h)), grpcStatus))
}

func (i *imports) headers(from mapType) (fields, status) {
	m := &i.maps[from]
	given.size, given.lent = 0, nil
	if cap(*m) <= maxKept {
		given.lent = *m
	}
	st := status(proxyGetHeaderMapPairs(uint32(from), addressOut(), sizeOut()))
	given.lent = nil
	*m = takeOver()
	return m, st
}

// proxy_map_type_t has the response's headers at 2.
func (*imports) addResponseHeader(name, value string) status {
	return status(proxyAddHeaderMapValue(2, name, value))
}

func (i *imports) property(path []string) (string, status) {
	p := appendPath(i.scratch[:0], path)
	i.keep(p)
	given.size = 0
	st := status(proxyGetProperty(pointer(p), uint32(len(p)), addressOut(), sizeOut()))
	return takeOverString(), st
}

func (*imports) buffer(from bufferType, size uint32) ([]byte, status) {
	given.size = 0
	st := status(proxyGetBufferBytes(uint32(from), 0, size, addressOut(), sizeOut()))
	return takeOver(), st
}

func (i *imports) httpCall(cluster string, headers []Header, body []byte, timeoutMillis uint32) (CallID, status) {
	h := appendPairs(i.scratch[:0], headers)
	n := len(h)
	h = appendPairs(h, nil) // the trailers
	i.keep(h)
	st := status(proxyHTTPCall(cluster, pointer(h[:n]), uint32(n), pointer(body), uint32(len(body)),
		pointer(h[n:]), uint32(len(h)-n), timeoutMillis, numberOut()))
	return CallID(given.number), st
}

func (*imports) defineMetric(kind metricType, name string) (uint32, status) {
	st := status(proxyDefineMetric(uint32(kind), name, numberOut()))
	return given.number, st
}

func (*imports) incrementMetric(metric uint32, delta int64) status {
	return status(proxyIncrementMetric(metric, delta))
}

func (*imports) recordMetric(metric uint32, value uint64) status {
	return status(proxyRecordMetric(metric, value))
}

// keep has the next function write to the same memory, unless one large message has made it large.
func (i *imports) keep(scratch []byte) {
	i.scratch = nil
	if cap(scratch) <= maxKept {
		i.scratch = scratch
	}
}

// vm is this VM, from Run on.
var vm *instance

// Run makes the filter of plugins that newPlugin makes, one for each root context. It is called from an init function,
// since a reactor module has no main, and returns at once: the host calls the filter from then on.
func Run(newPlugin func(Proxy) Plugin) { vm = newInstance(&imports{}, newPlugin) }

// The functions that the filter exports: "Functions exposed by the Wasm module" of the same specification. A host leaves
// out the callbacks that a module does not export, so that bodies and trailers cost nothing.

//go:wasmexport proxy_abi_version_0_2_1
func proxyABIVersion() {}

//go:wasmexport proxy_on_memory_allocate
func proxyOnMemoryAllocate(size uint32) uint32 {
	if size == 0 || size > maxAllocation {
		return 0
	}
	if uint64(size) <= uint64(cap(given.lent)) {
		given.memory, given.lent = given.lent[:size], nil
	} else {
		given.memory = make([]byte, size)
	}
	return address(given.memory)
}

//go:wasmexport proxy_on_context_create
func proxyOnContextCreate(context, parent uint32) { vm.contextCreate(context, parent) }

//go:wasmexport proxy_on_vm_start
func proxyOnVMStart(_, _ uint32) uint32 { return 1 }

//go:wasmexport proxy_on_configure
func proxyOnConfigure(context, size uint32) uint32 { return boolean(vm.configure(context, size)) }

// What runs beside the callbacks, which is the collector's marking, has its turn with every tick: no callback waits for
// anything, so that nothing else would let it run, a collection would not come to its end, and the heap would grow to ten
// times what is alive.
//
//go:wasmexport proxy_on_tick
func proxyOnTick(context uint32) {
	vm.tick(context)
	runtime.Gosched()
}

//go:wasmexport proxy_on_request_headers
func proxyOnRequestHeaders(context, _, _ uint32) uint32 { return vm.requestHeaders(context) }

//go:wasmexport proxy_on_response_headers
func proxyOnResponseHeaders(context, _, _ uint32) uint32 { return vm.responseHeaders(context) }

//go:wasmexport proxy_on_http_call_response
func proxyOnHTTPCallResponse(context, call, headers, bodySize, trailers uint32) {
	vm.callEnded(context, call, headers, bodySize, trailers)
}

//go:wasmexport proxy_on_done
func proxyOnDone(context uint32) uint32 { return boolean(vm.done(context)) }

func boolean(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
