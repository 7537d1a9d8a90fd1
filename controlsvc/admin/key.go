package admin

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/overlay"
	"sluice/shared/limit"
	"sluice/shared/policy"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
	"sluice/shared/wire"
)

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// told gives an error the code that says whose it is.
func told(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, authority.ErrNoSuchKey):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, overlay.ErrRefused):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, authority.ErrFull):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, authority.ErrNoPolicy), errors.Is(err, authority.ErrUnavailable):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// keyOf gives the key that a caller names, as the policy in force writes it.
func keyOf(p *policy.Policy, k *adminv1.Key) (wire.KeyRef, *policy.Limit, error) {
	if p == nil {
		return wire.KeyRef{}, nil, status.Error(codes.Unavailable, authority.ErrNoPolicy.Error())
	}
	name := k.GetLimit()
	l := limitOf(p, name)
	if l == nil {
		of, _, _ := policy.CutRate(name) // of a call of Envoy's own filter that brings a rate
		if l = limitOf(p, of); l == nil {
			return wire.KeyRef{}, nil, status.Errorf(codes.NotFound, "the policy has no limit %q", name)
		}
	}
	ref := wire.KeyRef{Limit: name, Key: k.GetKey()}
	values := k.GetValues()
	switch {
	case len(values) > 0 && ref.Key != "":
		return ref, nil, invalid("both a key and identity values are given, want one of the two")
	case len(values) > 0 && len(values) != l.KeyParts():
		return ref, nil, invalid("%d identity values are given, and keys of limit %s have %d%s", len(values), name, l.KeyParts(), partNames(p, l))
	case len(values) == 0:
		ref.Key = strings.TrimSuffix(ref.Key, "/")
		if !policy.ValidKey(ref.Key) {
			return ref, nil, invalid("%q is not as keys are written; give the values as requests have them instead", ref.Key)
		}
	}
	forms := make([]string, 0, len(values))
	for i, value := range values {
		form := policy.EscapeValue(value)
		if len(l.Descriptor) == 0 {
			var ok bool
			if form, ok = p.Form(l.Key[i], value); !ok {
				return ref, nil, invalid("identity %s never has the value %q", p.Identities[l.Key[i]].Name, value)
			}
		}
		forms = append(forms, form)
	}
	if len(forms) > 0 {
		ref.Key = strings.Join(forms, "/")
	}
	return ref, l, nil
}

func limitOf(p *policy.Policy, name string) *policy.Limit {
	for i := range p.Limits {
		if p.Limits[i].Name == name {
			return &p.Limits[i]
		}
	}
	return nil
}

// partNames says which identities a key is made of.
func partNames(p *policy.Policy, l *policy.Limit) string {
	names := make([]string, 0, len(l.Key))
	for _, i := range l.Key {
		names = append(names, p.Identities[i].Name)
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ")
}

// expiry reads how long something is to hold.
func expiry(micros uint64) (time.Duration, error) {
	const least = time.Second
	if micros > math.MaxInt64/1000 || time.Duration(micros)*time.Microsecond > limit.MaxWindow || time.Duration(micros)*time.Microsecond < least {
		return 0, invalid("it expires after %d µs, want %v to %v: what is to hold for ever belongs into the policy's file", micros, least, limit.MaxWindow)
	}
	return time.Duration(micros) * time.Microsecond, nil
}

func micros(d time.Duration) uint64 { return uint64(max(0, d.Microseconds())) }

func rateOf(r limit.Rate) *adminv1.Rate {
	return &adminv1.Rate{Units: uint64(r.Units), Window: micros(r.Window), Burst: uint64(r.Burst)}
}
