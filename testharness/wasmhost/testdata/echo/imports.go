//go:build wasip1

package main

import "unsafe"

// The host's functions, proxy-wasm ABI 0.2.1. A pointer and a size is how the
// ABI passes text; a pointer to either is where the host puts its answer.

type ptr = unsafe.Pointer

//go:wasmimport env proxy_log
func proxyLog(level uint32, p ptr, n uint32) uint32

//go:wasmimport env proxy_get_log_level
func proxyGetLogLevel(out ptr) uint32

//go:wasmimport env proxy_get_property
func proxyGetProperty(p ptr, n uint32, outP, outN ptr) uint32

//go:wasmimport env proxy_set_property
func proxySetProperty(p ptr, n uint32, v ptr, vn uint32) uint32

//go:wasmimport env proxy_get_header_map_pairs
func proxyGetHeaderMapPairs(kind uint32, outP, outN ptr) uint32

//go:wasmimport env proxy_set_header_map_pairs
func proxySetHeaderMapPairs(kind uint32, p ptr, n uint32) uint32

//go:wasmimport env proxy_get_header_map_size
func proxyGetHeaderMapSize(kind uint32, out ptr) uint32

//go:wasmimport env proxy_get_header_map_value
func proxyGetHeaderMapValue(kind uint32, k ptr, kn uint32, outP, outN ptr) uint32

//go:wasmimport env proxy_add_header_map_value
func proxyAddHeaderMapValue(kind uint32, k ptr, kn uint32, v ptr, vn uint32) uint32

//go:wasmimport env proxy_replace_header_map_value
func proxyReplaceHeaderMapValue(kind uint32, k ptr, kn uint32, v ptr, vn uint32) uint32

//go:wasmimport env proxy_remove_header_map_value
func proxyRemoveHeaderMapValue(kind uint32, k ptr, kn uint32) uint32

//go:wasmimport env proxy_get_buffer_bytes
func proxyGetBufferBytes(kind, start, length uint32, outP, outN ptr) uint32

//go:wasmimport env proxy_get_buffer_status
func proxyGetBufferStatus(kind uint32, length, flags ptr) uint32

//go:wasmimport env proxy_set_buffer_bytes
func proxySetBufferBytes(kind, start, length uint32, p ptr, n uint32) uint32

//go:wasmimport env proxy_continue_stream
func proxyContinueStream(kind uint32) uint32

//go:wasmimport env proxy_close_stream
func proxyCloseStream(kind uint32) uint32

//go:wasmimport env proxy_send_local_response
func proxySendLocalResponse(status uint32, details ptr, dn uint32, body ptr, bn uint32, headers ptr, hn uint32, grpc int32) uint32

//go:wasmimport env proxy_get_shared_data
func proxyGetSharedData(k ptr, kn uint32, outP, outN, outCas ptr) uint32

//go:wasmimport env proxy_set_shared_data
func proxySetSharedData(k ptr, kn uint32, v ptr, vn, cas uint32) uint32

//go:wasmimport env proxy_register_shared_queue
func proxyRegisterSharedQueue(p ptr, n uint32, out ptr) uint32

//go:wasmimport env proxy_resolve_shared_queue
func proxyResolveSharedQueue(vm ptr, vn uint32, p ptr, n uint32, out ptr) uint32

//go:wasmimport env proxy_enqueue_shared_queue
func proxyEnqueueSharedQueue(token uint32, p ptr, n uint32) uint32

//go:wasmimport env proxy_dequeue_shared_queue
func proxyDequeueSharedQueue(token uint32, outP, outN ptr) uint32

//go:wasmimport env proxy_define_metric
func proxyDefineMetric(kind uint32, p ptr, n uint32, out ptr) uint32

//go:wasmimport env proxy_increment_metric
func proxyIncrementMetric(id uint32, offset int64) uint32

//go:wasmimport env proxy_record_metric
func proxyRecordMetric(id uint32, value uint64) uint32

//go:wasmimport env proxy_get_metric
func proxyGetMetric(id uint32, out ptr) uint32

//go:wasmimport env proxy_http_call
func proxyHTTPCall(to ptr, tn uint32, h ptr, hn uint32, body ptr, bn uint32, tr ptr, trn, timeout uint32, out ptr) uint32

//go:wasmimport env proxy_grpc_call
func proxyGRPCCall(to ptr, tn uint32, s ptr, sn uint32, m ptr, mn uint32, md ptr, mdn uint32, msg ptr, msgn, timeout uint32, out ptr) uint32

//go:wasmimport env proxy_grpc_stream
func proxyGRPCStream(to ptr, tn uint32, s ptr, sn uint32, m ptr, mn uint32, md ptr, mdn uint32, out ptr) uint32

//go:wasmimport env proxy_grpc_send
func proxyGRPCSend(token uint32, p ptr, n, end uint32) uint32

//go:wasmimport env proxy_grpc_cancel
func proxyGRPCCancel(token uint32) uint32

//go:wasmimport env proxy_grpc_close
func proxyGRPCClose(token uint32) uint32

//go:wasmimport env proxy_set_tick_period_milliseconds
func proxySetTickPeriod(millis uint32) uint32

//go:wasmimport env proxy_get_current_time_nanoseconds
func proxyGetCurrentTime(out ptr) uint32

//go:wasmimport env proxy_set_effective_context
func proxySetEffectiveContext(ctx uint32) uint32

//go:wasmimport env proxy_done
func proxyDone() uint32

//go:wasmimport env proxy_call_foreign_function
func proxyCallForeignFunction(name ptr, nn uint32, arg ptr, an uint32, outP, outN ptr) uint32

//go:wasmimport env proxy_get_status
func proxyGetStatus(code, outP, outN ptr) uint32

// in passes text to the host.
func in(s string) (ptr, uint32) {
	return ptr(unsafe.StringData(s)), uint32(len(s))
}

// answer is where the host puts a pointer and a size.
type answer struct{ p, n uint32 }

func (a *answer) at() (ptr, ptr) { return ptr(&a.p), ptr(&a.n) }

// take copies what the host wrote and lets go of its memory.
func (a *answer) take() string {
	b := pinned[uintptr(a.p)]
	delete(pinned, uintptr(a.p))
	if uint32(len(b)) < a.n {
		return ""
	}
	return string(b[:a.n])
}

func logLine(s string) {
	p, n := in(s)
	proxyLog(2, p, n)
}

func getHeader(kind uint32, name string) (uint32, string) {
	var a answer
	outP, outN := a.at()
	p, n := in(name)
	status := proxyGetHeaderMapValue(kind, p, n, outP, outN)
	return status, a.take()
}

func getBuffer(kind, start, length uint32) (uint32, string) {
	var a answer
	outP, outN := a.at()
	status := proxyGetBufferBytes(kind, start, length, outP, outN)
	return status, a.take()
}
