package wasmhost

// sharedData is what proxy_set_shared_data keeps, for all instances and lives.
type sharedData struct {
	entries map[string]sharedEntry
	lastCas uint32
}

type sharedEntry struct {
	value []byte
	cas   uint32
}

func (d *sharedData) init() { d.entries = map[string]sharedEntry{} }

// Bounds of what guests share: Envoy has none.
const (
	maxSharedEntries = 1_000_000
	maxQueues        = 10_000
	maxQueued        = 1_000_000
)

// set stores a value. A cas of 0 always does; another one only if it is the
// entry's, or if there is no such entry yet.
func (d *sharedData) set(key string, value []byte, cas uint32) Status {
	old, exists := d.entries[key]
	if exists && cas != 0 && cas != old.cas {
		return StatusCasMismatch
	}
	if !exists && len(d.entries) >= maxSharedEntries {
		return StatusInternalFailure
	}
	if d.lastCas++; d.lastCas == 0 {
		d.lastCas++
	}
	d.entries[key] = sharedEntry{append([]byte(nil), value...), d.lastCas}
	return StatusOK
}

// SharedData is what guests keep under the key; ok is false if nothing.
func (h *Host) SharedData(key string) (value []byte, ok bool) {
	e, ok := h.shared.entries[key]
	return append([]byte(nil), e.value...), ok
}

// SetSharedData puts a value there, as a guest would with a cas of 0.
func (h *Host) SetSharedData(key string, value []byte) { h.shared.set(key, value, 0) }

// sharedQueues are the queues of proxy_register_shared_queue. Those that
// register one are told of what is put in; the last to do so is the one told.
type sharedQueues struct {
	byName map[string]*sharedQueue
	byID   map[uint32]*sharedQueue
}

type sharedQueue struct {
	id     uint32
	worker *Worker
	root   uint32
	items  [][]byte
}

func (q *sharedQueues) init() {
	q.byName, q.byID = map[string]*sharedQueue{}, map[uint32]*sharedQueue{}
}

func queueName(vmID, name string) string { return vmID + "\x00" + name }

// register gives the queue's id, 0 if there are too many.
func (q *sharedQueues) register(vmID, name string, w *Worker, root uint32) uint32 {
	key := queueName(vmID, name)
	found := q.byName[key]
	if found == nil {
		if len(q.byName) >= maxQueues {
			return 0
		}
		found = &sharedQueue{id: uint32(len(q.byID) + 1)}
		q.byName[key], q.byID[found.id] = found, found
	}
	found.worker, found.root = w, root
	return found.id
}

// enqueue stores the item, and has the queue's owner told of it soon.
func (h *Host) enqueue(id uint32, item []byte) Status {
	q := h.queues.byID[id]
	if q == nil {
		return StatusNotFound
	}
	if len(q.items) >= maxQueued {
		return StatusInternalFailure
	}
	q.items = append(q.items, append([]byte(nil), item...))
	h.clock.after(0, func() {
		defer h.enter()()
		v := q.worker.vm
		if c := v.contexts[q.root]; c != nil {
			v.callback(c, "proxy_on_queue_ready", uint64(c.id), uint64(id))
		}
	})
	return StatusOK
}

func (q *sharedQueues) dequeue(id uint32) ([]byte, Status) {
	found := q.byID[id]
	if found == nil {
		return nil, StatusNotFound
	}
	if len(found.items) == 0 {
		return nil, StatusEmpty
	}
	item := found.items[0]
	found.items = found.items[1:]
	return item, StatusOK
}
