// Package host is the port between the filter and the proxy that runs it, with one adapter for each way of building the
// filter: the SDK's (TinyGo, and natively under its emulator) and a binding of our own for stock Go. It is the only place
// in the filter that reads a clock, makes random numbers or talks to the proxy.
//
// Everything here runs on one Envoy worker thread; nothing is called concurrently.
//
// # How it is cut
//
// instance and root are the adapter, for both: which context belongs to which Plugin, what is told once, which context is in
// effect. They stand on abi, the functions of the host, which a binding of our own has for stock Go (stock_wasip1.go), the SDK
// for TinyGo and for native tests (sdk.go), and the tests a third time.
//
// # What Envoy 1.40 does
//
// Seen in runs, with two workers, and what follows from it here:
//   - Each worker has an instance, the main thread has one, and there is a base one that they are cloned from; all are
//     started and may make calls from then on, also to a cluster of the same bootstrap. Ticks come to the main thread's too.
//   - Two listeners with the same vm_id, code, root id and configuration share one root context; with other configurations,
//     a VM with a root context each. A Struct is compared in its binary form, whose fields stand in any order, so that equal
//     ones are sometimes two.
//   - A Struct arrives in that binary form, and not as JSON; StringValue and BytesValue as their content. A number with a
//     fraction in a bootstrap's YAML arrives as a string.
//   - The end of a call comes to the root context, also when the request that made it has gone, and also when the root
//     context was not the one in effect. It comes for an unreachable host (as an answer with grpc-status 14 in its headers,
//     when the call is gRPC's) and for a timeout (the same, with grpc-status 14; for others 504). A cluster that is not
//     there, or has no host, is refused at once, and no end comes. So is a call in Plugin.Stop accepted, and never ends.
//   - A paused request's body is held back: three megabytes were sent while a request was paused, and arrived whole.
//   - The filter sees the response to a request that it has seen: the upstream's, its own, and that of a filter behind it. A
//     filter before it that answers hides both. Request headers can be read in the response only of one's own answer.
//   - For a gRPC request, an answer becomes status 200 with grpc-status as given and the body as grpc-message.
//   - Of several fields of a name, a lookup of one gives the first, also of cookie; x-forwarded-for is joined by Envoy.
//   - source.address has the port with it; for a listener on a Unix socket it is the socket's path, and source.port is
//     missing. connection.id and its like are eight bytes, connection.mtls one. route_name and cluster_name are not known yet
//     when the request's headers come; xds.route_name is.
//   - A claim that jwt_authn has verified is under metadata, filter_metadata, envoy.filters.http.jwt_authn, the name that
//     payload_in_metadata gives, and the claim's path: text as it is, a number as a float64's eight bytes, a bool as one byte,
//     null as nothing at all, a list or an object as pairs in the ABI's own binary form (a list's with empty seconds), an
//     object's in no certain order. A token that is forged never gets here.
//   - What set_filter_state keeps is under filter_state and its object_key: the text itself, with the factory envoy.string and
//     with keys that Envoy has a factory for. A key that is not there is missing.
//   - connection.uri_san_peer_certificate and dns_san_peer_certificate are the certificate's first of the kind, connection.mtls
//     is one byte. connection.requested_server_name is empty, and not missing, unless the listener has a tls_inspector.
//   - A trap fails the request that caused it with 503. Until the VM is made anew, at a request after a backoff of up to a
//     second, every request of that worker is answered 503. Requests that were paused in it are not answered at all until the
//     listener's stream_idle_timeout (5 minutes, unless it is set) ends them with 503.
//   - When a listener is removed, its requests are ended first (Plugin.Done), then comes Plugin.Stop; false delays nothing.
//   - Counters and gauges are one for all workers, in the statistics under wasmcustom.
//   - A callback that is not exported is not called. Without proxy_on_context_create all goes on, too: a root context is told
//     of by proxy_on_configure, a stream by its first callback. It is exported all the same, for only it says which of a VM's
//     root contexts a stream belongs to, and there is more than one from when a configuration is replaced.
//   - What a request costs is to go in and out of the VM: with a filter that reads one header and the clock and adds two fields,
//     and decides nothing, it is two thirds of what it is with Sluice. The module's code is TurboFan's, not Liftoff's.
package host
