package deploy

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"sluice/testharness/rig"
)

// object is what the manifests of envoy/kubernetes say of how the service runs. That Kubernetes takes all of their fields is
// tested with its own types, in .ci/deploy.
type object struct {
	Kind       string
	Metadata   struct{ Name string }
	StringData map[string]string `yaml:"stringData"`
	Data       map[string]string
	Spec       struct {
		Template struct {
			Spec struct {
				Containers []kubernetesContainer
				Volumes    []struct {
					Name      string
					ConfigMap struct{ Name string } `yaml:"configMap"`
				}
				GraceSeconds int `yaml:"terminationGracePeriodSeconds"`
			}
		}
	}
}

type kubernetesContainer struct {
	Args []string
	Env  []struct {
		Name, Value string
		ValueFrom   struct {
			SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name string
		Port int `yaml:"containerPort"`
	}
	ReadinessProbe probe `yaml:"readinessProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	VolumeMounts   []struct {
		Name string
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

func kubernetesObjects(t *testing.T) map[string]object {
	t.Helper()
	objects := map[string]object{}
	for document := range strings.SplitSeq(readFile(t, "envoy", "kubernetes", "sluice.yaml"), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		objects[o.Kind+" "+o.Metadata.Name] = o
	}
	return objects
}

// TestKubernetes runs the pod's container: the image's ENTRYPOINT with the manifest's arguments, environment and files. Its
// probes get their answers on the ports that they name, Redis away and back again; and it stops within its grace.
func TestKubernetes(t *testing.T) {
	objects := kubernetesObjects(t)
	pod := objects["Deployment sluice"].Spec.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("want one container, found %+v", pod)
	}
	manifest := pod.Containers[0]
	redis, err := rig.StartRedis(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	service := images["service"]
	c := &container{name: "pod", network: network{}, files: t.TempDir(), args: manifest.Args}
	c.program = filepath.Join(service.files, service.entrypoint[0])
	for _, volume := range pod.Volumes {
		for _, mount := range manifest.VolumeMounts {
			if mount.Name != volume.Name {
				continue
			}
			for file, text := range objects["ConfigMap "+volume.ConfigMap.Name].Data {
				c.write(t, filepath.Join(mount.Path, file), text)
			}
		}
	}
	const redisHost = "redis.sluice.svc.cluster.local"
	c.neighbours = []string{redisHost}
	c.network[redisHost+":6379"] = redis.Address
	for _, variable := range manifest.Env {
		value := variable.Value
		if secret := variable.ValueFrom.SecretKeyRef; secret.Name != "" {
			value = objects["Secret "+secret.Name].StringData[secret.Key]
		}
		c.env = append(c.env, variable.Name+"="+c.local(t, value))
	}
	ports := map[string]string{}
	for _, port := range manifest.Ports {
		ports[port.Name] = strconv.Itoa(port.Port)
	}
	ready, alive := manifest.ReadinessProbe.HTTPGet, manifest.LivenessProbe.HTTPGet
	process := c.start(t, ports[ready.Port], ready.Path)

	ask := func(p struct{ Path, Port string }) int {
		response, err := http.Get("http://" + c.network.address(t, "pod", ports[p.Port]) + p.Path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	connection, err := net.DialTimeout("tcp", c.network.address(t, "pod", ports["grpc"]), patience)
	if err != nil {
		t.Fatalf("nobody listens on the port grpc: %v", err)
	}
	connection.Close()
	within(t, patience, "the store of the Secret", func() error {
		if !strings.Contains(process.Output(), "store redis://"+redis.Address) {
			return fmt.Errorf("it does not use it: %s", process.Output())
		}
		return nil
	})
	redis.Pause()
	if status := ask(ready); status != http.StatusServiceUnavailable {
		t.Errorf("with Redis away readiness is answered %d, want 503", status)
	}
	if status := ask(alive); status != http.StatusOK {
		t.Errorf("with Redis away liveness is answered %d, want 200", status)
	}
	redis.Resume()
	within(t, patience, "ready again", func() error {
		_, err := get("http://" + c.network.address(t, "pod", ports[ready.Port]) + ready.Path)
		return err
	})
	began := time.Now()
	process.Stop()
	if took := time.Since(began); took > time.Duration(pod.GraceSeconds)*time.Second || !strings.Contains(process.Output(), `"stopped"`) {
		t.Errorf("it took %v to stop, of %d s: %s", took, pod.GraceSeconds, process.Output())
	}
}
