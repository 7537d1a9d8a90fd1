package sim

import (
	"reflect"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/wire"
)

// What a worker decides it tells the service in reports, each request in exactly one of them, whatever becomes of the calls
// that carry them. What was decided since its last report goes with a worker that crashes.

// toldEvery is how many seeds there are for one whose reports are added up: that takes as long again.
const toldEvery = 4

// life is one life of a worker's VM: the requests that ended in it, and those that it told of, by their result.
type life struct {
	ended, told [wire.Left + 1]int64
	// keys are those that it told of by their keys, lost those that it says no key tells of.
	keys, lost int64
	// reports are those that reached the service; taken are those that count.
	reports map[uint64]*wire.Report
	taken   map[uint64]bool
	crashed bool
}

// told hears of the authority's reports.
type told struct {
	authority.Nobody

	run *run
}

// Reported implements authority.Observer.
func (t told) Reported(worker uint64, report *wire.Report) {
	l := t.run.lives[worker]
	if l.taken[report.ID] {
		if !t.run.restarted && t.run.scenario.Roam == 0 { // else it was taken by a process that is gone, or by another
			t.run.judge.complain("report %d of worker %x is taken twice", report.ID, worker)
		}
		return
	}
	l.taken[report.ID] = true
	for _, tally := range report.Tallies {
		if int(tally.Result) >= len(l.told) || tally.Near > tally.Count || tally.Limit == "" && tally.Result != wire.Left {
			t.run.judge.complain("a report has the tally %+v", tally)
			return
		}
		l.told[tally.Result] += tally.Count
	}
	for _, k := range report.Keys {
		l.keys += k.Admitted + k.Denied
	}
	l.lost += report.KeysLost
}

// arrived notes a report that has reached the service: one that comes again is the same.
func (r *run) arrived(request *wire.SyncRequest) {
	if request.Report == nil {
		return
	}
	l := r.lives[request.WorkerID]
	if before := l.reports[request.Report.ID]; before == nil {
		l.reports[request.Report.ID] = request.Report
	} else if !reflect.DeepEqual(before, request.Report) {
		r.judge.complain("report %d of worker %x has changed: %+v, before %+v", request.Report.ID, request.WorkerID, request.Report, before)
	}
}

// everythingTold lets the workers tell the rest, without faults, and adds it up.
func (r *run) everythingTold() {
	const enough = 5 * time.Second // for a lost report's second try, and for another report after it
	r.quiet = true
	r.world.runUntil(r.world.now.Add(enough))
	for id, l := range r.lives {
		for result := wire.Admitted; result <= wire.Left; result++ {
			if l.told[result] > l.ended[result] || l.told[result] < l.ended[result] && !l.crashed {
				r.judge.complain("%d requests of worker %x were %v, it told of %d", l.ended[result], id, result, l.told[result])
			}
		}
		if all := l.told[wire.Admitted] + l.told[wire.Denied]; l.keys+l.lost != all && !l.crashed {
			r.judge.complain("%d requests of worker %x had a limit, it told of %d by their keys and %d are lost", all, id, l.keys, l.lost)
		}
	}
}
