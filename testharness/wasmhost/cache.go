package wasmhost

import (
	"fmt"
	"os"
	"sync"

	"github.com/tetratelabs/wazero"
)

// sharedCache keeps compiled modules for the life of the process, so that only
// the first Host of a module pays for compiling it; in the folder that
// SLUICE_WASM_CACHE names, where it is set, for all processes that name it.
var sharedCache = sync.OnceValues(func() (wazero.CompilationCache, error) {
	if dir := os.Getenv("SLUICE_WASM_CACHE"); dir != "" {
		return wazero.NewCompilationCacheWithDir(dir)
	}
	return wazero.NewCompilationCache(), nil
})

// compilationCache is the shared cache, or one of its own in a directory.
func compilationCache(dir string) (cache wazero.CompilationCache, own bool, err error) {
	if dir == "" {
		cache, err = sharedCache()
	} else {
		cache, err = wazero.NewCompilationCacheWithDir(dir)
	}
	if err != nil {
		return nil, false, fmt.Errorf("wasmhost: cannot use the compilation cache: %w", err)
	}
	return cache, dir != "", nil
}
