package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice/testharness/policytest"
)

func newTest(p Process) *cobra.Command {
	var wasm string
	command := &cobra.Command{
		Use:   "test FILE...",
		Short: "Run scenarios of a policy with the real filter",
		Long: "Test runs scenario files: a policy, requests with their times, and the answers that are expected, in one file. The filter\n" +
			"is the one that Envoy loads, the decisions are the service's own, and time is virtual: nothing is waited for. It says\n" +
			"for each file whether all was as expected, and what was not, with its line; it exits with 1 where anything was not.\n\n" +
			"  Two a second.\n" +
			"  -- policy.yaml --\n" +
			"  domain: shop\n" +
			"  identities: {tenant: {header: x-tenant-id}}\n" +
			"  limits: [{name: tenant, key: [tenant], rates: [2/s]}]\n" +
			"  -- requests --\n" +
			"  workers 2\n" +
			"  at 0s     worker * 3 times every 1ms GET /v1/x x-tenant-id: acme -> 2x 200, 429 retry-after 1\n" +
			"  at 900ms  GET /v1/x x-tenant-id: acme -> 429 at-once\n" +
			"  at 1s     GET /v1/x x-tenant-id: acme -> 200 remaining 0\n\n" +
			"Without policy.yaml in it, the policy is the file beside it of the same name that ends in .yaml.\n" +
			"The package sluice/testharness/policytest says all that may stand there.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			module, err := readFilter(wasm)
			if err != nil {
				return failed(err)
			}
			ctx, release := signal.NotifyContext(context.Background(), os.Interrupt)
			defer release()
			return failed(testFiles(ctx, p, module, files))
		},
	}
	command.Flags().StringVar(&wasm, "wasm", "", "`FILE` with the filter (default sluice.wasm beside this command)")
	return command
}

// readFilter reads the filter from the file, or from where the build puts it.
func readFilter(file string) ([]byte, error) {
	if file == "" {
		executable, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("the command does not know where it is: %w; name the filter by --wasm", err)
		}
		file = filepath.Join(filepath.Dir(executable), "sluice.wasm")
	}
	module, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the filter: %w; `make build` makes it, --wasm names another", err)
	}
	return module, nil
}

// testFiles runs each file, and fails where one of them did.
func testFiles(ctx context.Context, p Process, module []byte, files []string) error {
	bad := 0
	for _, file := range files {
		result, err := policytest.RunFile(ctx, file, module)
		if err != nil {
			result.Wrong = append(result.Wrong, err.Error())
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if result.Passed() {
			fmt.Fprintf(p.Stdout, "ok    %s: %s, %s, %v\n", file, count(result.Requests, "request", "requests"),
				count(result.Asks, "call asked", "calls asked"), result.Took)
			continue
		}
		bad++
		fmt.Fprintf(p.Stdout, "FAIL  %s\n", file)
		for _, line := range result.Wrong {
			fmt.Fprintf(p.Stdout, "      %s\n", line)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %s failed", bad, count(len(files), "scenario", "scenarios"))
	}
	return nil
}
