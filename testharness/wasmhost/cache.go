package wasmhost

import (
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"
)

// sharedCache keeps compiled modules for the life of the process, so that only
// the first Host of a module pays for compiling it.
var sharedCache = sync.OnceValue(wazero.NewCompilationCache)

// compilationCache is the shared cache, or one of its own in a directory.
func compilationCache(dir string) (cache wazero.CompilationCache, own bool, err error) {
	if dir == "" {
		return sharedCache(), false, nil
	}
	cache, err = wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, false, fmt.Errorf("wasmhost: cannot use the compilation cache: %w", err)
	}
	return cache, true, nil
}
