package memory

import (
	"container/heap"
	"hash/maphash"
	"sync"

	"sluice/controlsvc/authority"
	"sluice/shared/instant"
)

// shard is a part of the keys, with a lock of its own: the operations of one key are serial, those of many are not.
type shard struct {
	mu   sync.Mutex
	keys map[id]*key
	// newest and oldest are the ends of the order of use.
	newest, oldest *key
	expiring       byExpiry
	// turns counts the shard's operations.
	turns uint64
}

// sweepPerOperation bounds the expired keys that one operation clears away. It is more than the one key that it may add.
const sweepPerOperation = 4

// with runs an operation on a key, under the shard's lock and at one reading of the clock. A key that is not there is made
// first, unless create is false: then the operation is not run. It takes a place, and another's where there is none, once it has
// been charged.
func (s *Store) with(wanted authority.Key, create bool, operation func(k *key, now instant.Instant)) {
	spread := maphash.String(s.seed, wanted.Name)
	shard := &s.shards[spread%uint64(len(s.shards))]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	now := s.now()
	s.sweep(shard, now)
	s.sweepAnother(shard, now)
	k, known := shard.keys[idOf(wanted)]
	if !known {
		if !create {
			return
		}
		k = &key{id: idOf(wanted), count: counts[wanted.Algorithm]()}
	}
	now = k.count.clock(now)
	operation(k, now)
	k.expires = k.count.emptyAt(now)
	switch {
	case !known && k.expires > now:
		s.keep(shard, k)
	case known && k.expires > now:
		shard.unlink(k)
		shard.linkNewest(k)
		heap.Fix(&shard.expiring, k.place)
	case known:
		s.drop(shard, k)
	}
}

// keep gives a new key its place: where there is none, that of the shard's key whose use is longest ago.
func (s *Store) keep(shard *shard, k *key) {
	if s.keys.Load() >= s.maxKeys && shard.oldest != nil {
		s.drop(shard, shard.oldest)
		s.evicted.Add(1)
	}
	shard.keys[k.id] = k
	s.keys.Add(1)
	heap.Push(&shard.expiring, k)
	shard.linkNewest(k)
}

// sweep drops keys whose last charge has left its window: the expired go before any that is in use.
func (s *Store) sweep(shard *shard, now instant.Instant) {
	for range sweepPerOperation {
		if len(shard.expiring) == 0 || shard.expiring[0].expires > now {
			return
		}
		s.drop(shard, shard.expiring[0])
	}
}

// sweepAnother clears away what has expired in a shard that nobody may ask any more, now and then and where it is not in use.
func (s *Store) sweepAnother(shard *shard, now instant.Instant) {
	const every = 4
	if shard.turns++; shard.turns%every > 0 {
		return
	}
	other := &s.shards[shard.turns/every%uint64(len(s.shards))]
	if other != shard && other.mu.TryLock() {
		s.sweep(other, now)
		other.mu.Unlock()
	}
}

// drop forgets a key.
func (s *Store) drop(shard *shard, k *key) {
	shard.unlink(k)
	heap.Remove(&shard.expiring, k.place)
	delete(shard.keys, k.id)
	s.keys.Add(-1)
}

func (s *shard) linkNewest(k *key) {
	k.older, k.newer = s.newest, nil
	if s.newest != nil {
		s.newest.newer = k
	}
	s.newest = k
	if s.oldest == nil {
		s.oldest = k
	}
}

func (s *shard) unlink(k *key) {
	if k.older != nil {
		k.older.newer = k.newer
	} else {
		s.oldest = k.newer
	}
	if k.newer != nil {
		k.newer.older = k.older
	} else {
		s.newest = k.older
	}
	k.older, k.newer = nil, nil
}

// byExpiry is a heap with the key that expires first on top.
type byExpiry []*key

func (h byExpiry) Len() int           { return len(h) }
func (h byExpiry) Less(i, j int) bool { return h[i].expires < h[j].expires }
func (h byExpiry) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push is heap.Push's.
func (h *byExpiry) Push(x any) {
	k := x.(*key) //nolint:forcetypeassert // the heap holds nothing else
	k.place = len(*h)
	*h = append(*h, k)
}

// Pop is heap.Pop's.
func (h *byExpiry) Pop() any {
	last := len(*h) - 1
	k := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return k
}
