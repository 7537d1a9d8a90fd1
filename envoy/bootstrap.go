// Package envoy holds the Envoy bootstrap that users start from, and fills in what differs from one machine to the next.
package envoy

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/goccy/go-yaml"
)

//go:embed envoy.yaml
var example []byte

// Example is envoy.yaml, as it stands in the folder.
func Example() []byte { return append([]byte(nil), example...) }

// Names in envoy.yaml that the rest of the world may refer to.
const (
	Listener        = "ingress"
	UpstreamCluster = "upstream"
	ControlCluster  = "sluice"
)

// Bootstrap is what to change in envoy.yaml. An empty field leaves what is there, unless it says otherwise.
type Bootstrap struct {
	// Admin and Listen are addresses, HOST:PORT; with port 0 Envoy takes a free one. Empty: 127.0.0.1:0.
	Admin, Listen string
	// Upstream and Control are where the protected service and the Sluice service listen, HOST:PORT.
	Upstream, Control string
	// Wasm is the path of the filter. With NoFilter there is none at all, for measurements to compare with.
	Wasm     string
	NoFilter bool
	// Plugin is the filter's configuration: a map for a Struct, a string for a StringValue; nil leaves what is there.
	Plugin any
}

// JSON gives the bootstrap with the changes in it. JSON is YAML, so Envoy takes it under either name.
func (b Bootstrap) JSON() ([]byte, error) {
	var tree any
	if err := yaml.Unmarshal(example, &tree); err != nil {
		return nil, fmt.Errorf("reading envoy.yaml: %w", err)
	}
	e := &editor{}
	root := node{e, tree, "envoy.yaml"}
	resources := root.field("static_resources")
	listener := resources.field("listeners").named(Listener)

	root.field("admin").setAddress(orFree(b.Admin))
	listener.setAddress(orFree(b.Listen))
	for name, address := range map[string]string{UpstreamCluster: b.Upstream, ControlCluster: b.Control} {
		if address == "" {
			continue
		}
		resources.field("clusters").named(name).field("load_assignment").field("endpoints").first().
			field("lb_endpoints").first().field("endpoint").setAddress(address)
	}
	b.editFilters(listener.field("filter_chains").first().field("filters").first().field("typed_config"))
	if e.err != nil {
		return nil, e.err
	}
	return json.MarshalIndent(tree, "", "  ")
}

func orFree(address string) string {
	if address == "" {
		return "127.0.0.1:0"
	}
	return address
}

func (b Bootstrap) editFilters(manager node) {
	filters := manager.field("http_filters")
	if b.NoFilter {
		manager.set("http_filters", []any{filters.named("envoy.filters.http.router").value})
		return
	}
	config := filters.named("sluice").field("typed_config").field("config")
	if b.Wasm != "" {
		config.field("vm_config").field("code").field("local").set("filename", b.Wasm)
	}
	switch plugin := b.Plugin.(type) {
	case nil:
	case string:
		config.set("configuration", map[string]any{"@type": "type.googleapis.com/google.protobuf.StringValue", "value": plugin})
	default:
		config.set("configuration", map[string]any{"@type": "type.googleapis.com/google.protobuf.Struct", "value": plugin})
	}
}
