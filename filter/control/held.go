package control

import (
	"time"

	"sluice/shared/admission"
	"sluice/shared/instant"
)

// held is the requests that wait for leases in hand to start, under limits with max_wait. There are at most MaxHeld. They
// are looked at in the order in which they came, so that of two that need the same the earlier one is served first.
type held struct {
	line   line
	groups groups
	// due is when the first of them is to be looked at; Never where that is not needed.
	due instant.Instant
	// scan counts the walks along the line.
	scan uint64
}

func newHeld() held {
	return held{line: line{which: inLine}, groups: groups{held: true, byHash: map[uint64]*group{}}, due: instant.Never}
}

// holdNew keeps a request of which Step has said Hold until its lease starts, in wait. False: too many are held already.
func (c *Client) holdNew(now instant.Instant, r *Request, keys []*Key, demands []admission.Demand, wait time.Duration) bool {
	if c.heldFull() {
		return false
	}
	r.seq, r.since = c.nextSeq(), now
	c.Counts.Held++
	c.held.add(r, c.held.groups.find(keys, demands), now.Add(wait))
	return true
}

// hold keeps a request that has waited for an answer. False: too many are held already.
func (c *Client) hold(now instant.Instant, r *Request, wait time.Duration) bool {
	if c.heldFull() {
		return false
	}
	into := c.held.groups.find(r.group.keys, r.group.demands)
	c.detach(r)
	c.Counts.Held++
	c.held.add(r, into, now.Add(wait))
	return true
}

// heldFull says that no more requests may be held.
func (c *Client) heldFull() bool {
	most := c.config.MaxHeld
	if most == 0 {
		most = MaxHeld
	}
	return c.held.line.n >= most
}

func (h *held) add(r *Request, g *group, due instant.Instant) {
	r.group, r.held = g, true
	g.members.insert(r)
	h.line.insert(r)
	admission.Claim(g.demands)
	h.due = min(h.due, due)
}

// remove takes a request out: it is decided, waits for an answer from now on, or its stream is gone.
func (h *held) remove(r *Request) {
	g := r.group
	r.group, r.held = nil, false
	h.line.remove(r)
	g.members.remove(r)
	admission.Unclaim(g.demands)
	if g.members.n == 0 {
		h.groups.remove(g)
		h.groups.release(g)
	}
}

// NextHeld gives when the first of the requests that are held is to be looked at; instant.Never without any.
func (c *Client) NextHeld() instant.Instant { return c.held.due }

// Release decides the requests that are held whose leases have started. It is to be called before a request that comes
// now is decided, which must not pass them.
func (c *Client) Release(now instant.Instant) {
	if now >= c.held.due {
		c.release(now)
		c.flush(now)
		c.decideShadows(now)
	}
}

// release looks at the requests that are held, where one of them is due.
func (c *Client) release(now instant.Instant) {
	h := &c.held
	if now < h.due {
		return
	}
	h.due = instant.Never
	h.scan++
	var next *Request
	for r := h.line.first; r != nil; r = next {
		next = r.links[inLine].after
		c.look(now, r, h.scan)
	}
}

// lookAgain looks at the requests that are held after a lease has come: units in it may be theirs before those who asked.
func (c *Client) lookAgain(now instant.Instant) {
	if c.held.line.n > 0 {
		c.held.due = 0
		c.release(now)
	}
}

// heldFirst puts requests that are held for a lease, and were so when the call was sent, before those of a group that asked
// for the same after them: for so many there are units at once, which they must not be passed by.
func (c *Client) heldFirst(now instant.Instant, cl *call, g *group, most int64) {
	same, first := c.held.groups.like(g), g.members.first
	for ; same != nil && most > 0; most-- {
		r := same.members.first
		if r == nil || r.since > cl.sent || first != nil && first.seq < r.seq {
			return
		}
		c.held.remove(r)
		r.group = g
		g.members.insert(r)
		c.pause(now, r)
	}
}

