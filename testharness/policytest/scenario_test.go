package policytest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sluice/testharness/filterrun"
	"sluice/testharness/filterrun/native"
	"sluice/testharness/policytest"
)

// filterWasm is the filter as stock Go builds it.
var filterWasm = sync.OnceValue(func() []byte {
	module, err := filterrun.Build(context.Background(), "../../filter")
	if err != nil {
		panic(err)
	}
	return module
})

// tinyGoWasm names the environment's variable with the file that TinyGo has built.
const tinyGoWasm = "SLUICE_TINYGO_WASM"

type maker = func(seed uint64) filterrun.Runner

// runners are the ways of running the filter.
func runners(t *testing.T) map[string]maker {
	t.Helper()
	all := map[string]maker{
		"fake":     native.NewFake,
		"emulator": native.NewEmulated,
		"wasm":     func(seed uint64) filterrun.Runner { return filterrun.NewWasm(context.Background(), filterWasm(), seed) },
	}
	if file := os.Getenv(tinyGoWasm); file != "" {
		module, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%s: %v", tinyGoWasm, err)
		}
		all["tinygo"] = func(seed uint64) filterrun.Runner { return filterrun.NewWasm(context.Background(), module, seed) }
	} else {
		t.Log(tinyGoWasm + " is not set: TinyGo's build is not among the runners")
	}
	return all
}

// notOn are the scenarios that a runner cannot tell, and why.
var notOn = map[string]map[string]string{
	"emulator": {
		"workers.txtar":          oneEmulator,
		"boundary.txtar":         oneEmulator,
		"two-limits.txtar":       oneEmulator,
		"away-local.txtar":       oneEmulator,
		"new-policy.txtar":       oneEmulator,
		"lease-workers.txtar":    oneEmulator,
		"cost-lease.txtar":       oneEmulator,
		"override-changes.txtar": oneEmulator,
		"overrides.txtar":        oneEmulator,
		"plan-away.txtar":        oneEmulator,
		"plan-changes.txtar":     oneEmulator,
		"plans.txtar":            oneEmulator,
		"shadow-enforce.txtar":   oneEmulator,
		"shadow-percent.txtar":   oneEmulator,
		"shadow-quiet.txtar":     oneEmulator,
		"max-wait-second.txtar":  oneEmulator,
	},
}

const oneEmulator = "it has several workers, and a process has one emulator at a time"

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d scenarios in testdata, %v", len(files), err)
	}
	for by, newRunner := range runners(t) {
		for _, file := range files {
			name := filepath.Base(file)
			if why := notOn[by][name]; why != "" {
				t.Logf("%s is not told on %s: %s", name, by, why)
				continue
			}
			t.Run(by+"/"+strings.TrimSuffix(name, ".txtar"), func(t *testing.T) {
				s, err := policytest.ReadScenario(file)
				if err != nil {
					t.Fatal(err)
				}
				if s.About == "" {
					t.Error("nothing says what it is about")
				}
				result, err := s.Run(t.Context(), newRunner)
				if err != nil {
					t.Fatal(err)
				}
				for _, line := range result.Wrong {
					t.Error(line)
				}
			})
		}
	}
}
