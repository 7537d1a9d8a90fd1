package wasmhost

import (
	"slices"
	"time"
)

// rootContext is the plugin in one instance, with one configuration.
type rootContext struct {
	*guestContext
	config      []byte
	configuring bool // the configuration can be read

	period time.Duration
	tick   *event

	streams int // those that have not ended
	retired bool
	waiting bool // proxy_on_done asked for time
	deleted bool

	// What the guest can read while it is told of a reply.
	reply                            *Reply
	grpcMessage                      []byte
	grpcMetadata, grpcTrailers       Headers
	grpcHasMetadata, grpcHasTrailers bool
	statusCode                       uint32
	statusMessage                    string
}

// setTick starts or stops the plugin's timer. Like Envoy's it is set anew after
// each tick, so that it drifts by what a tick takes, which here is nothing.
func (v *vm) setTick(r *rootContext, period time.Duration) {
	v.host.clock.cancel(r.tick)
	r.tick, r.period = nil, period
	if period > 0 {
		r.tick = v.host.clock.after(period, func() { v.onTick(r) })
	}
}

func (v *vm) onTick(r *rootContext) {
	defer v.host.enter()()
	if v.failed || r.deleted {
		return
	}
	v.callback(r.guestContext, "proxy_on_tick", uint64(r.id))
	if !v.failed && !r.deleted {
		v.setTick(r, r.period)
	}
}

// retireIfIdle ends a root that no stream belongs to any more.
func (v *vm) retireIfIdle(r *rootContext) {
	if !r.retired || r.streams > 0 || r.waiting || r.deleted || v.failed {
		return
	}
	done, called := v.callback(r.guestContext, "proxy_on_done", uint64(r.id))
	if called && done == 0 {
		r.waiting = !r.deleted
		return
	}
	v.deleteRoot(r)
}

// done is proxy_done: a root that asked for time has finished.
func (v *vm) done(c *guestContext) Status {
	r := c.root
	if c.stream != nil || !r.waiting {
		return StatusNotFound
	}
	r.waiting = false
	v.after = append(v.after, func() { v.deleteRoot(r) })
	return StatusOK
}

func (v *vm) deleteRoot(r *rootContext) {
	if r.deleted {
		return
	}
	v.callback(r.guestContext, "proxy_on_delete", uint64(r.id))
	v.dropRoot(r)
}

// dropRoot forgets the root and all that would call it.
func (v *vm) dropRoot(r *rootContext) {
	r.deleted = true
	v.host.clock.cancel(r.tick)
	r.tick, r.period = nil, 0
	v.calls.cancelRoot(&v.host.clock, r)
	delete(v.contexts, r.id)
	v.roots = slices.DeleteFunc(v.roots, func(o *rootContext) bool { return o == r })
}
