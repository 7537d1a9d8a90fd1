package jsontext

import (
	"errors"
	"unicode/utf8"
)

// maxDepth bounds how deep objects and lists may lie in each other.
const maxDepth = 64

var errDeep = errors.New("objects and lists lie too deep in each other")

// Find gives the value at a path of names in a JSON object. False where there is none, where a name of the path stands
// twice in its object, and where the text is not one JSON object of at most MaxLength bytes.
func Find(text string, path []string) (Value, bool) {
	if len(text) > MaxLength || !utf8.ValidString(text) || len(path) == 0 {
		return Value{}, false
	}
	r := &finder{reader: reader{text: text}}
	if !r.skip('{') {
		return Value{}, false
	}
	if r.object(path, 1) != nil || r.end() != nil || r.times != 1 {
		return Value{}, false
	}
	return r.found, true
}

// finder is a reader on the way to a value.
type finder struct {
	reader

	found Value
	times int
}

// object reads the rest of an object after its bracket. Of what is at path it takes note; without a path, of nothing.
func (r *finder) object(path []string, depth int) error {
	if r.skip('}') {
		return nil
	}
	for seen := false; ; {
		key, err := r.readString("a name in quotes")
		if err != nil {
			return err
		}
		if err := r.expect(':', `":"`); err != nil {
			return err
		}
		var below []string
		if len(path) > 0 && key == path[0] {
			if seen {
				r.times++ // whichever of them others take
			}
			seen, below = true, path[1:]
			if len(below) == 0 {
				r.times++
			}
		}
		v, err := r.any(below, depth)
		if err != nil {
			return err
		}
		if len(path) == 1 && below != nil {
			r.found = v
		}
		if !r.skip(',') {
			return r.expect('}', `"," or "}"`)
		}
	}
}

// any reads a value, with all that is in it.
func (r *finder) any(path []string, depth int) (Value, error) {
	v, err := r.value()
	if err != nil || v.Kind != Compound {
		return v, err
	}
	if depth >= maxDepth {
		return v, errDeep
	}
	if v.Text == "{" {
		return v, r.object(path, depth+1)
	}
	if r.skip(']') {
		return v, nil
	}
	for {
		if _, err := r.any(nil, depth+1); err != nil {
			return v, err
		}
		if !r.skip(',') {
			return v, r.expect(']', `"," or "]"`)
		}
	}
}
