package plugin

import (
	"strconv"
	"time"

	"sluice/filter/control"
	"sluice/filter/host"
	"sluice/shared/admission"
	"sluice/shared/instant"
)

// shadowHeader tells a client which limits in shadow would have denied its request.
const shadowHeader = "x-sluice-shadow"

// ShadowDecided counts a shadow's verdict, logs a denial, and shows it where the policy says so and it comes in time.
func (p *Plugin) ShadowDecided(now instant.Instant, s control.Shadow, out admission.Output) {
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

// note has the answer to a request name a limit.
func (p *Plugin) note(s control.Shadow) {
	stream := p.streams.Get(s.Stream)
	switch {
	case stream == nil:
	case stream.shadowed == "":
		stream.shadowed = s.Key.Ref.Limit
	default:
		stream.shadowed += ", " + s.Key.Ref.Limit
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
func (l shadowLog) line(now instant.Instant, s control.Shadow, out admission.Output) string {
	name := s.Key.Ref.Limit
	logged, known := l[name]
	if logged.count++; known && now < logged.next {
		l[name] = logged
		return ""
	}
	if !known && !l.room(now) {
		return ""
	}
	l[name] = shadowLogged{next: now.Add(shadowLogPause)}
	line := "sluice: limit " + name + " in shadow would have denied "
	if s.Key.Ref.Key == "" {
		line += "a request"
	} else {
		line += "key " + s.Key.Ref.Key
	}
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
