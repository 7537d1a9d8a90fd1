// The filter's module for TinyGo, and for the older Go that it needs: only what the filter imports. Used with -modfile; the
// module itself is the one in the folder above, and go.mod there is for everything else.
module sluice

go 1.23

require (
	github.com/tetratelabs/proxy-wasm-go-sdk v0.24.0
	google.golang.org/protobuf v1.36.12
)
