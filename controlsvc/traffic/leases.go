package traffic

import (
	"time"

	"sluice/shared/instant"
)

const (
	// maxLeases bounds the leases that are followed; of more only the grant is counted.
	maxLeases = 1 << 16
	// leaseGrace is for how long after its end a lease's report is waited for: a worker sends it within a second, and again
	// until it is acknowledged.
	leaseGrace = 10 * time.Second
	// awayFor is for how long a worker counts as away after it has reported that it was: it probes once a second.
	awayFor = 5 * time.Second
)

// LeaseUnits is what became of the units that this replica granted in leases, or was told of. A report that comes to another
// replica than the one that granted the lease is counted as expired by the one and as elsewhere by the other: summed up over
// the replicas, expired − elsewhere are the units that nobody reported.
type LeaseUnits struct {
	Leases, Granted, Spent, Returned, Expired, Elsewhere int64
}

// lease is a lease that this replica granted, until its report could have come.
type lease struct {
	limit  string
	worker uint64
	units  int64
	ends   instant.Instant
	told   bool
}

// leases are those granted here that are out, or ended a moment ago.
type leases struct {
	live map[string]*lease
	// ends are their names by the second in which they are given up.
	ends  map[int64][]string
	swept int64
	units map[string]*LeaseUnits // by limit
}

func (l *leases) of(limit string) *LeaseUnits {
	units := l.units[limit]
	if units == nil {
		units = &LeaseUnits{}
		l.units[limit] = units
	}
	return units
}

func (l *leases) granted(now instant.Instant, named string, what lease) {
	l.sweep(now)
	units := l.of(what.limit)
	units.Leases++
	units.Granted += what.units
	if len(l.live) >= maxLeases {
		return
	}
	until := int64(what.ends.Add(leaseGrace)) / microsPerSecond
	l.live[named] = &what
	l.ends[until] = append(l.ends[until], named)
}

// settled counts a report of a lease, once. Units is what a lease has that is not known here.
func (l *leases) settled(now instant.Instant, named, limit string, units, unused int64) {
	l.sweep(now)
	at := l.live[named]
	if at != nil {
		if at.told {
			return
		}
		units = at.units
	}
	unused = min(max(unused, 0), units)
	counts := l.of(limit)
	counts.Returned += unused
	counts.Spent += units - unused
	if at != nil {
		at.told = true
	} else {
		counts.Elsewhere += units
	}
}

// sweep gives up the leases whose reports should have come.
func (l *leases) sweep(now instant.Instant) {
	second := int64(now) / microsPerSecond
	if second == l.swept {
		return
	}
	l.swept = second
	for until, names := range l.ends {
		if until >= second {
			continue
		}
		for _, named := range names {
			if at := l.live[named]; !at.told {
				l.of(at.limit).Expired += at.units
			}
			delete(l.live, named)
		}
		delete(l.ends, until)
	}
}

// byWorker gives how many leases are out, and of how many units.
func (l *leases) byWorker(now instant.Instant) map[uint64]LeaseUnits {
	all := make(map[uint64]LeaseUnits)
	for _, at := range l.live {
		if !at.told && at.ends > now {
			sum := all[at.worker]
			sum.Leases++
			sum.Granted += at.units
			all[at.worker] = sum
		}
	}
	return all
}

// Leased notes a lease that a worker was granted, until so long from now.
func (t *Traffic) Leased(worker uint64, limit, named string, units int64, endIn time.Duration) {
	now := t.config.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases.granted(now, named, lease{limit: t.names.Limit(limit), worker: worker, units: units, ends: now.Add(endIn)})
}

// Settled notes that a lease is settled, and how many of its units will never be spent. Units is how many it had, which counts
// where it is not known here: 0 where its name does not say.
func (t *Traffic) Settled(limit, named string, units, unused int64) {
	now := t.config.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases.settled(now, named, t.names.Limit(limit), units, unused)
}

// Now is what this replica knows at the moment, for metrics.
type Now struct {
	// Leases is by limit.
	Leases map[string]LeaseUnits
	// Out is how many leases are out, of OutUnits in all.
	Out, OutUnits int64
	// Filters called within the last minute. Workers of them decide requests, Stale of those by another policy than the one in
	// force, and Away did without the service when they reported within the last awayFor. Ages are how long they have lived, in
	// seconds, in any order, of those that said.
	Filters, Workers, Stale, Away int
	Ages                          []float64
}

// Now gives what this replica knows at the moment.
func (t *Traffic) Now() Now {
	now := t.config.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases.sweep(now)
	n := Now{Leases: make(map[string]LeaseUnits, len(t.leases.units))}
	for limit, units := range t.leases.units {
		n.Leases[limit] = *units
	}
	for _, out := range t.leases.byWorker(now) {
		n.Out += out.Leases
		n.OutUnits += out.Granted
	}
	t.workers.prune(now)
	for _, w := range t.workers.known {
		if w.Own {
			continue
		}
		n.Filters++
		if !w.decides {
			continue
		}
		n.Workers++
		if age := w.at(now).Age; age > 0 {
			n.Ages = append(n.Ages, age)
		}
		if w.away != 0 && seconds(now)-w.away <= awayFor.Seconds() {
			n.Away++
		}
		if t.policy != nil && w.Policy != t.policy.Version {
			n.Stale++
		}
	}
	return n
}
