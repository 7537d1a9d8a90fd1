package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	sluicev1 "sluice/shared/proto/sluice/v1"
	"sluice/shared/wire"
)

// The messages of sluice.v1.Control are read and written by shared/wire, as the filter does it: straight into the
// authority's terms, without reflection, and with the same bounds on both sides.
//
// Bytes that are no message are the caller's fault, INVALID_ARGUMENT, where grpc by itself says INTERNAL, as if they were
// the service's. It answers so as soon as its codec fails; hence the codec does not, and the failure is found a step later.

// received is a request that the codec hands to parse, and what was wrong with its bytes.
type received struct {
	parse func(body []byte) error
	err   error
}

// codec is protobuf's, except for what is received, the messages of sluice.v1.Control, and bytes that are a message already.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, into any) error {
	r, ours := into.(*received)
	if !ours {
		return c.CodecV2.Unmarshal(data, into)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	r.err = r.parse(whole.ReadOnlyData())
	return nil
}

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	switch m := message.(type) {
	case mem.BufferSlice:
		return m, nil
	case *wire.SyncResponse:
		return mem.BufferSlice{mem.SliceBuffer(wire.AppendSyncResponse(nil, m))}, nil
	case *wire.GetPolicyResponse:
		return mem.BufferSlice{mem.SliceBuffer(wire.AppendGetPolicyResponse(nil, m))}, nil
	}
	return c.CodecV2.Marshal(message)
}

// describe gives the Control service as it is registered; its descriptor, which reflection serves, is the generated one.
func describe(c *control, observer Observer) *grpc.ServiceDesc {
	sync, getPolicy := sluicev1.Control_Sync_FullMethodName, sluicev1.Control_GetPolicy_FullMethodName
	return &grpc.ServiceDesc{
		ServiceName: sluicev1.Control_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Sync", Handler: unary(sync, wire.ParseSyncRequest, c.sync, func() { observer.Synced(codes.InvalidArgument) })},
			{MethodName: "GetPolicy", Handler: unary(getPolicy, wire.ParseGetPolicyRequest, c.getPolicy, func() {})},
		},
		Metadata: sluicev1.Control_ServiceDesc.Metadata,
	}
}

// unary makes grpc's handler of a method: how its request is read, how it is answered, and who is told of bytes that are
// no request.
func unary[Request, Response any](
	method string, parse func([]byte) (Request, error), answer func(context.Context, *Request) (*Response, error), garbage func(),
) grpc.MethodHandler {
	return func(server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		var request Request
		r := &received{parse: func(body []byte) (err error) {
			request, err = parse(body)
			return err
		}}
		if err := decode(r); err != nil {
			return nil, err
		}
		if r.err != nil {
			garbage()
			return nil, status.Error(codes.InvalidArgument, "the bytes are no message: "+r.err.Error())
		}
		info := &grpc.UnaryServerInfo{Server: server, FullMethod: method}
		return interceptor(ctx, &request, info, func(ctx context.Context, _ any) (any, error) {
			response, err := answer(ctx, &request)
			if err != nil {
				return nil, err
			}
			return response, nil
		})
	}
}
