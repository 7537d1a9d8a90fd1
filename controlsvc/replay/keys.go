package replay

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"sluice/controlsvc/store/memory"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// key is one caller of a limit: two lines of a processor's cache, of which is reads both.
type key struct {
	name string
	// requests is how many there were since it was made, used when the last of them was.
	requests int64
	used     instant.Instant
	stat     *keyStat
	count    memory.Strict
	// entries is what count has of them, as far as keys know.
	limit, entries int32
}

// is says whether it is the key that a bound is of.
func (k *key) is(b *bound) bool { return k.limit == b.limit && k.name == b.key }

// compareUse puts the one first whose use is longest ago.
func (k *key) compareUse(other *key) int {
	if k.used != other.used {
		return cmp.Compare(k.used, other.used)
	}
	return cmp.Or(cmp.Compare(k.name, other.name), cmp.Compare(k.limit, other.limit))
}

// keys are what is counted, bounded in number and size. Of too many, those go whose use is longest ago.
type keys struct {
	// slots find a key: it stands where its hash says, or in the next slot from there on that was free. There is a power of two
	// of them, and at most half are used.
	slots   []slot
	n, most int
	entries int
	// dropped says that keys are gone since the last look.
	dropped bool
	// evicted had charges that still counted.
	evicted int64
	// full charges were left out: a key could not hold more.
	full int64
}

type slot struct {
	hash uint64
	key  *key // nil: free
}

const (
	// maxEntries bounds what all keys together remember, so that about 20 MB are enough for it.
	maxEntries = 1 << 20
	firstSlots = 1 << 6
)

func newKeys(most int) keys { return keys{slots: make([]slot, firstSlots), most: most} }

var seed = maphash.MakeSeed()

// hashOf gives the hash of a limit's key. Those of one name under two limits are apart.
func hashOf(limit int, name string) uint64 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio, which spreads what counts up
	return maphash.String(seed, name) + uint64(limit)*odd
}

// from gives the first slot from a place on that has a key of the hash, or is free, and its place.
func (k *keys) from(place, hash uint64) (*slot, uint64) {
	for {
		s := &k.slots[place&uint64(len(k.slots)-1)]
		if s.key == nil || s.hash == hash {
			return s, place
		}
		place++
	}
}

// find gives the key that a bound is of; nil where it is not there.
func (k *keys) find(b *bound) *key {
	s, place := k.from(b.hash, b.hash)
	for s.key != nil && !s.key.is(b) {
		s, place = k.from(place+1, b.hash)
	}
	return s.key
}

// look finds the keys of many requests before they are decided. To get at a key is to wait for memory several times, one after
// the other; of keys that have nothing to do with each other the processor waits for many at once.
func (k *keys) look(bounds []bound) {
	for i := range bounds {
		b := &bounds[i]
		s, _ := k.from(b.hash, b.hash)
		b.seen = s.key
	}
	for i := range bounds {
		if b := &bounds[i]; b.seen != nil && !b.seen.is(b) {
			b.seen = k.find(b)
		}
	}
	k.dropped = false
}

// get gives the key that a bound is of, which is made where it is not there.
func (k *keys) get(now instant.Instant, b *bound, a limit.Algorithm) *key {
	found := b.seen
	if found == nil || k.dropped {
		if found = k.find(b); found == nil {
			found = k.add(now, b, a)
		}
	}
	found.used = now
	found.requests++
	return found
}

func (k *keys) add(now instant.Instant, b *bound, a limit.Algorithm) *key {
	if k.n >= k.most || k.entries > maxEntries {
		k.makeRoom(now)
	}
	if 2*(k.n+1) > len(k.slots) {
		old := k.slots
		k.slots = make([]slot, 2*len(old))
		k.put(old)
	}
	// What is kept does not keep the log's text.
	made := &key{name: strings.Clone(b.key), limit: b.limit, count: memory.NewStrict(a)}
	k.put([]slot{{b.hash, made}})
	k.n++
	return made
}

// put has slots find the keys of others.
func (k *keys) put(others []slot) {
	for _, s := range others {
		if s.key == nil {
			continue
		}
		place := s.hash
		for k.slots[place&uint64(len(k.slots)-1)].key != nil {
			place++
		}
		k.slots[place&uint64(len(k.slots)-1)] = s
	}
}

// makeRoom drops the keys that nothing counts of any more, and as many as have to go of the others, those first whose use is
// longest ago; and an eighth more, so that it is seldom needed. What is asked of now is about to count.
func (k *keys) makeRoom(now instant.Instant) {
	const more = 8
	live := make([]slot, 0, k.n)
	k.entries = 0
	for _, s := range k.slots {
		if s.key != nil && (s.key.used == now || s.key.count.EmptyAt(now) > now) {
			live = append(live, s)
			k.entries += int(s.key.entries)
		}
	}
	slices.SortFunc(live, func(a, b slot) int { return a.key.compareUse(b.key) })
	for len(live) > max(0, k.most-k.most/more-1) || k.entries > maxEntries-maxEntries/more {
		k.entries -= int(live[0].key.entries)
		live = live[1:]
		k.evicted++
	}
	clear(k.slots)
	k.put(live)
	k.n = len(live)
	k.dropped = true
}

func (k *keys) charge(to *key, b *bound, now instant.Instant, in time.Duration) {
	if to.count.Charge(b.rates, b.cost, now, in) != nil {
		k.full++
	}
	if entries := int32(to.count.Entries()); entries != to.entries {
		k.entries += int(entries - to.entries)
		to.entries = entries
	}
}
