package traffic

import (
	"time"

	"sluice/shared/policy"
)

// Other is what limits and routes are counted as that the policy in force does not have, or for which there is no room.
const Other = "(other)"

// Names are those that a policy has, for what workers report to be counted by them and by no others. They do not change.
type Names struct {
	limits  map[string]bool
	routes  map[string]bool
	windows map[time.Duration]bool
}

// NewNames gives the names of a policy.
func NewNames(p *policy.Policy) *Names {
	n := &Names{limits: map[string]bool{policy.BlockList: true}, routes: map[string]bool{"": true}, windows: map[time.Duration]bool{0: true}}
	for i := range p.Limits {
		l := &p.Limits[i]
		n.limits[l.Name], n.routes[l.Match.Route()] = true, true
		for _, rate := range l.AllRates() {
			n.windows[rate.Window] = true
		}
	}
	return n
}

// Limit gives what a limit is counted as. Of a limit with a rate that a call of Envoy's own filter brought it is the limit
// that the policy has.
func (n *Names) Limit(named string) string {
	if named == "" || n.limits[named] {
		return named
	}
	if of, _, is := policy.CutRate(named); is && n.limits[of] {
		return of
	}
	return Other
}

// Key gives what limit a key's counts are listed under, and false where no policy makes such a key. It is Limit's, but with
// the rate that a call brought: a key has another count with another rate.
func (n *Names) Key(limit, key string) (string, bool) {
	if !policy.ValidKey(key) {
		return "", false
	}
	if of, rate, is := policy.CutRate(limit); is && n.limits[of] && limit == of+"="+rate.String() {
		return limit, true
	}
	return n.Limit(limit), true
}

// Route gives what a route is counted as.
func (n *Names) Route(named string) string {
	if n.routes[named] {
		return named
	}
	return Other
}

// Window gives what a rate's window is counted as: one that no rate of the policy has as 0, but for those that a call of
// Envoy's own filter can bring.
func (n *Names) Window(window time.Duration) time.Duration {
	const day = 24 * time.Hour
	switch window {
	case time.Second, time.Minute, time.Hour, day, 30 * day, 365 * day:
		return window
	}
	if n.windows[window] {
		return window
	}
	return 0
}
