// Package plugin turns the proxy's callbacks into decisions: a request's headers into the limits that bind it, those into
// a verdict, and the verdict into what the proxy is to do.
//
//	RequestHeaders → Binder.Bind → Client.Decide → Proceed | Respond
//	                                             → Pause … Decided → Continue | Respond
package plugin

import (
	"strings"
	"time"

	"sluice/filter/control"
	"sluice/filter/host"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/ratefields"
	"sluice/shared/wire"
)

// idleTick is how often an instance ticks that has seen no request: the one on the proxy's main thread never does.
const idleTick = 100 * time.Millisecond

// Plugin is the filter of one worker. It implements host.Plugin and control.Listener.
type Plugin struct {
	proxy  host.Proxy
	view   *view
	config config
	client *control.Client
	keys   *control.Keys
	// binder is made of the policy in force.
	binder *policy.Binder
	meters meters
	busy   bool // has seen a request
	// tick is how often the proxy calls Tick, nextTick about when it does so next.
	tick     time.Duration
	nextTick instant.Instant
	latest   *latest

	streams   host.Streams[stream]
	shadowLog shadowLog
	// reading is the stream whose request headers can be read; 0: none, for it is the root's.
	reading host.ContextID
	// nobody stands for requests that are told of nothing; passed counts those that were admitted.
	nobody control.Request
	passed uint64

	// Space that is used again by every request.
	bounds  []policy.Bound
	bound   []*control.Key
	demands []admission.Demand
	fields  []host.Header
	// addField and addToResponse are methods, made to func values once.
	addField, addToResponse func(name, value string)
}

// stream is a request that waits for a decision, or was admitted and waits for its answer to pass by.
type stream struct {
	request control.Request
	limits  []*ratefields.Limit
	// shadowed names the limits in shadow that would have denied it.
	shadowed string
	grpc     bool
	out      admission.Output
	// passed is when it was admitted, if its time at the upstream is wanted; else 0.
	passed instant.Instant
}

// New gives a plugin that waits for Start.
func New(proxy host.Proxy) host.Plugin { return newPlugin(proxy) }

func newPlugin(proxy host.Proxy) *Plugin {
	p := &Plugin{proxy: proxy, view: &view{proxy}, latest: &latest{}, shadowLog: shadowLog{}}
	p.addField = func(name, value string) { p.fields = append(p.fields, host.Header{name, value}) }
	p.addToResponse = proxy.AddResponseHeader
	return p
}

// Start reads the configuration; a wrong one is refused, with a line in the log that says why.
func (p *Plugin) Start(configuration []byte) bool {
	c, err := parseConfig(configuration)
	if err != nil {
		p.proxy.Log(host.Error, "sluice: the plugin's configuration "+err.Error())
		return false
	}
	p.config = c
	if p.client != nil { // configured anew; what is under way goes on
		p.client.SetConfig(c.Config)
		p.keys.SetMost(c.maxKeys)
		p.adoptFirst()
		return true
	}
	p.meters.define(p.proxy)
	p.client = control.New(p.proxy, c.Config, p)
	p.keys = control.NewKeys(p.client, c.maxKeys)
	if p.latest.policy != nil && p.latest.cluster == c.Cluster {
		p.client.Adopt(p.latest.policy)
	}
	p.adoptFirst()
	p.proxy.SetTick(idleTick)
	return true
}

// adoptFirst puts the configuration's policy in force where there is no other one.
func (p *Plugin) adoptFirst() {
	if p.config.firstPolicy != nil && p.client.Policy() == nil {
		p.client.Adopt(p.config.firstPolicy)
	}
}

// Tick enforces deadlines, and publishes the counts.
func (p *Plugin) Tick() {
	if p.client == nil {
		return
	}
	p.client.Tick()
	p.nextTick = p.proxy.Now().Add(p.tick)
	if p.busy && p.tick != p.usualTick() {
		p.setTick(p.usualTick())
	}
	p.tickInTime()
	p.keys.Tick(p.proxy.Now())
	p.meters.publish(p.proxy, &p.client.Counts, p.keys.Len())
}

// CallEnded passes a reply on.
func (p *Plugin) CallEnded(call host.CallID, reply host.Reply) {
	if p.client != nil {
		p.client.CallEnded(call, reply)
		p.tickInTime()
	}
}

// Stop gives back what the worker holds. The plugin may go at once: what a lost report leaves runs out by itself.
func (p *Plugin) Stop() bool {
	if p.client != nil {
		p.client.Stop()
	}
	return true
}

// PolicyArrived takes a policy over, with the counts of the limits that stay.
func (p *Plugin) PolicyArrived(next *policy.Policy) {
	*p.latest = latest{p.config.Cluster, next}
	p.binder = policy.NewBinder(next)
	p.keys.SetPolicy(next)
}

