package memory

import (
	"slices"
	"strings"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// slidingLog counts every charge until its score has left the window.
type slidingLog struct{ logs []*logWindow }

var _ count = (*slidingLog)(nil)

// clock implements count.
func (*slidingLog) clock(read instant.Instant) instant.Instant { return read }

// windows implements count.
func (l *slidingLog) windows(rates []limit.Rate, now instant.Instant) []window {
	l.prune(now)
	view := make([]window, len(rates))
	for i, r := range rates {
		view[i] = l.window(r.Window)
	}
	return view
}

// window gives the window of a length, which is made where it is not there.
func (l *slidingLog) window(length time.Duration) *logWindow {
	for _, w := range l.logs {
		if w.length == length {
			return w
		}
	}
	w := &logWindow{length: length}
	l.logs = append(l.logs, w)
	return w
}

// prune forgets what has left the windows. Each charge is pruned once, so its cost is part of the charging's.
func (l *slidingLog) prune(now instant.Instant) {
	for _, w := range l.logs {
		w.prune(now)
	}
	l.logs = slices.DeleteFunc(l.logs, func(w *logWindow) bool { return len(w.blocks) == 0 })
}

// grant implements count.
func (l *slidingLog) grant(g store.Grant, rates []limit.Rate, end, now instant.Instant) error {
	for _, r := range rates {
		if l.window(r.Window).size() >= store.MaxCharges {
			return errFull
		}
	}
	c := charge{score: end, units: g.Units, grant: g.Name(), tail: tailOf(g.Call)}
	for _, r := range rates {
		l.window(r.Window).add(c, now)
	}
	return nil
}

// settle implements count.
func (l *slidingLog) settle(g store.Grant, name string, uses []authority.Use, unused int64, now instant.Instant) {
	l.prune(now)
	groups, kept := store.Divide(g.Units, uses, unused)
	for _, w := range l.logs {
		for _, whole := range w.take(g.Call, func(grant string) bool { return grant == name }) {
			for _, used := range groups {
				w.add(charge{score: min(whole.score, now.Add(-used.Age)), units: used.Units}, now)
			}
			if kept > 0 {
				w.add(charge{score: whole.score, units: kept}, now)
			}
		}
	}
}

// cancel implements count.
func (l *slidingLog) cancel(call, part string, now instant.Instant) {
	l.prune(now)
	begins := call + ":" // behind the kind
	if part != "" {
		begins += part + ":"
	}
	for _, w := range l.logs {
		w.take(call, func(grant string) bool { return strings.HasPrefix(grant[len("l:"):], begins) })
	}
}

// record implements count.
func (l *slidingLog) record(groups []authority.Use, rates []limit.Rate, now instant.Instant) error {
	l.prune(now)
	var sum int64
	for _, used := range groups {
		sum += used.Units
	}
	for _, r := range rates {
		if w := l.window(r.Window); w.total().all+sum > store.MaxHeld || w.size() >= store.MaxCharges {
			return errFull
		}
	}
	for _, r := range rates {
		for _, used := range groups {
			l.window(r.Window).add(charge{score: now.Add(-used.Age), units: used.Units}, now)
		}
	}
	return nil
}

// reset implements count.
func (l *slidingLog) reset(rates []limit.Rate) {
	l.logs = slices.DeleteFunc(l.logs, func(w *logWindow) bool {
		return slices.ContainsFunc(rates, func(r limit.Rate) bool { return r.Window == w.length })
	})
}

// leases implements count.
func (l *slidingLog) leases(now instant.Instant) []liveLease {
	var live []liveLease
	seen := map[string]bool{}
	for _, w := range l.logs {
		for i := range w.blocks {
			for _, c := range w.blocks[i].charges {
				if g, ok := store.ParseGrant(c.grant); ok && c.isLease() && c.score > now && !seen[c.grant] {
					seen[c.grant] = true
					live = append(live, liveLease{g, c.score})
				}
			}
		}
	}
	return live
}

// emptyAt implements count.
func (l *slidingLog) emptyAt(now instant.Instant) instant.Instant {
	at := now
	for _, w := range l.logs {
		at = max(at, w.emptyAt(now))
	}
	return at
}
