package filterrun

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles the filter with stock Go, from the package directory given ("../../filter"), as the shipped one is built,
// and gives the module. Further arguments go to go build. A test never takes a file that happens to lie around: it might be
// of another day's source.
func Build(ctx context.Context, filter string, arguments ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "sluice-filter")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "sluice.wasm")
	arguments = append([]string{"build", "-buildmode=c-shared", "-ldflags=-s -w", "-trimpath", "-o", out}, arguments...)
	build := exec.CommandContext(ctx, "go", append(arguments, ".")...)
	build.Dir = filter
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the filter does not build: %w\n%s", err, said)
	}
	return os.ReadFile(out)
}
