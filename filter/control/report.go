package control

import (
	"sluice/shared/instant"
	"sluice/shared/lease"
	"sluice/shared/wire"
)

const (
	// maxTries is how often a report goes out, in calls that were answered without acknowledging it, until it is dropped.
	maxTries = 8
	// maxReportBytes bounds what one call reports.
	maxReportBytes = 1 << 20
)

// report is something to tell the service: a call given up, units to give back, or units admitted without asking. It is
// repeated until acknowledged. One that is lost costs capacity, or lets a fallback's admissions go uncounted.
type report struct {
	carrier uint64 // the call under way that carries it; 0 for none
	tries   int
	done    bool
	size    int

	abandoned wire.Abandoned
	settle    wire.Settle
	record    wire.Record
	// spent is when a record's or a lease's units were spent, in order. It does not change once a call has carried it.
	spent []lease.Use
	began instant.Instant // the first instant of the last of them
	key   *Key            // a record's
}

// reports holds what is not acknowledged yet, the oldest first.
type reports struct {
	abandoned, settles, records []*report
	// due is when what no call carries has waited long enough; instant.Never where nothing waits.
	due        instant.Instant
	lastRecord uint64
}

func newReports() reports { return reports{due: instant.Never} }

// put adds a report to a list that holds at most so many; the oldest goes where it is full.
func put(list []*report, r *report, most int, counts *Counts) []*report {
	if len(list) >= most {
		oldest := list[0]
		oldest.finish()
		oldest.letGo()
		counts.Dropped++
		copy(list, list[1:])
		list[len(list)-1] = nil
		list = list[:len(list)-1]
	}
	return append(list, r)
}

// letGo makes the key forget a record that takes no more.
func (r *report) letGo() {
	if r.key == nil {
		return
	}
	for i := range r.key.records {
		if r.key.records[i] == r {
			r.key.records[i] = nil
		}
	}
}

func (q *reports) abandon(due instant.Instant, abandoned wire.Abandoned, counts *Counts) {
	size := 16
	for _, ref := range abandoned.Keys {
		size += refSize(ref)
	}
	q.abandoned = put(q.abandoned, &report{abandoned: abandoned, size: size}, wire.MaxAbandoned, counts)
	q.due = min(q.due, due)
}

// settle reports a lease: when its units were spent, as far as that is not its end, and how many never will be.
func (q *reports) settle(due instant.Instant, settle wire.Settle, spent []lease.Use, counts *Counts) {
	size := refSize(settle.KeyRef) + len(settle.Lease) + 12*len(spent)
	q.settles = put(q.settles, &report{settle: settle, spent: spent, size: size}, wire.MaxSettles, counts)
	q.due = min(q.due, due)
}

// recordOf gives the record of the plan that the key is in that may still grow; nil for none.
func (k *Key) recordOf(plan string) *report {
	for _, r := range k.records {
		if r != nil && r.record.Plan == plan {
			return r
		}
	}
	return nil
}

// spend adds units that a fallback admitted to the key's record.
func (q *reports) spend(now instant.Instant, k *Key, units int64, counts *Counts) {
	r := k.recordOf(k.plan())
	if r == nil {
		q.lastRecord++
		r = &report{
			key: k, record: wire.Record{KeyRef: k.Ref, ID: q.lastRecord, Plan: k.plan()},
			size: refSize(k.Ref) + len(k.plan()) + wire.MaxUses*12,
		}
		k.records[0], k.records[1] = r, k.records[0]
		q.records = put(q.records, r, wire.MaxRecords, counts)
		q.due = min(q.due, now.Add(k.reportWithin()))
	}
	// Of more instants than a message holds, those close together become the latest of them, never counted too short; what
	// has left every window makes room.
	window := k.longestWindow()
	if len(r.spent) == wire.MaxUses && now.Sub(r.spent[0].At) >= window {
		k.Admission.Untold -= r.spent[0].Units
		r.spent = append(r.spent[:0], r.spent[1:]...)
	}
	k.Admission.Untold += units
	if n := len(r.spent); n > 0 && (n == wire.MaxUses || now.Sub(r.began) < window/(wire.MaxUses-1)) {
		r.spent[n-1].At = now
		r.spent[n-1].Units += units
		return
	}
	r.began = now
	r.spent = append(r.spent, lease.Use{At: now, Units: units})
}

