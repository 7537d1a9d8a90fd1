package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

// actionOf names what a request does; empty where it only asks.
func actionOf(request any) string {
	switch r := request.(type) {
	case *adminv1.ResetRequest:
		return "reset"
	case *adminv1.SetOverrideRequest:
		return "set override"
	case *adminv1.RemoveOverrideRequest:
		return "remove override"
	case *adminv1.SetListingRequest:
		return "set " + cmp.Or(string(kindOf(r.GetListing())), "list")
	case *adminv1.RemoveListingRequest:
		return "remove " + cmp.Or(string(kindOf(r.GetListing())), "list")
	}
	return ""
}

// notes are what the log says of an action, as names and values. What a caller gave comes in once it is known to be what the policy
// has written so, hashed where it says so: anything else may be a secret in the wrong place.
type notes struct{ attributes []any }

type notesKey struct{}

func withNotes(ctx context.Context) (context.Context, *notes) {
	n := &notes{}
	return context.WithValue(ctx, notesKey{}, n), n
}

// note adds to what the log says of the call's action.
func note(ctx context.Context, attributes ...any) {
	if n, is := ctx.Value(notesKey{}).(*notes); is {
		n.attributes = append(n.attributes, attributes...)
	}
}

// audit logs an action, whether it worked or not, and by whom.
func (s *Server) audit(ctx context.Context, action string, n *notes, err error) {
	attributes := append([]any{"audit", "admin", "action", action, "peer", peerOf(ctx)}, n.attributes...)
	if err == nil {
		s.config.Logger.Info("admin action", attributes...)
		return
	}
	why := status.Convert(err).Message()
	if q := (quoting{}); errors.As(err, &q) {
		why = q.logged
	}
	s.config.Logger.Warn("admin action failed", append(attributes, "why", why)...)
}

// quoting is an error that quotes to its caller what he gave, and nobody knows what that is: the log says it without.
type quoting struct {
	error

	logged string
}

// GRPCStatus has the caller told all.
func (q quoting) GRPCStatus() *status.Status { return status.Convert(q.error) }

// unknown is an error of which the log says what, and the caller is told of which text.
func unknown(code codes.Code, what, text string) error {
	return quoting{status.Error(code, fmt.Sprintf("%s: %q", what, text)), what}
}
