package admin

import (
	"context"

	"sluice/controlsvc/authority"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

// Inspect implements adminv1.AdminServer.
func (s *Server) Inspect(ctx context.Context, request *adminv1.InspectRequest) (*adminv1.InspectResponse, error) {
	ref, _, err := keyOf(ctx, s.config.Authority.Policy(), request.GetKey())
	if err != nil {
		return nil, err
	}
	known, err := s.config.Authority.Inspect(ctx, ref, request.GetPlan())
	if err != nil {
		return nil, told(err)
	}
	l := known.Rule.Limit
	response := &adminv1.InspectResponse{
		Limit: ref.Limit, Key: ref.Key, Algorithm: l.Algorithm.String(), Mode: l.Mode.String(), Plan: known.Rule.Plan,
		Unlimited: known.Rule.Unlimited, Shadow: known.Rule.Shadow, Cost: uint64(l.RequestCost()),
	}
	for _, r := range known.Rates {
		response.Rates = append(response.Rates, &adminv1.InspectedRate{
			Rate: rateOf(r.Rate), Used: uint64(r.Used), Remaining: uint64(r.Remaining), FreeIn: micros(r.FreeIn), Never: r.Never,
			ResetIn: micros(r.Reset),
		})
	}
	for i := range known.Leases {
		response.Leases = append(response.Leases, leaseOf(&known.Leases[i]))
	}
	return response, nil
}

// leaseOf gives a lease of the wire, with its parts.
func leaseOf(l *authority.LiveLease) *adminv1.Lease {
	lease := &adminv1.Lease{Id: l.Lease, Units: uint64(l.Units), Age: micros(l.Age), EndIn: micros(l.EndIn)}
	if id, replica := l.Holder(); replica {
		lease.ReplicaId = id
	} else {
		lease.WorkerId = id
	}
	for i := range l.Parts {
		lease.Parts = append(lease.Parts, leaseOf(&l.Parts[i]))
	}
	return lease
}

// Reset implements adminv1.AdminServer.
func (s *Server) Reset(ctx context.Context, request *adminv1.ResetRequest) (*adminv1.ResetResponse, error) {
	ref, _, err := keyOf(ctx, s.config.Authority.Policy(), request.GetKey())
	if err != nil {
		return nil, err
	}
	if err = s.config.Authority.Reset(ctx, ref); err != nil {
		return nil, told(err)
	}
	return &adminv1.ResetResponse{Limit: ref.Limit, Key: ref.Key}, nil
}
