// Package policytest tests a policy with the filter that ships, without a proxy, a network or a clock.
//
// A Fleet is a few workers, each with the real .wasm in it, and the real service's decisions on the memory store, all in one
// process and in virtual time: what takes an hour takes a moment, and the same steps give the same answers.
//
//	fleet, err := policytest.Start(ctx, policytest.Config{Policy: policy, Wasm: wasm, Workers: 2})
//	…
//	defer fleet.Close()
//	answer := fleet.Do(0, policytest.Request{Path: "/v1/reports", Headers: []policytest.Header{{"x-tenant-id", "acme"}}})
//	fmt.Println(answer.Status, answer.Get("ratelimit"))
//
// # Scenario files
//
// A scenario is a txtar archive: text, then files, each after a line "-- NAME --". It holds policy.yaml, a policy as the
// service reads it; requests; and further policies, where the policy changes. Where it has no policy.yaml, the policy is the
// file beside it of the same name that ends in .yaml. RunFile runs one, and so does `sluice test`.
//
//	A tenant gets two a second.
//	-- policy.yaml --
//	domain: shop
//	…
//	-- requests --
//	workers 2
//	at 0s     worker 1 2 times GET /v1/x x-tenant-id: acme -> 200 remaining 1, 200 remaining 0
//	at 100ms  worker 2 GET /v1/x x-tenant-id: acme         -> 429 retry-after 1 body "rate_limited"
//	at 1s     GET /v1/x x-tenant-id: acme                  -> 200
//	at 1s     asks 4
//
// The file requests has a line for each thing that happens. What follows a # that begins a line or comes after a space is a
// comment. Words are parted by spaces; one with a space in it stands in double quotes, as in Go.
//
// Before all others, each at most once:
//
//	workers N            how many workers there are, 1 to 64; 1 unless said
//	plugin JSON          the plugin's configuration; {} unless said
//
// Everything else begins with "at TIME", its time since the start, as Go writes durations; times never go back, and what
// stands at one time happens in the order of the lines. Then comes a request and, after ->, what is expected of it:
//
//	[worker N | worker *] [N times [every TIME]] [from ADDRESS] [property PATH VALUE]… [leaves TIME] METHOD PATH [NAME: VALUE]… -> EXPECTED
//
// It goes to worker 1 unless said, with * to each in turn. From is the client's address, property an attribute of the
// proxy's by its path with slashes between its parts, and leaves is how long the client waits before it hangs up. EXPECTED is one expectation for each request, in order, parted by commas; "3x" before one has it
// stand for three, and the last one stands for all that follow. An expectation is
//
//	STATUS | gone    the answer's status, 200 where the upstream was reached; or its client left before there was one
//
// and after a status, in any order:
//
//	remaining N | reset N              what ratelimit says: its parameters r and t
//	limit N                            what ratelimit-policy says of the limit that ratelimit is about: its parameter q
//	retry-after N                      what retry-after says
//	header NAME VALUE | no NAME        a header of the answer; that there is none
//	body TEXT                          a part of the answer's body
//	at-once                            decided without waiting
//	within TIME                        decided within the time
//
// Instead of a request there may be, after the time:
//
//	network delay TIME       a call and its answer take so long together; 0s at first
//	network away             calls fail at once, as where nobody listens
//	network loses calls      calls do not arrive; the proxy tells of a timeout
//	network loses answers    calls arrive and are acted on, their answers do not
//	network silent           calls do not arrive, and nobody is ever told
//	network ok               all is well again, with the delay as before
//	wall-clock forward TIME | back TIME
//	                         the wall clock steps, of all workers; time goes on as before
//	policy NAME              the file's policy is in force from now on
//	asks N                   so many calls that ask for units have been made since the start
package policytest
