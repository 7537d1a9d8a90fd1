package policytest_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"sluice/shared/limit"
	"sluice/testharness/wasmhost"
)

// Memory is flat: over requests of ten times more keys than the filter may remember, the guest's memory grows until the
// keys are all there, and then no more; and it is no more than a few times what is alive, about 700 bytes for a key.
// SLUICE_LONG=1 sends a million requests.
func TestMemoryIsFlat(t *testing.T) {
	const keys, maxKeys = 100_000, 5_000
	requests := 50_000
	if os.Getenv("SLUICE_LONG") != "" {
		requests = 1_000_000
	}
	for _, mode := range []limit.Mode{limit.Strict, limit.Lease} {
		t.Run(mode.String(), func(t *testing.T) {
			rate := per(5, time.Second)
			if mode == limit.Lease {
				rate = per(200, time.Second) // of less nothing would be leased
			}
			x := newProxy(t, tenants(mode, rate), wasmhost.Config{
				PluginConfig: []byte(`{"max_keys":` + strconv.Itoa(maxKeys) + `}`),
			})
			worker := x.Worker(0)
			const steps = 20
			var curve [steps + 1]uint64
			curve[0] = worker.MemoryBytes()
			denied := 0
			for step := 1; step <= steps; step++ {
				for i := range requests / steps {
					// Half of them are of a few hot keys, for whom denials stand.
					key := (i*7919 + step) % keys
					if i%2 == 0 {
						key = i % 50
					}
					s := worker.Request(asTenant("tenant-" + strconv.Itoa(key)))
					x.Advance(100 * time.Microsecond)
					switch s.Outcome().Kind {
					case wasmhost.LocalReply:
						denied++
					case wasmhost.Continued:
						s.RespondUpstream(wasmhost.Headers{{":status", "200"}})
					default:
						s.Cancel()
					}
				}
				x.heard = nil
				curve[step] = worker.MemoryBytes()
			}
			text := ""
			for _, bytes := range curve {
				text += " " + strconv.FormatFloat(float64(bytes)/(1<<20), 'f', 1, 64)
			}
			t.Logf("%d requests of %d keys, %d of them remembered, %d denied; MiB every %d:%s",
				requests, keys, maxKeys, denied, requests/steps, text)
			// In the first half the keys become as many as are remembered.
			if before, end := curve[steps*3/4], curve[steps]; float64(end) > 1.1*float64(before) {
				t.Errorf("%d bytes after three quarters, %d in the end", before, end)
			}
			if most := uint64(12<<20 + maxKeys*2560); curve[steps] > most {
				t.Errorf("%d bytes, want at most %d", curve[steps], most)
			}
			if denied == 0 {
				t.Error("nobody was denied: this tests little")
			}
			if n, ok := x.Metric("sluice.keys"); !ok || n > uint64(maxKeys)+100 {
				t.Errorf("%d keys are remembered, want at most %d", n, maxKeys)
			}
			if x.TrapCount() != 0 || worker.OpenStreams() != 0 {
				t.Errorf("%d traps, %d open streams", x.TrapCount(), worker.OpenStreams())
			}
			x.sound()
		})
	}
}
