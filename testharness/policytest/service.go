package policytest

import (
	"context"
	"strconv"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// maxKeys bounds the memory store.
const maxKeys = 1_000_000

// Service is the real service's decisions on the memory store, and speaks the filter's protocol in this process.
type Service struct {
	authority *authority.Authority
	store     *memory.Store
	drawn     uint64
	asks      int
	heard     func(*wire.SyncRequest)
}

// NewService gives a service with a policy and a clock of the caller's.
func NewService(p *policy.Policy, now func() instant.Instant) *Service {
	s := &Service{store: memory.New(now, maxKeys)}
	s.authority = authority.New(authority.Config{
		Store: s.store, Now: now, Random: func() uint64 { s.drawn++; return s.drawn },
	})
	s.authority.SetPolicy(p)
	return s
}

// SetPolicy puts another policy in force.
func (s *Service) SetPolicy(p *policy.Policy) { s.authority.SetPolicy(p) }

// Asks is how many calls have asked for units.
func (s *Service) Asks() int { return s.asks }

// OnSync has f hear of every Sync before it is executed.
func (s *Service) OnSync(f func(*wire.SyncRequest)) { s.heard = f }

// Peek gives what a key of a limit has left of each of its rates.
func (s *Service) Peek(ctx context.Context, limitName, key string) ([]authority.State, error) {
	p := s.authority.Policy()
	for _, l := range p.Limits {
		if l.Name == limitName {
			return s.store.Peek(ctx, authority.Key{Name: policy.StoreName(p.Domain, l.Name, key), Algorithm: l.Algorithm, Rates: l.Rates})
		}
	}
	return nil, nil
}

// Answer acts on a unary gRPC call, and gives its answer.
func (s *Service) Answer(ctx context.Context, path string, body []byte) fake.Reply {
	const invalid, unimplemented, unavailable = 3, 12, 14
	message, err := wire.Unframe(body, wire.MaxMessageSize)
	if err != nil {
		return failed(invalid, err.Error())
	}
	switch path {
	case "/sluice.v1.Control/GetPolicy":
		request, err := wire.ParseGetPolicyRequest(message)
		if err != nil {
			return failed(invalid, err.Error())
		}
		p := s.authority.Policy()
		response := wire.GetPolicyResponse{Version: p.Version}
		if request.Version != p.Version {
			response.Policy = p
		}
		return succeeded(wire.AppendGetPolicyResponse(nil, &response))
	case "/sluice.v1.Control/Sync":
		request, err := wire.ParseSyncRequest(message)
		if err != nil {
			return failed(invalid, err.Error())
		}
		if len(request.Asks) > 0 {
			s.asks++
		}
		if s.heard != nil {
			s.heard(&request)
		}
		response, err := s.authority.Sync(ctx, &request)
		if err != nil {
			return failed(unavailable, err.Error())
		}
		return succeeded(wire.AppendSyncResponse(nil, response))
	}
	return failed(unimplemented, "no method "+path)
}

func succeeded(message []byte) fake.Reply {
	return fake.Reply{
		Headers:  []host.Header{{":status", "200"}, {"content-type", "application/grpc"}},
		Trailers: []host.Header{{"grpc-status", "0"}},
		Content:  wire.AppendFrame(nil, message),
	}
}

// failed is gRPC's answer of headers only.
func failed(status int, message string) fake.Reply {
	return fake.Reply{Headers: []host.Header{
		{":status", "200"}, {"content-type", "application/grpc"}, {"grpc-status", strconv.Itoa(status)}, {"grpc-message", message},
	}}
}

// timedOut is what Envoy tells of a call without an answer.
func timedOut() fake.Reply {
	return fake.Reply{
		Headers: []host.Header{{":status", "200"}, {"content-type", "application/grpc"}, {"grpc-status", "14"}, {"grpc-message", "upstream request timeout"}},
	}
}
