package memory

import (
	"errors"
	"slices"
	"sync"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
)

// maxDomains bounds the domains whose workers are told apart. A service has one or a few.
const maxDomains = 1024

var errDomains = errors.New("workers of too many domains are connected")

// workers knows who is connected anywhere, by domain.
type workers struct {
	mu      sync.Mutex
	domains map[string]*domain
}

// domain is its workers in ascending order, so that each one's rank stays what it is while nobody comes or goes.
type domain struct {
	workers []presence
	// nextGone is no later than the first worker's end.
	nextGone instant.Instant
}

type presence struct {
	worker uint64
	until  instant.Instant
}

func (w *workers) connected(name string, worker uint64, ttl time.Duration, now instant.Instant) (authority.Share, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.domains[name]
	if d == nil {
		if len(w.domains) >= maxDomains {
			w.prune(now)
		}
		if len(w.domains) >= maxDomains {
			return authority.Share{}, errDomains
		}
		d = &domain{nextGone: instant.Never}
		w.domains[name] = d
	}
	return d.connected(worker, now.Add(ttl), now), nil
}

func (w *workers) prune(now instant.Instant) {
	for name, d := range w.domains {
		if d.prune(now); len(d.workers) == 0 {
			delete(w.domains, name)
		}
	}
}

func (d *domain) connected(worker uint64, until, now instant.Instant) authority.Share {
	d.prune(now)
	rank, found := slices.BinarySearchFunc(d.workers, worker, func(p presence, worker uint64) int {
		switch {
		case p.worker < worker:
			return -1
		case p.worker > worker:
			return 1
		}
		return 0
	})
	switch {
	case found:
		d.workers[rank].until = max(until, d.workers[rank].until)
	case len(d.workers) >= store.MaxWorkers:
		return authority.Share{Workers: store.MaxWorkers + 1, Rank: store.MaxWorkers}
	default:
		d.workers = slices.Insert(d.workers, rank, presence{worker, until})
	}
	d.nextGone = min(d.nextGone, until)
	return authority.Share{Workers: uint32(len(d.workers)), Rank: uint32(rank)}
}

// prune forgets the workers that have not come back. It looks at them all only where one may have gone.
func (d *domain) prune(now instant.Instant) {
	if d.nextGone > now {
		return
	}
	d.workers = slices.DeleteFunc(d.workers, func(p presence) bool { return p.until <= now })
	d.nextGone = instant.Never
	for _, p := range d.workers {
		d.nextGone = min(d.nextGone, p.until)
	}
}