// RequestHeaders decides a request, or pauses it.
func (p *Plugin) RequestHeaders(id host.ContextID) host.Action {
	p.wake()
	p.meters.requests++
	var inForce *policy.Policy
	if p.client != nil {
		inForce = p.client.Policy()
	}
	if inForce == nil {
		return p.withoutPolicy(id)
	}
	now := p.proxy.Now()
	p.client.Release(now)
	p.bounds = p.binder.Bind(p.view, p.bounds[:0])
	if len(p.bounds) == 0 {
		p.meters.admitted++
		p.client.CountUnbound(now)
		return host.Proceed
	}
	p.reading = id
	action := p.decide(now, p.newStream(id))
	p.reading = 0
	return action
}

// withoutPolicy does what the configuration says while nobody knows what to limit. Nothing is held up for it: the service may
// be away for long.
func (p *Plugin) withoutPolicy(id host.ContextID) host.Action {
	p.meters.noPolicy++
	out := admission.Output{Verdict: admission.Admit, Source: admission.FromNoPolicy, Demand: -1}
	if p.config.denyWithoutPolicy {
		out.Verdict, out.Unavailable, out.RetryAfter = admission.Deny, true, time.Second
	}
	if p.client != nil {
		p.client.Count(p.proxy.Now(), &p.nobody, wire.KeyRef{}, &out)
	}
	if out.Verdict == admission.Admit {
		return host.Proceed
	}
	p.deny(id, nil, p.isGRPC(), out)
	return host.Pause
}

// gather makes the bounds of a request what is to be decided, and says whether a list has decided it.
func (p *Plugin) gather(now instant.Instant, s *stream) policy.Listed {
	p.bound, p.demands = p.bound[:0], p.demands[:0]
	limits := p.binder.Policy().Limits
	allowed := int64(0)
	for i := range p.bounds {
		b := &p.bounds[i]
		if b.Limit >= 0 && s.request.Route == "" {
			s.request.Route = limits[b.Limit].Match.Route()
		}
		switch b.Listed {
		case policy.Blocked:
			if b.Limit >= 0 {
				s.limits = append(s.limits, p.keys.Told(b.Limit))
			}
			return policy.Blocked
		case policy.Allowed:
			allowed = 1
			continue
		}
		e := p.keys.Get(now, b)
		if b.Rule.Shadow {
			s.request.Shadows = append(s.request.Shadows, control.Shadow{Stream: s.request.Stream, Key: e.Key, Cost: b.Cost})
			continue
		}
		s.limits = append(s.limits, e.Told)
		p.bound = append(p.bound, e.Key)
		p.demands = append(p.demands, e.Key.Demand(b.Cost))
	}
	p.meters.allowed += allowed
	if allowed > 0 && len(p.bound)+len(s.request.Shadows) == 0 {
		return policy.Allowed
	}
	return 0
}

func (p *Plugin) decide(now instant.Instant, s *stream) host.Action {
	switch p.gather(now, s) {
	case policy.Blocked:
		s.grpc = p.isGRPC()
		out, ref := admission.Blocked(len(s.limits)-1), wire.KeyRef{Limit: policy.BlockList, Key: p.bounds[0].Key} // alone
		if out.Demand >= 0 {
			ref.Limit = s.limits[out.Demand].Limit.Name
		}
		p.client.Count(now, &s.request, ref, &out)
		return p.conclude(now, s, out)
	case policy.Allowed:
		out := admission.Output{Verdict: admission.Admit, Source: admission.FromAllow, Demand: -1}
		p.client.Count(now, &s.request, wire.KeyRef{}, &out)
		return p.conclude(now, s, out)
	}
	if p.config.tracing {
		s.request.Trace = p.sampledTrace()
	}
	out, decided := p.client.Decide(now, &s.request, p.bound, p.demands)
	if !decided || out.Verdict != admission.Admit {
		s.grpc = p.isGRPC()
	}
	if !decided {
		p.tickInTime()
		return host.Pause
	}
	return p.conclude(now, s, out)
}

// wake ticks often enough for deadlines once there are requests.
func (p *Plugin) wake() {
	if p.busy {
		return
	}
	p.busy = true
	p.setTick(p.usualTick())
}

// usualTick is how often deadlines are looked at.
func (p *Plugin) usualTick() time.Duration {
	return min(max(p.config.Timeout/10, 5*time.Millisecond), 50*time.Millisecond)
}

func (p *Plugin) setTick(period time.Duration) {
	p.tick, p.nextTick = period, p.proxy.Now().Add(period)
	p.proxy.SetTick(period)
}

// tickInTime has the proxy tick as early as the next request that is held is due. A period that is set begins anew, so
// that it is left alone where it ends early enough.
func (p *Plugin) tickInTime() {
	if due := p.client.NextHeld(); p.busy && due < p.nextTick {
		p.setTick(min(max(due.Sub(p.proxy.Now()), time.Millisecond), p.usualTick()))
	}
}

