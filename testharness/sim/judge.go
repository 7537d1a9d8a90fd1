package sim

import (
	"fmt"
	"slices"

	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// judge holds every admission against the guarantee. An admission's instant is that of its charge at the store where the
// charge is strict, else when the request was released.
type judge struct {
	run        *run
	spent      map[boundKey][]instant.Instant
	violations []string
}

const maxViolations = 10

func (j *judge) complain(format string, arguments ...any) {
	if len(j.violations) < maxViolations {
		at := j.run.world.now.Sub(origin)
		j.violations = append(j.violations, fmt.Sprintf("at %v: ", at)+fmt.Sprintf(format, arguments...))
	}
}

// admit notes a request's release.
func (j *judge) admit(w *worker, s *stream) {
	now := j.run.world.now
	for _, k := range s.bound {
		cost := j.run.cost(k.limit)
		if j.run.isAsync(k.limit) {
			j.run.behind(w, k).admitted(now, cost)
		}
		j.run.noteShare(w, k)
		at := now
		// A request that came later than the charge was not admitted by it: it found a lease.
		if w.ended != nil {
			for i := range w.ended.strict[k] {
				if g := &w.ended.strict[k][i]; g.units >= cost && g.at >= s.arrived && (g.paid == s.paid || k.limit != j.run.scenario.Limits[0].Name) {
					g.units -= cost
					at = g.at
					break
				}
			}
		}
		for range cost {
			j.spend(k, at)
		}
	}
}

// inTurn notes that a request is let pass: none that came before it to the same worker, under the same keys, may still
// wait where the limits hold requests back, all for as long. Not while a worker has just given the service up: those whose call is under way
// wait for its answer then, and the others are decided at once.
func (j *judge) inTurn(w *worker, s *stream) {
	if waited := j.run.world.now.Sub(s.arrived); waited > j.run.scenario.longestWait() {
		j.complain("a request waited %v before it passed", waited)
	}
	if stopped := j.run.world.now.Sub(w.stopped); w.stopped > 0 && stopped <= j.run.scenario.Timeout+maxTickDelay {
		return
	}
	for _, k := range s.bound {
		if wait := j.run.limit(k.limit).MaxWait; wait == 0 || wait != j.run.limit(s.bound[0].limit).MaxWait {
			return
		}
	}
	for _, other := range w.streams {
		if other.id < s.id && other.paused && slices.Equal(other.bound, s.bound) {
			j.complain("worker %d lets stream %d pass before stream %d, which came %v earlier", w.number, s.id, other.id,
				s.arrived.Sub(other.arrived))
		}
	}
}

// limit gives one of the scenario's limits.
func (r *run) limit(name string) *policy.Limit {
	i := slices.IndexFunc(r.scenario.Limits, func(l policy.Limit) bool { return l.Name == name })
	return &r.scenario.Limits[i]
}

// cost is what a request spends of a limit.
func (r *run) cost(name string) int64 { return r.limit(name).RequestCost() }

// spend notes a unit's instant, and looks at the windows that it falls into.
func (j *judge) spend(k boundKey, at instant.Instant) {
	all := j.spent[k]
	place := len(all)
	for place > 0 && all[place-1] > at {
		place--
	}
	all = slices.Insert(all, place, at)
	j.spent[k] = all
	j.run.watch.spent(k, at, 1)
	if approximate(j.run.limit(k.limit).Algorithm) {
		return // judged when the run is over, by the algorithm's own bound
	}
	for i, rate := range j.run.rates(k.limit) {
		for end := place; end < len(all) && all[end] < at.Add(rate.Window); end++ {
			first, _ := slices.BinarySearch(all, all[end].Add(-rate.Window)+1)
			count, most := int64(end-first+1), j.run.allowed(k.limit, i)
			j.run.watch.window(k, i, all[end], count)
			j.fill(k, float64(count)/float64(most), all[end].Add(-rate.Window), all[end])
			if count > most && j.run.isAsync(k.limit) {
				most += j.run.ahead(k, all[end].Add(-rate.Window))
			}
			if count > most {
				most += j.run.alone(k, most, all[end].Add(-rate.Window), all[end])
			}
			if count > most {
				j.complain("%d units of %s/%s within %v, %d are allowed", count, k.limit, k.key, rate.Window, most)
			}
		}
	}
}

// fill notes how full a window is: one that the guarantee is for, or one that may hold more, in mode async and where workers
// decide by themselves.
func (j *judge) fill(k boundKey, share float64, from, to instant.Instant) {
	f := &j.run.figures
	if j.run.isAsync(k.limit) || j.run.unavailable(k.limit) != limit.Deny && j.run.mayBeAlone(from, to) {
		f.WorstBeyond = max(f.WorstBeyond, share)
		return
	}
	f.Worst = max(f.Worst, share)
}

// rates gives a limit's rates.
func (r *run) rates(name string) []limit.Rate { return r.limit(name).Rates }

// allowed gives the most that a window ending now may hold: once the units were changed, the larger of both, for leases of
// before may still be spent.
func (r *run) allowed(name string, rate int) int64 {
	units := r.rates(name)[rate].Units
	if r.changed && name == r.scenario.Limits[0].Name && rate == 0 {
		units = max(units, r.scenario.ChangeTo)
	}
	if name == r.scenario.Limits[0].Name && rate == 0 {
		units = max(units, r.scenario.Paid)
	}
	return units
}
