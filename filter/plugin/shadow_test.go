package plugin_test

import (
	"testing"
	"time"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

func TestStoriesOfShadowsAndLists(t *testing.T) {
	shadowed := func(unavailable limit.Unavailable) *policy.Policy {
		p := shop("v1", unavailable, rate(2, time.Hour))
		p.Limits[0].Shadow = 100
		return p
	}

	scenario(t, "what a limit in shadow would have done is counted", func(t *testing.T, w *world) {
		w.with(shadowed(limit.Local))
		for range 5 {
			w.want(w.get("acme"), "passed") // at once: before the service has answered
		}
		w.serve()
		w.wantCharged("tenant", "acme", 2)
		w.worker().advance(tick)
		w.wantMetric("sluice.admitted", 5)
		w.wantMetric("sluice.shadow.admitted", 2)
		w.wantMetric("sluice.shadow.denied", 3)
		w.want(w.get("acme"), "passed")
		w.worker().advance(tick)
		w.wantMetric("sluice.shadow.denied", 4)
	})

	scenario(t, "while the service is away a limit in shadow counts nobody as denied", func(t *testing.T, w *world) {
		w.with(shadowed(limit.Deny))
		w.breakDown()
		for range 5 {
			w.want(w.get("acme"), "passed")
		}
		w.worker().advance(tick)
		w.wantMetric("sluice.shadow.denied", 0)
	})

	scenario(t, "who is allowed and who is blocked is counted", func(t *testing.T, w *world) {
		p := shop("v1", limit.Local, rate(2, time.Hour))
		p.Allow = []policy.List{{Values: []string{"friend"}}}
		p.Block = []policy.List{{Values: []string{"foe"}}}
		w.with(p)
		for range 3 {
			w.want(w.get("friend"), "passed")
		}
		w.get("foe")
		w.none()
		w.worker().advance(tick)
		w.wantMetric("sluice.allowed", 3)
		w.wantMetric("sluice.admitted", 3)
		w.wantMetric("sluice.denied.block", 1)
	})
}
