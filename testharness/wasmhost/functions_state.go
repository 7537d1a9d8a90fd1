package wasmhost

import "time"

// stateFunctions are logs, clocks, metrics and what instances share.
var stateFunctions = []hostFunction{
	{"proxy_log", "iii", func(a *hostCall) Status {
		const highest = uint32(LogCritical + logLevelOffset)
		if a.u32(0) > highest {
			return StatusBadArgument
		}
		if message := a.text(1); !a.bad {
			a.vm.log(LogLevel(a.u32(0))-logLevelOffset, message)
		}
		return StatusOK
	}},
	{"proxy_get_log_level", "i", func(a *hostCall) Status {
		a.put32(0, uint32(a.vm.host.cfg.LogLevel+logLevelOffset))
		return StatusOK
	}},
	{"proxy_get_status", "iii", func(a *hostCall) Status {
		a.put32(0, a.ctx.root.statusCode)
		a.give(1, 2, []byte(a.ctx.root.statusMessage))
		return StatusOK
	}},
	{"proxy_set_tick_period_milliseconds", "i", func(a *hostCall) Status {
		a.vm.setTick(a.ctx.root, time.Duration(a.u32(0))*time.Millisecond)
		return StatusOK
	}},
	{"proxy_get_current_time_nanoseconds", "i", func(a *hostCall) Status {
		a.put64(0, uint64(a.vm.host.clock.wall().UnixNano()))
		return StatusOK
	}},
	{"proxy_define_metric", "iiii", defineMetric},
	{"proxy_increment_metric", "il", func(a *hostCall) Status { return a.vm.incrementMetric(a.u32(0), int64(a.args[1])) }},
	{"proxy_record_metric", "il", func(a *hostCall) Status { return a.vm.recordMetric(a.u32(0), a.args[1]) }},
	{"proxy_get_metric", "ii", func(a *hostCall) Status {
		value, status := a.vm.getMetric(a.u32(0))
		if status == StatusOK {
			a.put64(1, value)
		}
		return status
	}},
	{"proxy_get_shared_data", "iiiii", getSharedData},
	{"proxy_set_shared_data", "iiiii", func(a *hostCall) Status {
		key, value := a.text(0), a.bytes(2)
		if a.bad {
			return StatusInvalidMemoryAccess
		}
		return a.vm.host.shared.set(key, value, a.u32(4))
	}},
	{"proxy_register_shared_queue", "iii", registerQueue},
	{"proxy_resolve_shared_queue", "iiiii", resolveQueue},
	{"proxy_enqueue_shared_queue", "iii", func(a *hostCall) Status {
		item := a.bytes(1)
		if a.bad {
			return StatusInvalidMemoryAccess
		}
		return a.vm.host.enqueue(a.u32(0), item)
	}},
	{"proxy_dequeue_shared_queue", "iii", func(a *hostCall) Status {
		item, status := a.vm.host.queues.dequeue(a.u32(0))
		if status == StatusOK {
			a.give(1, 2, item)
		}
		return status
	}},
	{"proxy_call_foreign_function", "iiiiii", callForeign},
}

func defineMetric(a *hostCall) Status {
	name := a.text(1)
	if a.bad {
		return StatusInvalidMemoryAccess
	}
	id, status := a.vm.defineMetric(a.u32(0), name)
	if status == StatusOK {
		a.put32(3, id)
	}
	return status
}

func getSharedData(a *hostCall) Status {
	key := a.text(0)
	if a.bad {
		return StatusInvalidMemoryAccess
	}
	e, ok := a.vm.host.shared.entries[key]
	if !ok {
		return StatusNotFound
	}
	a.give(2, 3, e.value)
	a.put32(4, e.cas)
	return StatusOK
}

func registerQueue(a *hostCall) Status {
	name := a.text(0)
	if a.bad {
		return StatusInvalidMemoryAccess
	}
	h := a.vm.host
	id := h.queues.register(h.cfg.VMID, name, a.vm.worker, a.ctx.root.id)
	if id == 0 {
		return StatusInternalFailure
	}
	a.put32(2, id)
	return StatusOK
}

// resolveQueue takes no VM id for the guest's own.
func resolveQueue(a *hostCall) Status {
	vmID, name := a.text(0), a.text(2)
	if a.bad {
		return StatusInvalidMemoryAccess
	}
	if vmID == "" {
		vmID = a.vm.host.cfg.VMID
	}
	q := a.vm.host.queues.byName[queueName(vmID, name)]
	if q == nil {
		return StatusNotFound
	}
	a.put32(4, q.id)
	return StatusOK
}

// callForeign gives no result to a guest that has no place for it.
func callForeign(a *hostCall) Status {
	name, argument := a.text(0), a.bytes(2)
	if a.bad {
		return StatusInvalidMemoryAccess
	}
	f := a.vm.host.cfg.Foreign[name]
	if f == nil {
		if name == "clear_route_cache" {
			return StatusOK
		}
		return StatusNotFound
	}
	result, status := f(argument)
	if a.u32(4) != 0 && a.u32(5) != 0 {
		a.give(4, 5, result)
	}
	return status
}
