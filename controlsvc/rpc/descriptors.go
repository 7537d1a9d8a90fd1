package rpc

import (
	"strings"

	"sluice/shared/policy"
)

// descriptors finds the limit of a descriptor. It is a tree with a level for each entry: at each, a node whose value is the
// entry's goes before one whose prefix is (the longest first), and that before one for any value of the key; whichever is
// taken, no other is tried. So does envoyproxy/ratelimit read its files.
type descriptors struct {
	byKey map[string]*descriptorKey
}

// descriptorKey is what follows an entry of a key.
type descriptorKey struct {
	exact    map[string]*descriptorNode
	prefixes []*descriptorNode // the longest prefix first
	any      *descriptorNode
}

// descriptorNode is what follows an entry with such a value.
type descriptorNode struct {
	prefix string
	// limit is an index into the policy's limits; -1 where none ends here.
	limit int
	next  descriptors
}

// newDescriptors makes the tree of a policy's limits that have a descriptor.
func newDescriptors(p *policy.Policy) *descriptors {
	root := &descriptors{}
	for i := range p.Limits {
		at := root
		entries := p.Limits[i].Descriptor
		for j := range entries {
			node := at.grow(&entries[j])
			if j == len(entries)-1 {
				node.limit = i
			}
			at = &node.next
		}
	}
	return root
}

// grow gives the node of an entry, made now where there is none.
func (d *descriptors) grow(e *policy.DescriptorEntry) *descriptorNode {
	if d.byKey == nil {
		d.byKey = map[string]*descriptorKey{}
	}
	k := d.byKey[e.Key]
	if k == nil {
		k = &descriptorKey{exact: map[string]*descriptorNode{}}
		d.byKey[e.Key] = k
	}
	node := &descriptorNode{limit: -1}
	switch {
	case e.Prefix:
		at := 0
		for ; at < len(k.prefixes) && len(k.prefixes[at].prefix) >= len(e.Value); at++ {
			if k.prefixes[at].prefix == e.Value {
				return k.prefixes[at]
			}
		}
		node.prefix = e.Value
		k.prefixes = append(k.prefixes, nil)
		copy(k.prefixes[at+1:], k.prefixes[at:])
		k.prefixes[at] = node
	case e.Value == "":
		if k.any != nil {
			return k.any
		}
		k.any = node
	default:
		if there := k.exact[e.Value]; there != nil {
			return there
		}
		k.exact[e.Value] = node
	}
	return node
}

// find gives the limit of a descriptor in the policy that the tree is of, and the key made of the values that tell callers
// apart, each as policy.EntryForm has it; false where no limit has such a descriptor.
func (d *descriptors) find(p *policy.Policy, entries []entry) (limit int, key string, found bool) {
	if len(entries) > policy.MaxDescriptorEntries {
		return 0, "", false
	}
	limit = -1
	for _, e := range entries {
		node := d.byKey[string(e.key)].take(e.value)
		if node == nil {
			return 0, "", false
		}
		limit, d = node.limit, &node.next
	}
	if limit < 0 {
		return 0, "", false
	}
	var parts [policy.MaxDescriptorEntries]string
	n := 0
	for i, e := range entries {
		// The limit's own: two limits may share a node, of which only one hashes.
		if of := &p.Limits[limit].Descriptor[i]; of.Counted() {
			parts[n] = p.EntryForm(of, string(e.value))
			n++
		}
	}
	return limit, strings.Join(parts[:n], "/"), true
}

// take gives the node for a value; nil where there is none. A key that is not there has no values.
func (k *descriptorKey) take(value []byte) *descriptorNode {
	if k == nil {
		return nil
	}
	if node := k.exact[string(value)]; node != nil {
		return node
	}
	for _, node := range k.prefixes {
		if len(value) >= len(node.prefix) && string(value[:len(node.prefix)]) == node.prefix {
			return node
		}
	}
	return k.any
}
