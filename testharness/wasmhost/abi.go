package wasmhost

import "strconv"

// Status is what a host function answers to the guest: the ABI's proxy_status_t
// with the values that Envoy uses.
type Status uint32

// The statuses of ABI 0.2.1, as in proxy_wasm_enums.h.
const (
	StatusOK                   Status = 0
	StatusNotFound             Status = 1
	StatusBadArgument          Status = 2
	StatusSerializationFailure Status = 3
	StatusParseFailure         Status = 4
	StatusBadExpression        Status = 5
	StatusInvalidMemoryAccess  Status = 6
	StatusEmpty                Status = 7
	StatusCasMismatch          Status = 8
	StatusResultMismatch       Status = 9
	StatusInternalFailure      Status = 10
	StatusBrokenConnection     Status = 11
	StatusUnimplemented        Status = 12
)

var statusNames = [...]string{
	"ok", "not found", "bad argument", "serialization failure", "parse failure", "bad expression",
	"invalid memory access", "empty", "cas mismatch", "result mismatch", "internal failure",
	"broken connection", "unimplemented",
}

// String is the status in words.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "status " + strconv.FormatUint(uint64(s), 10)
}

// LogLevel orders log messages. The zero value is LogInfo, which is what a
// proxy logs unless told otherwise.
type LogLevel int8

// The levels of the ABI, from the chattiest.
const (
	LogTrace LogLevel = iota - 2
	LogDebug
	LogInfo
	LogWarn
	LogError
	LogCritical
)

// logLevelOffset makes the ABI's numbers, which begin at trace = 0.
const logLevelOffset = 2

// String is the level's name in Envoy's logs.
func (l LogLevel) String() string {
	if i := int(l) + logLevelOffset; i >= 0 && i <= 5 {
		return [...]string{"trace", "debug", "info", "warning", "error", "critical"}[i]
	}
	return "level " + strconv.Itoa(int(l))
}

// Header maps that a guest can name, proxy_map_type_t.
const (
	mapRequestHeaders = iota
	mapRequestTrailers
	mapResponseHeaders
	mapResponseTrailers
	mapGRPCInitialMetadata
	mapGRPCTrailingMetadata
	mapCallHeaders
	mapCallTrailers
	mapMax = mapCallTrailers
)

// Buffers that a guest can name, proxy_buffer_type_t.
const (
	bufferRequestBody = iota
	bufferResponseBody
	bufferDownstreamData
	bufferUpstreamData
	bufferCallBody
	bufferGRPCMessage
	bufferVMConfig
	bufferPluginConfig
	bufferCallData
	bufferMax = bufferCallData
)

// Streams that a guest can continue or close, proxy_stream_type_t.
const (
	streamRequest = iota
	streamResponse
	streamDownstream
	streamUpstream
	streamMax = streamUpstream
)

// What a callback on headers, body or trailers may answer, proxy_action_t.
// Envoy reads any non-zero answer on headers but actionContinueAndEnd as "hold
// everything"; on a body actionPause keeps the data.
const (
	actionContinue       = 0
	actionPause          = 1
	actionContinueAndEnd = 2
	actionNoBuffer       = 3
)

// The third of the ids of calls is their kind, in the low bits, as in Envoy.
const (
	tokenHTTPCall   = 0
	tokenGRPCCall   = 1
	tokenGRPCStream = 2
	tokenKindMask   = 3
	tokenIncrement  = 4
)
