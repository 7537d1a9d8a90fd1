package plugin_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

func TestStoriesOfShadowsAndLists(t *testing.T) {
	shadowed := func(unavailable limit.Unavailable) *policy.Policy {
		p := shop("v1", unavailable, rate(2, time.Hour))
		p.Limits[0].Shadow = 100
		return p
	}

	// withSecond adds another limit, of 4/h, in shadow as the first.
	withSecond := func(p *policy.Policy) *policy.Policy {
		l := p.Limits[0]
		l.Name, l.Rates = "second", []limit.Rate{rate(4, time.Hour)}
		p.Limits = append(p.Limits, l)
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

	scenario(t, twoShadows, func(t *testing.T, w *world) {
		w.with(withSecond(shadowed(limit.Local)))
		for range 7 {
			w.want(w.get("acme"), "passed")
		}
		w.serve()
		w.worker().advance(tick)
		w.wantMetric("sluice.shadow.admitted", 2+4)
		w.wantMetric("sluice.shadow.denied", 5+3)
	})

	scenario(t, "while the service is away a limit in shadow counts nobody as denied", func(t *testing.T, w *world) {
		w.with(shadowed(limit.Deny))
		w.breakDown()
		for range 5 {
			w.want(w.get("acme"), "passed")
		}
		w.worker().advance(tick)
		w.wantMetric("sluice.shadow.denied", 0)
		w.wantMetric("sluice.shadow.admitted", 0)
		w.wantMetric("sluice.shadow.unavailable", 9) // four of them broke it down
		wantShadowLog(t, w)
	})

	scenario(t, "what a limit in shadow would have done is logged now and then", func(t *testing.T, w *world) {
		w.with(shadowed(limit.Local))
		const line = "info: sluice: limit tenant in shadow would have denied key a%20b%2F%25, over 2/h"
		send := func(requests int) {
			for range requests {
				w.want(w.get("a b/%"), "passed")
			}
			w.serve()
		}
		send(7) // 5 of them too many
		wantShadowLog(t, w, line)
		w.pass(9 * time.Second)
		send(1)
		wantShadowLog(t, w, line)
		w.pass(time.Second)
		send(1)
		wantShadowLog(t, w, line, line+"; 6 denials since the last such line")
	})

	scenario(t, "of a hashed key the log has the hash", func(t *testing.T, w *world) {
		p := shadowed(limit.Local)
		p.HashKey, p.Identities[0].Hash = "0123456789abcdef", true
		w.with(p)
		for range 3 {
			w.get("acme")
		}
		w.serve()
		const mac = "42dd7a21e34198f45c8767fa1dc9c386ba6cba3d037da11564bf70ca18935edd" // HMAC-SHA256 of acme
		wantShadowLog(t, w, "info: sluice: limit tenant in shadow would have denied key ##"+mac+", over 2/h")
	})

	scenario(t, "the log of limits in shadow is bounded", func(t *testing.T, w *world) {
		p := shadowed(limit.Local)
		for i := range 99 {
			l := p.Limits[0]
			l.Name = "l" + strconv.Itoa(i)
			p.Limits = append(p.Limits, l)
		}
		w.with(p)
		deny := func() int {
			for range 3 {
				w.get("acme")
				w.serve()
			}
			return len(shadowLogOf(w))
		}
		if n := deny(); n != 64 {
			t.Fatalf("%d lines of 100 limits, want 64", n)
		}
		w.pass(11 * time.Second)
		if n := deny(); n != 128 {
			t.Fatalf("%d lines after a pause, want 128", n)
		}
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

// shadowLogOf gives what the worker has logged of limits in shadow.
func shadowLogOf(w *world) []string {
	var lines []string
	for _, line := range w.worker().log() {
		if strings.Contains(line, "in shadow") {
			lines = append(lines, line)
		}
	}
	return lines
}

func wantShadowLog(t *testing.T, w *world, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, shadowLogOf(w)); diff != "" {
		t.Errorf("logged of limits in shadow (-want +got):\n%s", diff)
	}
}
