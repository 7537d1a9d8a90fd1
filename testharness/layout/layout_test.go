// Package layout checks what the folders promise: who may import whom, who may read a clock, and that a package's name says
// what it is for. It reads the source itself, so that every build tag counts, on every machine.
package layout

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"sort"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// rule says what the files of some folders may import. With both lists, an import must be on only, and not on never.
type rule struct {
	about      string
	in, except []string
	only       []string // empty: anything
	never      []string
	tests      bool // test files obey as well
	reach      bool // so do the packages of ours that are reached from there, directly or not
}

func TestLayout(t *testing.T) {
	sources, err := readSources(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) < 10 {
		t.Fatalf("found %d Go files from the module's root on; this test looks in the wrong place", len(sources))
	}
	for _, complaint := range check(sources) {
		t.Error(complaint)
	}
}

// check gives a line for each breach of each rule: where, what, and the rule.
func check(sources []source) []string {
	var complaints []string
	for _, r := range rules {
		complaints = append(complaints, r.check(sources)...)
	}
	for _, s := range sources {
		complaints = append(complaints, checkClock(s)...)
		if name := s.tree.Name.Name; emptyNames[name] || emptyNames[path.Base(s.folder)] {
			complaints = append(complaints, fmt.Sprintf("%s: package %s: name it after what it is for", s.path, name))
		}
		if s.folder == "shared" {
			complaints = append(complaints, s.path+": shared is a shelf of packages, itself none")
		}
	}
	return complaints
}

func (r rule) check(sources []source) []string {
	folders := map[string]bool{}
	for _, s := range sources {
		if matchesAny(r.in, s.folder, true) && !matchesAny(r.except, s.folder, true) {
			folders[s.folder] = true
		}
	}
	if r.reach {
		follow(sources, folders)
	}
	var complaints []string
	for _, s := range sources {
		if !folders[s.folder] || s.test && !r.tests {
			continue
		}
		for _, i := range s.imports {
			allowed := len(r.only) == 0 || matchesAny(r.only, i.path, i.own)
			if !allowed || matchesAny(r.never, i.path, i.own) {
				complaints = append(complaints, fmt.Sprintf("%s:%d: imports %s: %s", s.path, i.line, i.path, r.about))
			}
		}
	}
	return complaints
}

// follow adds to the folders all of ours that they import, directly or not, outside tests.
func follow(sources []source, folders map[string]bool) {
	for grown := true; grown; {
		grown = false
		for _, s := range sources {
			if !folders[s.folder] || s.test {
				continue
			}
			for _, i := range s.imports {
				if i.own && !folders[i.path] {
					folders[i.path], grown = true, true
				}
			}
		}
	}
}

// checkClock complains of every mention of a function that looks at a clock, called or not.
func checkClock(s source) []string {
	if s.test || matchesAny(clock.exceptFiles, s.path, true) || matchesAny(clock.exceptFolders, s.folder, true) {
		return nil
	}
	called := ""
	for _, i := range s.imports {
		if i.path == "time" {
			called = "time"
			if i.name != "" {
				called = i.name
			}
		}
	}
	if called == "" {
		return nil
	}
	if called == "." {
		return []string{s.path + `: import "time" by its name`}
	}
	var complaints []string
	ast.Inspect(s.tree, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok || !clockFunctions[selector.Sel.Name] {
			return true
		}
		if from, ok := selector.X.(*ast.Ident); ok && from.Name == called {
			complaints = append(complaints, fmt.Sprintf(
				"%s:%d: time.%s: only main, filter/host and the harness of real processes look at a clock",
				s.path, s.lines.Position(n.Pos()).Line, selector.Sel.Name))
		}
		return true
	})
	return complaints
}

