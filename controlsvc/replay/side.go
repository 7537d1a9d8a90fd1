package replay

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"sluice/controlsvc/store/memory"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// side is one policy and what it has counted so far. It decides as the filter and the service do together where every limit is
// strict and a call takes no time: the limits that bind a request are charged all or none, then those in shadow, each alone.
type side struct {
	keys keys
	// waits are those of the request's bounds, in their order.
	waits []wait
}

// wait is how one bound stands.
type wait struct {
	key   *key
	in    time.Duration
	never bool
}

func newSide(maxKeys int) *side { return &side{keys: newKeys(maxKeys)} }

// decision is what became of a request.
type decision struct {
	denied bool
	// listed says that a list denied it, or took it out of limits.
	listed policy.Listed
	// limit is the index of the limit that is told to the client of a denial, and key what was counted; -1 and nil where there
	// is none, as of a list of the whole policy.
	limit int
	key   *key
	// wait is when a request that was denied could pass, never that it cannot; held is for how long one that was admitted had
	// to wait first.
	wait  time.Duration
	never bool
	held  time.Duration
}

// decide decides a request at its time by what binds it, and tells watch of each limit among that.
func (s *side) decide(now instant.Instant, bounds []bound, watch watcher) decision {
	d := decision{limit: -1}
	s.waits = s.waits[:0]
	for i := range bounds {
		b := &bounds[i]
		switch b.listed {
		case policy.Blocked:
			return decision{denied: true, listed: policy.Blocked, limit: b.limit, never: true}
		case policy.Allowed:
			d.listed = policy.Allowed
			s.waits = append(s.waits, wait{})
			continue
		}
		w := wait{key: s.keys.get(now, b.limit, b.key, b.rule.Limit.Algorithm)}
		if !b.rule.Shadow {
			w.in, w.never = w.key.count.Wait(b.rule.Rates, b.cost, now)
			d.lacks(b, w)
		}
		s.waits = append(s.waits, w)
	}
	for i := range bounds {
		if b, w := &bounds[i], &s.waits[i]; w.key != nil {
			outcome := s.settle(now, b, w, &d)
			watch.bound(b.limit, w.key, outcome)
		}
	}
	return d
}

// lacks notes a limit that has no room for the request now: it holds the request, or denies it. Of those that deny, the one
// that is for ever counts, else the one with the longest wait, as in admission.
func (d *decision) lacks(b *bound, w wait) {
	switch most := b.rule.Limit.MaxWait; {
	case w.in == 0 && !w.never:
	case !w.never && w.in <= most:
		d.held = max(d.held, w.in)
	case !d.denied || !d.never && (w.never || w.in > d.wait):
		d.denied, d.limit, d.key, d.wait, d.never = true, b.limit, w.key, w.in, w.never
	}
	if d.denied {
		d.held = 0
	}
}

// settle charges the request to a limit of an admitted one, and says what the limit had to say.
func (s *side) settle(now instant.Instant, b *bound, w *wait, d *decision) outcome {
	in := d.held
	switch {
	case d.denied && (b.rule.Shadow || w.in == 0 && !w.never):
		return passive // one in shadow is not asked of a request that is denied
	case d.denied && w.key == d.key:
		return denies
	case d.denied:
		return deniesToo
	case b.rule.Shadow:
		// Asked by itself, as if it were in force.
		if wait, never := w.key.count.Wait(b.rule.Rates, b.cost, now); wait > 0 || never {
			return shadowDenies
		}
		in = 0
	}
	s.keys.charge(w.key, b, now, in)
	if in > 0 {
		return holds
	}
	return admits
}

// outcome is what one limit has to say of a request.
type outcome uint8

const (
	admits outcome = iota
	holds
	// denies is of the limit that is told to the client, deniesToo of others that deny the request as well, passive of those
	// that have room for a request which others deny.
	denies
	deniesToo
	passive
	shadowDenies
)

// watcher hears of every limit that binds a request.
type watcher interface {
	bound(limit int, k *key, o outcome)
}

// routeOf gives what the limit's match says of the path, as it is written; empty where it says nothing.
func routeOf(l *policy.Limit) string {
	m := &l.Match
	for _, pattern := range []string{m.PathTemplate, m.PathPrefix, m.PathExact, m.PathRegex} {
		if pattern != "" {
			return pattern
		}
	}
	return ""
}

// caller is whoever has one key, under whatever limits: of one request they have the same, as a rule.
type caller struct {
	name string
	keys []ofLimit
	used instant.Instant
}

// ofLimit is a key with its limit beside it, so that the right one is found without a look at the others.
type ofLimit struct {
	limit int
	key   *key
}

// key is one caller of a limit.
type key struct {
	*caller

	limit   int
	count   memory.Strict
	entries int
	// requests is how many there were since it was made.
	requests int64
	stat     *keyStat
}

// keys are what is counted, bounded in number and size. Of too many, those go whose use is longest ago.
type keys struct {
	callers map[string]*caller
	last    *caller // that was asked for
	n, most int
	entries int
	// evicted had charges that still counted.
	evicted int64
	// full charges were left out: a key could not hold more.
	full int64
}

// maxEntries bounds what all keys together remember, so that about 20 MB are enough for it.
const maxEntries = 1 << 20

func newKeys(most int) keys { return keys{callers: map[string]*caller{}, most: most} }

func (k *keys) get(now instant.Instant, index int, name string, a limit.Algorithm) *key {
	c := k.last
	if c == nil || c.name != name {
		if c = k.callers[name]; c == nil {
			k.makeRoom(now)
			c = &caller{name: strings.Clone(name)} // what is kept does not keep the log's text
			k.callers[c.name] = c
		}
		k.last = c
	}
	c.used = now
	for i := range c.keys {
		if c.keys[i].limit == index {
			found := c.keys[i].key
			found.requests++
			return found
		}
	}
	made := &key{caller: c, limit: index, count: memory.NewStrict(a), requests: 1}
	c.keys = append(c.keys, ofLimit{index, made})
	k.n++
	return made
}

// makeRoom drops, where there are too many keys or they remember too much, the callers that nothing counts of any more, and as
// many as have to go of the others, those first whose use is longest ago; and an eighth more, so that it is seldom needed.
func (k *keys) makeRoom(now instant.Instant) {
	if k.n < k.most && k.entries <= maxEntries {
		return
	}
	const more = 8
	live := make([]*caller, 0, len(k.callers))
	for _, c := range k.callers {
		if c.counts(now) > 0 {
			live = append(live, c)
		} else {
			k.drop(c)
		}
	}
	slices.SortFunc(live, func(a, b *caller) int {
		return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.name, b.name))
	})
	for _, c := range live {
		if k.n <= k.most-k.most/more-1 && k.entries <= maxEntries-maxEntries/more {
			return
		}
		k.evicted += c.counts(now)
		k.drop(c)
	}
}

// counts is how many of the caller's keys have charges that still count.
func (c *caller) counts(now instant.Instant) (n int64) {
	for _, of := range c.keys {
		if of.key.count.EmptyAt(now) > now {
			n++
		}
	}
	return n
}

func (k *keys) drop(c *caller) {
	for _, gone := range c.keys {
		k.entries -= gone.key.entries
	}
	k.n -= len(c.keys)
	delete(k.callers, c.name)
	if k.last == c {
		k.last = nil
	}
}

func (k *keys) charge(to *key, b *bound, now instant.Instant, in time.Duration) {
	if to.count.Charge(b.rule.Rates, b.cost, now, in) != nil {
		k.full++
	}
	if entries := to.count.Entries(); entries != to.entries {
		k.entries += entries - to.entries
		to.entries = entries
	}
}
