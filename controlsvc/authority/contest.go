package authority

import (
	"context"
	"sync"
)

// contests tells a denial that rests on units which were just being taken back from one that stands. It knows only this
// service's own reserves; a denial that rests on another replica's is early, never wrong about the limit.
//
// Its size is bounded by the reserves under way, for an entry lives only while one of its key does.
type contests struct {
	mu   sync.Mutex
	keys map[string]*contest
}

// contest is what happens to one key while reserves of it are under way.
type contest struct {
	// entered is how many reserves of the key are under way.
	entered int
	// open counts the reserves that may yet be taken back, for another limit of their requests may deny; closed counts
	// those that no longer may, and rolledBack those of them that were.
	open, closed, rolledBack uint64
	// changed is closed, and replaced, when closed grows; nil while nobody waits.
	changed chan struct{}
}

// entry is one reserve's view of its key's contest, from before the reserve was sent.
type entry struct {
	all  *contests
	name string
	of   *contest
	// own says that this reserve itself counts as open.
	own        bool
	rolledBack uint64
}

// enter is called before a reserve is sent; tentative says that it may be taken back. leave has to follow.
func (c *contests) enter(key string, tentative bool) entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = make(map[string]*contest)
	}
	of := c.keys[key]
	if of == nil {
		of = &contest{}
		c.keys[key] = of
	}
	of.entered++
	if tentative {
		of.open++
	}
	return entry{all: c, name: key, of: of, own: tentative, rolledBack: of.rolledBack}
}

// close says what became of a tentative reserve: whether units of it were taken back. Closing again does nothing.
func (e *entry) close(rolledBack bool) {
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	if !e.own {
		return
	}
	e.own = false
	e.of.open--
	e.of.closed++
	if rolledBack {
		e.of.rolledBack++
		e.rolledBack++ // its own is no reason to ask again
	}
	if e.of.changed != nil {
		close(e.of.changed)
		e.of.changed = nil
	}
}

// leave ends the entry, closing it where it is open.
func (e *entry) leave() {
	e.close(false)
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	e.of.entered--
	if e.of.entered == 0 {
		delete(e.all.keys, e.name)
	}
}

// contested says whether units of the key were taken back from somebody else since the entry was made. Where somebody
// holds units that may yet be taken back it waits for what becomes of them, until the context ends.
func (e *entry) contested(ctx context.Context) bool {
	var until uint64
	for first := true; ; first = false {
		e.all.mu.Lock()
		if first {
			until = e.of.closed + e.of.open
		}
		switch {
		case e.of.rolledBack > e.rolledBack:
			e.all.mu.Unlock()
			return true
		case e.of.closed >= until:
			e.all.mu.Unlock()
			return false
		}
		if e.of.changed == nil {
			e.of.changed = make(chan struct{})
		}
		changed := e.of.changed
		e.all.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
