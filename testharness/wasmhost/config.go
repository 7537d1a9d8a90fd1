package wasmhost

import (
	"fmt"
	"time"
)

// Config says what a Host is like. The zero value is a proxy with one worker
// that reaches every cluster, where nobody ever answers a call.
type Config struct {
	// Workers is how many worker threads the proxy has: 0 means 1, at most 256.
	// Each gets its own instance of the filter.
	Workers int

	// PluginName, RootID and VMID are what plugin_name, plugin_root_id and
	// plugin_vm_id say.
	PluginName, RootID, VMID string
	// VMConfig and PluginConfig are what the guest reads as configurations.
	VMConfig, PluginConfig []byte

	// Seed is all the randomness there is: it decides what each life of each
	// instance reads from random_get.
	Seed uint64
	// Wall is what the wall clock says at first; zero means 2025-01-01 UTC.
	Wall time.Time
	// Monotonic is what the guests' monotonic clock says at first; 0 means one
	// hour, for a clock at zero is something that guests may trip over.
	Monotonic time.Duration

	// Clusters are the upstreams that calls can name. A call to another one is
	// refused with StatusBadArgument. Nil knows every name.
	Clusters []string
	// MaxCalls bounds the calls of one instance that are outstanding, as a
	// circuit breaker would: a further one fails with StatusInternalFailure. 0
	// means 1024, Envoy's default.
	MaxCalls int
	// HTTPCall answers proxy_http_call; nil never answers. It runs after the
	// guest has returned to the proxy, at the instant of the call.
	HTTPCall func(*Call) Reply
	// GRPCCall answers proxy_grpc_call, in the same way.
	GRPCCall func(*GRPCCall) GRPCReply
	// GRPCStream is told of every proxy_grpc_stream; nil leaves them silent.
	GRPCStream func(*GRPCStream)
	// Foreign are the functions that proxy_call_foreign_function finds, beside
	// clear_route_cache, which does nothing.
	Foreign map[string]func(argument []byte) ([]byte, Status)

	// Properties are what every stream can read; see also Request.Properties.
	Properties []Property
	// LogLevel is the least level that is kept, and what proxy_get_log_level
	// reports. The zero value is LogInfo.
	LogLevel LogLevel

	// Failure says what becomes of streams when an instance has trapped.
	Failure FailurePolicy
	// ReloadBackoff is how long an instance must have lived before
	// FailReload replaces it; 0 means one second, as in Envoy.
	ReloadBackoff time.Duration
	// MaxMemoryBytes bounds the memory of one instance, in whole pages of 64
	// KiB; 0 means 1 GiB.
	MaxMemoryBytes int

	// CacheDir keeps compiled modules from one process to the next. Within a
	// process they are always kept.
	CacheDir string
}

// FailurePolicy is Envoy's PluginConfig.failure_policy.
type FailurePolicy uint8

const (
	// FailReload makes a new instance, with the plugin configured again, for
	// the next request that comes ReloadBackoff or more after the last load.
	// Until then, and for streams of the old instance, it fails closed.
	FailReload FailurePolicy = iota
	// FailClosed answers with status 503 from then on.
	FailClosed
	// FailOpen lets everything pass from then on.
	FailOpen
)

const (
	maxWorkers         = 256
	defaultMaxCalls    = 1024
	defaultMemoryBytes = 1 << 30
	pageBytes          = 64 << 10
	maxPages           = 65536
)

// withDefaults fills in what is zero and refuses what cannot be.
func (c Config) withDefaults() (Config, error) {
	if c.Workers < 0 || c.Workers > maxWorkers {
		return c, fmt.Errorf("wasmhost: Config.Workers is %d, expected 0 to %d", c.Workers, maxWorkers)
	}
	if c.MaxCalls < 0 || c.ReloadBackoff < 0 || c.Monotonic < 0 || c.MaxMemoryBytes < 0 {
		return c, fmt.Errorf("wasmhost: Config has a negative MaxCalls, ReloadBackoff, Monotonic or MaxMemoryBytes")
	}
	if c.LogLevel < LogTrace || c.LogLevel > LogCritical {
		return c, fmt.Errorf("wasmhost: Config.LogLevel is %d, expected %d to %d", c.LogLevel, LogTrace, LogCritical)
	}
	if c.Failure > FailOpen {
		return c, fmt.Errorf("wasmhost: Config.Failure is %d, expected FailReload, FailClosed or FailOpen", c.Failure)
	}
	if c.Workers == 0 {
		c.Workers = 1
	}
	if c.Wall.IsZero() {
		c.Wall = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if c.Monotonic == 0 {
		c.Monotonic = time.Hour
	}
	if c.MaxCalls == 0 {
		c.MaxCalls = defaultMaxCalls
	}
	if c.ReloadBackoff == 0 {
		c.ReloadBackoff = time.Second
	}
	if c.MaxMemoryBytes == 0 {
		c.MaxMemoryBytes = defaultMemoryBytes
	}
	return c, nil
}

// pages is the memory bound as wazero counts it.
func (c Config) pages() uint32 {
	return uint32(min(max(c.MaxMemoryBytes/pageBytes, 1), maxPages))
}
