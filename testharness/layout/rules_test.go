package layout

// Data flows one way: request → filter/plugin → shared/admission → filter/control → controlsvc/rpc →
// controlsvc/authority → controlsvc/store. These are the rules that imports follow for it.
//
// Folders and imports are given from the module's root. "a/..." is a and all beneath it, "std" is the whole standard
// library, anything else is itself alone.
var rules = []rule{
	// The halves and what they share.
	{
		about: "the filter knows nothing of the service",
		in:    []string{"filter/..."},
		never: []string{"controlsvc/..."},
		tests: true,
	},
	{
		about: "what the halves share knows neither of them",
		in:    []string{"shared/..."},
		never: []string{"filter/...", "controlsvc/..."},
		tests: true,
	},
	{
		about: "what the halves share does not depend on the harness; its tests may",
		in:    []string{"shared/..."},
		never: []string{"testharness/..."},
	},
	{
		about:  "production code does not depend on the harness; the demo does, in the command",
		in:     []string{"controlsvc/..."},
		except: []string{"controlsvc", "controlsvc/cli/...", "controlsvc/store/storetest"},
		never:  []string{"testharness/..."},
	},
	{
		about:  "the stores' conformance suite is for tests",
		in:     []string{"..."},
		except: []string{"controlsvc/store/storetest"},
		never:  []string{"controlsvc/store/storetest"},
	},

	// Purity.
	{
		about:  "shared code does no input or output, and starts nothing; the generated protocol is the service's",
		in:     []string{"shared/..."},
		except: []string{"shared/proto/..."},
		never: []string{
			"bufio", "context", "database/...", "embed", "io/fs", "io/ioutil", "log/...", "net", "net/http/...", "net/mail",
			"net/rpc/...", "net/smtp", "net/textproto", "os/...", "path/filepath", "plugin", "runtime/...", "sync/...", "syscall/...",
			"testing/...", "google.golang.org/grpc/...",
		},
	},
	{
		about:  "only filter/host makes random numbers; elsewhere they come in",
		in:     []string{"filter/...", "shared/..."},
		except: []string{"filter/host"},
		never:  []string{"crypto/rand", "math/rand/..."},
	},
	{
		// Its tests may use the harness; it may not.
		about: "what the filter reaches is the standard library, protowire and the SDK, without reflection: it runs in a wasm " +
			"module, and TinyGo builds it",
		in:    []string{"filter/..."},
		reach: true,
		only: []string{
			"std", "filter/...", "shared/...",
			"google.golang.org/protobuf/encoding/protowire", "github.com/tetratelabs/proxy-wasm-go-sdk/...",
		},
		never: []string{
			"shared/proto/...", "encoding/gob", "encoding/json/...", "encoding/xml", "html/template", "net/http/...", "reflect",
			"testing/...", "text/template/...",
		},
	},

	// The ports and what is behind them.
	{
		about:  "only filter/host imports the SDK, and what runs it in the SDK's emulator",
		in:     []string{"..."},
		except: []string{"filter/host", "testharness/filterrun/native"},
		never:  []string{"github.com/tetratelabs/proxy-wasm-go-sdk/..."},
	},
	{
		about:  "only controlsvc/store/redis imports go-redis",
		in:     []string{"..."},
		except: []string{"controlsvc/store/redis"},
		never:  []string{"github.com/redis/go-redis/..."},
	},
	{
		about: "filter/host is a port: it knows nobody who uses it",
		in:    []string{"filter/host"},
		never: []string{"filter/plugin/...", "filter/control/..."},
	},
	{
		about: "the conversation knows nothing of the proxy's callbacks",
		in:    []string{"filter/control/..."},
		never: []string{"filter/plugin/..."},
	},
	{
		about: "the authority owns the store's port, and knows neither who stands behind it nor who calls",
		in:    []string{"controlsvc/authority"},
		never: []string{
			"controlsvc/cli/...", "controlsvc/rpc/...", "controlsvc/store/...", "controlsvc/web/...", "google.golang.org/grpc/...",
		},
	},
	{
		about: "a store knows the port, and nothing of the service around it",
		in:    []string{"controlsvc/store/..."},
		never: []string{
			"controlsvc/cli/...", "controlsvc/policyfile/...", "controlsvc/rpc/...", "controlsvc/web/...",
		},
	},
	{
		about: "rpc speaks to the authority, not past it",
		in:    []string{"controlsvc/rpc/..."},
		never: []string{"controlsvc/cli/...", "controlsvc/store/...", "controlsvc/web/..."},
	},
	{
		about: "policyfile turns YAML into shared/policy, and that is all",
		in:    []string{"controlsvc/policyfile/..."},
		never: []string{
			"controlsvc/authority/...", "controlsvc/cli/...", "controlsvc/rpc/...", "controlsvc/store/...", "controlsvc/telemetry/...",
			"controlsvc/web/...",
		},
	},
	{
		about: "the oracle shares no code with what it checks",
		in:    []string{"testharness/oracle"},
		only:  []string{"std"},
	},
}

// clock says who may read a clock or wait for one, in code that is not a test: main, the filter's host, and the harness that
// runs real processes. All others are told the instant, or given a clock.
var clock = struct{ exceptFiles, exceptFolders []string }{
	exceptFiles:   []string{"controlsvc/main.go"},
	exceptFolders: []string{"filter/host", "testharness/e2e/...", "testharness/load/...", "testharness/pace", "testharness/rig/..."},
}

// clockFunctions are those of package time that look at a clock.
var clockFunctions = map[string]bool{
	"After": true, "AfterFunc": true, "NewTicker": true, "NewTimer": true, "Now": true, "Since": true, "Sleep": true,
	"Tick": true, "Until": true,
}

// emptyNames say nothing about what a package is for.
var emptyNames = map[string]bool{
	"common": true, "helper": true, "helpers": true, "manager": true, "misc": true, "types": true, "util": true, "utils": true,
}
