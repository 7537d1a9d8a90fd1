package rpc

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	sluicev1 "sluice/shared/proto/sluice/v1"
)

// Bytes that are no message are the caller's fault, INVALID_ARGUMENT, where grpc by itself says INTERNAL, as if they were
// the service's. It answers so as soon as its codec fails; hence the codec does not, and the failure is found a step later.

// received is a message together with what was wrong with its bytes.
type received struct {
	message any
	err     error
}

// lenient is the codec of protobuf, except that it fails no received.
type lenient struct{ encoding.CodecV2 }

func (c lenient) Unmarshal(data mem.BufferSlice, into any) error {
	if r, ok := into.(*received); ok {
		r.err = c.CodecV2.Unmarshal(data, r.message)
		return nil
	}
	return c.CodecV2.Unmarshal(data, into)
}

// describe gives the Control service as it is registered.
func describe(observer Observer) *grpc.ServiceDesc {
	description := sluicev1.Control_ServiceDesc
	description.Methods = slices.Clone(description.Methods)
	for i := range description.Methods {
		method := &description.Methods[i]
		answer, isSync := method.Handler, "/"+description.ServiceName+"/"+method.MethodName == sluicev1.Control_Sync_FullMethodName
		method.Handler = func(
			server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
		) (any, error) {
			return answer(server, ctx, func(message any) error {
				r := &received{message: message}
				if err := decode(r); err != nil {
					return err
				}
				if r.err != nil && isSync {
					observer.Synced(codes.InvalidArgument)
				}
				if r.err != nil {
					return status.Error(codes.InvalidArgument, "the bytes are no message: "+r.err.Error())
				}
				return nil
			}, interceptor)
		}
	}
	return &description
}
