package overlay

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"sluice/controlsvc/authority"
)

// expiredWithin is how long before its end, as this replica knows it, an item that is gone has expired: the store is asked every
// PollEvery, and its clock is another one.
const expiredWithin = 2 * PollEvery

// logChanges says what of the overlay has changed, and why, for the policy in force changes with it: by this replica's own edit, by an
// operator's at another replica, because it expired, or because the store went back to an earlier revision, or to none: then nobody
// removed what is gone. A later revision leaves that open, since something may have been set after a loss. What is not in force is
// not named: nobody knows what it is.
func (o *Overlay) logChanges(ctx context.Context, before, after []Held, e *authority.Edit, wentBack bool) {
	log := func(level slog.Level, h *Held, why string) {
		name := h.Name()
		if h.WhyNot != nil {
			name = "(not in force)"
		}
		o.config.Logger.Log(ctx, level, "what operators set has changed", "audit", "overlay", "item", name, "why", why,
			"expires_in", max(0, h.Expires.Sub(o.config.Now())).Round(time.Second).String())
	}
	in := func(all []Held, h *Held) bool {
		return slices.ContainsFunc(all, func(other Held) bool { return other.Name() == h.Name() })
	}
	for i := range before {
		switch h := &before[i]; {
		case in(after, h):
		case h.Name() == e.Remove:
			log(slog.LevelInfo, h, "removed here")
		case h.Expires.Sub(o.config.Now()) <= expiredWithin:
			log(slog.LevelInfo, h, "expired")
		case wentBack:
			log(slog.LevelWarn, h, "lost with the store: nobody removed it")
		default:
			log(slog.LevelInfo, h, "removed at another replica, or lost with the store")
		}
	}
	for i := range after {
		h := &after[i]
		known := slices.ContainsFunc(before, func(other Held) bool { return other.text() == h.text() })
		switch {
		case h.Name() == e.Put.Name:
			log(slog.LevelInfo, h, "set here")
		case !known && wentBack:
			log(slog.LevelWarn, h, "back with an earlier state of the store")
		case !known:
			log(slog.LevelInfo, h, "set at another replica, or before this one began")
		}
	}
}
