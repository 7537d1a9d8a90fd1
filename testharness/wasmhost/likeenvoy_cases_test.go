package wasmhost

// likeCase is a request that the echo filter gets in this host and in a real
// Envoy; both must come to the transcript in testdata/envoy-transcripts.txt.
type likeCase struct {
	name    string
	path    string // "" is /x
	grpc    bool   // the request is of type application/grpc
	body    string // sent with content-length
	leaves  bool   // the client leaves after 150 ms
	scripts []string
}

// What the upstream does, by path: /x answers "METHOD PATH LENGTH"; /slow does so
// after 600 ms; /half does so within the body;
// /grpc.Test/Ok and Bad answer in gRPC, Slow after 600 ms.
var likeCases = []likeCase{
	{name: "nothing"},
	{name: "local reply", scripts: []string{
		"request", "reply 429 denied -1 x-a=b X-Cap=d",
		"response", "headers 2; add 2 x-resp added; header 0 :path; prop request path; prop response code; header 2 x-a; buffer 1 0 10",
		"response-body", "buffer 1 0 100; header 2 :status",
		"log", "header 0 :path; header 2 :status; prop request path; prop response code",
	}},
	{name: "local reply, no body", scripts: []string{"request", "reply 429"}},
	{name: "local reply to gRPC", grpc: true, scripts: []string{"request", "reply 429 den%ied -1 x-a=b"}},
	{name: "local reply to gRPC with its status", grpc: true, scripts: []string{"request", "reply 200 denied 8 x-a=b"}},
	{name: "local reply with a gRPC status and headers of its own", scripts: []string{"request", "reply 429 denied 8 content-type=application/json content-length=99"}},
	{name: "two local replies", scripts: []string{"request", "reply 429 one -1; reply 430 two -1"}},
	{name: "local reply, then continue", scripts: []string{"request", "reply 429 one -1; continue 0; header 0 :path"}},
	{name: "continue, then pause", scripts: []string{"request", "continue 0; header 0 :path; pause"}},
	{name: "request properties", path: "/x?a=b", scripts: []string{
		"request", "prop request path; prop request url_path; prop request query; prop request host; prop request method; prop request scheme; prop request headers X-On-Body;" +
			"prop request protocol; prop request size; prop request referer; prop request duration; prop request nope; prop nope; prop request; prop source; prop response code; prop plugin_root_id; prop plugin_name; prop plugin_vm_id;" +
			"set-prop a bc; prop a; prop a b; prop wasm.a",
		"body", "unused",
		"response", "prop request path; prop request headers x-on-body; prop response code; prop response headers x-up; prop a; header 0 :path; headers 0; headers-size 0; replace 0 a b; prop plugin_name",
		"log", "prop request path; prop response code; prop response size; header 1 z; header 3 z; headers 3; header 2 x-up; add 0 a b; set-prop z q; prop z; prop a",
	}},
	{name: "metadata", scripts: []string{
		"request", "prop metadata filter_metadata my.ns tier; prop metadata filter_metadata my.ns n; prop metadata filter_metadata my.ns b; prop metadata filter_metadata my.ns sub k; prop metadata filter_metadata my.ns sub; prop metadata filter_metadata my.ns nope; prop metadata filter_metadata other",
		"response", "prop metadata filter_metadata my.ns tier",
	}},
	{name: "call, paused", scripts: []string{
		"request", "call up /x 2000 body; pause",
		"reply", "headers 6; header 6 :status; buffer 4 0 100; headers 7; header 7 a; header 6 nope; header 0 :path; headers-size 6; add 6 a b; effective stream; header 0 :path; header 6 :status; buffer 4 2 3; replace 0 x-new v; continue 0; header 0 :path; header 6 :status",
	}},
	{name: "call, timeout", scripts: []string{"request", "call up /slow 200; pause", "reply", "headers 6; buffer 4 0 100; effective stream; continue 0"}},
	{name: "call, reset", scripts: []string{"request", "call up /half 2000; pause", "reply", "headers 6; header 6 :status; buffer 4 0 100; status; effective stream; status; continue 0"}},
	{name: "call, nobody there", scripts: []string{"request", "call empty-one /x 1000; say next", "reply", "say never"}},
	{name: "call, refused", scripts: []string{
		"request", "call nosuch /x 1000; call-headers up 100 :path=/a :method=GET; call-headers up 100 :authority=a :method=GET; call-headers up 100 :path=/ :authority=a; call-headers up 0xffffffff :path=/ :authority=a :method=GET",
	}},
	{name: "call, client gone", leaves: true, scripts: []string{"request", "remember gone; call up /slow 3000; pause", "log", "header 0 :path; header 2 :status; headers 2; buffer 4 0 1", "reply", "say never"}},
	{name: "call, not paused", scripts: []string{"request", "remember gone; call up /slow 3000", "reply", "say never"}},
	{name: "effective context of a stream that is gone", scripts: []string{"request", "effective gone; effective 0; header 0 :path"}},
	{name: "answer from a reply", scripts: []string{"request", "call up /x 2000; pause", "reply", "effective stream; reply 403 no -1 a=b"}},
	{name: "answer from a reply, after release", path: "/slow", scripts: []string{"request", "call up /x 500", "reply", "effective stream; reply 403 late -1"}},
	{name: "gRPC call", scripts: []string{"request", "grpc-call g grpc.Test Ok 2000 m; pause", "grpc", "buffer 5 0 10; headers 4; headers 5; header 4 a; effective stream; continue 0"}},
	{name: "gRPC call, failed", scripts: []string{"request", "grpc-call g grpc.Test Bad 2000 m; pause", "grpc", "buffer 5 0 10; effective stream; continue 0"}},
	{name: "gRPC call, timeout", scripts: []string{"request", "grpc-call g grpc.Test Slow 200 m; pause", "grpc", "effective stream; continue 0"}},
	{name: "gRPC call, cancelled", scripts: []string{"request", "grpc-call g grpc.Test Slow 200 m; grpc-cancel grpc; grpc-cancel grpc; grpc-send grpc x 0", "grpc", "say never"}},
	{name: "gRPC, refused", scripts: []string{"request", "grpc-call nosuch grpc.Test Ok 200 m; grpc-stream nosuch grpc.Test Ok; grpc-cancel 3; grpc-close 0; grpc-cancel 40001; grpc-close 40002; grpc-send 40001 x 0; grpc-send 40002 x 0"}},
	{name: "gRPC stream", scripts: []string{
		"request", "grpc-stream g grpc.Test Ok; grpc-send grpc hello 1; pause",
		"grpc", "buffer 5 0 10; effective stream; continue 0", "grpc-metadata", "header 4 content-type; header 5 a", "grpc-trailing", "header 5 x-trail; header 4 a",
	}},
	{name: "gRPC stream, failed", scripts: []string{"request", "grpc-stream g grpc.Test Bad; grpc-send grpc hello 1; grpc-close grpc; grpc-send grpc a 0; grpc-close grpc; pause", "grpc", "effective stream; continue 0"}},
	{name: "request body", body: "hello=body", scripts: []string{
		"request", "buffer 0 0 10; set-buffer 0 0 0 x", "body", "buffer 0 0 100; buffer 0 6 2; buffer 0 400 1; header 0 :path; buffer-status 0",
	}},
	{name: "request body, headers held", body: "hello=body", scripts: []string{
		"request", "call up /x 2000; pause", "reply", "effective stream; continue 0; buffer 0 0 10", "body", "buffer 0 0 100; header 0 :path",
	}},
	{name: "request body, held", body: "hello=body", scripts: []string{
		"request", "remove 0 content-length", "body", "buffer 0 0 100; pause; call up /x 2000",
		"reply", "effective stream; buffer 0 0 100; set-buffer 0 5 0 xx; set-buffer 0 0 3 xx; set-buffer 0 0 0 pre; set-buffer 0 100 0 post; buffer 0 0 30; continue 0",
	}},
	{name: "request body, replaced", body: "hello=body", scripts: []string{"request", "remove 0 content-length", "body", "set-buffer 0 0 100 new; buffer 0 0 100"}},
	{name: "request body, answered", body: "hello=body", scripts: []string{"body", "reply 403 no -1"}},
	{name: "response, replaced", scripts: []string{"response", "reply 403 replaced -1 a=b; header 2 :status", "log", "header 2 :status"}},
	{name: "response, held", scripts: []string{"response", "call up /x 2000; pause", "reply", "effective stream; header 2 :status; header 0 :path; add 2 x-n v; continue 1; header 2 :status"}},
	{name: "response body, replaced", scripts: []string{"response", "remove 2 content-length", "response-body", "buffer 1 0 100; set-buffer 1 0 100 new"}},
	{name: "response body, held", scripts: []string{"response-body", "buffer 1 0 100; pause; call up /x 2000", "reply", "effective stream; buffer 1 0 100; continue 1; header 2 :status"}},
	{name: "header changes", scripts: []string{
		"request", "add 0 x-a 1; add 0 X-A 2; header 0 x-a; replace 0 x-a 3; header 0 x-a; remove 0 x-a; header 0 x-a; add 0 x-b 1; header 8 a; headers 8; add 9 a b; header 1 a; add 1 a b; header 2 a; set-headers 2 a=b",
		"response", "replace 2 :status 201; add 2 set-cookie a=1; add 2 set-cookie b=2; remove 2 x-up; headers 2; add 3 a b; header 3 a; set-headers 2 :status=202 a=b a=c; headers 2; headers-size 2; set-headers 2 :status=203 content-length=8 y=z",
	}},
	{name: "reset", scripts: []string{"request", "close 0; pause"}},
	{name: "metrics", scripts: []string{
		"request", "metric 0 c.a; metric 0 c.a; increment c.a 5; increment c.a 0; increment c.a -1; record c.a 3; metric-get c.a; metric 1 g; increment g -2; metric-get g; record g 9; increment g -2; metric-get g; metric 2 h; increment h 1; record h 3; metric-get h; metric 3 z; metric-get 400000; increment 400001 1; record 400002 1; increment 400003 1; metric-get 400003; record 400003 1; increment 400000 0; metric 1 c.a; record c.a 1; metric-get c.a",
	}},
	{name: "shared data and queues", scripts: []string{
		"request", "data-get k; data-set k v 0; data-get k; data-set k w cas; data-set k x cas; data-get k; data-set k y 0; data-get k; data-set new z 55; data-get new; data-set k; data-get k; queue-resolve nosuch; queue-register q; dequeue queue; queue-resolve q; enqueue queue a; enqueue queue b; enqueue 99999 c; dequeue 99999; dequeue queue; dequeue queue",
	}},
	{name: "odds and ends", scripts: []string{
		"request", "log 6 too-high; log-level; bad-memory; continue 3; continue 4; continue 2; close 4; buffer 9 0 1; buffer 7 0 1; buffer 4 0 1; buffer 5 0 1; buffer 8 0 1; buffer 2 0 1; buffer-status 7; buffer-status 9; set-buffer 8 0 0 x; set-buffer 4 0 0 x; done; foreign nosuch x; foreign clear_route_cache x; effective 4000000",
	}},
}

// The plugin's own scripts: what a root context can do, and what happens to a
// reply whose stream is gone.
const likeConfig = `
configure: buffer 6 0 100; prop plugin_root_id; prop plugin_name; prop plugin_vm_id; log-level; header 0 x; headers 0; header 6 x; done; buffer 0 0 10; buffer 1 0 10; buffer 4 0 1; buffer 5 0 1; buffer 7 1 9; buffer 7 400000 1; buffer-status 7; buffer-status 4; set-buffer 7 0 1 z; effective 77; effective 0; bad-memory; set-prop a b; prop source address; prop request path; continue 4; continue 2; continue 3
reply: say nobody waits; header 6 :status; buffer 4 0 100
`
