package sim

import (
	"math"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// While the service is away a limit with on_unavailable local admits, for each worker, its share on top of what the store
// has granted: with shares as they were told, another L in all. That is what such a limit is judged by. With allow there is
// no bound, with deny nothing on top.

// shareInForce is a worker's share when a request was released.
type shareInForce struct {
	at           instant.Instant
	worker, life int
	share        authority.Share
}

// noteShare notes under which share a worker releases a request.
func (r *run) noteShare(w *worker, k boundKey) {
	if r.unavailable(k.limit) == limit.Local {
		for _, share := range [...]authority.Share{w.share, w.before} {
			r.shares[k] = append(r.shares[k], shareInForce{r.world.now, w.number, w.life, share})
		}
	}
}

func (r *run) unavailable(name string) limit.Unavailable {
	for _, l := range r.scenario.Limits {
		if l.Name == name {
			return l.OnUnavailable
		}
	}
	return limit.Deny
}

// alone gives what a window of a key may hold on top of the units that are allowed, for workers that decided by themselves.
func (r *run) alone(k boundKey, units int64, from, to instant.Instant) int64 {
	choice := r.unavailable(k.limit)
	switch {
	case choice == limit.Deny || !r.mayBeAlone(from, to):
		return 0
	case choice == limit.Allow:
		return math.MaxInt64 - units
	}
	largest := map[[2]int]int64{}
	all := r.shares[k]
	for i := len(all) - 1; i >= 0 && all[i].at > from; i-- {
		s := all[i]
		who := [2]int{s.worker, s.life}
		largest[who] = max(largest[who], admission.Share(units, s.share.Workers, s.share.Rank))
	}
	var sum int64
	for _, share := range largest {
		sum += share
	}
	return sum
}

// noteLate notes that a request is decided that has waited for an answer for as long as it may.
func (r *run) noteLate(s *stream) {
	if r.world.now.Sub(s.arrived) >= r.scenario.Timeout {
		r.late = append(r.late, r.world.now)
	}
}

// mayBeAlone says whether a window reaches into a time at which workers may have to decide by themselves: into the outage
// and the two seconds in which all have to have come back from it, into as long after an answer that did not come in time,
// or into any time where calls fail by chance.
func (r *run) mayBeAlone(from, to instant.Instant) bool {
	const comeBack = 2 * time.Second
	for i := len(r.late) - 1; i >= 0 && from < r.late[i].Add(comeBack); i-- {
		if to >= r.late[i] {
			return true
		}
	}
	s, f := &r.scenario, &r.scenario.Faults
	if f.Lose+f.Slow+f.StoreLose+f.Crashes+f.Restarts+f.Partitions > 0 {
		return true
	}
	return s.OutageFor > 0 && to >= r.began.Add(s.Outage) && from < r.began.Add(s.Outage+s.OutageFor+comeBack)
}
