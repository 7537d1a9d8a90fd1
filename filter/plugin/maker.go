package plugin

import (
	"sluice/filter/host"
	"sluice/shared/policy"
)

// latest is the policy that the plugins of one VM were sent last, and by which cluster; nil: none yet.
type latest struct {
	cluster string
	policy  *policy.Policy
}

// Maker gives what makes the plugins of one VM, as New does, but each begins with the policy that the one before it was sent
// by the same cluster. New configuration makes a new plugin in the proxy, which takes over at once: until a policy had come,
// requests would pass it unlimited.
func Maker() func(host.Proxy) host.Plugin {
	shared := &latest{}
	return func(proxy host.Proxy) host.Plugin {
		p := newPlugin(proxy)
		p.latest = shared
		return p
	}
}
