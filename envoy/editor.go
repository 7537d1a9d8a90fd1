package envoy

import (
	"fmt"
	"net"
	"strconv"
)

// editor walks a YAML document that was read into maps and slices, and keeps the first thing that was not as expected.
type editor struct{ err error }

// node is a place in the document; its value is nil where the way there failed.
type node struct {
	editor *editor
	value  any
	path   string
}

func (n node) fail(want string) node {
	if n.editor.err == nil {
		n.editor.err = fmt.Errorf("%s: want %s, found %T", n.path, want, n.value)
	}
	return node{editor: n.editor, path: n.path}
}

func (n node) field(name string) node {
	object, isObject := n.value.(map[string]any)
	child, found := object[name]
	if !isObject || !found {
		return n.fail("an object with a field " + name)
	}
	return node{n.editor, child, n.path + "." + name}
}

// first gives the first item of a list.
func (n node) first() node {
	list, isList := n.value.([]any)
	if !isList || len(list) == 0 {
		return n.fail("a list with an item")
	}
	return node{n.editor, list[0], n.path + "[0]"}
}

// named finds the item of a list of objects that has that name.
func (n node) named(name string) node {
	list, isList := n.value.([]any)
	if !isList {
		return n.fail("a list")
	}
	for _, item := range list {
		if object, isObject := item.(map[string]any); isObject && object["name"] == name {
			return node{n.editor, item, n.path + "[" + name + "]"}
		}
	}
	return n.fail("a list with an item named " + name)
}

func (n node) set(name string, value any) {
	object, isObject := n.value.(map[string]any)
	if !isObject {
		n.fail("an object to set " + name + " in")
		return
	}
	object[name] = value
}

// setAddress sets the socket address in the node's field "address" to HOST:PORT.
func (n node) setAddress(address string) {
	host, portText, err := net.SplitHostPort(address)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if err != nil || portErr != nil {
		if n.editor.err == nil {
			n.editor.err = fmt.Errorf("%s: %q is not HOST:PORT", n.path, address)
		}
		return
	}
	socket := n.field("address").field("socket_address")
	socket.set("address", host)
	socket.set("port_value", port)
}
