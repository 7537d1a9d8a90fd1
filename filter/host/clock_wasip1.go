//nolint:gosec // WASI takes addresses
package host

import (
	"unsafe"

	"sluice/shared/instant"
)

// Clock and randomness are the functions of WASI that every proxy-wasm host has, imported here for both toolchains: what
// TinyGo's time package calls monotonic reads the wall clock (its runtime asks for clock 0), and Go's time.Now reads both
// clocks for one answer.

// wasiMonotonic is WASI's clockid_t for the monotonic clock. Envoy answers it from its dispatcher's steady clock.
const wasiMonotonic = 1

// https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md, clock_time_get and random_get.
//
//go:wasmimport wasi_snapshot_preview1 clock_time_get
func wasiClockTimeGet(clock uint32, precision uint64, nanos unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 random_get
func wasiRandomGet(buffer unsafe.Pointer, size uint32) uint32

// Where WASI writes to: variables of the package, since the host cannot follow a stack that moves.
var (
	wasiNanos  uint64
	wasiRandom uint64
)

// now reads the monotonic clock. The last reading stands in where the host refuses, which none is known to do.
func now() instant.Instant {
	wasiClockTimeGet(wasiMonotonic, 1, unsafe.Pointer(&wasiNanos))
	return instant.Instant(wasiNanos / 1000)
}

// random gives 64 bits of the host's randomness, which is good enough for cryptography in Envoy.
func random() uint64 {
	wasiRandomGet(unsafe.Pointer(&wasiRandom), 8)
	return wasiRandom
}
