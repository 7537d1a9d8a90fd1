package replica

import (
	"context"

	"sluice/shared/admission"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/ratefields"
	"sluice/shared/wire"
)

// looker is the worker's id of calls that only look. They take nothing, so that nobody tells them apart.
const looker = 1

// look decides a request some of whose limits are only looked at: where one of those has nothing left the request is denied,
// and charged nothing. A limit that cannot be looked at denies nobody. What the replica's workers hold of a limit is not spent
// yet, and counts as left.
func (r *Replica) look(ctx context.Context, p *policy.Policy, demands []Demand, into *Decision) error {
	charged := make([]Demand, 0, len(demands))
	places := make([]int, 0, len(demands))
	standings := make([]Standing, len(demands))
	request := wire.SyncRequest{WorkerID: looker, CallID: r.looks.Add(1)}
	var looked []int
	for i, d := range demands {
		rule := d.rule(p, (*policy.Limit).WithRate)
		name := p.Limits[d.Limit].Name
		if d.Own.Window != 0 {
			name = rule.Limit.NameWithRate()
		}
		switch {
		case d.Cost > 0:
			charged = append(charged, d)
			places = append(places, i)
		case !rule.Unlimited:
			standings[i] = Standing{Told: ratefields.New(p, rule)}
			looked = append(looked, i)
			request.Asks = append(request.Asks, wire.Ask{KeyRef: wire.KeyRef{Limit: name, Key: d.Key}, Min: 1})
		}
	}
	denied := false
	if len(request.Asks) > 0 {
		if r.config.Longest > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, r.config.Longest)
			defer cancel()
		}
		response, err := r.config.Authority.Sync(ctx, &request)
		if err != nil {
			return err
		}
		for n, i := range looked {
			var held int64
			for _, w := range r.workers {
				held += w.free(p, &demands[i], &standings[i].Told.Rule)
			}
			denied = standings[i].seen(&response.Results[n], held) || denied
		}
	}
	if denied {
		for i := range charged {
			standings[places[i]] = Standing{Told: ratefields.New(p, charged[i].rule(p, (*policy.Limit).WithRate))}
		}
		into.denyBy(standings)
		r.workers[0].count(p, into.Limits[0].Limit.Name, into.Output)
		return nil
	}
	if len(charged) > 0 {
		if err := r.decide(ctx, p, charged, into); err != nil {
			return err
		}
		for i, place := range places {
			standings[place] = into.Standings[i]
		}
	} else {
		r.workers[0].count(p, "", into.Output)
	}
	into.Standings = append(into.Standings[:0], standings...)
	return nil
}

// seen takes over how a limit stands, of which so many units are held, and says whether it denies. In shadow it does not.
func (s *Standing) seen(result *wire.AskResult, held int64) bool {
	if result.Problem != wire.NoProblem {
		return false
	}
	s.Rate = limit.Rate{Units: result.Limit, Window: result.Window}
	s.Remaining, s.Reset = min(result.Remaining+held, max(result.Remaining, result.Limit)), result.Reset
	if s.Remaining < 1 {
		s.RetryAfter, s.Over = result.Denial.Earliest(), !s.Told.Shadow
	}
	return s.Over
}

// denyBy denies by the limit that was looked at with the longest wait.
func (d *Decision) denyBy(standings []Standing) {
	d.Standings = append(d.Standings[:0], standings...)
	d.Output = admission.Output{Verdict: admission.Deny, Source: admission.FromStore}
	for i := range standings {
		s := &standings[i]
		if s.Over && (len(d.Limits) == 0 || s.RetryAfter > d.RetryAfter) {
			d.Limits = append(d.Limits[:0], s.Told)
			d.Rate, d.Remaining, d.Reset, d.RetryAfter = s.Rate, s.Remaining, s.Reset, s.RetryAfter
		}
	}
}
