package rpc

import (
	"context"

	"sluice/controlsvc/authority"
	sluicev1 "sluice/shared/proto/sluice/v1"
)

// Answer is a call of Sync without a connection.
func Answer(ctx context.Context, a *authority.Authority, request *sluicev1.SyncRequest) (*sluicev1.SyncResponse, error) {
	return (&control{authority: a}).Sync(ctx, request)
}
