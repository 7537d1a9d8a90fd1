package plugin

import (
	"strconv"
	"time"

	"sluice/filter/control"
	"sluice/filter/host"
	"sluice/shared/admission"
	"sluice/shared/instant"
)

// shadow is a limit in shadow that an admitted request is under. It is decided once the limits in force have admitted the
// request, by itself and as if it were in force, and charged if it admits; the request goes on whatever comes of it.
type shadow struct {
	stream host.ContextID
	limit  string
	key    *control.Key
	cost   int64
}

// shadowShare is which part of the requests that may wait at once, one in so many, may wait for the sake of a shadow: those
// that are really held up need the room.
const shadowShare = 4

// shadowHeader tells a client which limits in shadow would have denied its request.
const shadowHeader = "x-sluice-shadow"

// decideShadows decides what has been admitted since it was called last, now that nothing else goes on in the client.
func (p *Plugin) decideShadows() {
	if len(p.shadows) == 0 {
		return
	}
	now := p.proxy.Now()
	for next := 0; next < len(p.shadows); { // an ask that cannot be made may decide others, and add to them
		s := p.shadows[next]
		next++
		p.decideShadow(now, s)
	}
	clear(p.shadows)
	p.shadows = p.shadows[:0]
}

func (p *Plugin) decideShadow(now instant.Instant, s shadow) {
	p.bound = append(p.bound[:0], s.key)
	p.demands = append(p.demands[:0], s.key.Demand(s.cost))
	in := p.client.Input(p.demands)
	out := admission.Step(now, in)
	if out.Verdict == admission.Ask {
		if p.askShadow(now, s) {
			return
		}
		in.Away, in.Again = true, true
		out = admission.Step(now, in)
	}
	if out.Verdict == admission.Admit {
		p.client.Admitted(now, p.bound)
	} else if out.Source == admission.FromCount {
		p.client.Recount(now, p.bound)
	}
	p.shadowDecided(now, s, out)
}

// shadowDecided counts a shadow's verdict, logs a denial, and shows it where the policy says so and it comes in time.
func (p *Plugin) shadowDecided(now instant.Instant, s shadow, out admission.Output) {
	if !p.meters.shadowed(out) {
		return
	}
	if line := p.shadowLog.line(now, s, out); line != "" {
		p.proxy.Log(host.Info, line)
	}
	if p.binder.Policy().ShadowHeader {
		p.note(s)
	}
}

// askShadow asks the store as for a request that is paused, with nobody waiting.
func (p *Plugin) askShadow(now instant.Instant, s shadow) bool {
	if len(p.asking) >= max(1, p.config.MaxPaused/shadowShare) {
		return false
	}
	r := &control.Request{Stream: s.stream}
	p.asking[r] = s // before the ask, which may be answered before it returns
	if !p.client.Ask(now, r, p.bound, p.demands) {
		delete(p.asking, r)
		return false
	}
	return true
}

// note has the answer to a request name a limit.
func (p *Plugin) note(s shadow) {
	stream := p.streams.Get(s.stream)
	switch {
	case stream == nil:
	case stream.shadowed == "":
		stream.shadowed = s.limit
	default:
		stream.shadowed += ", " + s.limit
	}
}

// Lines of the log about limits in shadow, of one worker: one for each limit within shadowLogPause, for that many limits.
const (
	shadowLogPause = 10 * time.Second
	shadowLogMost  = 64
)

// shadowLog says which limits in shadow would have denied, and how often; not each time, but now and then.
type shadowLog map[string]shadowLogged

// shadowLogged is a limit that there was a line about: when there may be another, and how many denials it has to tell of.
type shadowLogged struct {
	next  instant.Instant
	count int64
}

// line gives the line about a denial; empty: not now. The key stands in it as it does in the store: escaped, and of what is
// hashed there is only the hash.
func (l shadowLog) line(now instant.Instant, s shadow, out admission.Output) string {
	logged, known := l[s.limit]
	if logged.count++; known && now < logged.next {
		l[s.limit] = logged
		return ""
	}
	if !known && !l.room(now) {
		return ""
	}
	l[s.limit] = shadowLogged{next: now.Add(shadowLogPause)}
	line := "sluice: limit " + s.limit + " in shadow would have denied key " + s.key.Ref.Key
	if out.Rate.Window != 0 {
		line += ", over " + out.Rate.String()
	}
	if logged.count > 1 {
		line += "; " + strconv.FormatInt(logged.count, 10) + " denials since the last such line"
	}
	return line
}

// room forgets limits that there may be a line about again, where there are too many; false where that makes no room.
func (l shadowLog) room(now instant.Instant) bool {
	if len(l) < shadowLogMost {
		return true
	}
	for name, logged := range l {
		if now >= logged.next {
			delete(l, name)
		}
	}
	return len(l) < shadowLogMost
}
