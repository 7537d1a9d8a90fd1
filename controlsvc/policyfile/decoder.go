package policyfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"sluice/shared/policy"
)

// root is the path of the whole document.
const root = "$"

// decoder reads one file's document, and collects what is wrong with it.
type decoder struct {
	file    string
	errors  Errors
	anchors map[string]*ast.AnchorNode
	// responses are the different ones so far; the first is the policy's own.
	responses []policy.Response
	tiers     tiers
	// bursts are those of the limit being read, its plans' and overrides' among them: its algorithm is known after them.
	bursts []value
	// built is the policy as far as it has been read: its identities.
	built *policy.Policy
	// visited counts the values that were read; stopped says that no more should be.
	visited int
	stopped bool
	// merges says that << may stand in a mapping; merging is how many of them are being read, one within the other.
	merges  bool
	merging int
	// onFields, where it is set, hears which fields each mapping may have: the schema's test.
	onFields func(path string, known []string)
	// hasHashKey: the policy says where the key is that values are hashed by.
	hasHashKey bool
}

// value is a place in the document: never an anchor, an alias or a tag.
type value struct {
	node ast.Node
	path string
}

// entry is a field of a mapping, in the order of the file.
type entry struct {
	name  string
	key   *token.Token
	value value
}

// Visit collects anchors, for ast.Walk.
func (d *decoder) Visit(node ast.Node) ast.Visitor {
	if anchor, ok := node.(*ast.AnchorNode); ok {
		name := anchor.Name.GetToken().Value
		if _, twice := d.anchors[name]; twice {
			d.failAt(anchor.GetToken(), root, "the anchor &%s has been set before, want another name", clip(name))
		}
		d.anchors[name] = anchor
	}
	return d
}

func (d *decoder) collectAnchors(body ast.Node) { ast.Walk(d, body) }

// at resolves anchors and aliases; false after an error.
func (d *decoder) at(node ast.Node, path string) (value, bool) {
	if d.visited++; d.visited > maxValues && !d.stopped {
		d.failAt(position(node), path, "the document has more than %d values when its aliases are written out", maxValues)
		d.stopped = true
	}
	// An alias may stand for an alias, but not for ever.
	for range maxDepth {
		if d.stopped {
			return value{}, false
		}
		switch n := node.(type) {
		case *ast.AnchorNode:
			node = n.Value
		case *ast.AliasNode:
			name := n.Value.GetToken().Value
			anchor, ok := d.anchors[name]
			if !ok || anchor.GetToken().Position.Offset > n.GetToken().Position.Offset {
				d.failAt(n.GetToken(), path, "there is no anchor &%s before this alias", clip(name))
				return value{}, false
			}
			node = anchor.Value
		case *ast.TagNode:
			d.failAt(n.GetToken(), path, "has the tag %s, want none", clip(n.GetToken().Value))
			return value{}, false
		case nil:
			d.failAt(nil, path, "is empty")
			return value{}, false
		default:
			return value{node, path}, true
		}
	}
	d.failAt(position(node), path, "is an alias of itself")
	return value{}, false
}

// entries reads a mapping with any keys; false after an error that leaves nothing to read. want says what the mapping is.
func (d *decoder) entries(v value, want string) ([]entry, bool) {
	mapping, ok := v.node.(ast.MapNode)
	if !ok {
		d.fail(v, "is %s, want %s", describe(v.node), want)
		return nil, false
	}
	var entries []entry
	lines, merged := make(map[string]int), make(map[string]int)
	for i := mapping.MapRange(); i.Next() && !d.stopped; {
		key := i.Key().GetToken()
		if i.Key().IsMergeKey() && d.merges {
			for _, e := range d.merge(i.Value(), v.path) {
				if line, before := lines[e.name]; before {
					d.failAt(key, v.path, "<< has the field %s, which stands on line %d before it, want << first", quote(e.name), line)
				} else if _, twice := merged[e.name]; !twice {
					merged[e.name] = len(entries)
					entries = append(entries, e)
				}
			}
			continue
		}
		name, ok := keyText(i.Key())
		if !ok {
			d.failAt(key, v.path, "%s is no field's name", quote(key.Value))
			continue
		}
		path := child(v.path, name)
		if line, twice := lines[name]; twice {
			d.failAt(key, path, "is there twice, first on line %d", line)
			continue
		}
		lines[name] = key.Position.Line
		e := entry{name, key, value{nil, path}}
		if inner, ok := d.at(i.Value(), path); ok {
			e.value = inner
		}
		if at, instead := merged[name]; instead {
			entries[at] = e
		} else {
			entries = append(entries, e)
		}
	}
	return entries, !d.stopped
}

