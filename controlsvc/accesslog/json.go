package accesslog

import (
	"errors"
	"strings"

	"github.com/tidwall/gjson"
)

// jsonParser reads an object on each line. The lines of a log have the same names in the same order, nearly always, so that
// what a name means is found by its place.
type jsonParser struct {
	root  *nameNode
	clock clock
	// values are what was found of the roles, and behind them of what is wanted; ranks say which of its names it was.
	values []string
	ranks  []uint16
}

// nameNode is what names lead to within an object.
type nameNode struct {
	takes    []taken
	children map[string]*nameNode
	// seen are the names of the last line, in order, with what they lead to; nil for nothing.
	seen []seenName
}

type seenName struct {
	name string
	node *nameNode
}

// taken is a value that a name stands for; of several names the one of the lowest rank counts.
type taken struct {
	value int
	rank  uint16
}

// maxSeen bounds the names that are found by their place.
const maxSeen = 256

func newJSON(c *Config) *jsonParser {
	p := &jsonParser{root: &nameNode{}, values: make([]string, int(roles)+len(c.Want)), ranks: make([]uint16, int(roles)+len(c.Want))}
	for r := range roles {
		p.add(int(r), c.names(r))
	}
	for i, names := range c.Want {
		p.add(int(roles)+i, names)
	}
	return p
}

// add has each of the names, as it stands and as a path into objects, stand for a value.
func (p *jsonParser) add(value int, names []string) {
	for rank, name := range names {
		name = strings.ToLower(name)
		t := taken{value, uint16(rank + 1)}
		p.root.child(name).take(t)
		if parts := strings.Split(name, "."); len(parts) > 1 {
			n := p.root
			for _, part := range parts {
				n = n.child(part)
			}
			n.take(t)
		}
	}
}

func (n *nameNode) take(t taken) { n.takes = append(n.takes, t) }

func (n *nameNode) child(name string) *nameNode {
	if n.children == nil {
		n.children = map[string]*nameNode{}
	}
	c := n.children[name]
	if c == nil {
		c = &nameNode{}
		n.children[name] = c
	}
	return c
}

func (p *jsonParser) parse(line string, e *Entry) error {
	if !gjson.Valid(line) {
		return errObject
	}
	object := gjson.Parse(line)
	if !object.IsObject() {
		return errObject
	}
	clear(p.values)
	clear(p.ranks)
	p.object(p.root, object)
	text, is := p.value(int(Time))
	if !is {
		return errors.New("no field with the time: want one of " + strings.Join(usual[Time], ", ") + ", or a mapping")
	}
	at, ok := p.clock.read(text)
	if !ok {
		return errTime
	}
	e.At = at
	e.Method, e.Path = p.values[Method], p.values[Path]
	if request, is := p.value(int(Request)); is && (e.Method == "" || e.Path == "") {
		if e.Method, e.Path, ok = cutRequest(request); !ok {
			return errRequest
		}
	}
	if e.Path == "" {
		return errors.New("no field with the path: want one of " + strings.Join(usual[Path], ", ") + ", or a mapping")
	}
	if e.Method != "" && !isMethod(e.Method) {
		return errRequest
	}
	e.Authority, e.Client = p.values[Authority], p.values[Client]
	e.Status, _ = readStatus(p.values[Status])
	for i := range e.wanted {
		if value, is := p.value(int(roles) + i); is {
			e.want(i, value)
		}
	}
	return nil
}

func (p *jsonParser) fields() []string {
	names := make([]string, 0, len(p.root.seen))
	for _, s := range p.root.seen {
		names = append(names, s.name)
	}
	return names
}

func (p *jsonParser) value(i int) (string, bool) { return p.values[i], p.ranks[i] > 0 }

// object takes what is known of an object's values.
func (p *jsonParser) object(n *nameNode, object gjson.Result) {
	place := 0
	object.ForEach(func(key, value gjson.Result) bool {
		to := n.lookUp(place, key.Str)
		place++
		if to == nil {
			return true
		}
		switch {
		case value.IsObject():
			if to.children != nil {
				p.object(to, value)
			}
		case value.Type != gjson.Null:
			p.take(to, value)
		}
		return true
	})
}

func (n *nameNode) lookUp(place int, name string) *nameNode {
	if place < len(n.seen) && n.seen[place].name == name {
		return n.seen[place].node
	}
	node := n.children[name]
	if node == nil {
		node = n.children[strings.ToLower(name)]
	}
	const longest = 256
	if len(name) > longest {
		return node
	}
	if place < len(n.seen) {
		n.seen[place] = seenName{strings.Clone(name), node}
	} else if place == len(n.seen) && place < maxSeen {
		n.seen = append(n.seen, seenName{strings.Clone(name), node})
	}
	return node
}

func (p *jsonParser) take(n *nameNode, value gjson.Result) {
	text := value.Str
	switch {
	case value.IsArray():
		text = joined(value)
	case value.Type != gjson.String:
		text = value.Raw
	}
	if text == "-" {
		return
	}
	for _, t := range n.takes {
		if rank := p.ranks[t.value]; rank == 0 || t.rank < rank {
			p.values[t.value], p.ranks[t.value] = text, t.rank
		}
	}
}

// joined gives the elements of a list as fields of one name are joined.
func joined(list gjson.Result) string {
	var b strings.Builder
	for i, element := range list.Array() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(element.String())
	}
	return b.String()
}
