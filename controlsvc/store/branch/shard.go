package branch

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"sluice/controlsvc/authority"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

const (
	shards = 16
	// keysPerShard bounds the keys that asks are counted of. A hot one is asked for so often that it is never the one that has
	// to go; a lease that goes with its key all the same is settled as the others.
	keysPerShard = 256
)

// shard is the keys of some names. Its lock is never held while the store works.
type shard struct {
	mu   sync.Mutex
	keys *simplelru.LRU[string, *key]
	// holding are the keys that leases are held of.
	holding []*key
}

func newShard() shard {
	keys, err := simplelru.NewLRU[string, *key](keysPerShard, nil)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return shard{keys: keys}
}

func (b *Branch) shard(name string) *shard {
	return &b.shards[maphash.String(b.seed, name)%shards]
}

// ask counts an ask, and gives the key where leases of it may be divided; nil: it goes to the store. Only the exact algorithms
// are divided: leases of the others end with their window, or do not come back. Under other rates, of another plan or an
// earlier policy, it is not the same lease.
func (s *shard) ask(o *authority.Reserve, now instant.Instant, hotAsks int64) *key {
	if !o.Shared || o.Key.Algorithm != limit.SlidingLog && o.Key.Algorithm != limit.SlidingBuckets || o.Min < 1 || o.Want < o.Min {
		return nil
	}
	k, known := s.keys.Get(o.Key.Name)
	if !known {
		k = &key{of: o.Key, began: now, trust: firstTrust}
		s.keys.Add(o.Key.Name, k)
	}
	k.count(now, o.Want, hotAsks)
	if !k.hot {
		return nil
	}
	if !same(k.of, o.Key) {
		if len(k.leases) > 0 || k.buying != nil {
			return nil
		}
		k.of, k.state = o.Key, standing{}
		k.forget()
	}
	return k
}

// hold notes that leases are held of a key.
func (s *shard) hold(k *key) {
	if !k.holding {
		k.holding = true
		s.holding = append(s.holding, k)
	}
}

// settle takes a sub-lease back; one that is not known runs out.
func (s *shard) settle(o *authority.Settle, now instant.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, known := s.keys.Peek(o.Key.Name); known {
		k.settle(o, now)
	}
}

// cancel takes back what a call was given.
func (s *shard) cancel(o *authority.Cancel, now instant.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, known := s.keys.Peek(o.Key.Name); known {
		k.cancel(o, now)
		k.forget()
	}
}

// changed notes that units of a key come back in the store.
func (s *shard) changed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, known := s.keys.Peek(name); known {
		k.forget()
	}
}

// inspect adds the sub-leases that may still be spent to leases of a key's that are held here, so many in all as are told of.
func (s *shard) inspect(name string, leases []authority.LiveLease, now instant.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, known := s.keys.Peek(name)
	if !known {
		return
	}
	room := authority.MaxLeasesTold
	for id, given := range k.subs {
		i := slices.IndexFunc(leases, func(l authority.LiveLease) bool { return l.Lease == given.of.lease.ID })
		if i < 0 || given.strict || given.last <= now || room == 0 {
			continue
		}
		room--
		leases[i].Parts = append(leases[i].Parts, authority.LiveLease{
			Lease: id, Call: given.call, Units: given.units, Age: now.Sub(given.at), EndIn: given.last.Sub(now),
		})
	}
	for i := range leases {
		slices.SortFunc(leases[i].Parts, func(a, b authority.LiveLease) int {
			return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.Lease, b.Lease))
		})
	}
}

// free gives how many units of the leases held of a key anybody may be given now.
func (s *shard) free(of authority.Key, now instant.Instant) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, known := s.keys.Peek(of.Name); known && same(k.of, of) {
		return k.unspent(now)
	}
	return 0
}

// reset notes that the store has forgotten all charges of a key. What of a lease was given to nobody is lost with its charge.
func (s *shard) reset(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, known := s.keys.Peek(name); known {
		k.forget()
		k.state = standing{}
		for _, h := range k.leases {
			h.left = 0
		}
	}
}

// forget drops the denials that are remembered.
func (k *key) forget() { k.denials = [denials]denial{} }

// retire gives what can be settled of the leases held.
func (s *shard) retire(now instant.Instant, end bool) (settles []debt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.holding {
		for _, h := range k.retire(now, end) {
			settles = append(settles, debt{of: k.of, lease: h, until: h.lease.Until.Add(maxDebt)})
			k.forget()
		}
		k.holding = len(k.leases) > 0
	}
	s.holding = slices.DeleteFunc(s.holding, func(k *key) bool { return !k.holding })
	return settles
}
