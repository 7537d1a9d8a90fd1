package rpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice/controlsvc/authority"
	"sluice/shared/wire"
)

// control answers sluice.v1.Control.
type control struct{ authority *authority.Authority }

// sync answers a worker's call.
func (c *control) sync(ctx context.Context, request *wire.SyncRequest) (*wire.SyncResponse, error) {
	response, err := c.authority.Sync(ctx, request)
	switch {
	case errors.Is(err, authority.ErrInvalid):
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, authority.ErrNoPolicy):
		return nil, status.Error(codes.Unavailable, err.Error())
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	}
	return response, nil
}

// getPolicy gives the policy in force, unless the caller has it.
func (c *control) getPolicy(_ context.Context, request *wire.GetPolicyRequest) (*wire.GetPolicyResponse, error) {
	p := c.authority.Policy()
	if p == nil {
		return nil, status.Error(codes.Unavailable, authority.ErrNoPolicy.Error())
	}
	response := &wire.GetPolicyResponse{Version: p.Version}
	if request.Version != p.Version {
		response.Policy = p
	}
	return response, nil
}
