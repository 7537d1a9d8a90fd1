// Command filter is Sluice's proxy-wasm filter, which Envoy runs in each of its worker threads. Stock Go builds it as a
// reactor module (-buildmode=c-shared), TinyGo as either kind; a native build does nothing, and is there to be compiled.
package main

import (
	"sluice/filter/host"
	"sluice/filter/plugin"
)

func init() { host.Run(plugin.Maker()) }

func main() {}
