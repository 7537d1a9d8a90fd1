package wasmhost

// callFunctions are calls to upstreams.
var callFunctions = []hostFunction{
	{"proxy_http_call", "iiiiiiiiii", func(a *hostCall) Status {
		call := &Call{Cluster: a.text(0), Headers: a.pairs(2), Body: a.bytes(4), Trailers: a.pairs(6)}
		if a.put32(9, 0); a.bad {
			return StatusInvalidMemoryAccess
		}
		token, status := a.vm.httpCall(a.ctx, call, a.u32(8))
		a.put32(9, token)
		return status
	}},
	{"proxy_grpc_call", "iiiiiiiiiiii", func(a *hostCall) Status {
		call := &GRPCCall{Cluster: a.text(0), Service: a.text(2), Method: a.text(4), Metadata: a.pairs(6), Message: a.bytes(8)}
		if a.bad {
			return StatusInvalidMemoryAccess
		}
		token, status := a.vm.grpcCall(a.ctx, call, a.u32(10))
		if status == StatusOK {
			a.put32(11, token)
		}
		return status
	}},
	{"proxy_grpc_stream", "iiiiiiiii", func(a *hostCall) Status {
		s := &GRPCStream{Cluster: a.text(0), Service: a.text(2), Method: a.text(4), RequestMetadata: a.pairs(6)}
		if a.bad {
			return StatusInvalidMemoryAccess
		}
		token, status := a.vm.grpcStream(a.ctx, s)
		if status == StatusOK {
			a.put32(8, token)
		}
		return status
	}},
	{"proxy_grpc_send", "iiii", func(a *hostCall) Status {
		message := a.bytes(1)
		if a.bad {
			return StatusInvalidMemoryAccess
		}
		return a.vm.grpcSend(a.u32(0), message, a.u32(3) != 0)
	}},
	{"proxy_grpc_cancel", "i", func(a *hostCall) Status { return a.vm.grpcEnd(a.u32(0), true) }},
	{"proxy_grpc_close", "i", func(a *hostCall) Status { return a.vm.grpcEnd(a.u32(0), false) }},
}