// isGRPC says whether the request is a gRPC one. It reads a header, so that it is asked within RequestHeaders only.
func (p *Plugin) isGRPC() bool {
	kind, _ := p.proxy.RequestHeader("content-type")
	rest, is := strings.CutPrefix(kind, "application/grpc")
	return is && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// TraceID gives a request's trace id, while its headers can be read.
func (p *Plugin) TraceID(r *control.Request) string {
	if r.Stream != p.reading {
		return ""
	}
	header, _ := p.proxy.RequestHeader("traceparent")
	if !isTrace(header) {
		return ""
	}
	return strings.Clone(header[traceBegins:traceEnds])
}

// sampledTrace gives the request's traceparent where it says that the trace is kept; empty otherwise.
func (p *Plugin) sampledTrace() string {
	header, _ := p.proxy.RequestHeader("traceparent")
	if !isTrace(header) || !isHex(header[:2]) || !isHex(header[traceEnds+1:52]) || header[52] != '-' || !isHex(header[53:traceLength]) {
		return ""
	}
	if digit := header[traceLength-1]; digit <= '9' && digit&1 == 0 || digit >= 'a' && digit&1 == 1 { // a is 10
		return "" // not sampled
	}
	return strings.Clone(header[:traceLength])
}

// Where a traceparent has its trace id, and how long one of version 00 is (https://www.w3.org/TR/trace-context/, 3.2).
const (
	traceBegins = 3
	traceEnds   = traceBegins + wire.TraceIDLength
	traceLength = 55
)

// isTrace says whether a traceparent of any version has a trace id.
func isTrace(header string) bool {
	return len(header) >= traceLength && header[2] == '-' && header[traceEnds] == '-' && isHex(header[traceBegins:traceEnds]) &&
		strings.Trim(header[traceBegins:traceEnds], "0") != ""
}

// isHex says whether a text is made of lower case hexadecimal digits.
func isHex(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Decided ends a pause.
func (p *Plugin) Decided(now instant.Instant, r *control.Request, out admission.Output) {
	s := p.streams.Get(r.Stream)
	if s == nil || &s.request != r {
		return
	}
	if p.conclude(now, s, out) == host.Proceed && !p.proxy.Continue(r.Stream) {
		p.dropStream(r.Stream)
	}
}

// conclude takes note of a verdict, and answers the request where it is a denial. Only once for a stream: either it is
// forgotten here, or ResponseHeaders forgets it.
func (p *Plugin) conclude(now instant.Instant, s *stream, out admission.Output) host.Action {
	p.meters.decided(out)
	if out.Verdict == admission.Admit {
		s.out = out
		if p.passed++; p.passed%control.UpstreamOf == 0 {
			s.passed = now
		}
		return host.Proceed
	}
	p.deny(s.request.Stream, s.limits, s.grpc, out)
	return host.Pause
}

// deny answers a request in the upstream's place.
func (p *Plugin) deny(id host.ContextID, limits []*ratefields.Limit, grpc bool, out admission.Output) {
	out.RetryAfter += ratefields.Jitter(limits, out, p.proxy.Random)
	status, grpcStatus := ratefields.Status(limits, out)
	p.fields = p.fields[:0]
	var body string
	if grpc {
		body = ratefields.Message(out) // it becomes grpc-message
	} else {
		var kind string
		body, kind = ratefields.Body(limits, out)
		p.fields = append(p.fields, host.Header{"content-type", kind})
		grpcStatus = -1
	}
	ratefields.Each(limits, out, p.addField)
	p.dropStream(id) // the answer passes by ResponseHeaders, and says it all already
	p.proxy.Respond(id, status, p.fields, body, grpcStatus)
}

// ResponseHeaders tells an admitted request's client of its limits, as of the decision: a reset that is too late by what the
// upstream took does no harm, and to read the clock again is one more call of the proxy. The filter's own answers pass by
// here as well; they say it already.
func (p *Plugin) ResponseHeaders(id host.ContextID) {
	s := p.streams.Get(id)
	if s == nil {
		return
	}
	if s.request.Paused() { // the proxy itself answers, as at a timeout of its own
		p.Done(id)
		return
	}
	if s.passed != 0 {
		p.client.Upstream(p.proxy.Now().Sub(s.passed))
	}
	ratefields.Each(s.limits, s.out, p.addToResponse)
	if s.shadowed != "" {
		p.addToResponse(shadowHeader, s.shadowed)
	}
	p.dropStream(id)
}

// Done forgets a stream. One that was paused has lost its client: it is answered no more, and others take its units.
func (p *Plugin) Done(id host.ContextID) {
	s := p.streams.Get(id)
	if s == nil {
		return
	}
	if s.request.Paused() {
		p.client.Forget(&s.request)
		p.meters.left++
	}
	p.dropStream(id)
}

func (p *Plugin) newStream(id host.ContextID) *stream {
	p.Done(id) // a number that the proxy uses again
	s := p.streams.Add(id)
	s.request.Stream = id
	return s
}

// dropStream forgets a stream that is not paused.
func (p *Plugin) dropStream(id host.ContextID) {
	s := p.streams.Get(id)
	if s == nil {
		return
	}
	for i := range s.limits {
		s.limits[i] = nil
	}
	clear(s.request.Shadows)
	*s = stream{limits: s.limits[:0], request: control.Request{Shadows: s.request.Shadows[:0]}}
	p.streams.Remove(id)
}

// view shows a request to the policy.
type view struct{ proxy host.Proxy }

func (v *view) Header(name string) (string, int)       { return v.proxy.RequestHeader(name) }
func (v *view) Property(path ...string) (string, bool) { return v.proxy.Property(path...) }
