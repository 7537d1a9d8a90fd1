package control

import (
	"sluice/filter/host"
	"sluice/shared/admission"
	"sluice/shared/instant"
)

// Shadow is a limit in shadow that a request is under. It is decided once the limits in force have admitted the request, by
// itself and as if it were in force, and charged if it admits; the request goes on whatever comes of it.
type Shadow struct {
	Stream host.ContextID
	Key    *Key
	Cost   int64
	// traceID is the request's, where that has waited.
	traceID string
}

// shadowShare is which part of the requests that may wait at once, one in so many, may wait for the sake of a shadow: those
// that are really held up need the room.
const shadowShare = 4

// Decide decides a request on the spot; false where it waits, until Listener.Decided. The keys are those of the demands, and
// both are copied where they are kept. Release is to be called before the demands are made.
func (c *Client) Decide(now instant.Instant, r *Request, keys []*Key, demands []admission.Demand) (admission.Output, bool) {
	out, is := c.step(now, r, keys, demands)
	switch {
	case !is:
		r.traceID = c.listener.TraceID(r)
	case out.Verdict == admission.Admit:
		c.shadows = append(c.shadows, r.Shadows...)
	}
	c.decideShadows(now)
	return out, is
}

// step decides a request, or has it wait for an answer or for a lease to start.
func (c *Client) step(now instant.Instant, r *Request, keys []*Key, demands []admission.Demand) (admission.Output, bool) {
	in := c.Input(demands)
	in.Patience = admission.Patience{Since: now, Until: r.Until}
	out := admission.Step(now, in)
	if out.Verdict == admission.Ask {
		c.asking = r
		asked := (r.shadow == nil || c.shadowsAsked < max(1, c.config.MaxPaused/shadowShare)) && c.ask(now, r, keys, demands)
		c.asking = nil
		if asked {
			return c.early, !r.Paused()
		}
		in.Away, in.Again = true, true
		out = admission.Step(now, in)
	}
	if out.Verdict == admission.Hold {
		if c.holdNew(now, r, keys, demands, out.RetryAfter) {
			return out, false
		}
		out.Verdict = admission.Deny // there is no room to wait
	}
	if out.Verdict == admission.Admit {
		c.admitted(now, keys)
	} else if out.Source == admission.FromCount {
		c.recountAll(now, keys)
	}
	c.count(now, r, keys, &out)
	return out, true
}

// decided ends a pause.
func (c *Client) decided(now instant.Instant, r *Request, out admission.Output) {
	c.count(now, r, r.group.keys, &out)
	c.detach(r)
	if r == c.asking { // its ask has not returned yet
		c.early = out
		return
	}
	if out.Verdict == admission.Admit {
		for i := range r.Shadows {
			r.Shadows[i].traceID = r.traceID
		}
		c.shadows = append(c.shadows, r.Shadows...)
	}
	if r.shadow == nil {
		c.tallies.waited(now, r)
		c.listener.Decided(now, r, out)
		return
	}
	c.shadowsAsked--
	c.listener.ShadowDecided(now, *r.shadow, out)
}

// decideShadows decides the limits in shadow of the requests that were admitted since it was called last, now that nothing
// else goes on.
func (c *Client) decideShadows(now instant.Instant) {
	for next := 0; next < len(c.shadows); { // an ask that cannot be made may decide others, and add to them
		s := c.shadows[next]
		next++
		c.shadowKey[0], c.shadowDemand[0] = s.Key, s.Key.Demand(s.Cost)
		if c.spare == nil {
			c.spare = &Request{shadow: &Shadow{}}
		}
		r := c.spare
		r.Stream, *r.shadow, r.traceID = s.Stream, s, s.traceID
		out, is := c.step(now, r, c.shadowKey[:], c.shadowDemand[:])
		if is {
			c.listener.ShadowDecided(now, s, out)
		} else {
			if r.traceID == "" {
				r.traceID = c.listener.TraceID(r)
			}
			c.shadowsAsked++
			c.spare = nil
		}
	}
	clear(c.shadows)
	c.shadows = c.shadows[:0]
}
