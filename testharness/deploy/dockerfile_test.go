package deploy

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// image is a stage of the Dockerfile after its steps.
type image struct {
	from string
	// files has what the steps put there.
	files      string
	dir        string
	env        []string
	user       string
	entrypoint []string
	exposed    []string
}

// images are those of envoy/docker/Dockerfile by their stages' names, built once for all tests.
var images map[string]*image

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "sluice-images-")
	if err == nil {
		images, err = buildIn(folder)
	}
	status := 1
	if err == nil {
		status = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, "envoy/docker/Dockerfile:", err)
	}
	os.RemoveAll(folder)
	os.Exit(status)
}

func buildIn(folder string) (map[string]*image, error) {
	file := filepath.Join(root, "envoy", "docker", "Dockerfile")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	ignore, err := os.ReadFile(file + ".dockerignore")
	if err != nil {
		return nil, err
	}
	return build(string(text), trimmedLines(string(ignore)), folder)
}

var from = regexp.MustCompile(`^FROM (\S+) AS (\S+)$`)

// build takes the steps of a Dockerfile, in the form that ours has, in folders of its own. RUN runs here, so the programs that it
// needs are this machine's.
func build(text string, ignored []string, folder string) (map[string]*image, error) {
	stages := map[string]*image{}
	var stage *image
	for _, line := range trimmedLines(text) {
		if parts := from.FindStringSubmatch(line); parts != nil {
			stage = &image{from: parts[1], files: filepath.Join(folder, parts[2]), dir: "/"}
			stages[parts[2]] = stage
			continue
		}
		if stage == nil {
			return nil, fmt.Errorf("%s: before the first FROM", line)
		}
		if err := stage.step(line, stages, ignored); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
	}
	return stages, nil
}

func (i *image) step(line string, stages map[string]*image, ignored []string) error {
	instruction, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	switch instruction {
	case "WORKDIR":
		i.dir = rest
		return os.MkdirAll(filepath.Join(i.files, rest), 0o755)
	case "ENV":
		i.env = append(i.env, words...)
	case "USER":
		i.user = rest
	case "EXPOSE":
		i.exposed = words
	case "ENTRYPOINT":
		return json.Unmarshal([]byte(rest), &i.entrypoint)
	case "RUN":
		command := exec.Command("sh", "-c", rest)
		command.Dir = filepath.Join(i.files, i.dir)
		command.Env = append(os.Environ(), i.env...)
		// Whoever runs these tests may have told make and go what an image is not told.
		command.Env = append(command.Env, "MAKEFLAGS=", "MAKELEVEL=", "GOFLAGS=")
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%w:\n%s", err, output)
		}
	case "COPY":
		return i.copy(words, stages, ignored)
	default:
		return fmt.Errorf("no instruction %s is known here", instruction)
	}
	return nil
}

func (i *image) copy(words []string, stages map[string]*image, ignored []string) error {
	if slices.Equal(words, []string{".", "."}) {
		return copyTree(root, filepath.Join(i.files, i.dir), func(path string) bool { return slices.Contains(ignored, path) })
	}
	name, isStage := strings.CutPrefix(words[0], "--from=")
	if !isStage || len(words) != 3 || stages[name] == nil || !path.IsAbs(words[1]) || !path.IsAbs(words[2]) {
		return fmt.Errorf("want . . or --from=STAGE /FILE /FILE")
	}
	source := filepath.Join(stages[name].files, words[1])
	if words[1] == "/etc/ssl/certs/ca-certificates.crt" {
		source = words[1] // it comes with the image that the stage is from, and is where Debian has it
	}
	return copyFile(source, filepath.Join(i.files, words[2]))
}

// TestDockerfile: its steps give a command that runs where there is nothing else, as nobody in particular, and the filter.
func TestDockerfile(t *testing.T) {
	service := images["service"]
	if service == nil || service.from != "scratch" || len(service.entrypoint) != 1 {
		t.Fatalf("no stage service from scratch with an ENTRYPOINT of one word: %+v", service)
	}
	if !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(service.user) {
		t.Errorf("USER %q: want numbers, for there is no /etc/passwd, and not 0", service.user)
	}
	if !slices.Equal(service.exposed, []string{"9090", "9091"}) {
		t.Errorf("EXPOSE %v", service.exposed)
	}
	binary, err := elf.Open(filepath.Join(service.files, service.entrypoint[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	for _, program := range binary.Progs {
		if program.Type == elf.PT_INTERP {
			t.Error("the command asks for a dynamic linker, and the image has none")
		}
	}
	filter, err := os.ReadFile(filepath.Join(images["envoy"].files, "etc", "sluice", "sluice.wasm"))
	if err != nil || !strings.HasPrefix(string(filter), "\x00asm") {
		t.Errorf("the stage envoy has no filter in /etc/sluice/sluice.wasm: %v", err)
	}
}
