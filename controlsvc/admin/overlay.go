package admin

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice/controlsvc/overlay"
	"sluice/shared/limit"
	"sluice/shared/policy"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

// SetOverride implements adminv1.AdminServer.
func (s *Server) SetOverride(ctx context.Context, request *adminv1.SetOverrideRequest) (*adminv1.SetOverrideResponse, error) {
	ref, l, err := keyOf(ctx, s.file(), request.GetKey())
	if err != nil {
		return nil, err
	}
	item := overlay.Item{
		Kind: overlay.Override, Limit: ref.Limit, Key: ref.Key,
		Unlimited: request.GetUnlimited(), Shadow: request.GetShadow(), Enforce: request.GetEnforce(),
	}
	switch {
	case l.KeyParts() == 0:
		return nil, invalid("limit %s counts all requests together, so no key of it can be excepted", ref.Limit)
	case len(request.GetRates()) == 0 && !item.Unlimited && !item.Shadow && !item.Enforce:
		return nil, invalid("the override says nothing, want rates, unlimited, shadow or enforce")
	case len(request.GetRates()) > 0 && item.Unlimited, item.Shadow && item.Enforce:
		return nil, invalid("rates and unlimited, and shadow and enforce, exclude each other")
	case len(request.GetRates()) > limit.MaxRates:
		return nil, invalid("%d rates are given, want at most %d", len(request.GetRates()), limit.MaxRates)
	}
	for _, r := range request.GetRates() {
		if r.GetUnits() > limit.MaxUnits || r.GetWindow() > uint64(limit.MaxWindow.Microseconds()) || r.GetBurst() > limit.MaxUnits {
			return nil, invalid("the rate %v is out of range", r)
		}
		rate := limit.Rate{Units: int64(r.GetUnits()), Window: time.Duration(r.GetWindow()) * time.Microsecond}
		item.Rates, item.Burst = append(item.Rates, rate.String()), int64(r.GetBurst())
	}
	noteWhat(ctx, &item)
	entry, err := s.set(ctx, item, request.GetExpiresIn())
	if err != nil {
		return nil, err
	}
	return &adminv1.SetOverrideResponse{Entry: entry}, nil
}

// RemoveOverride implements adminv1.AdminServer.
func (s *Server) RemoveOverride(ctx context.Context, request *adminv1.RemoveOverrideRequest) (*adminv1.RemoveOverrideResponse, error) {
	item := overlay.Item{Kind: overlay.Override, Limit: request.GetKey().GetLimit(), Key: request.GetKey().GetKey()}
	// What it was set for may have left the policy's file, or be written in another way since: then the key is what is listed.
	if s.holds(&item) {
		note(ctx, "limit", item.Limit, "key", item.Key)
	} else {
		ref, _, err := keyOf(ctx, s.file(), request.GetKey())
		if err != nil {
			return nil, err
		}
		item.Key = ref.Key
	}
	if err := s.remove(ctx, item); err != nil {
		return nil, err
	}
	return &adminv1.RemoveOverrideResponse{Limit: item.Limit, Key: item.Key}, nil
}

// SetListing implements adminv1.AdminServer.
func (s *Server) SetListing(ctx context.Context, request *adminv1.SetListingRequest) (*adminv1.SetListingResponse, error) {
	item, err := s.listed(ctx, request.GetListing(), false)
	if err != nil {
		return nil, err
	}
	entry, err := s.set(ctx, item, request.GetExpiresIn())
	if err != nil {
		return nil, err
	}
	return &adminv1.SetListingResponse{Entry: entry}, nil
}

// RemoveListing implements adminv1.AdminServer.
func (s *Server) RemoveListing(ctx context.Context, request *adminv1.RemoveListingRequest) (*adminv1.RemoveListingResponse, error) {
	item, err := s.listed(ctx, request.GetListing(), true)
	if err != nil {
		return nil, err
	}
	if err := s.remove(ctx, item); err != nil {
		return nil, err
	}
	return &adminv1.RemoveListingResponse{Listing: listingOf(&item)}, nil
}

// ListOverlay implements adminv1.AdminServer.
func (s *Server) ListOverlay(context.Context, *adminv1.ListOverlayRequest) (*adminv1.ListOverlayResponse, error) {
	return &adminv1.ListOverlayResponse{Entries: s.entries()}, nil
}

// file gives the policy of the file: what an entry of the overlay is laid over.
func (s *Server) file() *policy.Policy { return s.config.Overlay.State().File }

// holds says whether there is an item of that name.
func (s *Server) holds(item *overlay.Item) bool {
	return slices.ContainsFunc(s.config.Overlay.State().Entries, func(h overlay.Held) bool { return h.Name() == item.Name() })
}

