package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/controlsvc/policyfile"
	"sluice/shared/policy"
)

// Lay lays items over the policy of a file, and says of each why it is not in force; nil where it is. Neither is written to.
// Where nothing is in force, or the whole would be no valid policy, the file's policy is given as it is.
func Lay(file *policy.Policy, items []Item) (*policy.Policy, []error) {
	why := make([]error, len(items))
	whole := *file
	whole.Limits = slices.Clone(file.Limits)
	byName := make(map[string]int, len(file.Limits))
	for i := range file.Limits {
		byName[file.Limits[i].Name] = i
	}
	inForce := 0
	for n := range items {
		if why[n] = lay(&whole, byName, &items[n]); why[n] == nil {
			inForce++
		}
	}
	if inForce == 0 {
		return file, why
	}
	if err := policyfile.Seal(&whole); err != nil {
		for n := range why {
			why[n] = errors.Join(why[n], fmt.Errorf("with all that is set the policy would not be valid: %w", err))
		}
		return file, why
	}
	return &whole, why
}

// lay changes the policy, whose limits are its own, by one item, or not at all.
func lay(p *policy.Policy, byName map[string]int, item *Item) error {
	at, isLimit := byName[item.Limit]
	if !isLimit && (item.Limit != "" || item.Kind == Override) {
		return fmt.Errorf("the policy has no limit %q", item.Limit)
	}
	changed := policy.Policy{Domain: p.Domain, HashKey: p.HashKey, Identities: p.Identities, Block: p.Block, Allow: p.Allow}
	var l policy.Limit
	if isLimit {
		l = p.Limits[at]
	}
	var err error
	switch {
	case item.Kind == Override:
		err = override(p, &l, item)
	case item.Kind == Block && isLimit:
		l.Block, err = enlist(p, l.Block, item)
	case item.Kind == Allow && isLimit:
		l.Allow, err = enlist(p, l.Allow, item)
	case item.Kind == Block:
		changed.Block, err = enlist(p, p.Block, item)
	case item.Kind == Allow:
		changed.Allow, err = enlist(p, p.Allow, item)
	default:
		err = fmt.Errorf("%q is no kind of entry", item.Kind)
	}
	if err != nil {
		return err
	}
	if isLimit { // by itself: what it matches has not changed, and to look at all limits would take long
		alone := l
		alone.Match, alone.Replaces, alone.Response = policy.Match{}, nil, 0
		changed.Limits = []policy.Limit{alone}
	}
	if err := policy.Validate(&changed); err != nil {
		return err //nolint:wrapcheck // it says where
	}
	p.Block, p.Allow = changed.Block, changed.Allow
	if isLimit {
		p.Limits[at] = l
	}
	return nil
}

// override adds an exception to a limit, or lays it over the one that there is for the key.
func override(p *policy.Policy, l *policy.Limit, item *Item) error {
	if len(l.Descriptor) > 0 {
		return errors.New("the limit is for descriptors of Envoy's own rate limit filter, which know no overrides")
	}
	if err := CheckKey(p, l, item.Key); err != nil {
		return err
	}
	rates, err := item.rates()
	if err != nil {
		return err
	}
	at, found := slices.BinarySearchFunc(l.Overrides, item.Key, func(e policy.Exception, key string) int { return strings.Compare(e.Name, key) })
	l.Overrides = slices.Clone(l.Overrides)
	if !found {
		l.Overrides = slices.Insert(l.Overrides, at, policy.Exception{Name: item.Key})
	}
	e := &l.Overrides[at]
	switch {
	case item.Unlimited:
		e.Rates, e.Unlimited = nil, true
	case len(rates) > 0:
		e.Rates, e.Unlimited = rates, false
	}
	switch {
	case item.Shadow:
		e.Shadow, e.Enforce = 100, item.Enforce
	case item.Enforce:
		e.Shadow, e.Enforce = 0, true
	}
	return nil
}

// enlist gives the lists with one value or one range more.
func enlist(p *policy.Policy, lists []policy.List, item *Item) ([]policy.List, error) {
	identity := slices.IndexFunc(p.Identities, func(id policy.Identity) bool { return id.Name == item.Identity })
	if identity < 0 {
		return nil, fmt.Errorf("the policy has no identity %q", item.Identity)
	}
	lists = slices.Clone(lists)
	at := slices.IndexFunc(lists, func(l policy.List) bool {
		return int(l.Identity) == identity && len(l.Values)+len(l.Prefixes) < policy.MaxListEntries
	})
	if at < 0 {
		at = len(lists)
		lists = append(lists, policy.List{Identity: uint32(identity)})
	}
	l := &lists[at]
	if item.Range == "" {
		if err := CheckValue(p, uint32(identity), item.Value); err != nil {
			return nil, err
		}
		l.Values = slices.Clone(l.Values)
		if place, found := slices.BinarySearch(l.Values, item.Value); !found {
			l.Values = slices.Insert(l.Values, place, item.Value)
		}
		return lists, nil
	}
	if of := &p.Identities[identity]; of.Source != policy.FromAddress || of.Hash || len(of.Networks) > 0 {
		return nil, fmt.Errorf("%q is no address as it is, want an identity such as {address: {}} for a range", of.Name)
	}
	prefix, err := netip.ParsePrefix(item.Range)
	if err != nil {
		return nil, fmt.Errorf("%q is no range of addresses", item.Range)
	}
	l.Prefixes = withPrefix(l.Prefixes, prefix)
	return lists, nil
}

// withPrefix gives sorted disjoint prefixes with one more: what lies within another says nothing more.
func withPrefix(prefixes []netip.Prefix, added netip.Prefix) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(prefixes)+1)
	for _, p := range prefixes {
		switch {
		case !p.Overlaps(added):
			all = append(all, p)
		case p.Bits() <= added.Bits():
			return prefixes
		}
	}
	all = append(all, added)
	slices.SortFunc(all, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return all
}
