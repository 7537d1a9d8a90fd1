package wasmhost

import "strings"

// Headers is a header map in order: name and value. Names are in lower case;
// those that begin with a colon are HTTP/2's pseudo headers. The same name may
// occur more than once.
type Headers [][2]string

// Get is the first value of the name, "" if there is none.
func (h Headers) Get(name string) string {
	v, _ := h.lookup(name)
	return v
}

// Has tells whether the name occurs.
func (h Headers) Has(name string) bool {
	_, ok := h.lookup(name)
	return ok
}

// Values are all values of the name, in order.
func (h Headers) Values(name string) []string {
	var out []string
	for _, p := range h {
		if strings.EqualFold(p[0], name) {
			out = append(out, p[1])
		}
	}
	return out
}

func (h Headers) lookup(name string) (string, bool) {
	for _, p := range h {
		if strings.EqualFold(p[0], name) {
			return p[1], true
		}
	}
	return "", false
}

// clone copies the map, with names in lower case.
func (h Headers) clone() Headers {
	if h == nil {
		return nil
	}
	out := make(Headers, len(h))
	for i, p := range h {
		out[i] = [2]string{strings.ToLower(p[0]), p[1]}
	}
	return out
}

func (h *Headers) add(name, value string) {
	*h = append(*h, [2]string{strings.ToLower(name), value})
}

func (h *Headers) remove(name string) {
	kept := (*h)[:0]
	for _, p := range *h {
		if !strings.EqualFold(p[0], name) {
			kept = append(kept, p)
		}
	}
	*h = kept
}

// replace sets the name's only value, where the first one stood.
func (h *Headers) replace(name, value string) {
	for i, p := range *h {
		if strings.EqualFold(p[0], name) {
			rest := (*h)[i+1:]
			rest.remove(name)
			*h = append((*h)[:i+1], rest...)
			(*h)[i][1] = value
			return
		}
	}
	h.add(name, value)
}

// byteSize is what proxy_get_header_map_size reports: names and values.
func (h Headers) byteSize() int {
	n := 0
	for _, p := range h {
		n += len(p[0]) + len(p[1])
	}
	return n
}
