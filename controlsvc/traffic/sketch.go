package traffic

import (
	"container/heap"
	"strings"
)

// Counts is what became of requests. Each request is in exactly one of Admitted, Denied and Left.
type Counts struct {
	Admitted int64 `json:"admitted"`
	Denied   int64 `json:"denied"`
	// Left is requests whose client went away before they were decided.
	Left int64 `json:"left,omitempty"`
	// ShadowAdmitted and ShadowDenied are what limits in shadow would have made of admitted requests, one for each limit.
	ShadowAdmitted int64 `json:"shadow_admitted,omitempty"`
	ShadowDenied   int64 `json:"shadow_denied,omitempty"`
	// Near is the admitted requests that left 5 % of their rate or less.
	Near int64 `json:"near,omitempty"`
	// Fallback is the requests that were decided without the service, as on_unavailable says.
	Fallback int64 `json:"fallback,omitempty"`
}

func (c *Counts) add(o Counts) {
	c.Admitted += o.Admitted
	c.Denied += o.Denied
	c.Left += o.Left
	c.ShadowAdmitted += o.ShadowAdmitted
	c.ShadowDenied += o.ShadowDenied
	c.Near += o.Near
	c.Fallback += o.Fallback
}

// denials is what a sketch ranks by.
func (c *Counts) denials() int64 { return c.Denied + c.ShadowDenied }

// name is what a sketch counts: a key of a limit, or a route under one.
type name struct{ limit, name string }

// counter is one of the names that a sketch knows.
type counter struct {
	name name
	// most is the most denials that the name can have had, and over by how much that may be too many. What the name had
	// since it came in is in counts, so that most − over = counts.denials().
	most, over int64
	counts     Counts
	index      int
}

// sketch knows the names with most denials in a fixed space: Space-Saving (Metwally, Agrawal, El Abbadi, 2005), with weights.
// Of N denials in all a name with more than N/capacity is in it, and no name is over by more than N/capacity.
//
// It is our own, for those that there are count one number by a name, or do not bound what they are wrong by, which has to
// be known where several are added up.
type sketch struct {
	capacity int
	known    map[name]*counter
	least    []*counter // a heap: the name with the fewest denials at the top
	// floor is the most denials that a name can have had that is not known: what the last name had that was dropped.
	floor int64
}

func newSketch(capacity int) *sketch {
	return &sketch{capacity: capacity, known: make(map[name]*counter), least: nil}
}

// clear forgets everything, and keeps the space.
func (s *sketch) clear() {
	clear(s.known)
	clear(s.least)
	s.least, s.floor = s.least[:0], 0
}

// add counts what a name had. A name without denials is only let in while there is room: its counts are then exact when its
// denials begin.
func (s *sketch) add(n name, c Counts) {
	if at, found := s.known[n]; found {
		at.counts.add(c)
		at.most += c.denials()
		heap.Fix((*byDenials)(s), at.index)
		return
	}
	var at *counter
	switch {
	case len(s.least) < s.capacity:
		at = &counter{}
		defer heap.Push((*byDenials)(s), at)
	case c.denials() == 0:
		return
	default:
		at = s.least[0]
		delete(s.known, at.name)
		s.floor = at.most
		defer heap.Fix((*byDenials)(s), 0)
	}
	// The texts may be parts of a whole message, which is not to be kept for them.
	n = name{strings.Clone(n.limit), strings.Clone(n.name)}
	at.name, at.counts = n, c
	at.most, at.over = s.floor+c.denials(), s.floor
	s.known[n] = at
}

// byDenials is the sketch as container/heap wants it.
type byDenials sketch

func (h *byDenials) Len() int           { return len(h.least) }
func (h *byDenials) Less(i, j int) bool { return h.least[i].most < h.least[j].most }

func (h *byDenials) Swap(i, j int) {
	h.least[i], h.least[j] = h.least[j], h.least[i]
	h.least[i].index, h.least[j].index = i, j
}

func (h *byDenials) Push(x any) {
	at, _ := x.(*counter)
	at.index = len(h.least)
	h.least = append(h.least, at)
}

func (h *byDenials) Pop() any {
	last := h.least[len(h.least)-1]
	h.least = h.least[:len(h.least)-1]
	return last
}

// ranked is the names of several sketches added up.
type ranked struct {
	names map[name]*ranking
	// floor is the most denials that a name can have had that is not among them.
	floor int64
}

// ranking is a name's counts, and by how many its denials may be more.
type ranking struct {
	counts Counts
	more   int64
	// known is the sum of the floors of the sketches that know the name; see ranked.finish.
	known int64
}

func newRanked() *ranked { return &ranked{names: make(map[name]*ranking)} }

// add adds what a sketch knows. The sketch's floor is what each name that it does not know may have had.
func (r *ranked) add(s *sketch) {
	for _, at := range s.least {
		r.addName(at.name, at.counts, at.over, s.floor)
	}
	r.floor += s.floor
}

func (r *ranked) addName(n name, counts Counts, over, floor int64) {
	at := r.names[n]
	if at == nil {
		at = &ranking{}
		r.names[n] = at
	}
	at.counts.add(counts)
	at.more += over
	at.known += floor
}

// over is by how many the name's denials may be more than its counts say: what it may have had before it came into the
// sketches that know it, and in those that do not.
func (r *ranked) over(at *ranking) int64 { return at.more + r.floor - at.known }
