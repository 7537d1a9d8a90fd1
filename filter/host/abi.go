package host

// The numbers of Proxy-Wasm ABI 0.2.1 that the filter uses, as its specification has them:
// https://github.com/proxy-wasm/spec/tree/main/abi-versions/v0.2.1, "Types".

// status is what a host function returns: proxy_status_t.
type status uint32

const (
	statusOK       status = 0
	statusNotFound status = 1
	// statusBadArgument is also Envoy's answer for a context, a map or a cluster that does not exist (any more).
	statusBadArgument     status = 2
	statusInternalFailure status = 10
)

// mapType names a header map: proxy_map_type_t.
type mapType uint32

const (
	requestHeaders       mapType = 0
	callResponseHeaders  mapType = 6
	callResponseTrailers mapType = 7
)

// bufferType names a buffer: proxy_buffer_type_t.
type bufferType uint32

const (
	callResponseBody    bufferType = 4
	pluginConfiguration bufferType = 7
)

// metricType is proxy_metric_type_t.
type metricType uint32

const (
	counterMetric metricType = 0
	gaugeMetric   metricType = 1
)

// What proxy_on_request_headers and proxy_on_response_headers return: proxy_action_t.
const (
	actionContinue uint32 = 0
	actionPause    uint32 = 1
)

// abi is the functions that the host exports to the filter, one method for each, with Go's types. What they give is the
// caller's to keep, unless said otherwise. One implementation calls the host itself and one goes through the SDK; tests
// have another, so that what stands on them runs natively.
type abi interface {
	// proxy_log; the ABI's levels have trace at 0, and then ours.
	log(level Level, message string) status
	// proxy_set_tick_period_milliseconds.
	setTickPeriod(millis uint32) status
	// proxy_set_effective_context: the context that the calls after it act on, until the callback returns.
	setEffectiveContext(context uint32) status
	// proxy_done: the plugin whose context is in effect has finished what it asked to finish.
	done() status
	// proxy_continue_stream, for the request.
	continueRequest() status
	// proxy_send_local_response.
	sendLocalResponse(code uint32, headers []Header, body string, grpcStatus int32) status
	// proxy_get_header_map_pairs; valid until the callback returns, or another map of the same type is asked for.
	headers(from mapType) (fields, status)
	// proxy_add_header_map_value, for the response's headers.
	addResponseHeader(name, value string) status
	// proxy_get_property.
	property(path []string) (string, status)
	// proxy_get_buffer_bytes, from the buffer's beginning.
	buffer(from bufferType, size uint32) ([]byte, status)
	// proxy_http_call. Its answer is told to the root context, also where that is not the one in effect.
	httpCall(cluster string, headers []Header, body []byte, timeoutMillis uint32) (CallID, status)
	// proxy_define_metric.
	defineMetric(kind metricType, name string) (uint32, status)
	// proxy_increment_metric; Envoy refuses what does not increase a counter.
	incrementMetric(metric uint32, delta int64) status
	// proxy_record_metric.
	recordMetric(metric uint32, value uint64) status
}
