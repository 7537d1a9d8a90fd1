package traffic

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/shared/instant"
	"sluice/shared/wire"
)

const (
	// maxWorkers bounds the workers that are known; more are not, until one of them is forgotten.
	maxWorkers = 4096
	// workersListed is how many of them a Snapshot has.
	workersListed = 256
	// forgetWorker is after how long without a word a worker is forgotten.
	forgetWorker = time.Minute
)

// Worker is a worker that called this replica within the last minute.
type Worker struct {
	// ID is 16 hexadecimal digits, Replica those of the replica that it called last.
	ID      string `json:"id"`
	Replica string `json:"replica"`
	// Age is for how long it had lived, in seconds, when it last reported; LastSeen is when it last called, in seconds since
	// 1970.
	Age      float64 `json:"age"`
	LastSeen float64 `json:"last_seen"`
	// Policy is the version that it decides by; empty where it has none yet.
	Policy string `json:"policy"`
	// Requests it has reported, and for how many seconds it did without the service.
	Requests int64   `json:"requests"`
	Away     float64 `json:"away"`
	// Leases that are out, of so many units in all.
	Leases int64 `json:"leases"`
	Units  int64 `json:"units"`
}

// workers are those heard of within the last minute.
type workers struct {
	known  map[uint64]*Worker
	pruned instant.Instant
}

func seconds(at instant.Instant) float64 { return float64(at) / microsPerSecond }

func (w *workers) get(id uint64, now instant.Instant) *Worker {
	if now.Sub(w.pruned) >= time.Second {
		w.prune(now)
	}
	at := w.known[id]
	if at == nil {
		at = &Worker{ID: fmt.Sprintf("%016x", id)}
		if len(w.known) >= maxWorkers {
			return at // noted nowhere
		}
		w.known[id] = at
	}
	at.LastSeen = seconds(now)
	return at
}

func (w *workers) prune(now instant.Instant) {
	w.pruned = now
	for id, at := range w.known {
		if seconds(now)-at.LastSeen > forgetWorker.Seconds() {
			delete(w.known, id)
		}
	}
}

func (w *workers) called(id uint64, version string, now instant.Instant) {
	if at := w.get(id, now); at.Policy != version {
		at.Policy = strings.Clone(version) // not the whole message
	}
}

func (w *workers) reported(id uint64, report *wire.Report, counts Counts, now instant.Instant) {
	at := w.get(id, now)
	at.Age = report.Age.Seconds()
	at.Requests += counts.Admitted + counts.Denied + counts.Left
	at.Away += report.Away.Seconds()
}

// list gives the workers, those last that were heard of first, and how many there are.
func (w *workers) list(replica string, leases map[uint64]LeaseUnits, now instant.Instant) (list []Worker, all int) {
	w.prune(now)
	for id, at := range w.known {
		one := *at
		one.Replica = replica
		one.Leases, one.Units = leases[id].Leases, leases[id].Granted
		list = append(list, one)
	}
	all = len(list)
	return newestWorkers(list), all
}

// newestWorkers sorts workers by when they were heard of, and keeps as many as are listed. Of a worker that called several
// replicas the last call counts.
func newestWorkers(list []Worker) []Worker {
	slices.SortFunc(list, func(a, b Worker) int {
		if a.ID == b.ID {
			return compare(b.LastSeen, a.LastSeen)
		}
		return strings.Compare(a.ID, b.ID)
	})
	var distinct []Worker
	for _, at := range list {
		if last := len(distinct) - 1; last >= 0 && distinct[last].ID == at.ID {
			distinct[last].Age = max(distinct[last].Age, at.Age)
			distinct[last].Requests += at.Requests
			distinct[last].Away += at.Away
			distinct[last].Leases += at.Leases
			distinct[last].Units += at.Units
			continue
		}
		distinct = append(distinct, at)
	}
	slices.SortStableFunc(distinct, func(a, b Worker) int { return compare(b.LastSeen, a.LastSeen) })
	return distinct[:min(len(distinct), workersListed)]
}
