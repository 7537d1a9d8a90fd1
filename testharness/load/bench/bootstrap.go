package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	"sluice/envoy"
)

// object is a mapping of a bootstrap.
type object = map[string]any

// The listeners of the measured Envoy, each with another filter before the same route.
const (
	noFilter     = "none"
	localFilter  = "local"
	globalFilter = "global"
	onMemory     = "sluice-memory"
	onRedis      = "sluice-redis"
)

// addresses is where the measured Envoy finds what it needs, HOST:PORT.
type addresses struct {
	upstream, global string
	// control is the service of each listener that has Sluice's filter.
	control map[string]string
}

// wasm is what the filter is loaded from, and plugin is added to its configuration.
type filterCode struct {
	wasm   string
	plugin object
}

// measuredBootstrap gives a bootstrap with all of the listeners, made from the one that users start from. With direct,
// Envoy answers by itself instead of asking the upstream.
func measuredBootstrap(to addresses, code filterCode, direct bool) ([]byte, error) {
	text, err := envoy.Bootstrap{Upstream: to.upstream, Wasm: code.wasm}.JSON()
	if err != nil {
		return nil, err
	}
	var tree struct {
		Admin     any `json:"admin"`
		Resources struct {
			Listeners []object `json:"listeners"`
			Clusters  []object `json:"clusters"`
		} `json:"static_resources"`
	}
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	clusters := map[any]object{}
	for _, c := range tree.Resources.Clusters {
		clusters[c["name"]] = c
	}
	if len(tree.Resources.Listeners) != 1 || clusters[envoy.ControlCluster] == nil || clusters[envoy.UpstreamCluster] == nil {
		return nil, errors.New("envoy.yaml is not as expected: want one listener, and the clusters " + envoy.UpstreamCluster +
			" and " + envoy.ControlCluster)
	}
	pattern := tree.Resources.Listeners[0]
	tree.Resources.Listeners = nil
	for _, name := range append([]string{noFilter, localFilter, globalFilter}, slices.Sorted(maps.Keys(to.control))...) {
		listener, err := listenerLike(pattern, name, code, direct)
		if err != nil {
			return nil, err
		}
		tree.Resources.Listeners = append(tree.Resources.Listeners, listener)
	}
	tree.Resources.Clusters = []object{clusters[envoy.UpstreamCluster]}
	services := maps.Clone(to.control)
	services[globalFilter] = to.global
	for name, address := range services {
		cluster, err := clusterLike(clusters[envoy.ControlCluster], name, address)
		if err != nil {
			return nil, err
		}
		tree.Resources.Clusters = append(tree.Resources.Clusters, cluster)
	}
	return json.Marshal(tree)
}

// listenerLike gives a copy of the listener under another name and with another filter.
func listenerLike(pattern object, name string, code filterCode, direct bool) (object, error) {
	var listener struct {
		Name    string `json:"name"`
		Address any    `json:"address"`
		Chains  []struct {
			Filters []struct {
				Name   string `json:"name"`
				Config object `json:"typed_config"`
			} `json:"filters"`
		} `json:"filter_chains"`
	}
	if err := throughJSON(pattern, &listener); err != nil {
		return nil, err
	}
	listener.Name = name
	manager := listener.Chains[0].Filters[0].Config
	filters, ok := manager["http_filters"].([]any)
	if !ok || len(filters) != 2 {
		return nil, errors.New("envoy.yaml is not as expected: want two http_filters, Sluice and the router")
	}
	router := filters[1]
	filter, err := filterFor(name, filters[0], code)
	if err != nil {
		return nil, err
	}
	manager["http_filters"] = []any{router}
	if filter != nil {
		manager["http_filters"] = []any{filter, router}
	}
	manager["route_config"] = routes(name, direct)
	var out object
	err = throughJSON(listener, &out)
	return out, err
}

