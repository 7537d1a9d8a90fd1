package wire

import (
	"strconv"
	"testing"
	"time"
)

// syncOf makes a call with n asks, and its answer.
func syncOf(n int) (request SyncRequest, response SyncResponse) {
	request = SyncRequest{WorkerID: 0x0123456789abcdef, CallID: 1 << 20, PolicyVersion: "7c9e667fd9f0a1b2", Active: true}
	response = SyncResponse{PolicyVersion: request.PolicyVersion, Workers: 4, Rank: 1}
	for i := range n {
		request.Asks = append(request.Asks, Ask{KeyRef: KeyRef{"tenant", "tenant-" + strconv.Itoa(i)}, Want: 3, Min: 1, Waiting: 3, Group: uint32(i)})
		response.Results = append(response.Results, AskResult{
			Lease: "0123456789abcdef-" + strconv.Itoa(i), Units: 3,
			Limit: 100, Window: time.Second, Remaining: 42, Reset: 900 * time.Millisecond,
		})
	}
	return request, response
}

func BenchmarkSync(b *testing.B) {
	for _, n := range []int{1, 100} {
		request, response := syncOf(n)
		requestBytes, responseBytes := AppendSyncRequest(nil, &request), AppendSyncResponse(nil, &response)
		run := func(name string, size int, f func()) {
			b.Run(name+"/asks="+strconv.Itoa(n), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for range b.N {
					f()
				}
			})
		}
		buffer := make([]byte, 0, 1<<16)
		run("AppendRequest", len(requestBytes), func() { AppendSyncRequest(buffer, &request) })
		run("ParseRequest", len(requestBytes), func() { _, _ = ParseSyncRequest(requestBytes) })
		run("AppendResponse", len(responseBytes), func() { AppendSyncResponse(buffer, &response) })
		run("ParseResponse", len(responseBytes), func() { _, _ = ParseSyncResponse(responseBytes) })
	}
}
