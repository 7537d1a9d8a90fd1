package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
)

// overlays are the domains' overlays.
type overlays struct {
	mu      sync.Mutex
	domains map[string]*overlay
}

// overlay is the entries of one domain by their names.
type overlay struct {
	entries  map[string]entry
	revision uint64
}

type entry struct {
	text    string
	expires instant.Instant
}

// Overlay implements authority.Store.
func (s *Store) Overlay(ctx context.Context, edit authority.Edit) (authority.Overlay, error) {
	if err := s.check(ctx, store.CheckEdit(edit)); err != nil {
		return authority.Overlay{}, fmt.Errorf("overlay: %w", err)
	}
	s.overlays.mu.Lock()
	defer s.overlays.mu.Unlock()
	now := s.now()
	o := s.overlays.domains[edit.Domain]
	switch {
	case o != nil:
	case edit.Put.Name == "":
		return authority.Overlay{}, nil
	case len(s.overlays.domains) >= maxDomains:
		return authority.Overlay{}, fmt.Errorf("overlay: %w", errDomains)
	default:
		o = &overlay{entries: map[string]entry{}}
	}
	s.overlays.domains[edit.Domain] = o
	out, err := o.edit(edit, now)
	if err != nil {
		return authority.Overlay{}, fmt.Errorf("overlay: %w", err)
	}
	return out, nil
}

func (o *overlay) edit(edit authority.Edit, now instant.Instant) (out authority.Overlay, err error) {
	maps.DeleteFunc(o.entries, func(_ string, e entry) bool {
		gone := e.expires <= now
		if gone {
			o.touch(now)
		}
		return gone
	})
	_, out.Removed = o.entries[edit.Remove]
	if edit.Put.Name != "" {
		_, there := o.entries[edit.Put.Name]
		if n := len(o.entries); !there && !out.Removed && n >= authority.MaxEntries {
			return out, fmt.Errorf("%w: it holds %d entries", authority.ErrFull, n)
		}
	}
	if out.Removed {
		delete(o.entries, edit.Remove)
		o.touch(now)
	}
	if edit.Put.Name != "" {
		o.entries[edit.Put.Name] = entry{edit.Put.Text, now.Add(edit.Put.ExpiresIn)}
		o.touch(now)
	}
	if out.Revision = o.revision; out.Revision == edit.Known {
		return out, nil
	}
	for _, name := range slices.Sorted(maps.Keys(o.entries)) {
		e := o.entries[name]
		out.Entries = append(out.Entries, authority.Entry{Name: name, Text: e.text, ExpiresIn: e.expires.Sub(now)})
	}
	return out, nil
}

func (o *overlay) touch(now instant.Instant) { o.revision = max(uint64(now), o.revision+1) }
