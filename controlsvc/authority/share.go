package authority

import (
	"context"
	"sync"
	"time"

	"sluice/shared/instant"
)

const (
	// shareEvery is how often the store is asked for one worker's share.
	shareEvery = time.Second
	// maxSharesKnown bounds the workers that are known at a time. More are not told a share: they keep the last one.
	maxSharesKnown = 1 << 16
)

// shares remembers what the workers' shares were, for shareEvery. There are two generations, so that forgetting takes no
// search: every worker heard within the last shareEvery is in one of them.
type shares struct {
	mu               sync.Mutex
	turned           instant.Instant
	current, earlier map[worker]told
}

type worker struct {
	domain string
	id     uint64
}

type told struct {
	at    instant.Instant
	share Share
}

// share gives the worker's place among those that are connected; 0 of 0 where it is not known.
func (a *Authority) share(ctx context.Context, domain string, id uint64) (workers, rank uint32) {
	who, now := worker{domain, id}, a.config.Now()
	known, ask := a.shares.begin(who, now)
	if !ask {
		return known.Workers, known.Rank
	}
	share, err := a.config.Store.Connected(ctx, domain, id, a.config.WorkerTTL)
	if err != nil {
		return 0, 0
	}
	a.shares.end(who, told{now, share})
	return share.Workers, share.Rank
}

// begin gives what the worker was told less than shareEvery ago, or says that the store is to be asked, by this caller
// alone until then.
func (s *shares) begin(who worker, now instant.Instant) (known Share, ask bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || now.Sub(s.turned) >= shareEvery {
		s.current, s.earlier, s.turned = make(map[worker]told), s.current, now
	}
	last, found := s.current[who]
	if !found {
		last, found = s.earlier[who]
	}
	if found && now.Sub(last.at) < shareEvery {
		return last.share, false
	}
	if len(s.current) >= maxSharesKnown {
		return Share{}, false
	}
	s.current[who] = told{now, last.share}
	return Share{}, true
}

func (s *shares) end(who worker, what told) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.current[who]; found || len(s.current) < maxSharesKnown {
		s.current[who] = what
	}
}
