package policytest_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice/testharness/filterrun"
	"sluice/testharness/policytest"
)

// patch replaces a piece of a source file that stands there exactly once.
type patch struct{ file, from, to string }

// TestBrokenFiltersAreCaught builds filters that are broken on purpose, and has the scenario or the test named catch each:
// what those are worth. A patch that does not fit the source any more fails, and wants to be made anew.
func TestBrokenFiltersAreCaught(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range []struct {
		name     string
		scenario string // run as wasm
		test     string // or a test, in a process of its own
		says     string // of what it complains
		patches  []patch
	}{
		{
			name: "answers twice", scenario: "answers", says: "answered twice",
			patches: []patch{
				{
					"filter/plugin/plugin.go", "\tp.proxy.Respond(id, status, p.fields, body, grpcStatus)\n",
					"\tp.proxy.Respond(id, status, p.fields, body, grpcStatus)\n\tp.proxy.Respond(id, status, p.fields, body, grpcStatus)\n",
				},
				{"filter/host/root.go", "\tif s.settled {\n\t\tr.fault()\n\t\treturn nil\n\t}\n", ""},
			},
		},
		{
			name: "keeps a reply's slice", test: "TestScenarios/fake/leaves", says: "want 200",
			patches: []patch{
				{
					"shared/wire/syncresponse.go", "r.Lease = f.text(\"lease\", MaxTextLength)\n",
					"lent := f.message(\"lease\")\n\t\t\tr.Lease = unsafe.String(unsafe.SliceData(lent), len(lent))\n",
				},
				{"shared/wire/syncresponse.go", "package wire\n", "package wire\n\nimport \"unsafe\"\n"},
			},
		},
		{
			name: "ignores deadlines", scenario: "silent", says: "waiting, want 503",
			patches: []patch{
				{"filter/control/client.go", "r != nil && r.deadline <= now;", "r != nil && r.deadline <= 0;"},
				{"filter/control/client.go", "\t\tif cl.deadline > now {\n", "\t\tif cl.deadline > 0 {\n"},
			},
		},
		{
			name: "compares wall clocks", scenario: "wall-clock", says: "wall-clock.txtar",
			patches: []patch{{"filter/host/clock_wasip1.go", "const wasiMonotonic = 1\n", "const wasiMonotonic = 0\n"}},
		},
		{
			name: "does not give back the lease of a key that goes", test: "TestAKeyThatGoesSettlesItsLease", says: "was not settled",
			patches: []patch{{"filter/control/lease.go", "\tk.Admission.GiveBack()\n\tc.collect(now, k)\n", ""}},
		},
		{
			name: "is active on the main thread", test: "TestTheMainThreadIsNoWorker", says: "that has seen no request says",
			patches: []patch{{"filter/control/call.go", "c.request.Active = c.active\n", "c.request.Active = true\n"}},
		},
		{
			name: "sees a lease's end with the next tick only", test: "TestALeaseIsNotSpentBetweenItsEndAndTheNextTick", says: "after the lease's end",
			patches: []patch{
				{"shared/lease/lease.go", "now < l.From || now > l.Until {", "now < l.From || now > l.Until+50_000 {"},
				{"shared/lease/lease.go", "l.left == 0 || now > l.Until ||", "l.left == 0 || now > l.Until+50_000 ||"},
			},
		},
		{
			name: "takes a late answer", test: "TestALateReply", says: "was not cancelled",
			patches: []patch{{"filter/control/call.go", "func (c *Client) take(id host.CallID) *call {\n", "func (c *Client) take(id host.CallID) *call {\n\tc.reports.abandoned = nil\n"}},
		},
		{
			name: "does not hear that a client has left", scenario: "leaves", says: "want 200",
			patches: []patch{
				{"filter/host/instance.go", "\t\tr.plugin.Done(ContextID(id))\n", ""},
				{"filter/host/instance.go", "\tv.streams.Remove(ContextID(id))\n", ""},
			},
		},
		{
			name: "never lets the collector run", test: "TestMemoryIsFlat/strict", says: "bytes, want at most",
			patches: []patch{
				{"filter/host/stock_wasip1.go", "\truntime.Gosched()\n", ""},
				{"filter/host/stock_wasip1.go", "\t\"runtime\"\n", ""},
			},
		},
		{
			name: "does not tell the service of the plan", test: "TestScenarios/fake/plans", says: "want 200",
			patches: []patch{{"filter/control/call.go", "KeyRef: k.Ref, Plan: k.plan(), ", "KeyRef: k.Ref, "}},
		},
		{
			name: "does not know a key's override in the service", test: "TestScenarios/fake/overrides", says: "want 200",
			patches: []patch{{"controlsvc/authority/authority.go", "l.Rule(plan, ref.Key)", "l.Rule(plan, \"\")"}},
		},
		{
			name: "denies by a limit in shadow", test: "TestScenarios/fake/shadow", says: "want 200",
			patches: []patch{{"filter/plugin/plugin.go", "if b.Rule.Shadow {", "if b.Rule.Shadow && len(p.bounds) > 9 {"}},
		},
		{
			name: "charges a limit in shadow for what is denied", test: "TestScenarios/fake/shadow", says: "want 200",
			patches: []patch{
				{"filter/control/decide.go", "\tcase out.Verdict == admission.Admit:\n\t\tc.shadows", "\tdefault:\n\t\tc.shadows"},
				{"filter/control/decide.go", "\tif out.Verdict == admission.Admit {\n\t\tfor", "\tif true {\n\t\tfor"},
			},
		},
		{
			name: "lets in who is allowed and blocked", test: "TestScenarios/fake/block-allow", says: "want 403",
			patches: []patch{{"shared/policy/bind.go", "at := b.listed(p.Block); at.list != nil {", "at := b.listed(p.Block); at.list != nil && !b.on(p.Allow) {"}},
		},
		{
			name: "takes any cost", test: "TestScenarios/fake/cost-header", says: "want 200",
			patches: []patch{{"shared/policy/cost.go", "return min(max(1, n), m.Max)\n\t\t}\n\tcase", "return max(1, n)\n\t\t}\n\tcase"}},
		},
		{
			name: "forgets no key", test: "TestMemoryIsFlat/strict", says: "are remembered, want at most",
			patches: []patch{{"filter/control/keys.go", "i < tries && t.n >= t.max", "i < 0 && t.n >= t.max"}},
		},
	} {
		t.Run(broken.name, func(t *testing.T) {
			t.Parallel() // most of it is building, and none of it looks at a real clock
			overlay := writeOverlay(t, root, broken.patches)
			file := filepath.Join("testdata", broken.scenario+".txtar")
			var said string
			if broken.test != "" {
				file, said = broken.test, runTest(t, overlay, broken.test)
			} else {
				module, err := filterrun.Build(t.Context(), "../../filter", "-overlay="+overlay)
				if err != nil {
					t.Fatal(err)
				}
				result, err := policytest.RunFile(t.Context(), file, module)
				if err != nil {
					t.Fatal(err)
				}
				said = strings.Join(result.Wrong, "\n")
			}
			if !strings.Contains(said, broken.says) {
				t.Errorf("%s does not catch it; it says %q, want %q in it", file, said, broken.says)
			} else {
				t.Logf("caught: %.200s", said)
			}
		})
	}
}

