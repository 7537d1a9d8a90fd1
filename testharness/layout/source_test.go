package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// module is the module's path, as go.mod has it.
const module = "sluice"

// source is a Go file, whatever its build tags.
type source struct {
	path    string
	folder  string // "." is the root
	test    bool
	imports []imported
	tree    *ast.File
	lines   *token.FileSet
}

// imported is one import. Our own are named from the module's root, as folders are.
type imported struct {
	path string
	name string // as the file calls it; empty where it does not rename it
	own  bool
	line int
}

// readSources parses every Go file beneath the root, but for folders that the go command passes over too.
func readSources(root fs.FS) ([]source, error) {
	var sources []source
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		parsed, err := parseSource(name, text)
		if err != nil {
			return err
		}
		sources = append(sources, parsed)
		return nil
	})
	return sources, err
}

func parseSource(name string, text []byte) (source, error) {
	lines := token.NewFileSet()
	tree, err := parser.ParseFile(lines, name, text, parser.SkipObjectResolution)
	if err != nil {
		return source{}, fmt.Errorf("parsing: %w", err)
	}
	s := source{
		path: name, folder: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		tree: tree, lines: lines,
	}
	for _, spec := range tree.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return source{}, fmt.Errorf("parsing %s: import %s: %w", name, spec.Path.Value, err)
		}
		i := imported{path: target, line: lines.Position(spec.Pos()).Line}
		if spec.Name != nil {
			i.name = spec.Name.Name
		}
		if rest, own := strings.CutPrefix(target, module+"/"); own {
			i.path, i.own = rest, true
		}
		s.imports = append(s.imports, i)
	}
	return s, nil
}

// matches says whether a folder or an import is one that the pattern names.
func matches(pattern, name string, own bool) bool {
	if pattern == "std" {
		first, _, _ := strings.Cut(name, "/")
		return !own && !strings.Contains(first, ".")
	}
	if prefix, all := strings.CutSuffix(pattern, "..."); all {
		prefix = strings.TrimSuffix(prefix, "/")
		return prefix == "" || name == prefix || strings.HasPrefix(name, prefix+"/")
	}
	return name == pattern
}

func matchesAny(patterns []string, name string, own bool) bool {
	for _, pattern := range patterns {
		if matches(pattern, name, own) {
			return true
		}
	}
	return false
}
