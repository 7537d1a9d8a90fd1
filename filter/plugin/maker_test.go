package plugin_test

import (
	"testing"
	"time"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/filter/plugin"
	"sluice/shared/limit"
)

// TestNewConfiguration: a plugin that takes over with another configuration limits from its first request on, by the policy
// that the one before it had; it asks whether that still holds; and of another cluster it takes none.
func TestNewConfiguration(t *testing.T) {
	proxy, service := fake.New(1), newService(shop("v1", limit.Deny, rate(3, time.Second)))
	start := plugin.Maker()
	answer := func(p host.Plugin) (paths []string) {
		for _, call := range proxy.TakeCalls() {
			path, _ := call.Header(":path")
			paths = append(paths, path)
			proxy.Finish(p, call.ID, service.answer(epoch, call))
		}
		return paths
	}
	tenant := []host.Header{{":method", "GET"}, {":path", "/"}, {"x-tenant-id", "acme"}}
	begin := func(configuration string) host.Plugin {
		p := start(proxy)
		if !p.Start([]byte(configuration)) {
			t.Fatalf("%s was refused", configuration)
		}
		return p
	}

	first := begin(`{"control_cluster":"sluice"}`)
	first.Tick()
	answer(first)
	next := begin(`{"control_cluster":"sluice","timeout_ms":100}`)
	if s := proxy.Request(next, tenant, nil); s.Fate != fake.Waiting {
		t.Errorf("the first request after the change is %v, want it to wait for the service", s.Fate)
	}
	next.Tick()
	if paths := answer(next); len(paths) != 2 || paths[1] != "/sluice.v1.Control/GetPolicy" {
		t.Errorf("it called %q, want a Sync for the request, and GetPolicy", paths)
	}
	other := begin(`{"control_cluster":"another"}`)
	if s := proxy.Request(other, tenant, nil); s.Fate != fake.Passed {
		t.Errorf("under another service, whose policy has not come, a request is %v, want it to pass", s.Fate)
	}
}
