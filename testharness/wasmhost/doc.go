// Package wasmhost runs proxy-wasm filters outside a proxy, under a fake clock.
//
// It is a host for the proxy-wasm ABI 0.2.1 on wazero. It loads the very .wasm
// that a proxy would load, gives it as many workers as wanted, and lets a test
// decide what time it is, what clients send, what services answer and when.
// Nothing sleeps and nothing is random: the same steps give the same run.
//
//	host, err := wasmhost.New(ctx, wasm, wasmhost.Config{
//		Workers:      2,
//		PluginConfig: []byte(`…`),
//		HTTPCall: func(c *wasmhost.Call) wasmhost.Reply {
//			return wasmhost.Reply{Headers: wasmhost.Headers{{":status", "200"}}, Delay: time.Millisecond}
//		},
//	})
//	…
//	defer host.Close()
//	s := host.Worker(0).Request(wasmhost.Headers{{":method", "GET"}, {":path", "/"}, {":authority", "shop"}})
//	host.Advance(time.Millisecond) // ticks, replies and timeouts that are due, in order
//	fmt.Println(s.Outcome())
//
// # What it answers to
//
// The behaviour is Envoy's, as measured in Envoy 1.40 with the filter in
// testdata/echo, and where it differs from what one might expect, it is on
// purpose:
//
//   - The reply to a call arrives in the plugin's root context, also when the
//     stream that made the call has gone.
//   - A call that times out is answered, with status 504 and a body: only a
//     reset after the headers is a reply without headers.
//   - A local reply passes through the filter's own proxy_on_response_headers
//     and proxy_on_response_body.
//   - The request's headers cannot be read any more once they were released.
//   - The end of a stream is on_log, on_done, on_delete, in this order.
//   - A stream that is paused when its instance traps stays paused.
//   - A plugin that is configured anew is a second root context in the same
//     instance; streams of the first one stay with it.
//
// What Envoy lets pass, or dies of, is recorded as a [Violation]: to answer a
// stream twice, or after it has ended, or to continue one that is not paused.
//
// # Time
//
// One clock serves all workers of a [Host]: the guest's monotonic clock, its
// wall clock, ticks, replies and timeouts. It moves in [Host.Advance] only;
// [Host.SetWall] steps the wall clock alone. Nothing that takes time happens
// inside Request or any other call: even a reply with no delay waits for the
// next Advance, for which Advance(0) is enough.
//
// A Host and all that belongs to it may be used by one goroutine at a time.
package wasmhost
