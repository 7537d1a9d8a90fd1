package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	extensions "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// only gives the objects of one type.
func only[T any](objects []object) map[string]T {
	found := map[string]T{}
	for _, o := range objects {
		for _, content := range []any{o.kubernetes, o.istio} {
			if typed, is := content.(T); is {
				found[o.Namespace+"/"+o.Name] = typed
			}
		}
	}
	return found
}

// TestKubernetes: what refers to another object, or to a port or a volume, refers to one that is there.
func TestKubernetes(t *testing.T) {
	objects := manifests(t, "envoy/kubernetes")
	namespaces, secrets, configs := only[*core.Namespace](objects), only[*core.Secret](objects), only[*core.ConfigMap](objects)
	deployment := only[*apps.Deployment](objects)["sluice/sluice"]
	service := only[*core.Service](objects)["sluice/sluice"]
	budget := only[*policy.PodDisruptionBudget](objects)["sluice/sluice"]
	if deployment == nil || service == nil || budget == nil {
		t.Fatalf("want a Deployment, a Service and a PodDisruptionBudget sluice in the namespace sluice, found %+v", objects)
	}
	for _, o := range objects {
		if _, there := namespaces["/"+o.Namespace]; o.Namespace != "" && !there {
			t.Errorf("%s %s is in the namespace %s, which is not there", o.Kind, o.Name, o.Namespace)
		}
	}

	pod := deployment.Spec.Template
	for name, selector := range map[string]labels.Selector{
		"Deployment":          labels.SelectorFromSet(deployment.Spec.Selector.MatchLabels),
		"Service":             labels.SelectorFromSet(service.Spec.Selector),
		"PodDisruptionBudget": labels.SelectorFromSet(budget.Spec.Selector.MatchLabels),
		"topology spread":     labels.SelectorFromSet(pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels),
	} {
		if selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("the %s selects %s, and the pods are %v", name, selector, pod.Labels)
		}
	}

	container := pod.Spec.Containers[0]
	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	if diff := cmp.Diff(map[string]int32{"grpc": 9090, "http": 9091}, ports); diff != "" {
		t.Error(diff)
	}
	for _, port := range service.Spec.Ports {
		if ports[port.TargetPort.StrVal] != port.Port {
			t.Errorf("the Service's port %s leads to %v, want a port of the container with its number %d", port.Name, port.TargetPort, port.Port)
		}
	}
	if got := pod.Annotations["prometheus.io/port"]; got != fmt.Sprint(ports["http"]) {
		t.Errorf("Prometheus is sent to port %s", got)
	}
	for name, probe := range map[string]*core.Probe{"/readyz": container.ReadinessProbe, "/healthz": container.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != name || ports[probe.HTTPGet.Port.StrVal] == 0 {
			t.Errorf("no probe asks for %s on a port of the container: %+v", name, probe)
		}
	}

	for _, volume := range pod.Spec.Volumes {
		if volume.ConfigMap == nil || configs["sluice/"+volume.ConfigMap.Name] == nil {
			t.Errorf("volume %s: no ConfigMap of that name", volume.Name)
		}
	}
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			continue
		}
		reference := variable.ValueFrom.SecretKeyRef
		if secret := secrets["sluice/"+reference.Name]; secret == nil || secret.StringData[reference.Key] == "" {
			t.Errorf("%s comes from key %s of Secret %s, which is not there", variable.Name, reference.Key, reference.Name)
		}
	}
}

// TestKubernetesConfines: the service may do what it needs, and no more.
func TestKubernetesConfines(t *testing.T) {
	pod := only[*apps.Deployment](manifests(t, "envoy/kubernetes"))["sluice/sluice"].Spec.Template.Spec
	container := pod.Containers[0]
	s, all := container.SecurityContext, pod.SecurityContext
	if s == nil || all == nil {
		t.Fatal("no securityContext")
	}
	for name, holds := range map[string]bool{
		"runs as nobody in particular": *all.RunAsNonRoot && *all.RunAsUser > 0,
		"system calls are filtered":    all.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault,
		"its files are read-only":      *s.ReadOnlyRootFilesystem,
		"gains no privileges":          !*s.AllowPrivilegeEscalation,
		"has no capability":            len(s.Capabilities.Drop) == 1 && s.Capabilities.Drop[0] == "ALL" && s.Capabilities.Add == nil,
		"has no token of Kubernetes's": !*pod.AutomountServiceAccountToken,
		"its memory is bounded":        !container.Resources.Limits.Memory().IsZero() && !container.Resources.Requests.Cpu().IsZero(),
	} {
		if !holds {
			t.Errorf("not so: it %s", name)
		}
	}
}

