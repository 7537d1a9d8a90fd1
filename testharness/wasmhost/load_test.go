package wasmhost

import (
	"context"
	"strings"
	"testing"
	"time"
)

var (
	version021 = wasmFunc{export: "proxy_abi_version_0_2_1"}
	malloc     = wasmFunc{export: "malloc", params: 1, results: 1, body: []byte{opI32Const, 8}}
	// setTick calls the first import with 1, as a callback or at the start.
	callsImport = []byte{opI32Const, 1, opCall, 0, opDrop}
)

// TestNewRefuses: what cannot be loaded says why.
func TestNewRefuses(t *testing.T) {
	for _, step := range []struct {
		name string
		wasm []byte
		cfg  Config
		want string
	}{
		{"no module", []byte("hello"), Config{}, "cannot compile"},
		{"no version", wasmModule(nil, malloc), Config{}, "expected proxy_abi_version_0_2_1"},
		{"version 0.1.0", wasmModule(nil, malloc, wasmFunc{export: "proxy_abi_version_0_1_0"}), Config{}, `["0_1_0"]`},
		{"no allocator", wasmModule(nil, version021), Config{}, "neither malloc nor"},
		{"unknown import", wasmModule([]string{"proxy_fly"}, version021, malloc), Config{}, "proxy_fly"},
		{"traps in _initialize", wasmModule(nil, version021, malloc, wasmFunc{export: "_initialize", body: []byte{opUnreachable}}), Config{}, "unreachable"},
		{
			"calls the proxy in _initialize",
			wasmModule([]string{"proxy_set_tick_period_milliseconds"}, version021, malloc, wasmFunc{export: "_initialize", body: callsImport}),
			Config{},
			"may not be called while the module initialises itself",
		},
		{"refuses to start", wasmModule(nil, version021, malloc, wasmFunc{export: "proxy_on_vm_start", params: 2, results: 1, body: []byte{opI32Const, 0}}), Config{}, "did not start"},
		{"refuses its configuration", echoWasm, Config{PluginConfig: []byte("refuse: yes")}, "worker 0: configure: the plugin refused its configuration"},
		{"traps in configure", echoWasm, Config{PluginConfig: []byte("configure: trap")}, "trapped while it was configured"},
		{"too many workers", echoWasm, Config{Workers: 257}, "Config.Workers is 257, expected 0 to 256"},
		{"negative", echoWasm, Config{MaxCalls: -1}, "negative"},
		{"log level", echoWasm, Config{LogLevel: 4}, "Config.LogLevel is 4"},
		{"failure policy", echoWasm, Config{Failure: 3}, "Config.Failure is 3"},
		{"no memory for it", echoWasm, Config{MaxMemoryBytes: 1 << 20}, "memory"},
	} {
		t.Run(step.name, func(t *testing.T) {
			h, err := New(context.Background(), step.wasm, step.cfg)
			if err == nil {
				_ = h.Close()
			}
			if err == nil || !strings.Contains(err.Error(), step.want) {
				t.Errorf("got %v, want …%s…", err, step.want)
			}
		})
	}
}

// TestStartFunctions: the two ways in which modules begin, and what each may
// leave out.
func TestStartFunctions(t *testing.T) {
	start := func(export string) wasmFunc { return wasmFunc{export: export, body: nil} }
	tick := wasmFunc{export: "proxy_on_context_create", params: 2, body: callsImport}
	imports := []string{"proxy_set_tick_period_milliseconds"}
	for name, wasm := range map[string][]byte{
		"command":     wasmModule(imports, version021, malloc, tick, start("_start")),
		"reactor":     wasmModule(imports, version021, malloc, tick, start("_initialize")),
		"neither":     wasmModule(imports, version021, malloc, tick),
		"version 0.2": wasmModule(imports, wasmFunc{export: "proxy_abi_version_0_2_0"}, malloc, tick),
		"allocator":   wasmModule(imports, version021, wasmFunc{export: "proxy_on_memory_allocate", params: 1, results: 1, body: []byte{opI32Const, 8}}, tick),
	} {
		t.Run(name, func(t *testing.T) {
			h, err := New(context.Background(), wasm, Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if got := h.Worker(0).TickPeriod(); got != time.Millisecond {
				t.Errorf("the plugin's tick is %v, so proxy_on_context_create was not called", got)
			}
			// All other callbacks are missing: everything passes.
			s := h.Worker(0).Request(asked())
			if got := s.Outcome().Kind; got != Continued {
				t.Errorf("a request of a filter without callbacks is %v", got)
			}
			if got := s.RespondUpstream(Headers{{":status", "204"}}).Get(":status"); got != "204" || !s.Ended() {
				t.Errorf("its response is %q, ended %v", got, s.Ended())
			}
			checkKinds(t, h)
		})
	}
}

// TestAllocatorThatTraps ends the callback that asked for memory, and the life.
func TestAllocatorThatTraps(t *testing.T) {
	broken := wasmFunc{export: "malloc", params: 1, results: 1, body: []byte{opUnreachable}}
	asks := wasmFunc{export: "proxy_on_request_headers", params: 3, results: 1, body: []byte{
		opI32Const, 0, opI32Const, 16, opI32Const, 24, opCall, 0, opDrop, opI32Const, 0,
	}}
	wasm := wasmModuleWith("proxy_get_header_map_pairs", 3, version021, broken, asks)
	h, err := New(context.Background(), wasm, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if got := h.Worker(0).Request(asked()).Outcome(); got.Status != 503 {
		t.Errorf("the request: %v, want 503", got)
	}
	if traps := h.Traps(); len(traps) != 1 || traps[0].Callback != "malloc" || !h.Worker(0).Failed() {
		t.Errorf("traps: %v", traps)
	}
}
