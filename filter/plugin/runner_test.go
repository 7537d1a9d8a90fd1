package plugin_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/instant"
	"sluice/testharness/filterrun"
	"sluice/testharness/filterrun/native"
)

// runner is one worker's filter on one of the ways of running it; see filterrun.Runner.
type runner struct{ filterrun.Runner }

func (r runner) start(configuration string) bool { return r.Start(configuration) }
func (r runner) now() instant.Instant            { return r.Now() }
func (r runner) advance(d time.Duration)         { r.Advance(d) }
func (r runner) respond(request int) []host.Header {
	return r.Respond(request)
}
func (r runner) end(request int)                                  { r.End(request) }
func (r runner) calls() []*fake.Call                              { return r.Calls() }
func (r runner) finish(call *fake.Call, reply fake.Reply)         { r.Finish(call, reply) }
func (r runner) refuse(on bool)                                   { r.Refuse(on) }
func (r runner) metric(name string) int64                         { return r.Metric(name) }
func (r runner) log() []string                                    { return r.Log() }
func (r runner) stop() bool                                       { return r.Stop() }
func (r runner) misuse() []string                                 { return r.Misuse() }
func (r runner) request(h []host.Header, p map[string]string) int { return r.Request(h, p) }

func (r runner) outcome(request int) outcome {
	o := r.Outcome(request)
	return outcome{o.Fate, o.Arrived, o.Decided, o.Status, o.Body, o.GRPCStatus, o.Headers}
}

// outcome is what has become of a request.
type outcome struct {
	fate             fake.Fate
	arrived, decided instant.Instant
	status           int
	body             string
	grpcStatus       int
	headers          []host.Header
}

func (o outcome) field(name string) string {
	for _, h := range o.headers {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}

func newNative(seed uint64) runner { return runner{native.NewFake(seed)} }

// runners are the ways of running the filter that every scenario passes on: on the fake proxy, in the SDK's emulator with
// the SDK's adapter, and as the .wasm of stock Go; TestMain adds that of TinyGo, where there is one.
var runners = map[string]func(seed uint64) runner{
	"native":   newNative,
	"emulator": func(seed uint64) runner { return runner{native.NewEmulated(seed)} },
	"wasm":     func(seed uint64) runner { return runner{filterrun.NewWasm(context.Background(), stockWasm(), seed)} },
}

// stockWasm is the filter as stock Go builds it.
var stockWasm = sync.OnceValue(func() []byte {
	module, err := filterrun.Build(context.Background(), "..")
	if err != nil {
		panic(err)
	}
	return module
})

// tinyGoWasm names the environment's variable with the file that TinyGo has built.
const tinyGoWasm = "SLUICE_TINYGO_WASM"

func TestMain(m *testing.M) {
	if file := os.Getenv(tinyGoWasm); file != "" {
		module, err := os.ReadFile(file)
		if err != nil {
			panic(tinyGoWasm + ": " + err.Error())
		}
		runners["tinygo"] = func(seed uint64) runner { return runner{filterrun.NewWasm(context.Background(), module, seed)} }
	}
	os.Exit(m.Run())
}

// TestRunners says what the stories run on.
func TestRunners(t *testing.T) {
	for _, by := range []string{"native", "emulator", "wasm"} {
		if runners[by] == nil {
			t.Errorf("no runner %q", by)
		}
	}
	if runners["tinygo"] == nil {
		t.Log(tinyGoWasm + " is not set: TinyGo's build is not among the runners")
	}
}

// notOn are the stories that a runner cannot tell, and why.
var notOn = map[string]map[string]string{
	"emulator": {ownAnswer: "the emulator takes the answer's action for the request's, which then counts as sent on", twoShadows: emulatorNumbers},
	"wasm":     {ownAnswer: wasmhostAnswers, shutDown: wasmhostEnds, lastReport: wasmhostEnds},
	"tinygo":   {ownAnswer: wasmhostAnswers, shutDown: wasmhostEnds, lastReport: wasmhostEnds},
}

const (
	ownAnswer    = "the proxy's own answer to a paused request ends the pause"
	shutDown     = "a worker that is shut down gives back what it holds"
	lastReport   = "a worker that stops tells the rest"
	twoShadows   = "two limits in shadow decide every request"
	wasmhostEnds = "like Envoy, wasmhost ends the calls of a plugin that has gone before they are told of"
	// With the emulator changed to give every call its own number, the SDK's adapter decides all.
	emulatorNumbers = "the emulator numbers a call by how many are under way; of two calls of one number the SDK forgets the first one's end"
	wasmhostAnswers = "wasmhost has no upstream, and no timeout of the route's, that answers a request before it was sent on"
)

// scenario runs a story on every runner, and checks at its end that the filter did nothing that it must not do.
func scenario(t *testing.T, name string, tell func(t *testing.T, w *world)) {
	t.Helper()
	for by, make := range runners {
		if why := notOn[by][name]; why != "" {
			t.Logf("%s is not told on %s: %s", name, by, why)
			continue
		}
		t.Run(name+"/"+by, func(t *testing.T) {
			w := newWorld(t, 1, func(seed uint64) runner {
				r := make(seed)
				t.Cleanup(r.Close)
				return r
			})
			tell(t, w)
			for _, worker := range w.workers {
				if misuse := worker.misuse(); len(misuse) > 0 {
					t.Errorf("misuse of the proxy:\n%s", strings.Join(misuse, "\n"))
				}
			}
		})
	}
}
