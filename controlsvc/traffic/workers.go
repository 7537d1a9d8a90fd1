package traffic

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/controlsvc/authority"
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

// Worker is a worker that called this replica within the last minute, and decides requests: it has asked for something, or
// reported a decision. A filter on Envoy's main thread never does.
type Worker struct {
	// ID is 16 hexadecimal digits, Replica those of the replica that it called last.
	ID      string `json:"id"`
	Replica string `json:"replica"`
	// Own says that it is one of the replica's own, which decide for Envoy's own rate limit filter.
	Own bool `json:"own,omitempty"`
	// Age is for how long it has lived, in seconds; 0: not known, for it has not reported since it called this replica first.
	// LastSeen is when it last called, in seconds since 1970.
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

// known is a worker as it was last heard of.
type known struct {
	Worker

	// decides says that it is one to show.
	decides bool
	// born is when it began to live, in seconds since 1970; 0: not known.
	born float64
	// away is when it last reported that it did without the service, in seconds since 1970; 0: its last report says that it did not.
	away float64
}

// at gives the worker as of an instant.
func (k *known) at(now instant.Instant) Worker {
	w := k.Worker
	if k.born != 0 {
		w.Age = max(seconds(now)-k.born, 0)
	}
	return w
}

// workers are those heard of within the last minute.
type workers struct {
	known  map[uint64]*known
	pruned instant.Instant
}

func seconds(at instant.Instant) float64 { return float64(at) / microsPerSecond }

func (w *workers) get(id uint64, now instant.Instant) *known {
	if now.Sub(w.pruned) >= time.Second {
		w.prune(now)
	}
	at := w.known[id]
	if at == nil {
		at = &known{Worker: Worker{ID: fmt.Sprintf("%016x", id)}}
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

func (w *workers) called(call authority.Call, now instant.Instant) {
	at := w.get(call.Worker, now)
	at.Own, at.decides = call.Own, at.decides || call.Active
	if at.Policy != call.Version {
		at.Policy = strings.Clone(call.Version) // not the whole message
	}
}

func (w *workers) reported(id uint64, report *wire.Report, counts Counts, now instant.Instant) {
	at := w.get(id, now)
	at.decides = true
	if born := seconds(now.Add(-report.Age)); report.Age > 0 && (at.born == 0 || born < at.born) {
		at.born = born
	}
	at.Requests += counts.Admitted + counts.Denied + counts.Left
	at.Away += report.Away.Seconds()
	if at.away = 0; report.Away > 0 {
		at.away = seconds(now)
	}
}

// list gives the workers that decide, those last that were heard of first, and how many of them are filters'.
func (w *workers) list(replica string, leases map[uint64]LeaseUnits, now instant.Instant) (list []Worker, filters int) {
	w.prune(now)
	for id, at := range w.known {
		if !at.decides {
			continue
		}
		one := at.at(now)
		one.Replica = replica
		one.Leases, one.Units = leases[id].Leases, leases[id].Granted
		list = append(list, one)
	}
	filters = countFilters(list)
	return newestWorkers(list), filters
}

func countFilters(list []Worker) (n int) {
	for i := range list {
		if !list[i].Own {
			n++
		}
	}
	return n
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
