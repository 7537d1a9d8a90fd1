package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// What the memory of Envoy is looked at over.
const (
	memoryRequests = 1_000_000
	memoryKeys     = 100_000
)

// keysScript has wrk go through all keys again and again; the step has no factor in common with their number, so that
// neighbours are far apart.
const keysScript = `local n = 0
function init(args) n = tonumber(args[1]) * 7919 %% %[1]d end
request = function()
  n = (n + 7919) %% %[1]d
  return wrk.format("GET", "/lease", {["x-tenant-id"] = "tenant-" .. n})
end
`

// point is what was in use after so many requests.
type point struct {
	requests, unexpected int64
	at                   time.Duration
	envoyBytes           int64
	keys                 int64
}

// memoryCurve sends a million requests of a hundred thousand keys and notes Envoy's memory every few seconds.
func (f *fleet) memoryCurve(ctx context.Context, o options, told func(string, ...any)) ([]point, error) {
	path, err := exec.LookPath("wrk")
	if err != nil {
		return nil, errors.New("the curve of Envoy's memory needs wrk on the PATH")
	}
	script, err := os.CreateTemp("", "sluice-keys-*.lua")
	if err != nil {
		return nil, err
	}
	defer os.Remove(script.Name())
	fmt.Fprintf(script, keysScript, memoryKeys)
	if err := script.Close(); err != nil {
		return nil, err
	}
	url := "http://" + f.measured.Listener(onMemory) + "/"
	var points []point
	var last point
	began := time.Now()
	for {
		if last.envoyBytes, err = residentBytes(f.measured.PID()); err != nil {
			return nil, err
		}
		stats, err := f.measured.Stats(ctx, "wasmcustom.sluice.keys")
		if err != nil {
			return nil, err
		}
		last.keys = stats["wasmcustom.sluice.keys"]
		last.at = time.Since(began)
		points = append(points, last)
		told("%8d requests, %4.0f MiB, %d keys", last.requests, float64(last.envoyBytes)/(1<<20), last.keys)
		if last.requests >= memoryRequests {
			return points, nil
		}
		// Each run goes on with the key that the one before it came to.
		did, err := wrk(path).with(ctx, o.memoryEvery, "-s", script.Name(), url, "--", strconv.FormatInt(last.requests, 10))
		if err != nil {
			return nil, err
		}
		last.requests += did.requests
		last.unexpected += did.refused
	}
}

// memoryTable gives the curve as Markdown, at most about twenty points of it.
func memoryTable(points []point, o options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests over %d keys in `lease`, `max_keys` %d, Envoy with --concurrency %d; the service on the memory store.\n\n",
		memoryRequests, memoryKeys, o.maxKeys, o.concurrency)
	b.WriteString("| requests | seconds | Envoy's resident memory, MiB | keys in the filter | answers other than 200 |\n| --: | --: | --: | --: | --: |\n")
	every := (len(points) + 19) / 20
	for i, p := range points {
		if i%every == 0 || i == len(points)-1 {
			fmt.Fprintf(&b, "| %d | %.0f | %.1f | %d | %d |\n", p.requests, p.at.Seconds(), float64(p.envoyBytes)/(1<<20), p.keys, p.unexpected)
		}
	}
	return b.String()
}
