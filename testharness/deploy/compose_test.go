package deploy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"sluice/testharness/pace"
	"sluice/testharness/rig"
)

// compose is what docker-compose.yaml says of how to run its services. That Compose itself takes the file is tested with
// Compose's own loader, in .ci/deploy.
type compose struct {
	Services map[string]struct {
		Image string
		Build *struct{ Target string }
		// Command, Environment, Volumes and Ports are in their short forms.
		Command     []string
		Environment map[string]string
		Volumes     []string
		Ports       []string
	}
}

// entrypoints are the programs of others' images that their commands are arguments of, and Debian's packages with them.
var entrypoints = map[string]struct{ program, debian string }{"prom/prometheus": {"prometheus", "prometheus"}}

// container gives a service of the project, with its files in place.
func (p compose) container(t *testing.T, name string, n network) *container {
	t.Helper()
	s, there := p.Services[name]
	if !there {
		t.Fatalf("docker-compose.yaml has no service %s", name)
	}
	c := &container{name: name, network: n, files: t.TempDir(), args: s.Command}
	for neighbour := range p.Services {
		c.neighbours = append(c.neighbours, neighbour)
	}
	if s.Build != nil {
		stage := images[s.Build.Target]
		if stage == nil {
			t.Fatalf("%s is built to the stage %s, which is not there", name, s.Build.Target)
		}
		if err := copyTree(stage.files, c.files, func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
		if stage.entrypoint != nil {
			c.program = filepath.Join(c.files, stage.entrypoint[0])
		}
	}
	repository, _, _ := strings.Cut(s.Image, ":")
	switch entry, has := entrypoints[repository]; {
	case c.program != "":
	case has:
		c.program = program(t, entry.program, entry.debian)
	case s.Command[0] == "envoy":
		c.program, c.args = envoyProgram(t), slices.Concat(s.Command[1:], []string{"--disable-hot-restart", "--log-level", "warning"})
	default:
		c.program, c.args = program(t, s.Command[0], s.Command[0]), s.Command[1:]
	}
	// Folders first: what is in files may name them.
	slices.SortFunc(s.Volumes, func(a, b string) int { return strings.Compare(a[:1], b[:1]) * -1 })
	for _, volume := range s.Volumes {
		parts := strings.Split(volume, ":")
		if strings.HasPrefix(parts[0], ".") {
			c.mount(t, filepath.Join(root, parts[0]), parts[1])
			continue
		}
		// Such a volume is where the program keeps its data, and works.
		c.dir = filepath.Join(c.files, parts[1])
		if err := os.MkdirAll(c.dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for variable, value := range s.Environment {
		c.env = append(c.env, variable+"="+c.local(t, value))
	}
	return c
}

// published gives the local address of a service's port that the machine reaches at that port of its own.
func (p compose) published(t *testing.T, port string, n network) string {
	t.Helper()
	for name, s := range p.Services {
		for _, mapping := range s.Ports {
			if parts := strings.Split(mapping, ":"); len(parts) == 3 && parts[0] == rig.Loopback && parts[1] == port {
				return n.address(t, name, parts[2])
			}
		}
	}
	t.Fatalf("nothing is published on port %s", port)
	return ""
}

// TestCompose runs the whole project: Redis, service, upstream, two Envoys, Prometheus. What the head of docker-compose.yaml
// promises comes true: the answers to its sixteen requests, and the two pages.
func TestCompose(t *testing.T) {
	text := readFile(t, "docker-compose.yaml")
	var p compose
	// What is merged into a service is overridden by what the service has itself, which this reader takes for a duplicate.
	if err := yaml.UnmarshalWithOptions([]byte(text), &p, yaml.AllowDuplicateMapKey()); err != nil {
		t.Fatal(err)
	}
	n := network{}
	// The images of Redis and Prometheus listen on all addresses, on ports of their own; these are the only arguments that are
	// not Compose's.
	redis := p.container(t, "redis", n)
	host, port, _ := strings.Cut(n.address(t, "redis", "6379"), ":")
	redis.args = append(redis.args, "--bind", host, "--port", port)
	redis.start(t, "6379", "")
	p.container(t, "sluice", n).start(t, "9091", "/readyz")
	p.container(t, "upstream", n).start(t, "8080", "/")
	for _, name := range []string{"envoy-1", "envoy-2"} {
		p.container(t, name, n).start(t, "9902", "/stats/prometheus")
	}
	prometheus := p.container(t, "prometheus", n)
	checkPrometheus(t, prometheus)
	prometheus.args = append(prometheus.args, "--web.listen-address=0.0.0.0:9090")
	prometheus.start(t, "9090", "/-/ready")

	ports := regexp.MustCompile(`for port in (\d+) (\d+); do for i in \$\(seq 8\)`).FindStringSubmatch(text)
	if ports == nil {
		t.Fatal("the head of docker-compose.yaml does not say how to try it")
	}
	for _, port := range ports[1:] {
		err := rig.AwaitFilter(t.Context(), p.published(t, port, n), map[string]string{"x-tenant-id": "probe"}, "tenant", patience)
		if err != nil {
			t.Fatal(err)
		}
	}
	// Within ten seconds, and each answered within 200 ms.
	pace.Try(t, func(trial *pace.Trial) {
		statuses := map[int]int{}
		for _, port := range ports[1:] {
			for range 8 {
				statuses[ask(t, p.published(t, port, n), trial.Name)]++
			}
		}
		if statuses[http.StatusOK] != 10 || statuses[http.StatusTooManyRequests] != 6 {
			trial.Shortf("sixteen requests were answered %v, want 200 ten times, and 429 six times", statuses)
		}
	})
	if metrics, err := get("http://" + p.published(t, "9091", n) + "/metrics"); err != nil || !strings.Contains(metrics, "sluice_") {
		t.Errorf("the service's figures: %v", err)
	}
	within(t, patience, "Prometheus has its targets up", func() error {
		return targetsUp(p.published(t, "9092", n), 3)
	})
}

func ask(t *testing.T, address, tenant string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("x-tenant-id", tenant)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func checkPrometheus(t *testing.T, c *container) {
	t.Helper()
	for _, arg := range c.args {
		file, is := strings.CutPrefix(arg, "--config.file=")
		if !is {
			continue
		}
		promtool := program(t, "promtool", "prometheus")
		if output, err := exec.CommandContext(t.Context(), promtool, "check", "config", filepath.Join(c.files, file)).CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, output)
		}
		return
	}
	t.Error("Prometheus is given no --config.file")
}

// targetsUp says whether Prometheus has got an answer from so many targets, and from no fewer than it has.
func targetsUp(address string, want int) error {
	body, err := get("http://" + address + "/api/v1/query?query=up")
	if err != nil {
		return err
	}
	var answer struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return err
	}
	up := 0
	for _, result := range answer.Data.Result {
		if result.Value[1] == "1" {
			up++
		}
	}
	if up != want || len(answer.Data.Result) != want {
		return fmt.Errorf("%d of %d are up, want %d: %s", up, len(answer.Data.Result), want, body)
	}
	return nil
}
