package wasmhost

import (
	"context"
	"fmt"
	"time"
)

// A filter asks a service for each request, and lets the request go with the
// reply. Here the filter is testdata/echo, which does what headers say; any
// other is loaded in the same way.
func Example() {
	host, err := New(context.Background(), echoWasm, Config{
		HTTPCall: func(c *Call) Reply {
			r := StatusReply(200, "yes")
			r.Delay = 5 * time.Millisecond
			return r
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer host.Close()

	s := host.Worker(0).Request(Headers{
		{":method", "GET"},
		{":path", "/"},
		{":authority", "shop"},
		{"x-on-request", "call service /ask 100; pause"},
		{"x-on-reply", "effective stream; add 0 x-asked yes; continue 0"},
	})
	fmt.Println(s.Outcome())
	host.Advance(5 * time.Millisecond)
	fmt.Println(s.Outcome(), s.Upstream().Headers.Get("x-asked"))
	fmt.Println(s.RespondUpstream(Headers{{":status", "204"}}), host.Violations())
	// Output:
	// pending
	// continued yes
	// [[:status 204]] []
}
