package rpc

import (
	"context"

	"sluice/controlsvc/authority"
	"sluice/shared/wire"
)

// Answer is a call of Sync without a connection.
func Answer(ctx context.Context, a *authority.Authority, request *wire.SyncRequest) (*wire.SyncResponse, error) {
	return (&control{authority: a}).sync(ctx, request)
}
