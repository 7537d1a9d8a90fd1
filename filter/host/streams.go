package host

// maxFreeRecords is how many records of streams that are gone are kept for the streams to come.
const maxFreeRecords = 1024

// Streams holds a record for each stream that is under way, and has used ones ready for the next, so that a request allocates
// none. It is a hash table of its own, with linear probing, because the proxy numbers streams one after another: a record is
// nearly always where its number says, and to find it takes a few instructions, where Go's map takes ten functions, which
// on a request's way are all cold. The zero value is ready for use.
type Streams[T any] struct {
	slots []slot[T] // a power of two of them, at most half of them taken
	n     int
	free  []*T
}

type slot[T any] struct {
	id     ContextID
	record *T // nil: the slot is free
}

// Get gives a stream's record; nil where it has none.
func (s *Streams[T]) Get(id ContextID) *T {
	if len(s.slots) == 0 {
		return nil
	}
	return s.slots[s.find(id)].record
}

// Add gives a stream that has no record one, which is as it was when it was removed, or new.
func (s *Streams[T]) Add(id ContextID) *T {
	if 2*s.n >= len(s.slots) {
		s.grow()
	}
	var record *T
	if last := len(s.free) - 1; last >= 0 {
		record, s.free = s.free[last], s.free[:last]
	} else {
		record = new(T)
	}
	s.slots[s.find(id)] = slot[T]{id, record}
	s.n++
	return record
}

// Remove takes a stream's record away, where it has one.
func (s *Streams[T]) Remove(id ContextID) {
	if len(s.slots) == 0 {
		return
	}
	mask := uint(len(s.slots) - 1)
	at := uint(s.find(id))
	record := s.slots[at].record
	if record == nil {
		return
	}
	s.n--
	if len(s.free) < maxFreeRecords {
		s.free = append(s.free, record)
	}
	// What stands behind it moves up, where it would no longer be found: as far back as its own place, at most to at.
	for next := (at + 1) & mask; s.slots[next].record != nil; next = (next + 1) & mask {
		home := uint(s.slots[next].id) & mask
		if (next-home)&mask >= (next-at)&mask {
			s.slots[at] = s.slots[next]
			at = next
		}
	}
	s.slots[at] = slot[T]{}
}

// find gives where a stream's record is, or would be put.
func (s *Streams[T]) find(id ContextID) int {
	mask := uint(len(s.slots) - 1)
	at := uint(id) & mask
	for s.slots[at].record != nil && s.slots[at].id != id {
		at = (at + 1) & mask
	}
	return int(at)
}

func (s *Streams[T]) grow() {
	old := s.slots
	s.slots = make([]slot[T], max(16, 2*len(old)))
	for _, taken := range old {
		if taken.record != nil {
			s.slots[s.find(taken.id)] = taken
		}
	}
}