// runTest runs a test of this package in a process that is built with the overlay, as are the filters that it builds, and
// gives what it says where it fails.
func runTest(t *testing.T, overlay, test string) string {
	t.Helper()
	// What vet and a debugger want is not looked at, and takes longer than the test.
	command := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-ldflags=-w", "-count=1", "-run=^"+strings.ReplaceAll(test, "/", "$/^")+"$", ".")
	// The other flags stay: without them all that the tests are made of is built once more.
	command.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	out, err := command.CombinedOutput()
	if err == nil {
		return ""
	}
	if !strings.Contains(string(out), "--- FAIL: "+test) {
		t.Fatalf("the test did not run: %v\n%s", err, out)
	}
	return string(out)
}

// writeOverlay writes the patched files, and what -overlay wants to know of them.
func writeOverlay(t *testing.T, root string, patches []patch) (file string) {
	t.Helper()
	dir := t.TempDir()
	texts := map[string]string{}
	for _, p := range patches {
		path := filepath.Join(root, p.file)
		text, read := texts[path]
		if !read {
			bytes, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(bytes)
		}
		if n := strings.Count(text, p.from); n != 1 {
			t.Fatalf("%s has %q %d times, want once: the patch does not fit the source any more", p.file, p.from, n)
		}
		texts[path] = strings.Replace(text, p.from, p.to, 1)
	}
	replace := map[string]string{}
	for path, text := range texts {
		patched := filepath.Join(dir, strings.ReplaceAll(path, string(filepath.Separator), "_"))
		if err := os.WriteFile(patched, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = patched
	}
	bytes, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
