package branch

import (
	"sync"
	"time"

	"sluice/shared/instant"
)

const (
	// crowdEvery is longer than the time between two questions for a worker's share.
	crowdEvery = 2 * time.Second
	// maxCrowd bounds the workers that are told apart.
	maxCrowd = 1 << 16
)

// crowd is the workers that are connected to this replica, and how many there are anywhere. What a replica buys is in
// proportion.
type crowd struct {
	mu               sync.Mutex
	turned           instant.Instant
	current, earlier map[uint64]struct{}
	all              uint32
}

func (c *crowd) note(now instant.Instant, worker uint64, all uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil || now.Sub(c.turned) >= crowdEvery {
		c.current, c.earlier, c.turned = map[uint64]struct{}{}, c.current, now
	}
	if len(c.current) < maxCrowd {
		c.current[worker] = struct{}{}
	}
	c.all = all
}

// part is this replica's part of all workers, above 0; 1 where it is not known.
func (c *crowd) part() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	here := max(len(c.current), len(c.earlier))
	if here == 0 || c.all == 0 {
		return 1
	}
	return min(1, float64(here)/float64(c.all))
}
