package rpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice/controlsvc/authority"
	"sluice/shared/limit"
	sluicev1 "sluice/shared/proto/sluice/v1"
	"sluice/shared/wire"
)

// control answers sluice.v1.Control.
type control struct {
	sluicev1.UnimplementedControlServer

	authority *authority.Authority
}

// Sync answers a worker's call.
func (c *control) Sync(ctx context.Context, request *sluicev1.SyncRequest) (*sluicev1.SyncResponse, error) {
	response, err := c.authority.Sync(ctx, fromSync(request))
	switch {
	case errors.Is(err, authority.ErrInvalid):
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, authority.ErrNoPolicy):
		return nil, status.Error(codes.Unavailable, err.Error())
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	}
	return toSync(response), nil
}

// GetPolicy gives the policy in force, unless the caller has it.
func (c *control) GetPolicy(_ context.Context, request *sluicev1.GetPolicyRequest) (*sluicev1.GetPolicyResponse, error) {
	p := c.authority.Policy()
	if p == nil {
		return nil, status.Error(codes.Unavailable, authority.ErrNoPolicy.Error())
	}
	response := &sluicev1.GetPolicyResponse{Version: p.Version}
	if request.GetVersion() != p.Version {
		response.Policy = toPolicy(p)
	}
	return response, nil
}

// fromSync gives the request in the authority's terms. Numbers that are too large become the smallest one that the
// authority refuses, ages the longest that a window can hold.
func fromSync(from *sluicev1.SyncRequest) *wire.SyncRequest {
	to := &wire.SyncRequest{
		WorkerID:      from.GetWorkerId(),
		CallID:        from.GetCallId(),
		PolicyVersion: from.GetPolicyVersion(),
		Active:        from.GetActive(),
		Abandoned:     make([]wire.Abandoned, 0, len(from.GetAbandoned())),
		Settles:       make([]wire.Settle, 0, len(from.GetSettles())),
		Asks:          make([]wire.Ask, 0, len(from.GetAsks())),
		Records:       make([]wire.Record, 0, len(from.GetRecords())),
	}
	for _, a := range from.GetAbandoned() {
		keys := make([]wire.KeyRef, 0, len(a.GetKeys()))
		for _, k := range a.GetKeys() {
			keys = append(keys, wire.KeyRef{Limit: k.GetLimit(), Key: k.GetKey()})
		}
		to.Abandoned = append(to.Abandoned, wire.Abandoned{CallID: a.GetCallId(), Keys: keys})
	}
	for _, s := range from.GetSettles() {
		to.Settles = append(to.Settles, wire.Settle{
			KeyRef: wire.KeyRef{Limit: s.GetLimit(), Key: s.GetKey()},
			Lease:  s.GetLease(), Uses: fromUses(s.GetUses()), Unused: fromUnits(s.GetUnused()),
		})
	}
	for _, a := range from.GetAsks() {
		to.Asks = append(to.Asks, wire.Ask{
			KeyRef: wire.KeyRef{Limit: a.GetLimit(), Key: a.GetKey()},
			Want:   fromUnits(a.GetWant()), Min: fromUnits(a.GetMin()), Waiting: a.GetWaiting(), Group: a.GetGroup(),
		})
	}
	for _, r := range from.GetRecords() {
		to.Records = append(to.Records, wire.Record{
			KeyRef: wire.KeyRef{Limit: r.GetLimit(), Key: r.GetKey()}, Uses: fromUses(r.GetUses()), ID: r.GetRecordId(),
		})
	}
	return to
}

func fromUses(from []*sluicev1.Use) []wire.Use {
	to := make([]wire.Use, 0, len(from))
	for _, u := range from {
		age := limit.MaxWindow
		if micros := u.GetAge(); micros < uint64(limit.MaxWindow.Microseconds()) {
			age = time.Duration(micros) * time.Microsecond
		}
		to = append(to, wire.Use{Age: age, Units: fromUnits(u.GetUnits())})
	}
	return to
}

func fromUnits(units uint64) int64 { return int64(min(units, limit.MaxUnits+1)) }

func toSync(from *wire.SyncResponse) *sluicev1.SyncResponse {
	to := &sluicev1.SyncResponse{
		Results:       make([]*sluicev1.AskResult, 0, len(from.Results)),
		Settled:       from.Settled,
		Abandoned:     from.Abandoned,
		Recorded:      from.Recorded,
		PolicyVersion: from.PolicyVersion,
		Workers:       from.Workers,
		Rank:          from.Rank,
	}
	for i := range from.Results {
		to.Results = append(to.Results, toResult(&from.Results[i]))
	}
	return to
}

func toResult(from *wire.AskResult) *sluicev1.AskResult {
	to := &sluicev1.AskResult{
		Problem: sluicev1.AskResult_Problem(from.Problem),
		Lease:   from.Lease, Units: toUnits(from.Units), StartIn: toMicros(from.StartIn), EndIn: toMicros(from.EndIn),
		Limit: toUnits(from.Limit), Window: toMicros(from.Window), Remaining: toUnits(from.Remaining), Reset_: toMicros(from.Reset),
	}
	if from.Denied {
		to.Denial = &sluicev1.Denial{
			DenyFor: toMicros(from.Denial.DenyFor), RetryAfter: toMicros(from.Denial.RetryAfter), Never: from.Denial.Never,
		}
	}
	return to
}

func toUnits(units int64) uint64 { return uint64(max(0, units)) }

func toMicros(d time.Duration) uint64 { return uint64(max(0, d.Microseconds())) }