func routes(name string, direct bool) object {
	route := object{"match": object{"prefix": "/"}}
	if direct {
		route["direct_response"] = object{"status": 200, "body": object{"inline_string": "hello\n"}}
	} else {
		route["route"] = object{"cluster": envoy.UpstreamCluster, "timeout": "15s"}
	}
	host := object{"name": "all", "domains": []string{"*"}, "routes": []any{route}}
	if name == globalFilter {
		host["rate_limits"] = []any{object{"actions": []any{
			object{"request_headers": object{"header_name": "x-tenant-id", "descriptor_key": "tenant"}},
		}}}
	}
	return object{"virtual_hosts": []any{host}}
}

// filterFor gives the filter of a listener; nil for none.
func filterFor(name string, sluice any, code filterCode) (any, error) {
	always := object{"default_value": object{"numerator": 100, "denominator": "HUNDRED"}}
	switch name {
	case noFilter:
		return nil, nil //nolint:nilnil // no filter is what this listener has
	case localFilter:
		return object{"name": "envoy.filters.http.local_ratelimit", "typed_config": object{
			"@type":       "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
			"stat_prefix": "local", "filter_enabled": always, "filter_enforced": always,
			"token_bucket": object{"max_tokens": 1_000_000, "tokens_per_fill": 1_000_000, "fill_interval": "1s"},
		}}, nil
	case globalFilter:
		return object{"name": "envoy.filters.http.ratelimit", "typed_config": object{
			"@type":  "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
			"domain": "bench", "timeout": "0.2s", "failure_mode_deny": true,
			"rate_limit_service": object{
				"transport_api_version": "V3", "grpc_service": object{"envoy_grpc": object{"cluster_name": globalFilter}},
			},
		}}, nil
	}
	var filter object
	if err := throughJSON(sluice, &filter); err != nil {
		return nil, err
	}
	typed, _ := filter["typed_config"].(object)
	config, _ := typed["config"].(object)
	vm, _ := config["vm_config"].(object)
	if vm == nil {
		return nil, errors.New("envoy.yaml is not as expected: want the first filter to be Sluice's")
	}
	plugin := object{"control_cluster": name, "timeout_ms": 200}
	maps.Copy(plugin, code.plugin)
	vm["vm_id"] = name // one that is not shared with the other listener's
	config["configuration"] = object{"@type": "type.googleapis.com/google.protobuf.Struct", "value": plugin}
	return filter, nil
}

// clusterLike gives a copy of the cluster, HTTP/2 as it is, under another name and with another address.
func clusterLike(pattern object, name, address string) (object, error) {
	endpoint, err := socketAddress(address)
	if err != nil {
		return nil, err
	}
	var cluster object
	if err := throughJSON(pattern, &cluster); err != nil {
		return nil, err
	}
	cluster["name"] = name
	cluster["load_assignment"] = assignment(name, endpoint)
	return cluster, nil
}

func assignment(name string, endpoint object) object {
	return object{"cluster_name": name, "endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": endpoint}}}}}
}

func socketAddress(address string) (object, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return object{"address": object{"socket_address": object{"address": host, "port_value": port}}}, nil
}

// upstreamBootstrap gives the Envoy that is asked by the measured one: it answers by itself, at the least cost there is.
func upstreamBootstrap() ([]byte, error) {
	text, err := envoy.Bootstrap{NoFilter: true}.JSON()
	if err != nil {
		return nil, err
	}
	var tree object
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	resources, _ := tree["static_resources"].(object)
	listeners, _ := resources["listeners"].([]any)
	if len(listeners) != 1 {
		return nil, errors.New("envoy.yaml is not as expected: want one listener")
	}
	chain := listeners[0].(object)["filter_chains"].([]any)[0].(object) // our own file, tested
	manager := chain["filters"].([]any)[0].(object)["typed_config"].(object)
	manager["route_config"] = routes(noFilter, true)
	resources["clusters"] = []any{}
	return json.Marshal(tree)
}

func throughJSON(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}
