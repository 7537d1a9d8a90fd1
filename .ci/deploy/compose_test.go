package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func project(t *testing.T, text []byte) (*types.Project, error) {
	t.Helper()
	directory, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	options, err := cli.NewProjectOptions(nil,
		cli.WithWorkingDirectory(directory), cli.WithResolvedPaths(true), cli.WithInterpolation(true), cli.WithProfiles(nil))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "docker-compose.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	options.ConfigPaths = []string{file}
	return options.LoadProject(t.Context())
}

func composeFile(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var (
	// pinned is an image of somebody else's, by a version that is not moved.
	pinned = regexp.MustCompile(`:v?\d+\.\d+\.\d+`)
	stage  = regexp.MustCompile(`(?mi)^FROM\s+(\S+)(?:\s+AS\s+(\S+))?`)
)

// TestCompose: Compose takes the file; what it mounts and builds is there; and it opens no port to the world.
func TestCompose(t *testing.T) {
	p, err := project(t, composeFile(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"envoy-1", "envoy-2", "sluice", "redis", "prometheus", "upstream"} {
		if _, there := p.Services[name]; !there {
			t.Errorf("no service %s", name)
		}
	}
	for name, s := range p.Services {
		if s.Build == nil && !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %s: want an exact version", name, s.Image)
		}
		if s.Build != nil {
			checkBuild(t, name, s.Build)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is published on %q, want 127.0.0.1", name, port.Published, port.HostIP)
			}
		}
		for _, volume := range s.Volumes {
			if volume.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(volume.Source); err != nil || !volume.ReadOnly {
				t.Errorf("%s: %s: want what is there, read-only: %v", name, volume.Source, err)
			}
		}
	}
	if ports := p.Services["upstream"].Ports; len(ports) > 0 {
		t.Errorf("the upstream is published at %v, past the Envoys", ports)
	}
}

func checkBuild(t *testing.T, name string, build *types.BuildConfig) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(build.Context, build.Dockerfile))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	stages := map[string]bool{"scratch": true}
	for _, match := range stage.FindAllStringSubmatch(string(text), -1) {
		if !stages[match[1]] && !pinned.MatchString(match[1]) {
			t.Errorf("%s: FROM %s: want an exact version", build.Dockerfile, match[1])
		}
		stages[match[2]] = true
	}
	if !stages[build.Target] {
		t.Errorf("%s: %s has no stage %s", name, build.Dockerfile, build.Target)
	}
}

func TestComposeStrict(t *testing.T) {
	for right, wrong := range map[string]string{
		"cap_drop:": "capdrop:", "depends_on: [redis]": "depends_on: [reddis]", "- redis:/data": "- rediss:/data",
	} {
		text := string(composeFile(t))
		if !strings.Contains(text, right) {
			t.Errorf("no %q in docker-compose.yaml", right)
		}
		if _, err := project(t, []byte(strings.Replace(text, right, wrong, 1))); err == nil {
			t.Errorf("%s was taken", wrong)
		}
	}
}
