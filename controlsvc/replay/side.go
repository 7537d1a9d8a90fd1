package replay

import (
	"time"

	"sluice/shared/instant"
	"sluice/shared/policy"
)

// side is one policy and what it has counted so far. It decides as the filter and the service do together where every limit is
// strict and a call takes no time: the limits that bind a request are charged all or none, then those in shadow, each alone.
type side struct {
	limits []policy.Limit
	keys   keys
	// waits are those of the request's bounds, in their order.
	waits []wait
}

// wait is how one bound stands.
type wait struct {
	key   *key
	in    time.Duration
	never bool
}

func newSide(p *policy.Policy, maxKeys int) *side {
	return &side{limits: p.Limits, keys: newKeys(maxKeys)}
}

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
			return decision{denied: true, listed: policy.Blocked, limit: int(b.limit), never: true}
		case policy.Allowed:
			d.listed = policy.Allowed
			s.waits = append(s.waits, wait{})
			continue
		}
		w := wait{key: s.keys.get(now, b, s.limits[b.limit].Algorithm)}
		if !b.shadow {
			w.in, w.never = w.key.count.Wait(b.rates, b.cost, now)
			d.lacks(b.limit, w, s.limits[b.limit].MaxWait)
		}
		s.waits = append(s.waits, w)
	}
	for i := range bounds {
		if b, w := &bounds[i], &s.waits[i]; w.key != nil {
			outcome := s.settle(now, b, w, &d)
			watch.bound(int(b.limit), w.key, outcome)
		}
	}
	return d
}

// lacks notes a limit that has no room for the request now: it holds the request, or denies it. Of those that deny, the one
// that is for ever counts, else the one with the longest wait, as in admission.
func (d *decision) lacks(limit int32, w wait, most time.Duration) {
	switch {
	case w.in == 0 && !w.never:
	case !w.never && w.in <= most:
		d.held = max(d.held, w.in)
	case !d.denied || !d.never && (w.never || w.in > d.wait):
		d.denied, d.limit, d.key, d.wait, d.never = true, int(limit), w.key, w.in, w.never
	}
	if d.denied {
		d.held = 0
	}
}

// settle charges the request to a limit of an admitted one, and says what the limit had to say.
func (s *side) settle(now instant.Instant, b *bound, w *wait, d *decision) outcome {
	in := d.held
	switch {
	case d.denied && (b.shadow || w.in == 0 && !w.never):
		return passive // one in shadow is not asked of a request that is denied
	case d.denied && w.key == d.key:
		return denies
	case d.denied:
		return deniesToo
	case b.shadow:
		// Asked by itself, as if it were in force.
		if wait, never := w.key.count.Wait(b.rates, b.cost, now); wait > 0 || never {
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
