package rig

import "sync"

// tail keeps the last limit bytes that are written to it, in whole lines where that can be had.
type tail struct {
	mu    sync.Mutex
	limit int
	kept  []byte
	lost  bool
}

func newTail(limit int) *tail { return &tail{limit: limit} }

// Write never fails and never blocks for long, so that a chatty process is never held up.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	if len(t.kept) > 2*t.limit {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.limit:]...)
		t.lost = true
	}
	return len(b), nil
}

// String gives what is kept, after a mark where something before it is lost.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept, lost := t.kept, t.lost
	if len(kept) > t.limit {
		kept, lost = kept[len(kept)-t.limit:], true
	}
	if lost {
		return "[…]" + string(kept)
	}
	return string(kept)
}
