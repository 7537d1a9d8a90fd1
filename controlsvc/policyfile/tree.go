package policyfile

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// maxTreeDepth is how deep a document may be with its aliases written out: an alias may stand in what it stands for.
const maxTreeDepth = 2 * maxDepth

// Kind is what stands at a place of a document.
type Kind uint8

// The kinds. Scalar is text, a number or true or false, whatever its spelling; Empty is null, or nothing.
const (
	Empty Kind = iota
	Scalar
	List
	Mapping
)

// Node is a place in a document of another format than a policy's, with its aliases and merges (<<) written out.
type Node struct {
	Kind Kind
	// Line and Column count from 1.
	Line, Column int
	// Path is the place in the document: "$.descriptors[1].key".
	Path string
	// Text is a scalar's, as it stands in the file, without quotes.
	Text string
	// Elements are a list's.
	Elements []Node
	// Fields are a mapping's, in the order of the file, none of them twice.
	Fields []Field
}

// Field is a field of a mapping.
type Field struct {
	Name string
	// Line and Column are the name's, and count from 1.
	Line, Column int
	Value        Node
}

// ReadTree reads a document of any format within the bounds of a policy file; name is what errors call the file. Errors
// are of type Errors.
func ReadTree(name string, data []byte) (Node, error) {
	d := &decoder{file: name, anchors: make(map[string]*ast.AnchorNode), merges: true}
	var tree Node
	if body := d.document(data); body != nil {
		if v, ok := d.at(body, root); ok {
			tree = d.tree(v, 0)
		}
	}
	if len(d.errors) > 0 {
		return Node{}, d.errors
	}
	return tree, nil
}

func (d *decoder) tree(v value, depth int) Node {
	if depth > maxTreeDepth {
		d.fail(v, "is nested more than %d deep when its aliases are written out", maxTreeDepth)
		d.stopped = true
		return Node{}
	}
	n := Node{Path: v.path}
	if at := position(v.node); at != nil && at.Position != nil {
		n.Line, n.Column = at.Position.Line, at.Position.Column
	}
	switch node := v.node.(type) {
	case ast.MapNode:
		n.Kind = Mapping
		entries, _ := d.entries(v, "a mapping")
		for _, e := range entries {
			f := Field{Name: e.name, Line: e.key.Position.Line, Column: e.key.Position.Column}
			if e.value.node != nil {
				f.Value = d.tree(e.value, depth+1)
			}
			n.Fields = append(n.Fields, f)
		}
	case *ast.SequenceNode:
		n.Kind = List
		for i, element := range node.Values {
			if inner, ok := d.at(element, fmt.Sprintf("%s[%d]", v.path, i)); ok {
				n.Elements = append(n.Elements, d.tree(inner, depth+1))
			}
		}
	case *ast.NullNode:
	case *ast.StringNode:
		n.Kind, n.Text = Scalar, node.Value
	case *ast.LiteralNode:
		n.Kind, n.Text = Scalar, node.Value.Value
	default:
		n.Kind, n.Text = Scalar, v.node.GetToken().Value
	}
	return n
}
