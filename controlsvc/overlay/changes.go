package overlay

import (
	"slices"
	"time"

	"sluice/controlsvc/authority"
)

// expiredWithin is how long before its end, as this replica knows it, an item that is gone has expired: the store is asked every
// PollEvery, and its clock is another one.
const expiredWithin = 2 * PollEvery

// logChanges says what of the overlay has changed, and why, for the policy in force changes with it: by this replica's own edit, by an
// operator's at another replica, or because it expired. What is not in force is not named: nobody knows what it is.
func (o *Overlay) logChanges(before, after []Held, e *authority.Edit) {
	log := func(h *Held, why string) {
		name := h.Name()
		if h.WhyNot != nil {
			name = "(not in force)"
		}
		o.config.Logger.Info("what operators set has changed", "audit", "overlay", "item", name, "why", why,
			"expires_in", max(0, h.Expires.Sub(o.config.Now())).Round(time.Second).String())
	}
	in := func(all []Held, h *Held) bool {
		return slices.ContainsFunc(all, func(other Held) bool { return other.Name() == h.Name() })
	}
	for i := range before {
		switch h := &before[i]; {
		case in(after, h):
		case h.Name() == e.Remove:
			log(h, "removed here")
		case h.Expires.Sub(o.config.Now()) <= expiredWithin:
			log(h, "expired")
		default:
			log(h, "removed at another replica")
		}
	}
	for i := range after {
		h := &after[i]
		known := slices.ContainsFunc(before, func(other Held) bool { return other.text() == h.text() })
		switch {
		case h.Name() == e.Put.Name:
			log(h, "set here")
		case !known:
			log(h, "set at another replica, or before this one began")
		}
	}
}
