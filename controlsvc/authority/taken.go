package authority

import (
	"sync"
	"time"

	"sluice/shared/instant"
	"sluice/shared/wire"
)

const (
	// takenFor is for how long a worker's last report is known at least: far longer than any call is under way.
	takenFor = 10 * time.Minute
	// maxTakenKnown bounds the workers that are known at a time. Reports of more are not taken: they come again.
	maxTakenKnown = 1 << 16
)

// taken remembers the last report of every worker, so that each is taken once. A worker's reports come one at a time, with
// rising ids: what is not above the last one was taken before. There are two generations, so that forgetting takes no search.
// Each replica of the service knows what it has taken itself.
type taken struct {
	mu               sync.Mutex
	turned           instant.Instant
	current, earlier map[uint64]uint64
}

// take hands a worker's report to the observer, where that has not happened yet, and gives its id; 0: it is to come again.
func (a *Authority) take(worker uint64, report *wire.Report) uint64 {
	if report == nil {
		return 0
	}
	known, fresh := a.taken.note(a.config.Now(), worker, report.ID)
	if !known {
		return 0
	}
	if fresh {
		a.config.Observer.Reported(worker, report)
	}
	return report.ID
}

// note remembers a report, and says whether there was room to, and whether it is a new one.
func (t *taken) note(now instant.Instant, worker, id uint64) (known, fresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == nil || now.Sub(t.turned) >= takenFor {
		t.current, t.earlier, t.turned = make(map[uint64]uint64), t.current, now
	}
	last, found := t.current[worker]
	if !found {
		if len(t.current) >= maxTakenKnown {
			return false, false
		}
		last = t.earlier[worker]
	}
	t.current[worker] = max(last, id)
	return true, id > last
}
