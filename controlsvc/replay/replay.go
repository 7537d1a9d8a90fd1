// Package replay plays what an access log has against a policy: who would be limited, when and by which limit, beside the policy
// of today if there is one. It decides with the code that binds a request to limits in the filter, and with the counts of the
// memory store, at the times that the log has. What it says is what limits in mode strict would have done, exactly.
//
//	accesslog.Log → bindings (Binder) → keys → side (memory.Strict) → tally, course → Report → table, JSON, HTML
package replay

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"sluice/controlsvc/accesslog"
	"sluice/shared/instant"
	"sluice/shared/policy"
)

// DefaultMaxKeys keeps a replay well below 200 MB.
const DefaultMaxKeys = 100_000

// Config says what is played against what.
type Config struct {
	// Policy is the one to try, Today the one to compare with; nil: none.
	Policy, Today *policy.Policy
	// Headers name the field of the log that a header of requests, in lower case, is read from, where it is not one of the usual
	// names; Identities the field that an identity of the policy is read from instead of what the policy says.
	Headers, Identities map[string]string
	// MaxKeys bounds the keys that are counted at once, for each policy, and those that are told of; 0: DefaultMaxKeys.
	MaxKeys int
	// Top is how many keys a report tells of; 0: DefaultTop.
	Top int
}

// DefaultTop is how many keys a report tells of unless it is told otherwise.
const DefaultTop = 20

// Player plays one log.
type Player struct {
	config  Config
	needs   needs
	request request
	// binders are those of the policy to try and, if there is one, of today's.
	binders []*policy.Binder
	new     *side
	today   *side // nil: none
	tally   *tally
	before  *tally
	course  *course
	seen    seen
	from    instant.Instant
	to      instant.Instant
}

// seen counts what lines have of what is not wanted by name.
type seen struct {
	lines, refused            int64
	client, authority, method bool
	wanted                    uint64
}

// New gives a player, or says what of the mappings makes no sense.
func New(c Config) (*Player, error) {
	if c.MaxKeys == 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	if c.Top == 0 {
		c.Top = DefaultTop
	}
	policies := []*policy.Policy{c.Policy}
	if c.Today != nil {
		policies = append(policies, c.Today)
	}
	if err := checkIdentities(c.Identities, policies...); err != nil {
		return nil, err
	}
	c.Policy = mapIdentities(c.Policy, c.Identities)
	p := &Player{
		config: c, new: newSide(c.Policy, c.MaxKeys), binders: []*policy.Binder{policy.NewBinder(c.Policy)},
		tally: newTally(c.Policy, c.MaxKeys), course: newCourse(len(c.Policy.Limits)),
		needs: needs{headers: map[string][]string{}, attributes: map[string][]string{}, others: map[string][]string{}},
	}
	which := ""
	if c.Today != nil {
		which = " of the policy to try"
		c.Today = mapIdentities(c.Today, c.Identities)
		p.config.Today = c.Today
		p.today, p.before = newSide(c.Today, c.MaxKeys), newTally(c.Today, c.MaxKeys)
		p.binders = append(p.binders, policy.NewBinder(c.Today))
		p.needs.add(c.Today, " of today's policy")
	}
	p.needs.add(c.Policy, which)
	p.request.headers = slices.Sorted(maps.Keys(p.needs.headers))
	if n := len(p.request.headers); n > accesslog.MaxWanted {
		return nil, fmt.Errorf("the policy reads %d headers: a replay reads at most %d", n, accesslog.MaxWanted)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if _, read := p.needs.headers[name]; !read {
			return nil, fmt.Errorf("no policy reads the header %s that is mapped: it reads %s", name, list(p.request.headers))
		}
	}
	return p, nil
}

// Want gives what has to be read of the log, for accesslog.Config.
func (p *Player) Want() [][]string {
	want := make([][]string, len(p.request.headers))
	for i, name := range p.request.headers {
		want[i] = accesslog.HeaderNames(name)
		if field := p.config.Headers[name]; field != "" {
			want[i] = []string{field}
		}
	}
	for identity, field := range p.config.Identities {
		if i := slices.Index(p.request.headers, mappedHeader(identity)); i >= 0 {
			want[i] = []string{field}
		}
	}
	return want
}

// Play decides every request of a log, and calls progress now and then unless it is nil.
func (p *Player) Play(log *accesslog.Log, progress func()) error {
	f := newFeed(log, p.bind)
	for {
		b := <-f.bound
		p.look(b)
		for i := range b.entries {
			p.play(b, i)
		}
		if b.err != nil {
			p.course.closeMinute()
			return b.err
		}
		if b.last {
			break
		}
		f.empty <- b
		if progress != nil {
			progress()
		}
	}
	p.course.closeMinute()
	if p.seen.lines == 0 {
		return errors.New("no line of the log could be read")
	}
	return nil
}

// bind binds the requests of a batch.
func (p *Player) bind(b *batch) {
	for i, binder := range p.binders {
		b.bindings[i].bind(binder, &p.request, b.entries)
	}
}

// look finds the keys of a batch that there are.
func (p *Player) look(b *batch) {
	p.new.keys.look(b.bindings[0].bounds)
	if p.today != nil {
		p.today.keys.look(b.bindings[1].bounds)
	}
}

// play decides one request of a batch, and says what became of it under the policy to try.
func (p *Player) play(b *batch, i int) decision {
	e := &b.entries[i]
	if p.seen.lines == 0 {
		p.from = e.At
	}
	p.to = e.At
	p.seen.note(e)
	p.tally.begin()
	tried := p.new.decide(e.At, b.bindings[0].of(i), p.tally)
	stat := p.tally.end(e.At, &tried)
	m := moment{requests: 1}
	if tried.denied {
		m.denied = 1
	}
	if p.today != nil {
		p.before.begin()
		today := p.today.decide(e.At, b.bindings[1].of(i), p.before)
		before := p.before.end(e.At, &today)
		p.compare(&tried, &today, stat, before, &m)
	}
	p.course.add(e.At, m, tried.limit)
	return tried
}

// compare counts what is otherwise than today.
func (p *Player) compare(tried, today *decision, stat, before *keyStat, m *moment) {
	if today.denied {
		m.today = 1
	}
	switch {
	case tried.denied && !today.denied:
		m.newly = 1
		p.tally.changed(tried, stat)
	case today.denied && !tried.denied:
		m.gone = 1
		p.before.changed(today, before)
	}
	p.tally.route.Newly += m.newly
	p.tally.route.Gone += m.gone
}

// changed counts a denial that the other policy has not.
func (t *tally) changed(d *decision, stat *keyStat) {
	t.totals.changed++
	if d.limit >= 0 {
		t.limits[d.limit].changed++
	}
	if stat != nil {
		stat.changed++
	}
}

func (s *seen) note(e *accesslog.Entry) {
	const tooManyRequests = 429
	s.lines++
	s.client = s.client || e.Client != ""
	s.authority = s.authority || e.Authority != ""
	s.method = s.method || e.Method != ""
	s.wanted |= e.Present()
	if e.Status == tooManyRequests {
		s.refused++
	}
}
