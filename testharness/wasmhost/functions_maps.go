package wasmhost

// mapFunctions are header maps, buffers and properties.
var mapFunctions = []hostFunction{
	{"proxy_get_header_map_value", "iiiii", getHeaderValue},
	{"proxy_get_header_map_pairs", "iii", getHeaderPairs},
	{"proxy_get_header_map_size", "ii", getHeaderSize},
	{"proxy_set_header_map_pairs", "iii", func(a *hostCall) Status {
		pairs := a.pairs(1)
		return a.changeMap(func(h *Headers) { *h = pairs })
	}},
	{"proxy_add_header_map_value", "iiiii", func(a *hostCall) Status {
		name, value := a.text(1), a.text(3)
		return a.changeMap(func(h *Headers) { h.add(name, value) })
	}},
	{"proxy_replace_header_map_value", "iiiii", func(a *hostCall) Status {
		name, value := a.text(1), a.text(3)
		return a.changeMap(func(h *Headers) { h.replace(name, value) })
	}},
	{"proxy_remove_header_map_value", "iii", func(a *hostCall) Status {
		name := a.text(1)
		return a.changeMap(func(h *Headers) { h.remove(name) })
	}},
	{"proxy_get_buffer_bytes", "iiiii", getBufferBytes},
	{"proxy_get_buffer_status", "iii", getBufferStatus},
	{"proxy_set_buffer_bytes", "iiiii", setBufferBytes},
	{"proxy_get_property", "iiii", func(a *hostCall) Status {
		path := a.text(0)
		if a.bad {
			return StatusInvalidMemoryAccess
		}
		value, status := a.vm.property(a.ctx, path)
		if status == StatusOK {
			a.give(2, 3, value)
		}
		return status
	}},
	{"proxy_set_property", "iiii", func(a *hostCall) Status {
		path, value := a.text(0), a.bytes(2)
		if a.bad {
			return StatusInvalidMemoryAccess
		}
		return a.vm.setProperty(a.ctx, path, value)
	}},
}

func getHeaderValue(a *hostCall) Status {
	if a.u32(0) > mapMax {
		return StatusBadArgument
	}
	name := a.text(1)
	if a.bad {
		return StatusInvalidMemoryAccess
	}
	h := a.ctx.readable(a.u32(0))
	if h == nil {
		if a.ctx.stream != nil && a.ctx.stream.logging {
			return StatusNotFound
		}
		return StatusBadArgument
	}
	value, ok := h.lookup(name)
	if !ok {
		return StatusNotFound
	}
	a.give(3, 4, []byte(value))
	return StatusOK
}

// getHeaderPairs gives an empty map where there is none, unlike the others.
func getHeaderPairs(a *hostCall) Status {
	if a.u32(0) > mapMax {
		return StatusBadArgument
	}
	var pairs []byte
	if h := a.ctx.readable(a.u32(0)); h != nil {
		pairs = marshalPairs(*h)
	}
	a.give(1, 2, pairs)
	return StatusOK
}

func getHeaderSize(a *hostCall) Status {
	if a.u32(0) > mapMax {
		return StatusBadArgument
	}
	h := a.ctx.writable(a.u32(0))
	if h == nil {
		return StatusBadArgument
	}
	a.put32(1, uint32(h.byteSize()))
	return StatusOK
}

// changeMap changes the map that the first argument names.
func (a *hostCall) changeMap(change func(*Headers)) Status {
	if a.bad {
		return StatusInvalidMemoryAccess
	}
	if a.u32(0) > mapMax {
		return StatusBadArgument
	}
	h := a.ctx.writable(a.u32(0))
	if h == nil {
		return StatusBadArgument
	}
	change(h)
	return StatusOK
}

func getBufferBytes(a *hostCall) Status {
	if a.u32(0) > bufferMax {
		return StatusBadArgument
	}
	b, ok := a.ctx.buffer(a.u32(0))
	if !ok {
		return StatusNotFound
	}
	// Nothing to give leaves the guest's pointers as they are.
	if data := b.slice(a.u32(1), a.u32(2)); len(data) > 0 {
		a.give(3, 4, data)
	}
	return StatusOK
}

func getBufferStatus(a *hostCall) Status {
	if a.u32(0) > bufferMax {
		return StatusBadArgument
	}
	b, ok := a.ctx.buffer(a.u32(0))
	if !ok {
		return StatusNotFound
	}
	a.put32(1, uint32(len(b.data)))
	a.put32(2, 0)
	return StatusOK
}

func setBufferBytes(a *hostCall) Status {
	if a.u32(0) > bufferMax {
		return StatusBadArgument
	}
	b, ok := a.ctx.buffer(a.u32(0))
	if !ok {
		return StatusNotFound
	}
	data := a.bytes(3)
	if a.bad {
		return StatusInvalidMemoryAccess
	}
	return b.write(a.u32(1), a.u32(2), data)
}