// listed reads a listing, and notes it. One that is to be removed may have been set under an earlier file: its value is then what is listed.
func (s *Server) listed(ctx context.Context, l *adminv1.Listing, remove bool) (overlay.Item, error) {
	p := s.file()
	if p == nil {
		return overlay.Item{}, status.Error(codes.Unavailable, "no policy is in force")
	}
	item := overlay.Item{Limit: l.GetLimit(), Identity: l.GetIdentity()}
	if item.Kind = kindOf(l); item.Kind == "" {
		return item, invalid("the kind of the list is %v, want block or allow", l.GetKind())
	}
	if (l.GetValue() == "") == (l.GetCidr() == "") {
		return item, invalid("want either a value or a range of addresses")
	}
	if l.GetCidr() != "" {
		prefix, err := readRange(l.GetCidr())
		if err != nil {
			return item, err
		}
		item.Range = prefix.String()
	}
	item.Value = l.GetValue()
	at := slices.IndexFunc(p.Identities, func(id policy.Identity) bool { return id.Name == item.Identity })
	held := remove && s.holds(&item)
	switch {
	case held:
	case at < 0:
		return item, unknown(codes.InvalidArgument, noIdentity, item.Identity)
	case item.Limit != "" && limitOf(p, item.Limit) == nil:
		return item, unknown(codes.InvalidArgument, noLimit, item.Limit)
	}
	note(ctx, "identity", item.Identity)
	if item.Limit != "" {
		note(ctx, "limit", item.Limit)
	}
	if item.Range != "" {
		note(ctx, "cidr", item.Range)
		return item, nil
	}
	if !held {
		var err error
		if item.Value, err = formOf(p, uint32(at), item.Value); err != nil {
			return item, err
		}
	}
	note(ctx, "value", item.Value)
	return item, nil
}

// kindOf gives the kind of a list; empty where there is no such.
func kindOf(l *adminv1.Listing) overlay.Kind {
	switch l.GetKind() {
	case adminv1.ListKind_LIST_KIND_BLOCK:
		return overlay.Block
	case adminv1.ListKind_LIST_KIND_ALLOW:
		return overlay.Allow
	case adminv1.ListKind_LIST_KIND_UNSPECIFIED:
	}
	return ""
}

// readRange reads a range of addresses, or one address.
func readRange(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if address, bad := netip.ParseAddr(text); err != nil && bad == nil && address.Zone() == "" {
		prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
	}
	switch {
	case err != nil:
		return prefix, unknown(codes.InvalidArgument, "want a range of addresses such as 10.0.0.0/8 or 2001:db8::1", text)
	case prefix.Addr().Is4In6():
		return prefix, invalid("%q is a range of IPv4 within IPv6, want it as IPv4, for such addresses are read as IPv4", text)
	case prefix != prefix.Masked():
		return prefix, invalid("%q has bits beyond its length, did you mean %v?", text, prefix.Masked())
	}
	return prefix, nil
}

// set puts an item into the overlay and gives it as it is there.
func (s *Server) set(ctx context.Context, item overlay.Item, micros uint64) (*adminv1.OverlayEntry, error) {
	expiresIn, err := expiry(micros)
	if err != nil {
		return nil, err
	}
	note(ctx, "expires_in", expiresIn.String())
	if err = s.config.Overlay.Put(ctx, item, expiresIn); err != nil {
		return nil, told(err)
	}
	return s.entryOf(&overlay.Held{Item: item, Expires: s.config.Now().Add(expiresIn)}), nil
}

func (s *Server) remove(ctx context.Context, item overlay.Item) error {
	there, err := s.config.Overlay.Remove(ctx, item.Name())
	if err == nil && !there {
		return status.Errorf(codes.NotFound, "there is no such %s", item.Kind)
	}
	return told(err)
}

// noteWhat notes what an override says.
func noteWhat(ctx context.Context, item *overlay.Item) {
	if len(item.Rates) > 0 {
		note(ctx, "rates", item.Rates)
	}
	if item.Burst > 0 {
		note(ctx, "burst", item.Burst)
	}
	for _, of := range []struct {
		name string
		said bool
	}{{"unlimited", item.Unlimited}, {"shadow", item.Shadow}, {"enforce", item.Enforce}} {
		if of.said {
			note(ctx, of.name, true)
		}
	}
}

// entries gives the overlay.
func (s *Server) entries() []*adminv1.OverlayEntry {
	held := s.config.Overlay.State().Entries
	all := make([]*adminv1.OverlayEntry, 0, len(held))
	for i := range held {
		all = append(all, s.entryOf(&held[i]))
	}
	return all
}

func (s *Server) entryOf(h *overlay.Held) *adminv1.OverlayEntry {
	e := &adminv1.OverlayEntry{ExpiresIn: micros(h.Expires.Sub(s.config.Now()))}
	if h.WhyNot != nil {
		e.WhyNot = h.WhyNot.Error()
	}
	if h.Kind == overlay.Override {
		e.Key = &adminv1.Key{Limit: h.Limit, Key: h.Key}
		e.Unlimited, e.Shadow, e.Enforce = h.Unlimited, h.Shadow, h.Enforce
		for _, text := range h.Rates {
			if rate, err := limit.ParseRate(text); err == nil {
				rate.Burst = h.Burst
				e.Rates = append(e.Rates, rateOf(rate))
			}
		}
		return e
	}
	e.Listing = listingOf(&h.Item)
	return e
}

func listingOf(i *overlay.Item) *adminv1.Listing {
	l := &adminv1.Listing{Limit: i.Limit, Identity: i.Identity, Value: i.Value, Cidr: i.Range, Kind: adminv1.ListKind_LIST_KIND_BLOCK}
	if i.Kind == overlay.Allow {
		l.Kind = adminv1.ListKind_LIST_KIND_ALLOW
	}
	return l
}
