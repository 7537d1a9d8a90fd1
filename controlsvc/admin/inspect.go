package admin

import (
	"context"

	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

// Inspect implements adminv1.AdminServer.
func (s *Server) Inspect(ctx context.Context, request *adminv1.InspectRequest) (*adminv1.InspectResponse, error) {
	ref, _, err := keyOf(s.config.Authority.Policy(), request.GetKey())
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
		lease := &known.Leases[i]
		response.Leases = append(response.Leases, &adminv1.Lease{
			Id: lease.Lease, WorkerId: lease.WorkerOf(), Units: uint64(lease.Units), Age: micros(lease.Age), EndIn: micros(lease.EndIn),
		})
	}
	return response, nil
}

// Reset implements adminv1.AdminServer.
func (s *Server) Reset(ctx context.Context, request *adminv1.ResetRequest) (*adminv1.ResetResponse, error) {
	ref, _, err := keyOf(s.config.Authority.Policy(), request.GetKey())
	if err != nil {
		return nil, err
	}
	err = s.config.Authority.Reset(ctx, ref)
	s.audit(ctx, "reset", err, "limit", ref.Limit, "key", ref.Key)
	if err != nil {
		return nil, told(err)
	}
	return &adminv1.ResetResponse{Limit: ref.Limit, Key: ref.Key}, nil
}
