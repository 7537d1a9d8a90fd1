package host

// errorsName is the counter of what the proxy refused, in its statistics.
const errorsName = "sluice_host_errors"

// instance is one VM of the filter's: every Envoy worker thread has one, the main thread has one, and Envoy makes another
// one to clone them from. It tells the plugins what the host calls it for, in the ABI's terms.
//
// Plugin configurations that share a VM (the same vm_id and code) have a root context each, and so a Plugin each.
type instance struct {
	abi       abi
	newPlugin func(Proxy) Plugin
	roots     map[uint32]*root
	streams   Streams[stream]
	metrics   []metric
	// errors counts what the host refused and the port has no way to say.
	errors Metric
}

// stream is one request and its answer.
type stream struct {
	root *root
	// seen: the plugin knows of it.
	seen bool
	// asking: the plugin is looking at the request's headers.
	asking bool
	// settled: it was sent on or answered, which happens once.
	settled bool
	// answered: it was answered in the upstream's place.
	answered bool
}

// metric is one that is defined, under its name and the host's number.
type metric struct {
	name string
	kind metricType
	id   uint32
}

func newInstance(host abi, newPlugin func(Proxy) Plugin) *instance {
	return &instance{abi: host, newPlugin: newPlugin, roots: map[uint32]*root{}}
}

// contextCreate is proxy_on_context_create: a root context where parent is 0, else a stream of that root's.
func (v *instance) contextCreate(id, parent uint32) {
	if parent == 0 {
		if v.roots[id] == nil {
			v.errors = v.define(counterMetric, errorsName)
			r := &root{instance: v, id: id, current: id}
			r.plugin = v.newPlugin(r)
			v.roots[id] = r
		}
		return
	}
	r := v.roots[parent]
	if r == nil || v.streams.Get(ContextID(id)) != nil {
		v.fault()
		return
	}
	*v.streams.Add(ContextID(id)) = stream{root: r}
}

// configure is proxy_on_configure: the plugin's configuration, of size bytes, can be read until it returns.
func (v *instance) configure(id, size uint32) bool {
	r := v.roots[id]
	if r == nil {
		v.fault()
		return false
	}
	var configuration []byte
	if size > 0 {
		var st status
		if configuration, st = v.abi.buffer(pluginConfiguration, size); st != statusOK {
			v.fault()
			return false
		}
	}
	return r.start(configurationJSON(configuration))
}

// tick is proxy_on_tick.
func (v *instance) tick(id uint32) {
	if r := v.roots[id]; r != nil && !r.stopped {
		r.enter(id)
		r.plugin.Tick()
		r.leave()
	}
}

// requestHeaders is proxy_on_request_headers.
func (v *instance) requestHeaders(id uint32) uint32 {
	s := v.streams.Get(ContextID(id))
	if s == nil || s.root.stopped {
		return actionContinue
	}
	s.seen, s.asking = true, true
	s.root.enter(id)
	action := s.root.plugin.RequestHeaders(ContextID(id))
	s.asking = false
	s.root.leave()
	if s.answered {
		// Whatever the plugin says: the answer goes out after this callback, and the request must not go on before it.
		return actionPause
	}
	if action == Pause && !s.settled {
		return actionPause
	}
	s.settled = true
	return actionContinue
}

// responseHeaders is proxy_on_response_headers.
func (v *instance) responseHeaders(id uint32) uint32 {
	if s := v.streams.Get(ContextID(id)); s != nil && !s.root.stopped {
		s.seen, s.settled = true, true
		s.root.enter(id)
		s.root.plugin.ResponseHeaders(ContextID(id))
		s.root.leave()
	}
	return actionContinue
}

// callEnded is proxy_on_http_call_response. A call that failed has none of the three, and no buffer to ask for.
func (v *instance) callEnded(id, call, headers, bodySize, trailers uint32) {
	r := v.roots[id]
	if r == nil || r.stopped || !r.calls.end(CallID(call)) {
		return
	}
	r.enter(id)
	r.reply = reply{root: r, headers: headers, bodySize: bodySize, trailers: trailers}
	r.plugin.CallEnded(CallID(call), &r.reply)
	r.reply = reply{}
	r.leave()
}

// done is proxy_on_done: a stream is over, or a root context is to go; false asks the host to wait for proxy_done. What is
// done is forgotten here: all that comes after it is proxy_on_delete, which is not exported and so costs no call.
func (v *instance) done(id uint32) bool {
	if v.endStream(id) {
		return true
	}
	r := v.roots[id]
	if r == nil {
		return true
	}
	if !r.stop() {
		return false
	}
	delete(v.roots, id)
	return true
}

// endStream tells the plugin that the stream is over, where it knows of it; false where there is no such stream.
func (v *instance) endStream(id uint32) bool {
	s := v.streams.Get(ContextID(id))
	if s == nil {
		return false
	}
	r, seen := s.root, s.seen
	*s = stream{}
	v.streams.Remove(ContextID(id))
	if seen && !r.stopped {
		r.enter(id)
		r.plugin.Done(ContextID(id))
		r.leave()
	}
	return true
}

// define gives the metric of that name, once for the VM: Envoy would make another number for it each time.
func (v *instance) define(kind metricType, name string) Metric {
	for i := range v.metrics {
		if v.metrics[i].name == name && v.metrics[i].kind == kind {
			return Metric(i)
		}
	}
	id, st := v.abi.defineMetric(kind, name)
	if st != statusOK {
		return noMetric
	}
	v.metrics = append(v.metrics, metric{name: name, kind: kind, id: id})
	return Metric(len(v.metrics) - 1)
}

// fault counts what the host refused.
func (v *instance) fault() {
	if v.errors < Metric(len(v.metrics)) {
		v.abi.incrementMetric(v.metrics[v.errors].id, 1) // nothing is left to do where this, too, is refused
	}
}

// check says whether the host did as it was asked, and counts where it did not.
func (v *instance) check(st status) bool {
	if st != statusOK {
		v.fault()
	}
	return st == statusOK
}