// TestIstio: the cluster that the filter is told of is one that Istio makes, and makes HTTP/2, out of the Service.
func TestIstio(t *testing.T) {
	objects := manifests(t, "envoy/istio")
	plugin := only[*extensions.WasmPlugin](objects)["istio-system/sluice"]
	if plugin == nil {
		t.Fatal("no WasmPlugin sluice")
	}
	if plugin.GetPhase() != extensions.PluginPhase_AUTHZ || plugin.GetFailStrategy() != extensions.FailStrategy_FAIL_RELOAD ||
		!strings.HasPrefix(plugin.GetUrl(), "oci://") || plugin.GetPluginName() != "sluice" {
		t.Errorf("phase %v, failStrategy %v, url %q, pluginName %q", plugin.GetPhase(), plugin.GetFailStrategy(), plugin.GetUrl(), plugin.GetPluginName())
	}
	clusters := map[string]bool{}
	for name, service := range only[*core.Service](manifests(t, "envoy/kubernetes")) {
		namespace, name, _ := strings.Cut(name, "/")
		for _, port := range service.Spec.Ports {
			if port.Name == "grpc" {
				clusters[fmt.Sprintf("outbound|%d||%s.%s.svc.cluster.local", port.Port, name, namespace)] = true
			}
		}
	}
	cluster := plugin.GetPluginConfig().GetFields()["control_cluster"].GetStringValue()
	if !clusters[cluster] {
		t.Errorf("control_cluster is %q, want one of %v", cluster, clusters)
	}
	rule := only[*networking.DestinationRule](objects)["sluice/sluice"]
	if rule == nil || !strings.HasSuffix(cluster, "||"+rule.GetHost()) {
		t.Errorf("the DestinationRule is for another host than %s: %v", cluster, rule)
	}

	entry := only[*networking.ServiceEntry](objects)["istio-system/sluice"]
	outside := only[*networking.DestinationRule](objects)["istio-system/sluice"]
	if entry == nil || outside == nil {
		t.Fatal("no ServiceEntry with a DestinationRule for a service outside")
	}
	if entry.GetPorts()[0].GetProtocol() != "GRPC" || entry.GetHosts()[0] != outside.GetHost() {
		t.Errorf("the ServiceEntry is for %v, port %v, the DestinationRule for %s", entry.GetHosts(), entry.GetPorts(), outside.GetHost())
	}
	text, err := os.ReadFile(filepath.Join(root, "envoy", "istio", "outside", "serviceentry.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("outbound|%d||%s", entry.GetPorts()[0].GetNumber(), entry.GetHosts()[0]); !strings.Contains(string(text), want) {
		t.Errorf("it does not say that the cluster is %s", want)
	}
}

// TestStrict: one wrong letter in a manifest is an error that names it.
func TestStrict(t *testing.T) {
	for _, test := range []struct{ file, right, wrong, want string }{
		{"envoy/istio/wasmplugin.yaml", "failStrategy:", "failstrategy:", "failstrategy"},
		{"envoy/istio/wasmplugin.yaml", "FAIL_RELOAD", "FAIL_RELAOD", "FAIL_RELAOD"},
		{"envoy/istio/wasmplugin.yaml", "namespace:", "nmespace:", "nmespace"},
		{"envoy/istio/wasmplugin.yaml", "kind: WasmPlugin", "kind: WasmPlugIn", "WasmPlugIn"},
		{"envoy/istio/destinationrule.yaml", "maxRetries:", "maxRetrys:", "maxRetrys"},
		{"envoy/istio/destinationrule.yaml", "0.2s", "200ms", "Duration"},
		{"envoy/kubernetes/sluice.yaml", "readOnlyRootFilesystem", "readonlyRootFilesystem", "readonlyRootFilesystem"},
		{"envoy/kubernetes/sluice.yaml", "memory: 256Mi", "memory: 256MiB", "quantit"},
		{"envoy/kubernetes/sluice.yaml", "maxUnavailable: 1", "minUnavailable: 1", "minUnavailable"},
	} {
		text, err := os.ReadFile(filepath.Join(root, test.file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), test.right) {
			t.Errorf("%s has no %q", test.file, test.right)
		}
		_, err = decode([]byte(strings.ReplaceAll(string(text), test.right, test.wrong)))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %q: error %v, want %q in it", test.file, test.wrong, err, test.want)
		}
	}
}
