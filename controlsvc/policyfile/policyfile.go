// Package policyfile turns the policy file, YAML, into a policy.Policy. A file is taken whole or not at all; what is wrong
// with it is told all at once, each with its place and what was expected there.
package policyfile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"

	"sluice/shared/policy"
	"sluice/shared/wire"
)

// Bounds on a file. Those on what is in it are in shared/policy and shared/limit.
const (
	// MaxFileSize is in bytes.
	MaxFileSize = 1 << 20
	// maxErrors is how many errors are told; the reader stops there.
	maxErrors = 100
	// maxValues bounds what is read when every alias is written out; without aliases the largest file has half as many.
	maxValues = 1 << 19
	// maxCompiled leaves room for the rest of the reply that carries the policy to the filter.
	maxCompiled = wire.MaxMessageSize - 1024
)

// Load reads and compiles the file of that path. Where the file can be read and is no valid policy the error is of type
// Errors.
func Load(path string) (*policy.Policy, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	return Parse(path, data)
}

// Parse compiles a policy file's content; name is what errors call the file. Errors are of type Errors.
func Parse(name string, data []byte) (*policy.Policy, error) {
	d := &decoder{file: name, anchors: make(map[string]*ast.AnchorNode)}
	p := d.compile(data)
	if len(d.errors) > 0 {
		slices.SortStableFunc(d.errors, func(a, b *Error) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		return nil, d.errors
	}
	return p, nil
}

func (d *decoder) compile(data []byte) *policy.Policy {
	body := d.document(data)
	if body == nil {
		return nil
	}
	p := d.policy(value{body, root})
	if len(d.errors) > 0 {
		return nil
	}
	if err := Seal(p); err != nil {
		d.failAt(nil, root, "%v", err)
		return nil
	}
	return p
}

// Seal gives a policy the version that names what it says: comments, order of fields and spelling of rates do not change it.
// The error says why the filter would refuse the policy, which must not become the one in force then.
func Seal(p *policy.Policy) error {
	p.Version = ""
	compiled := wire.AppendPolicy(nil, p)
	if len(compiled) > maxCompiled {
		return fmt.Errorf("the compiled policy has %d bytes, want at most %d", len(compiled), maxCompiled)
	}
	sum := sha256.Sum256(compiled)
	p.Version = hex.EncodeToString(sum[:8])
	return policy.Validate(p) //nolint:wrapcheck // it says where
}

// document gives the root of the file's one document, or nil after an error.
func (d *decoder) document(data []byte) ast.Node {
	switch i := firstInvalid(data); {
	case len(data) > MaxFileSize:
		d.failAt(nil, root, "the file has more than %d bytes", MaxFileSize)
		return nil
	case i >= 0:
		line := 1 + bytes.Count(data[:i], []byte("\n"))
		d.add(&Error{File: d.file, Line: line, Column: i - bytes.LastIndexByte(data[:i], '\n'), Path: root, Problem: "is not UTF-8 text"})
		return nil
	}
	file := d.parse(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	if file == nil {
		return nil
	}
	var body ast.Node
	for _, document := range file.Docs {
		if document.Body == nil || document.Body.Type() == ast.DirectiveType || document.Body.Type() == ast.CommentGroupType {
			continue
		}
		if body != nil {
			d.failAt(document.Body.GetToken(), root, "a second document begins here, want one")
			return nil
		}
		body = document.Body
	}
	if body == nil {
		d.failAt(nil, root, "the file is empty, want a policy")
		return nil
	}
	d.collectAnchors(body)
	return body
}

// parse reads the YAML, or gives nil after an error.
func (d *decoder) parse(data []byte) (file *ast.File) {
	// The library has paniced on odd input before; a file must not stop the service that already has a good one.
	defer func() {
		if r := recover(); r != nil {
			d.failAt(nil, root, "cannot be read as YAML: %v", r)
			file = nil
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if at, problem := checkShape(tokens); problem != "" {
		d.failAt(at, root, "%s", problem)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	var syntax *yaml.SyntaxError
	switch {
	case errors.As(err, &syntax):
		d.failAt(syntax.Token, root, "cannot be read as YAML: %s", syntax.Message)
		return nil
	case err != nil:
		d.failAt(nil, root, "cannot be read as YAML: %v", err)
		return nil
	}
	return file
}

// firstInvalid gives where the first byte is that is not UTF-8 or is a NUL, or -1.
func firstInvalid(data []byte) int {
	nul := bytes.IndexByte(data, 0)
	if utf8.Valid(data) {
		return nul
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == 0 || r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return nul
}
