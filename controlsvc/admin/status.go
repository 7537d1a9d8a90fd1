package admin

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice/controlsvc/traffic"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

// ListNames implements adminv1.AdminServer.
func (s *Server) ListNames(context.Context, *adminv1.ListNamesRequest) (*adminv1.ListNamesResponse, error) {
	response := &adminv1.ListNamesResponse{}
	if p := s.file(); p != nil {
		for i := range p.Limits {
			response.Limits = append(response.Limits, p.Limits[i].Name)
		}
		for i := range p.Identities {
			response.Identities = append(response.Identities, p.Identities[i].Name)
		}
	}
	return response, nil
}

// Status implements adminv1.AdminServer.
func (s *Server) Status(ctx context.Context, _ *adminv1.StatusRequest) (*adminv1.StatusResponse, error) {
	response := s.config.Status()
	state := s.config.Overlay.State()
	if state.InForce != nil {
		response.Domain, response.PolicyVersion, response.FileVersion = state.InForce.Domain, state.InForce.Version, state.File.Version
		response.Limits = uint64(len(state.InForce.Limits))
		response.PolicyAge = micros(s.config.Now().Sub(state.Changed))
	}
	began := s.config.Now()
	err := s.config.Store.Ping(ctx)
	response.Store.Latency = micros(s.config.Now().Sub(began))
	if err == nil {
		err = state.Problem
	}
	if err != nil {
		response.Store.Problem = err.Error()
	}
	response.Store.Owed = uint64(s.config.Authority.Owed())
	response.Overlay = s.entries()
	told := s.config.Traffic(traffic.Query{Range: traffic.Hour, Top: 1})
	ago := func(at float64) uint64 { return uint64(max(0, told.At-at) * 1e6) }
	for _, r := range told.Replicas {
		response.Replicas = append(response.Replicas, &adminv1.Replica{
			Id: r.ID, PolicyVersion: r.Policy, UpFor: ago(r.Since), Age: ago(r.At),
		})
	}
	response.Connected = uint32(told.Connected)
	for _, w := range told.Workers {
		if w.Own {
			continue // it is up for as long as the replica, and goes by its policy
		}
		response.Workers = append(response.Workers, &adminv1.Worker{
			Id: w.ID, Replica: w.Replica, PolicyVersion: w.Policy, UpFor: uint64(w.Age * 1e6), Seen: ago(w.LastSeen),
			Requests: uint64(w.Requests), Away: uint64(w.Away * 1e6),
		})
	}
	for _, f := range told.Fallbacks {
		period := &adminv1.Fallback{Limit: f.Limit, Began: ago(f.From), Ended: max(1, ago(f.Until)), Requests: uint64(f.Requests)}
		if f.Open {
			period.Ended = 0
		}
		response.Fallbacks = append(response.Fallbacks, period)
	}
	return response, nil
}

// Top implements adminv1.AdminServer.
func (s *Server) Top(_ context.Context, request *adminv1.TopRequest) (*adminv1.TopResponse, error) {
	over := traffic.FiveMinutes
	if request.GetRange() != "" {
		var ok bool
		if over, ok = traffic.ParseRange(request.GetRange()); !ok {
			return nil, invalid("the range %q is not known, want 5m, 1h or 24h", request.GetRange())
		}
	}
	if p := s.file(); request.GetLimit() != "" && (p == nil || limitOf(p, request.GetLimit()) == nil) {
		return nil, status.Errorf(codes.NotFound, "the policy has no limit %q", request.GetLimit())
	}
	told := s.config.Traffic(traffic.Query{Range: over, Limit: request.GetLimit(), Top: int(min(request.GetMost(), 1000))})
	ago := func(at float64) uint64 { return uint64(max(0, told.At-at) * 1e6) }
	response := &adminv1.TopResponse{
		Range: string(told.Range), Total: countsOf(&told.Total),
		Age: ago(told.Until), KnownFor: ago(told.Since), WholeFor: ago(told.Whole), RankedFor: ago(told.Ranked),
	}
	add := func(limit, name string, counts *traffic.Counts, missing int64) {
		response.Rows = append(response.Rows, &adminv1.TopRow{Limit: limit, Name: name, Counts: countsOf(counts), Missing: uint64(missing)})
	}
	switch request.GetBy() {
	case adminv1.TopBy_TOP_BY_ROUTES:
		for i := range told.Routes {
			add(told.Routes[i].Limit, told.Routes[i].Route, &told.Routes[i].Counts, told.Routes[i].More)
		}
		response.OthersMost = uint64(told.RoutesMost)
	case adminv1.TopBy_TOP_BY_LIMITS:
		slices.SortStableFunc(told.Limits, func(a, b traffic.Limit) int { return cmp.Compare(b.Denied, a.Denied) })
		for i := range told.Limits {
			add(told.Limits[i].Name, "", &told.Limits[i].Counts, 0)
		}
	case adminv1.TopBy_TOP_BY_SHADOW:
		for i := range told.Shadow {
			add(told.Shadow[i].Limit, told.Shadow[i].Key, &told.Shadow[i].Counts, told.Shadow[i].More)
		}
		response.OthersMost = uint64(told.ShadowMost)
	case adminv1.TopBy_TOP_BY_UNSPECIFIED, adminv1.TopBy_TOP_BY_KEYS:
		for i := range told.Keys {
			add(told.Keys[i].Limit, told.Keys[i].Key, &told.Keys[i].Counts, told.Keys[i].More)
		}
		response.OthersMost = uint64(told.KeysMost)
	default:
		return nil, invalid("%v is nothing to rank", request.GetBy())
	}
	return response, nil
}

func countsOf(c *traffic.Counts) *adminv1.Counts {
	return &adminv1.Counts{
		Admitted: uint64(c.Admitted), Denied: uint64(c.Denied), Left: uint64(c.Left), Near: uint64(c.Near), Fallback: uint64(c.Fallback),
		ShadowDenied: uint64(c.ShadowDenied), ShadowAdmitted: uint64(c.ShadowAdmitted),
	}
}
