package authority

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sluice/shared/policy"
	"sluice/shared/wire"
)

// ErrNoSuchKey is wrapped by what is said of a key that the policy in force does not limit.
var ErrNoSuchKey = errors.New("no such key")

// InspectedKey is what is known of a key, and by what it is judged.
type InspectedKey struct {
	Rule policy.Rule
	// Inspection has nothing where the rule is unlimited.
	Inspection
}

// Inspect tells how a key stands under a limit, for the requests of a plan; empty: of none. Its errors wrap ErrNoPolicy,
// ErrNoSuchKey, or what the store says.
func (a *Authority) Inspect(ctx context.Context, ref wire.KeyRef, plan string) (InspectedKey, error) {
	book, err := a.bookOf(ref)
	if err != nil {
		return InspectedKey{}, err
	}
	found, _ := book.find(ref.Limit)
	out := InspectedKey{Rule: found.limit.Rule(plan, ref.Key)}
	if plan != "" && out.Rule.Plan == "" {
		return InspectedKey{}, fmt.Errorf("%w: limit %s has no plan %q", ErrNoSuchKey, ref.Limit, plan)
	}
	if out.Rule.Unlimited {
		return out, nil
	}
	key := Key{Name: policy.StoreName(book.policy.Domain, ref.Limit, ref.Key), Algorithm: found.limit.Algorithm, Rates: out.Rule.Rates}
	out.Inspection, err = a.config.Store.Inspect(ctx, key, found.limit.RequestCost())
	return out, err
}

// Reset forgets what a key has spent, in every window that it may be counted in. Leases that are out may still be spent. Its
// errors are Inspect's.
func (a *Authority) Reset(ctx context.Context, ref wire.KeyRef) error {
	book, err := a.bookOf(ref)
	if err != nil {
		return err
	}
	key, is := book.everyCount(ref)
	if !is {
		return fmt.Errorf("%w: limit %s has no rates, so nothing is counted", ErrNoSuchKey, ref.Limit)
	}
	return a.config.Store.Reset(ctx, key)
}

// bookOf gives the policy in force where it limits the key.
func (a *Authority) bookOf(ref wire.KeyRef) (*ruleBook, error) {
	book := a.inForce.Load()
	if book == nil {
		return nil, ErrNoPolicy
	}
	found, is := book.find(ref.Limit)
	switch {
	case !is:
		return nil, fmt.Errorf("%w: the policy has no limit %q", ErrNoSuchKey, ref.Limit)
	case !policy.ValidKey(ref.Key):
		return nil, fmt.Errorf("%w: %q is not as keys are written", ErrNoSuchKey, ref.Key)
	}
	if parts := found.limit.KeyParts(); parts != partsOf(ref.Key) {
		return nil, fmt.Errorf("%w: %q has %d parts, and keys of limit %s have %d", ErrNoSuchKey, ref.Key, partsOf(ref.Key), ref.Limit, parts)
	}
	return book, nil
}

// partsOf counts the values in a key.
func partsOf(key string) int {
	if key == "" {
		return 0
	}
	return 1 + strings.Count(key, "/")
}

// Holder gives the id of the worker whose call a lease was granted to, or of the replica that holds it to divide it; 0 where
// the call is nobody's.
func (l *LiveLease) Holder() (id uint64, replica bool) {
	text, rest, _ := strings.Cut(l.Call, ".")
	id, err := strconv.ParseUint(text, 36, 64)
	if err != nil {
		return 0, false
	}
	return id, strings.HasPrefix(rest, replicaMark)
}