// look decides one request that is held, or lets it go on waiting. What it waits for is not for those behind it.
func (c *Client) look(now instant.Instant, r *Request, scan uint64) {
	g := r.group
	g.follow(now)
	g.setAhead(scan)
	in := c.Input(g.demands)
	in.Again, in.Patience = true, r.patience()
	out := admission.Output{Verdict: admission.Ask}
	if !g.behindLost(scan) {
		out = admission.Step(now, in)
	}
	switch {
	case out.Verdict == admission.Hold:
		g.pass(scan)
		c.held.due = min(c.held.due, now.Add(out.RetryAfter))
		return
	case out.Verdict == admission.Ask && !g.late(now, in.Patience):
		// A limit that holds nobody back is asked now that the others let the request pass; or the lease that it waited for
		// is gone, and those behind it must not pass it.
		g.pass(scan)
		g.lose(now, in.Patience, scan)
		into := g.askedNow(r)
		if into == nil {
			into = c.waiting.find(g.keys, g.demands)
		}
		c.held.remove(r)
		r.group = into
		into.members.insert(r)
		c.pause(now, r)
		return
	case out.Verdict == admission.Ask:
		out = admission.GiveUp(now, in)
	case out.Verdict == admission.Admit:
		for _, k := range g.keys {
			c.took(now, k)
			c.wish(now, k)
		}
	}
	c.decided(now, r, out)
}

// lookAhead notes in the demands of a request that waits for an answer what is held for those before it.
func (h *held) lookAhead(r *Request) {
	h.scan++
	for _, k := range r.group.keys {
		if k.Admission.Claimed() > 0 {
			for other := h.line.first; other != nil && other.seq < r.seq; other = other.links[inLine].after {
				other.group.pass(h.scan)
			}
			break
		}
	}
	r.group.setAhead(h.scan)
}

// pass notes that one of the group's requests was looked at and is held.
func (g *group) pass(scan uint64) {
	for i, k := range g.keys {
		if k.scan != scan {
			k.scan, k.passed = scan, 0
		}
		k.passed += g.demands[i].Cost
	}
}

// askedNow gives the group of a call under way that asks for the same as a request that was held when it was sent: the
// request stands before its members. Nil for none.
func (g *group) askedNow(r *Request) *group {
	cl := g.keys[0].underWay
	if cl == nil || r.since > cl.sent {
		return nil
	}
	for _, asked := range cl.groups {
		if !asked.decided && asked.is(g.keys, g.demands) {
			return asked
		}
	}
	return nil
}

// lose notes the keys whose leases are gone that a request was held for.
func (g *group) lose(now instant.Instant, p admission.Patience, scan uint64) {
	for i, d := range g.demands {
		if d.Key.MaxWait() > 0 && !d.Covered(now, p) {
			g.keys[i].lost = scan
		}
	}
}

// behindLost says whether one of the group's keys was lost to a request before.
func (g *group) behindLost(scan uint64) bool {
	for _, k := range g.keys {
		if k.lost == scan {
			return true
		}
	}
	return false
}

// setAhead notes in the group's demands what is held for the requests that were passed.
func (g *group) setAhead(scan uint64) {
	for i, k := range g.keys {
		g.demands[i].Ahead, g.demands[i].Behind = 0, false
		if k.scan == scan && k.Admission.MaxWait() > 0 {
			g.demands[i].Ahead = k.passed
		}
	}
}

// late says whether one of the group's requests has waited for as long as it may for a limit that it still lacks units of.
func (g *group) late(now instant.Instant, p admission.Patience) bool {
	for _, d := range g.demands {
		if wait := d.Key.MaxWait(); wait > 0 && now >= p.Ends(wait) && d.Lacks(now) {
			return true
		}
	}
	return false
}

// within is for how long one of the group's requests may still be held at most, where all of them have to be decided earlier than
// their limits say; else 0.
func (g *group) within(now instant.Instant) (longest time.Duration) {
	if g.maxWait() == 0 {
		return 0
	}
	for r := g.members.first; r != nil; r = r.links[inGroup].after {
		if r.Until == 0 {
			return 0
		}
		longest = max(longest, r.Until.Sub(now), time.Microsecond)
	}
	return longest
}

// maxWait is for how long one of the group's requests may be held at most.
func (g *group) maxWait() time.Duration {
	longest := time.Duration(0)
	for _, d := range g.demands {
		longest = max(longest, d.Key.MaxWait())
	}
	return longest
}
