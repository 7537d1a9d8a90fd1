//go:build wasip1

package main

import "unsafe"

//go:wasmexport proxy_abi_version_0_2_1
func abiVersion() {}

// pinned keeps what the host writes into reachable until it was read.
var pinned = map[uintptr][]byte{}

//go:wasmexport proxy_on_memory_allocate
func onMemoryAllocate(size uint32) unsafe.Pointer {
	b := make([]byte, size+1)
	p := unsafe.Pointer(&b[0])
	pinned[uintptr(p)] = b
	return p
}

//go:wasmexport proxy_on_context_create
func onContextCreate(ctx, parent uint32) {
	if parent != 0 {
		streams[ctx] = &stream{scripts: map[string]string{}}
	}
	trace(ctx, "on_context_create")
}

//go:wasmexport proxy_on_vm_start
func onVMStart(ctx, size uint32) uint32 {
	trace(ctx, "on_vm_start", size)
	return 1
}

//go:wasmexport proxy_on_configure
func onConfigure(ctx, size uint32) uint32 {
	trace(ctx, "on_configure", size)
	_, text := getBuffer(7, 0, size)
	readConfig(text)
	act(ctx, "configure")
	if _, refuse := config["refuse"]; refuse {
		return 0
	}
	return 1
}

//go:wasmexport proxy_on_tick
func onTick(ctx uint32) {
	trace(ctx, "on_tick")
	act(ctx, "tick")
}

//go:wasmexport proxy_on_queue_ready
func onQueueReady(ctx, token uint32) {
	trace(ctx, "on_queue_ready")
	handles["queue"] = token
	act(ctx, "queue")
}

//go:wasmexport proxy_on_foreign_function
func onForeignFunction(ctx, id, size uint32) {
	trace(ctx, "on_foreign_function", id, size)
}

//go:wasmexport proxy_on_request_headers
func onRequestHeaders(ctx, n, end uint32) uint32 {
	for _, name := range scripted {
		if status, v := getHeader(0, "x-on-"+name); status == 0 {
			streams[ctx].scripts[name] = v
		}
	}
	trace(ctx, "on_request_headers", end)
	return act(ctx, "request")
}

//go:wasmexport proxy_on_request_body
func onRequestBody(ctx, size, end uint32) uint32 {
	trace(ctx, "on_request_body", size, end)
	return act(ctx, "body")
}

//go:wasmexport proxy_on_request_trailers
func onRequestTrailers(ctx, n uint32) uint32 {
	trace(ctx, "on_request_trailers", n)
	return act(ctx, "trailers")
}

//go:wasmexport proxy_on_response_headers
func onResponseHeaders(ctx, n, end uint32) uint32 {
	trace(ctx, "on_response_headers", end)
	return act(ctx, "response")
}

//go:wasmexport proxy_on_response_body
func onResponseBody(ctx, size, end uint32) uint32 {
	trace(ctx, "on_response_body", size, end)
	return act(ctx, "response-body")
}

//go:wasmexport proxy_on_response_trailers
func onResponseTrailers(ctx, n uint32) uint32 {
	trace(ctx, "on_response_trailers", n)
	return act(ctx, "response-trailers")
}

// reply runs the "reply" script of the stream that sent the call, or of the
// plugin if that stream is gone or there was none.
func reply(root, token uint32, script string) {
	from := calls[token]
	if s, alive := streams[from]; alive {
		handles["stream"] = from
		run(s, root, s.scripts[script])
		return
	}
	run(&stream{}, root, config[script])
}

//go:wasmexport proxy_on_http_call_response
func onHTTPCallResponse(ctx, token, headers, body, trailers uint32) {
	trace(ctx, "on_http_call_response", min(headers, 1), body, trailers)
	reply(ctx, token, "reply")
}

//go:wasmexport proxy_on_grpc_receive_initial_metadata
func onGRPCReceiveInitialMetadata(ctx, token, n uint32) {
	trace(ctx, "on_grpc_receive_initial_metadata")
	reply(ctx, token, "grpc-metadata")
}

//go:wasmexport proxy_on_grpc_receive
func onGRPCReceive(ctx, token, size uint32) {
	trace(ctx, "on_grpc_receive", size)
	reply(ctx, token, "grpc")
}

//go:wasmexport proxy_on_grpc_receive_trailing_metadata
func onGRPCReceiveTrailingMetadata(ctx, token, n uint32) {
	trace(ctx, "on_grpc_receive_trailing_metadata")
	reply(ctx, token, "grpc-trailing")
}

//go:wasmexport proxy_on_grpc_close
func onGRPCClose(ctx, token, status uint32) {
	trace(ctx, "on_grpc_close", status)
	reply(ctx, token, "grpc")
}

//go:wasmexport proxy_on_done
func onDone(ctx uint32) uint32 {
	trace(ctx, "on_done")
	act(ctx, "done")
	if _, later := config["done-later"]; later && streams[ctx] == nil {
		return 0
	}
	return 1
}

//go:wasmexport proxy_on_log
func onLog(ctx uint32) {
	trace(ctx, "on_log")
	act(ctx, "log")
}

//go:wasmexport proxy_on_delete
func onDelete(ctx uint32) {
	trace(ctx, "on_delete")
	act(ctx, "delete")
	delete(streams, ctx)
}
