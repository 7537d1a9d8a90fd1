package sim

import (
	"sluice/filter/host"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/wire"
)

// Limits in mode async are judged by their own bound (RATIONALE.md, async): what a window may hold on top of the limit is,
// for each worker, the most that it admitted between the sending of one sync and the answer to the next.

// lifeKey is one key in one life of a worker's VM.
type lifeKey struct {
	worker, life int
	key          boundKey
}

// behind is how far what a worker admitted is ahead of what it has been told the count with.
type behind struct {
	// total is what it has admitted, told what of it was in the last count that it knows; most is the largest difference.
	total, told, most int64
	last              instant.Instant
	// open are records that are sent and not acknowledged.
	open map[uint64]bool
}

// inFlight is a worker's Sync that is under way: the totals at its sending of the keys that it has counted.
type inFlight struct {
	request wire.SyncRequest
	totals  map[boundKey]int64
}

func (r *run) behind(w *worker, k boundKey) *behind {
	id := lifeKey{w.number, w.life, k}
	b := r.behinds[id]
	if b == nil {
		b = &behind{open: map[uint64]bool{}}
		r.behinds[id] = b
	}
	return b
}

// isAsync says whether a limit is in mode async.
func (r *run) isAsync(name string) bool {
	for _, l := range r.scenario.Limits {
		if l.Name == name {
			return l.Mode == limit.Async
		}
	}
	return false
}

// admitted notes units that a worker admitted by itself.
func (b *behind) admitted(now instant.Instant, units int64) {
	b.total += units
	b.most = max(b.most, b.total-b.told)
	b.last = now
}

// sentSync notes what a worker's Sync reports. A key counts as told only where nothing of it is left out.
func (w *worker) sentSync(id host.CallID, body []byte) {
	message, err := wire.Unframe(body, wire.MaxMessageSize)
	if err != nil {
		return // the service complains
	}
	request, err := wire.ParseSyncRequest(message)
	if err != nil {
		return
	}
	w.run.lives[request.WorkerID] = w.told
	f := &inFlight{request: request, totals: map[boundKey]int64{}}
	carried := map[uint64]bool{}
	for _, r := range request.Records {
		carried[r.ID] = true
	}
	for _, ask := range request.Asks {
		k := boundKey{ask.Limit, ask.Key}
		if ask.Want > 0 || !w.run.isAsync(k.limit) {
			continue
		}
		b := w.run.behind(w, k)
		whole := true
		for id := range b.open {
			whole = whole && carried[id]
		}
		if whole {
			f.totals[k] = b.total
		}
	}
	for _, r := range request.Records {
		w.run.behind(w, boundKey{r.Limit, r.Key}).open[r.ID] = true
	}
	w.syncs[id] = f
}

// syncEnded takes in what the answer to a Sync tells.
func (w *worker) syncEnded(id host.CallID, a *answered) {
	f := w.syncs[id]
	delete(w.syncs, id)
	if f == nil || a == nil || a.response == nil {
		return
	}
	done := map[int]bool{}
	for _, i := range a.response.Recorded {
		done[int(i)] = true
	}
	left := map[boundKey]bool{}
	for i, r := range f.request.Records {
		k := boundKey{r.Limit, r.Key}
		if done[i] {
			delete(w.run.behind(w, k).open, r.ID)
		} else {
			left[k] = true
		}
	}
	for i, result := range a.response.Results {
		k := boundKey{f.request.Asks[i].Limit, f.request.Asks[i].Key}
		if total, is := f.totals[k]; is && !left[k] && result.Problem == wire.NoProblem {
			b := w.run.behind(w, k)
			b.told = max(b.told, total)
		}
	}
}

// ahead gives what a window of a key that began then may hold on top of the limit.
func (r *run) ahead(k boundKey, began instant.Instant) (units int64) {
	for id, b := range r.behinds {
		if id.key == k && b.last > began {
			units += b.most
		}
	}
	return units
}
