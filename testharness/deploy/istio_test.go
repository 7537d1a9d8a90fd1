package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-yaml"

	"sluice/envoy"
	"sluice/testharness/rig"
)

// TestIstioControlCluster: with the WasmPlugin's configuration, whose cluster has the name that Istio gives, the filter reaches
// the service, also where that has a sidecar in front of it; and it runs under the policy of envoy/kubernetes.
func TestIstioControlCluster(t *testing.T) {
	var plugin struct {
		Spec struct {
			PluginConfig map[string]any `yaml:"pluginConfig"`
			PluginName   string         `yaml:"pluginName"`
			FailStrategy string         `yaml:"failStrategy"`
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "envoy", "istio", "wasmplugin.yaml")), &plugin); err != nil {
		t.Fatal(err)
	}
	cluster, isText := plugin.Spec.PluginConfig["control_cluster"].(string)
	if !isText {
		t.Fatalf("pluginConfig has no control_cluster: %v", plugin.Spec.PluginConfig)
	}

	policy := filepath.Join(t.TempDir(), "policy.yaml")
	text := kubernetesObjects(t)["ConfigMap sluice-policy"].Data["policy.yaml"]
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	service, err := rig.StartService(t.Context(), rig.ServiceOptions{
		Binary: filepath.Join(images["service"].files, images["service"].entrypoint[0]), Policy: policy, Store: "memory",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Stop)

	c := &container{name: "mesh", network: network{loopback("mesh") + ":9090": service.GRPC}}
	sidecar := c.local(t, readFile(t, "testharness", "deploy", "testdata", "sidecar.yaml"))
	// Istio gives the filter its configuration as JSON in a StringValue.
	config, err := json.Marshal(plugin.Spec.PluginConfig)
	if err != nil {
		t.Fatal(err)
	}
	bootstrap, err := envoy.Bootstrap{
		Upstream: service.HTTP, Control: c.network.address(t, loopback("mesh"), "15006"),
		Wasm: filepath.Join(images["envoy"].files, "etc", "sluice", "sluice.wasm"), Plugin: string(config),
	}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	e, err := rig.StartEnvoy(t.Context(), rig.EnvoyOptions{Binary: envoyProgram(t), Bootstrap: withSidecar(t, bootstrap, sidecar, cluster)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	err = rig.AwaitFilter(t.Context(), e.Listener(envoy.Listener), map[string]string{"x-tenant-id": "acme"}, `"tenant";q=100`, patience)
	if err != nil {
		t.Fatalf("%v; Envoy printed:\n%s", err, e.Output())
	}
	stats, err := e.Stats(t.Context(), "http.inbound.downstream_rq_")
	if err != nil || stats["http.inbound.downstream_rq_2xx"] == 0 || stats["http.inbound.downstream_rq_4xx"] > 0 {
		t.Errorf("what the sidecar saw: %v, %v", stats, err)
	}
}

// withSidecar puts the sidecar's listener and cluster into the bootstrap, and gives the control cluster its name in Istio.
func withSidecar(t *testing.T, bootstrap []byte, sidecar, control string) []byte {
	t.Helper()
	var tree struct {
		Admin     any `json:"admin"`
		Resources struct {
			Listeners []any            `json:"listeners"`
			Clusters  []map[string]any `json:"clusters"`
		} `json:"static_resources"`
	}
	var added struct {
		Listener any
		Cluster  map[string]any
	}
	if err := json.Unmarshal(bootstrap, &tree); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(sidecar), &added); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range tree.Resources.Clusters {
		if cluster["name"] == envoy.ControlCluster {
			cluster["name"] = control
			cluster["load_assignment"].(map[string]any)["cluster_name"] = control
		}
	}
	tree.Resources.Listeners = append(tree.Resources.Listeners, added.Listener)
	tree.Resources.Clusters = append(tree.Resources.Clusters, added.Cluster)
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