// TestCheckComplains breaks each rule once, and keeps each where it comes close.
func TestCheckComplains(t *testing.T) {
	const sdk, redis = `"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm"`, `"github.com/redis/go-redis/v9"`
	for _, step := range []struct {
		name   string
		file   string
		text   string
		others map[string]string
		want   []string // path:line of each complaint, or the path alone
	}{
		{name: "filter, service", file: "filter/plugin/a.go", text: `import "sluice/controlsvc/authority"`, want: []string{
			"filter/plugin/a.go:4", "filter/plugin/a.go:4", // also out of what the filter may reach
		}},
		{name: "filter's test, service", file: "filter/plugin/a_test.go", text: `import "sluice/controlsvc/authority"`, want: []string{"filter/plugin/a_test.go:4"}},
		{name: "filter's test, harness", file: "filter/plugin/a_test.go", text: `import "sluice/testharness/oracle"`},
		{name: "filter reaches the harness through shared", file: "filter/control/a.go", text: `import "sluice/shared/wire"`, others: map[string]string{
			"shared/wire/a.go": `import "sluice/testharness/oracle"`,
		}, want: []string{"shared/wire/a.go:4", "shared/wire/a.go:4"}},
		{name: "filter reaches generated code through shared", file: "filter/control/a.go", text: `import "sluice/shared/wire"`, others: map[string]string{
			"shared/wire/a.go": `import "sluice/shared/proto/sluice/v1"`,
		}, want: []string{"shared/wire/a.go:4"}},
		{name: "filter reaches JSON through shared", file: "filter/control/a.go", text: `import "sluice/shared/wire"`, others: map[string]string{
			"shared/wire/a.go": `import "encoding/json"`,
		}, want: []string{"shared/wire/a.go:4"}},
		{name: "filter reaches a library", file: "filter/control/a.go", text: `import "google.golang.org/protobuf/proto"`, want: []string{"filter/control/a.go:4"}},
		{name: "filter reaches protowire", file: "filter/control/a.go", text: `import "google.golang.org/protobuf/encoding/protowire"`},
		{name: "a file for TinyGo alone", file: "filter/plugin/a.go", text: "import " + sdk, want: []string{"filter/plugin/a.go:4"}},
		{name: "the SDK in its place", file: "filter/host/a.go", text: "import " + sdk},
		{name: "the port knows its user", file: "filter/host/a.go", text: `import "sluice/filter/control"`, want: []string{"filter/host/a.go:4"}},
		{name: "control knows callbacks", file: "filter/control/a.go", text: `import "sluice/filter/plugin"`, want: []string{"filter/control/a.go:4"}},
		{name: "random numbers", file: "shared/lease/a.go", text: `import "math/rand/v2"`, want: []string{"shared/lease/a.go:4"}},
		{name: "shared, filter", file: "shared/lease/a.go", text: `import "sluice/filter/host"`, want: []string{"shared/lease/a.go:4"}},
		{name: "shared, files", file: "shared/lease/a.go", text: `import "os"`, want: []string{"shared/lease/a.go:4"}},
		{name: "shared, network", file: "shared/lease/a.go", text: `import "net"`, want: []string{"shared/lease/a.go:4"}},
		{name: "shared, addresses", file: "shared/lease/a.go", text: `import "net/netip"`},
		{name: "generated code, grpc", file: "shared/proto/sluice/v1/a.go", text: `import "google.golang.org/grpc"`},
		{name: "service, harness", file: "controlsvc/rpc/a.go", text: `import "sluice/testharness/rig"`, want: []string{"controlsvc/rpc/a.go:4"}},
		{name: "command, harness", file: "controlsvc/cli/a.go", text: `import "sluice/testharness/rig"`},
		{name: "rpc, store", file: "controlsvc/rpc/a.go", text: `import "sluice/controlsvc/store/redis"`, want: []string{"controlsvc/rpc/a.go:4"}},
		{name: "rpc, go-redis", file: "controlsvc/rpc/a.go", text: "import " + redis, want: []string{"controlsvc/rpc/a.go:4"}},
		{name: "go-redis in its place", file: "controlsvc/store/redis/a.go", text: "import " + redis},
		{name: "the conformance suite, oracle", file: "controlsvc/store/storetest/a.go", text: `import "sluice/testharness/oracle"`},
		{name: "a store, its suite", file: "controlsvc/store/memory/a.go", text: `import "sluice/controlsvc/store/storetest"`, want: []string{"controlsvc/store/memory/a.go:4"}},
		{name: "a store's test, its suite", file: "controlsvc/store/memory/a_test.go", text: `import "sluice/controlsvc/store/storetest"`},
		{name: "authority, rpc", file: "controlsvc/authority/a.go", text: `import "sluice/controlsvc/rpc"`, want: []string{"controlsvc/authority/a.go:4"}},
		{name: "store, rpc", file: "controlsvc/store/memory/a.go", text: `import "sluice/controlsvc/rpc"`, want: []string{"controlsvc/store/memory/a.go:4"}},
		{name: "policyfile, authority", file: "controlsvc/policyfile/a.go", text: `import "sluice/controlsvc/authority"`, want: []string{"controlsvc/policyfile/a.go:4"}},
		{name: "oracle, what it checks", file: "testharness/oracle/a.go", text: `import "sluice/shared/slidinglog"`, want: []string{"testharness/oracle/a.go:4"}},
		{name: "a clock", file: "controlsvc/rpc/a.go", text: "import \"time\"\nvar now = time.Now\nvar d = time.Second", want: []string{"controlsvc/rpc/a.go:5"}},
		{name: "a clock by another name", file: "controlsvc/rpc/a.go", text: "import clock \"time\"\nvar t = clock.After(1)", want: []string{"controlsvc/rpc/a.go:5"}},
		{name: "a clock without a name", file: "controlsvc/rpc/a.go", text: "import . \"time\"\nvar t = After(1)", want: []string{"controlsvc/rpc/a.go"}},
		{name: "a clock in its place", file: "controlsvc/main.go", text: "import \"time\"\nvar now = time.Now"},
		{name: "a clock beside main", file: "controlsvc/other.go", text: "import \"time\"\nvar now = time.Now", want: []string{"controlsvc/other.go:5"}},
		{name: "another type's Now", file: "controlsvc/rpc/a.go", text: "import \"time\"\nvar d time.Duration\nvar t = host.Now()"},
		{name: "an empty name", file: "controlsvc/util/a.go", want: []string{"controlsvc/util/a.go"}},
		{name: "a shelf", file: "shared/a.go", want: []string{"shared/a.go"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			tree := fstest.MapFS{step.file: goFile(step.file, step.text)}
			for name, text := range step.others {
				tree[name] = goFile(name, text)
			}
			sources, err := readSources(tree)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, complaint := range check(sources) {
				where, _, _ := strings.Cut(complaint, ": ")
				got = append(got, where)
			}
			sort.Strings(got)
			if diff := cmp.Diff(step.want, got); diff != "" {
				t.Errorf("complaints, wanted (-), got (+):\n%s", diff)
			}
		})
	}
}

// goFile is a file that no build takes in, with its text from the fourth line on.
func goFile(name, text string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("//go:build never\n\npackage " + path.Base(path.Dir(name)) + "\n" + text + "\n")}
}
