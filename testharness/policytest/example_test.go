package policytest_test

import (
	"context"
	"fmt"
	"time"

	"sluice/testharness/policytest"
)

// Two requests a second for each tenant, asked of two workers of one proxy. A user reads sluice.wasm from a file.
func Example() {
	fleet, err := policytest.Start(context.Background(), policytest.Config{
		Policy: []byte(`
domain: shop
identities:
  tenant: {header: x-tenant-id}
limits:
  - name: tenant
    key: [tenant]
    rates: [2/s]
    mode: strict
`),
		Wasm:    filterWasm(),
		Workers: 2,
		Network: policytest.Network{Delay: time.Millisecond},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fleet.Close()

	request := policytest.Request{Path: "/v1/reports", Headers: []policytest.Header{{"x-tenant-id", "acme"}}}
	for _, worker := range []int{0, 1, 0} {
		answer := fleet.Do(worker, request)
		fmt.Println(answer.Status, answer.Get("ratelimit"), answer.Waited)
	}
	fleet.Advance(time.Second)
	fmt.Println(fleet.Do(1, request).Status, fleet.Problems())
	// Output:
	// 200 "tenant";r=1;t=1 1ms
	// 200 "tenant";r=0;t=1 1ms
	// 429 "tenant";r=0;t=1 1ms
	// 200 []
}
