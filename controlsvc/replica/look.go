package replica

import (
	"context"
	"strings"

	"sluice/controlsvc/authority"
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
	charged, places := make([]Demand, 0, len(demands)), make([]int, 0, len(demands))
	standings := make([]Standing, len(demands))
	request := wire.SyncRequest{WorkerID: looker, CallID: r.looks.Add(1)}
	var looked []int
	var held []int64
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
			// Before the store is asked: what it is told meanwhile is taken off twice rather than not at all.
			held = append(held, r.held(p, &demands[i], &standings[i].Told.Rule))
			request.Asks = append(request.Asks, wire.Ask{KeyRef: wire.KeyRef{Limit: name, Key: strings.Clone(d.Key)}, Min: 1})
		}
	}
	// seen is what the limits say together that were looked at, which are told of; none in shadow is.
	seen := admission.Output{Verdict: admission.Admit, Demand: -1}
	var told []*ratefields.Limit
	if len(looked) > 0 {
		results, err := r.ask(ctx, &request)
		if err != nil {
			return err
		}
		for n, i := range looked {
			s := &standings[i]
			out, known := s.see(&results[n], held[n])
			if known && !s.Told.Shadow {
				out.Demand = len(told)
				told = append(told, s.Told)
				seen = admission.Worse(seen, out)
			}
		}
	}
	if seen.Verdict == admission.Deny {
		for i := range charged {
			standings[places[i]] = Standing{Told: ratefields.New(p, charged[i].rule(p, (*policy.Limit).WithRate))}
		}
		into.Output, into.Limits = seen, append(into.Limits[:0], told...)
		into.Standings = append(into.Standings[:0], standings...)
		r.workers[0].count(p, told[seen.Demand].Limit.Name, into.Output)
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
	if seen.Demand >= 0 {
		seen.Demand, seen.Source = len(into.Limits)+seen.Demand, into.Source
		into.Limits = append(into.Limits, told...)
		into.Output = admission.Worse(into.Output, seen)
	}
	return nil
}

// ask has the authority look.
func (r *Replica) ask(ctx context.Context, request *wire.SyncRequest) ([]wire.AskResult, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	response, err := r.config.Authority.Sync(authority.Own(ctx), request)
	if err != nil {
		return nil, err
	}
	return response.Results, nil
}

// held is how many units the replica's workers hold of a key, less those that they have spent and the store has not been told of.
func (r *Replica) held(p *policy.Policy, d *Demand, rule *policy.Rule) (units int64) {
	for _, w := range r.workers {
		units += w.free(p, d, rule)
	}
	return units
}

// see takes over how a limit stands, of which so many units are held, and gives what it says of a request of one unit; false
// where it could not be looked at.
func (s *Standing) see(result *wire.AskResult, held int64) (out admission.Output, known bool) {
	if result.Problem != wire.NoProblem {
		return admission.Output{}, false
	}
	out = admission.Output{
		Verdict: admission.Admit, Source: admission.FromStore, Rate: limit.Rate{Units: result.Limit, Window: result.Window},
		Remaining: max(0, min(result.Remaining+held, max(result.Remaining, result.Limit))), Reset: result.Reset,
	}
	if out.Remaining < 1 {
		out.Verdict, out.Never = admission.Deny, result.Limit < 1
		if !out.Never {
			out.RetryAfter = result.Denial.Earliest()
		}
	}
	s.Rate, s.Remaining, s.Reset, s.RetryAfter = out.Rate, out.Remaining, out.Reset, out.RetryAfter
	s.Over = out.Verdict == admission.Deny && !s.Told.Shadow
	return out, true
}
