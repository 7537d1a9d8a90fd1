package admin

import (
	"context"
	"errors"
	"math"
	"slices"
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

// keyOf gives the key that a caller names, as the policy in force writes it. It is one that requests can have. It notes what it is.
func keyOf(ctx context.Context, p *policy.Policy, k *adminv1.Key) (wire.KeyRef, *policy.Limit, error) {
	if p == nil {
		return wire.KeyRef{}, nil, status.Error(codes.Unavailable, authority.ErrNoPolicy.Error())
	}
	name := k.GetLimit()
	l := limitOf(p, name)
	if l == nil {
		of, _, _ := policy.CutRate(name) // of a call of Envoy's own filter that brings a rate
		if l = limitOf(p, of); l == nil {
			return wire.KeyRef{}, nil, unknown(codes.NotFound, noLimit, name)
		}
	}
	note(ctx, "limit", name)
	ref, values := wire.KeyRef{Limit: name, Key: strings.TrimSuffix(k.GetKey(), "/")}, k.GetValues()
	if len(values) > 0 && ref.Key != "" {
		return ref, nil, invalid("both a key and identity values are given, want one of the two")
	}
	if len(values) > 0 {
		forms := make([]string, 0, len(values))
		counted := slices.DeleteFunc(slices.Clone(l.Descriptor), func(e policy.DescriptorEntry) bool { return !e.Counted() })
		for i, value := range values {
			form := policy.EscapeValue(value)
			switch {
			case i < len(l.Key):
				var err error
				if form, err = formOf(p, l.Key[i], value); err != nil {
					return ref, nil, err
				}
			case i < len(counted) && counted[i].Hash:
				if form = value; !counted[i].IsForm(value) { // its hash will do as well
					form = p.EntryForm(&counted[i], value)
				}
			}
			forms = append(forms, form)
		}
		ref.Key = strings.Join(forms, "/")
	}
	if err := overlay.CheckKey(p, l, ref.Key); err != nil {
		return ref, nil, invalid("%v", err)
	}
	note(ctx, "key", ref.Key)
	return ref, l, nil
}

// What is said of names that the policy does not have.
const (
	noLimit    = "the policy has no limit of that name"
	noIdentity = "the policy has no identity of that name"
)

// formOf gives the form in which a value that requests have stands in keys. Of a hashed one its hash will do as well, as logs have
// it. No error quotes what may be a value that the policy hashes.
func formOf(p *policy.Policy, identity uint32, value string) (string, error) {
	secret := p.Secret(identity)
	if secret && p.IsForm(identity, value) {
		return value, nil
	}
	form, ok := p.Form(identity, value)
	switch name := p.Identities[identity].Name; {
	case !ok && secret:
		return "", invalid("identity %s never has this value", name)
	case !ok:
		return "", invalid("identity %s never has the value %q", name, value)
	}
	return form, nil
}

func limitOf(p *policy.Policy, name string) *policy.Limit {
	for i := range p.Limits {
		if p.Limits[i].Name == name {
			return &p.Limits[i]
		}
	}
	return nil
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