// merge gives the entries of what << stands for at a path, a mapping or a list of them; of a field of several the first's goes
// first.
func (d *decoder) merge(node ast.Node, path string) (entries []entry) {
	if d.merging++; d.merging > maxDepth {
		d.failAt(position(node), path, "<< is nested more than %d deep", maxDepth)
		d.stopped = true
	}
	defer func() { d.merging-- }()
	v, ok := d.at(node, path)
	if !ok {
		return nil
	}
	sources := []ast.Node{v.node}
	if list, isList := v.node.(*ast.SequenceNode); isList {
		sources = list.Values
	}
	for _, source := range sources {
		if one, ok := d.at(source, path); ok {
			more, _ := d.entries(one, "a mapping for <<")
			entries = append(entries, more...)
		}
	}
	if d.stopped {
		return nil // it is told why
	}
	return entries
}

// fields reads a mapping with the given fields, those that end in "!" being required. What has an error is told, and is
// not in the result.
func (d *decoder) fields(v value, want string, known ...string) (map[string]value, bool) {
	if d.onFields != nil {
		d.onFields(v.path, known)
	}
	entries, ok := d.entries(v, want)
	if !ok {
		return nil, false
	}
	names := make([]string, 0, len(known))
	for _, name := range known {
		names = append(names, strings.TrimSuffix(name, "!"))
	}
	fields, seen := make(map[string]value), make(map[string]bool)
	for _, e := range entries {
		switch {
		case !slices.Contains(names, e.name):
			d.failAt(e.key, v.path, "unknown field %s, %s", quote(e.name), suggest(e.name, names))
			seen[Closest(e.name, names)] = true // it need not be told twice
		case e.value.node != nil:
			fields[e.name] = e.value
		}
		seen[e.name] = true
	}
	for _, name := range known {
		if name, required := strings.CutSuffix(name, "!"); required && !seen[name] {
			d.fail(v, "lacks the field %q", name)
		}
	}
	return fields, !d.stopped
}

// has says whether a mapping has a field, whatever is in it.
func has(v value, name string) bool {
	mapping, ok := v.node.(ast.MapNode)
	if !ok {
		return false
	}
	for i := mapping.MapRange(); i.Next(); {
		if text, ok := keyText(i.Key()); ok && text == name {
			return true
		}
	}
	return false
}

// list reads a list of low to high elements.
func (d *decoder) list(v value, want string, low, high int) ([]value, bool) {
	list, ok := v.node.(*ast.SequenceNode)
	if !ok {
		d.fail(v, "is %s, want %s", describe(v.node), want)
		return nil, false
	}
	if n := len(list.Values); n < low || n > high {
		d.fail(v, "has %d elements, want %d to %d", n, low, high)
		return nil, false
	}
	values := make([]value, 0, len(list.Values))
	for i, node := range list.Values {
		if inner, ok := d.at(node, fmt.Sprintf("%s[%d]", v.path, i)); ok {
			values = append(values, inner)
		}
	}
	return values, !d.stopped
}

// text reads a string. want says what the text is.
func (d *decoder) text(v value, want string) (string, bool) {
	switch n := v.node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		d.fail(v, "is %s, want %s; in quotes it is text", describe(v.node), want)
	default:
		d.fail(v, "is %s, want %s", describe(v.node), want)
	}
	return "", false
}

// number reads a whole number from low to high.
func (d *decoder) number(v value, low, high uint64) (uint64, bool) {
	if n, ok := v.node.(*ast.IntegerNode); ok {
		switch i := n.Value.(type) {
		case uint64:
			if i >= low && i <= high {
				return i, true
			}
		case int64:
			if i >= 0 && uint64(i) >= low && uint64(i) <= high {
				return uint64(i), true
			}
		}
	}
	d.fail(v, "is %s, want a whole number from %d to %d", describe(v.node), low, high)
	return 0, false
}

func keyText(key ast.MapKeyNode) (string, bool) {
	switch k := key.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return k.GetToken().Value, true
	default:
		return "", false
	}
}

// child gives the path of a field.
func child(path, name string) string {
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return path + ".'" + clip(name) + "'"
		}
	}
	return path + "." + clip(name)
}

// position gives the token that a reader would point to.
func position(node ast.Node) *token.Token {
	if node == nil {
		return nil
	}
	if mapping, ok := node.(*ast.MappingNode); ok && !mapping.IsFlowStyle && len(mapping.Values) > 0 {
		return mapping.Values[0].Key.GetToken()
	}
	if pair, ok := node.(*ast.MappingValueNode); ok {
		return pair.Key.GetToken()
	}
	return node.GetToken()
}

func describe(node ast.Node) string {
	switch n := node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		return "the text " + quote(n.Value)
	case *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + clip(node.GetToken().Value)
	case *ast.BoolNode:
		return clip(node.GetToken().Value)
	case *ast.NullNode:
		return "empty"
	default:
		return "something else"
	}
}

// clip cuts text to a length that a line can hold.
func clip(text string) string {
	quoted := quote(text)
	return quoted[1 : len(quoted)-1]
}