// load puts what no call carries into a request, as far as it fits.
func (q *reports) load(now instant.Instant, cl *call, request *wire.SyncRequest) {
	left := maxReportBytes
	request.Abandoned, request.Settles, request.Records = request.Abandoned[:0], request.Settles[:0], request.Records[:0]
	keys := 0
	for _, r := range q.abandoned {
		if r.carrier == 0 && r.fits(&left) && keys+len(r.abandoned.Keys) <= wire.MaxKeysPerCall {
			keys += len(r.abandoned.Keys)
			r.carrier = cl.id
			cl.abandoned = append(cl.abandoned, r)
			request.Abandoned = append(request.Abandoned, r.abandoned)
		}
	}
	for _, r := range q.settles {
		if r.carrier == 0 && r.fits(&left) {
			r.carrier = cl.id
			cl.settles = append(cl.settles, r)
			r.settle.Uses = r.ages(now, r.settle.Uses)
			request.Settles = append(request.Settles, r.settle)
		}
	}
	for _, r := range q.records {
		if r.carrier == 0 && r.fits(&left) {
			r.carrier = cl.id
			r.letGo() // what is admitted from now on is another record
			cl.records = append(cl.records, r)
			r.record.Uses = r.ages(now, r.record.Uses)
			request.Records = append(request.Records, r.record)
		}
	}
	q.due = instant.Never
}

func (r *report) fits(left *int) bool {
	if r.size > *left {
		return false
	}
	*left -= r.size
	return true
}

// ages gives the report's uses as of now, in the space of those that were told before.
func (r *report) ages(now instant.Instant, uses []wire.Use) []wire.Use {
	uses = uses[:0]
	for _, use := range r.spent {
		uses = append(uses, wire.Use{Age: use.Age(now), Units: use.Units})
	}
	return uses
}

// acknowledge marks what the service has dealt with. Indices of what the call did not carry mean nothing.
func (q *reports) acknowledge(cl *call, response *wire.SyncResponse) {
	mark(cl.abandoned, response.Abandoned)
	mark(cl.settles, response.Settled)
	mark(cl.records, response.Recorded)
}

func mark(carried []*report, indices []uint32) {
	for _, i := range indices {
		if int64(i) < int64(len(carried)) {
			carried[i].finish()
		}
	}
}

// unload takes the reports back from a call that is over: those not acknowledged go out again.
func (q *reports) unload(now instant.Instant, cl *call, answered bool, counts *Counts) {
	if len(cl.abandoned)+len(cl.settles)+len(cl.records) == 0 {
		return
	}
	for _, list := range [...][]*report{cl.abandoned, cl.settles, cl.records} {
		for _, r := range list {
			r.carrier = 0
			if answered {
				r.tries++
			}
			if !r.done && r.tries >= maxTries {
				r.finish()
				counts.Dropped++
			}
		}
	}
	q.abandoned, q.settles, q.records = undone(q.abandoned), undone(q.settles), undone(q.records)
	if len(q.abandoned)+len(q.settles)+len(q.records) > 0 {
		q.due = min(q.due, now.Add(maxReportDelay))
	}
}

// undone keeps what is not dealt with, in its place.
func undone(list []*report) []*report {
	kept := list[:0]
	for _, r := range list {
		if !r.done {
			kept = append(kept, r)
		}
	}
	for i := len(kept); i < len(list); i++ {
		list[i] = nil
	}
	return kept
}
