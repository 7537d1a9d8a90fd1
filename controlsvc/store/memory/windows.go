package memory

import (
	"cmp"
	"slices"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// fixedWindows counts in windows that are aligned to 1970 and numbered from there: for the fixed window, and for the sliding
// window counter. A lease ends with its window, so all of it is of one window.
type fixedWindows struct {
	// weighted: the units of the window before count as well, by the share that a window which ends now overlaps, rounded
	// up.
	weighted bool
	// at is the latest instant that was seen. Where the clock steps back, time stands still until it has caught up, for an
	// earlier window's count may be gone.
	at      instant.Instant
	lengths []*fixedLength
	// grants are unsettled, in their order. strict is how many strict charges are among them, at most store.MostStrict: of
	// more only the younger half is known.
	grants []fixedGrant
	strict int
}

var _ count = (*fixedWindows)(nil)

// fixedLength is the windows of one length.
type fixedLength struct {
	length   time.Duration
	weighted bool
	// counts has those that still matter, in their order.
	counts []fixedCount
}

// fixedCount is the units of the window of a number, and those of them that leases may give back.
type fixedCount struct{ number, units, leased int64 }

func (c fixedCount) all() int64     { return c.units }
func (c fixedCount) certain() int64 { return c.units - c.leased }

// fixedGrant is a grant that may be settled or cancelled.
type fixedGrant struct {
	store.Grant

	end instant.Instant
	// held are the windows' lengths that it was charged to.
	held []*fixedLength
}

func (f *fixedLength) numberAt(at instant.Instant) int64 { return int64(at) / f.length.Microseconds() }

func (f *fixedLength) startOf(number int64) instant.Instant {
	return instant.Instant(number * f.length.Microseconds())
}

// oldest is the number of the first window that still matters.
func (f *fixedLength) oldest(now instant.Instant) int64 {
	if f.weighted {
		return f.numberAt(now) - 1
	}
	return f.numberAt(now)
}

func (f *fixedLength) add(when, now instant.Instant, units, leased int64) {
	number := f.numberAt(when)
	if number < f.oldest(now) {
		return
	}
	at, found := f.find(number)
	if !found {
		f.counts = slices.Insert(grown(f.counts), at, fixedCount{number: number})
	}
	c := &f.counts[at]
	c.units, c.leased = c.units+units, c.leased+leased
}

// find gives where a window's count is, or would be.
func (f *fixedLength) find(number int64) (at int, found bool) {
	return slices.BinarySearchFunc(f.counts, number, func(c fixedCount, number int64) int { return cmp.Compare(c.number, number) })
}

// of gives a window's count.
func (f *fixedLength) of(number int64) fixedCount {
	if at, found := f.find(number); found {
		return f.counts[at]
	}
	return fixedCount{}
}

func (f *fixedLength) usedAt(at instant.Instant) int64 {
	number := f.numberAt(at)
	used := f.of(number).units
	if earlier := f.of(number - 1).units; f.weighted && earlier > 0 {
		share, rest := divide(earlier, int64(f.startOf(number+1)-at), f.length.Microseconds())
		used += share
		if rest > 0 {
			used++
		}
	}
	return used
}

// firstFree gives the first instant from now on at which there is room for what of each window counts.
func (f *fixedLength) firstFree(room int64, counted func(fixedCount) int64, now instant.Instant) instant.Instant {
	for number := f.numberAt(now); ; number++ {
		left, earlier := room-counted(f.of(number)), int64(0)
		if f.weighted {
			earlier = counted(f.of(number - 1))
		}
		switch {
		case left >= earlier:
			return max(now, f.startOf(number))
		case left > 0: // when so little of the window is left that the earlier one's share fits in
			if micros, _ := divide(left, f.length.Microseconds(), earlier); micros > 0 {
				return max(now, f.startOf(number+1)-instant.Instant(micros))
			}
		}
	}
}

// latest gives the number of the last window that has units; false where there is none.
func (f *fixedLength) latest() (int64, bool) {
	for _, c := range slices.Backward(f.counts) {
		if c.units > 0 {
			return c.number, true
		}
	}
	return 0, false
}

// free implements window.
func (f *fixedLength) free(r limit.Rate, start, _ instant.Instant) int64 {
	return r.Units - f.usedAt(start)
}

// soonest implements window.
func (f *fixedLength) soonest(r limit.Rate, units int64, _ time.Duration, now instant.Instant) (all, certain instant.Instant) {
	room := r.Units - units
	return f.firstFree(room, fixedCount.all, now), f.firstFree(room, fixedCount.certain, now)
}

// lasts implements window.
func (f *fixedLength) lasts(_ limit.Rate, _ int64, start, end instant.Instant, _ bool) instant.Instant {
	return min(end, f.startOf(f.numberAt(start)+1)-1)
}

// standing implements window.
func (f *fixedLength) standing(_ limit.Rate, now instant.Instant) store.Standing {
	standing := store.Standing{Used: f.usedAt(now)}
	if number, is := f.latest(); is {
		number++
		if f.weighted {
			number++
		}
		standing.Reset = max(0, f.startOf(number).Sub(now))
	}
	return standing
}

// clock implements count.
func (f *fixedWindows) clock(read instant.Instant) instant.Instant {
	f.at = max(f.at, read)
	return f.at
}

// windows implements count.
func (f *fixedWindows) windows(rates []limit.Rate, now instant.Instant) []window {
	f.prune(now)
	view := make([]window, len(rates))
	for i, l := range f.of(rates) {
		view[i] = l
	}
	return view
}

// prune forgets the counts that do not matter any more, and the grants that were of those alone.
func (f *fixedWindows) prune(now instant.Instant) {
	gone := false
	for _, l := range f.lengths {
		before := len(l.counts)
		l.counts = slices.DeleteFunc(l.counts, func(c fixedCount) bool { return c.number < l.oldest(now) })
		gone = gone || len(l.counts) < before
	}
	if !gone {
		return
	}
	f.drop(func(g *fixedGrant) bool {
		return !slices.ContainsFunc(g.held, func(l *fixedLength) bool { return l.numberAt(g.end) >= l.oldest(now) })
	})
}

// drop forgets the grants that are to go.
func (f *fixedWindows) drop(gone func(g *fixedGrant) bool) {
	f.grants = slices.DeleteFunc(f.grants, func(g fixedGrant) bool {
		if !gone(&g) {
			return false
		}
		if g.Kind == store.Strict {
			f.strict--
		}
		return true
	})
}

// of gives the rates' windows, by their lengths; those that are not there are made.
func (f *fixedWindows) of(rates []limit.Rate) []*fixedLength {
	lengths := make([]*fixedLength, len(rates))
	for i, r := range rates {
		lengths[i] = f.ofLength(r.Window)
	}
	return lengths
}

func (f *fixedWindows) ofLength(length time.Duration) *fixedLength {
	at := slices.IndexFunc(f.lengths, func(l *fixedLength) bool { return l.length == length })
	if at < 0 {
		at = len(f.lengths)
		f.lengths = append(f.lengths, &fixedLength{length: length, weighted: f.weighted})
	}
	return f.lengths[at]
}

// view implements strictCount.
func (f *fixedWindows) view(r limit.Rate, now instant.Instant) window {
	f.prune(now)
	return f.ofLength(r.Window)
}

// spend implements strictCount.
func (f *fixedWindows) spend(rates []limit.Rate, units int64, at, now instant.Instant) error {
	return f.record([]authority.Use{{Age: now.Sub(at), Units: units}}, rates, now)
}

// full says whether so many units more, or a grant, are too many to count.
func (f *fixedWindows) full(lengths []*fixedLength, units int64) bool {
	for _, l := range lengths {
		held := units
		for _, c := range l.counts {
			held += c.units
		}
		if held > store.MaxHeld/2 || len(l.counts) >= store.MaxWindows {
			return true
		}
	}
	return len(f.grants) >= store.MaxCharges
}

// grant implements count.
func (f *fixedWindows) grant(g store.Grant, rates []limit.Rate, end, now instant.Instant) error {
	lengths := f.of(rates)
	if f.full(lengths, g.Units) {
		return errFull
	}
	leased := g.Units
	if g.Kind == store.Strict {
		leased = 0
		if f.strict >= store.MostStrict {
			f.drop(func(old *fixedGrant) bool { return old.Kind == store.Strict && f.strict > store.MostStrict/2 })
		}
		f.strict++
	}
	for _, l := range lengths {
		l.add(end, now, g.Units, leased)
	}
	f.grants = append(grown(f.grants), fixedGrant{Grant: g, end: end, held: lengths})
	return nil
}

// release takes a grant's units out of its windows, but for those that count on, as certain ones.
func (g *fixedGrant) release(stay int64, now instant.Instant) {
	leased := g.Units
	if g.Kind == store.Strict {
		leased = 0
	}
	for _, l := range g.held {
		l.add(g.end, now, stay-g.Units, -leased)
	}
}

// settle implements count.
func (f *fixedWindows) settle(granted store.Grant, _ string, uses []authority.Use, unused int64, now instant.Instant) {
	f.drop(func(g *fixedGrant) bool {
		if g.Grant != granted {
			return false
		}
		groups, stay := store.Divide(g.Units, uses, unused)
		for _, used := range groups {
			stay += used.Units
		}
		g.release(stay, now)
		return true
	})
}

// cancel implements count.
func (f *fixedWindows) cancel(call, part string, now instant.Instant) {
	f.drop(func(g *fixedGrant) bool {
		if g.Call != call || part != "" && g.Part != part {
			return false
		}
		g.release(0, now)
		return true
	})
}

// record implements count.
func (f *fixedWindows) record(groups []authority.Use, rates []limit.Rate, now instant.Instant) error {
	lengths := f.of(rates)
	var sum int64
	for _, used := range groups {
		sum += used.Units
	}
	if f.full(lengths, sum) {
		return errFull
	}
	for _, l := range lengths {
		for _, used := range groups {
			l.add(now.Add(-used.Age), now, used.Units, 0)
		}
	}
	return nil
}

// reset implements count.
func (f *fixedWindows) reset(rates []limit.Rate) {
	for _, l := range f.lengths {
		if slices.ContainsFunc(rates, func(r limit.Rate) bool { return r.Window == l.length }) {
			l.counts = nil
			for i := range f.grants {
				f.grants[i].held = slices.DeleteFunc(slices.Clone(f.grants[i].held), func(held *fixedLength) bool { return held == l })
			}
		}
	}
	f.drop(func(g *fixedGrant) bool { return len(g.held) == 0 })
}

// leases implements count.
func (f *fixedWindows) leases(now instant.Instant) []liveLease {
	var live []liveLease
	for i := range f.grants {
		if g := &f.grants[i]; g.Kind == store.Lease && g.end > now {
			live = append(live, liveLease{g.Grant, g.end})
		}
	}
	return live
}

// emptyAt implements count: a window after the end of the last, even where nothing of it matters so long. Before that a clock
// that steps back has to find it.
func (f *fixedWindows) emptyAt(now instant.Instant) instant.Instant {
	at := now
	for _, l := range f.lengths {
		if number, is := l.latest(); is {
			at = max(at, l.startOf(number+2))
		}
	}
	return at
}
