package layout

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// notInCI lists the README's commands that .ci/run does not run as they stand, by how they begin, with what does instead.
var notInCI = []struct{ prefix, instead string }{
	{"curl ", "testharness/e2e sends the same requests, and looks at every answer"},
	{"docker ", "there is no Docker where CI runs; testharness/e2e starts the same programs"},
	{"kubectl ", "there is no cluster where CI runs"},
	{"bin/sluice ", "testharness/e2e and the tests of controlsvc/cli run the command"},
	{"make bench", "takes an hour, and says nothing on a shared machine"},
	{"make fuzz", "make test runs the seeds"},
	{"make sim", "make test runs the same seeds, fewer"},
	{"make test-long", "make test runs the same tests, shorter"},
}

// TestReadme: whoever follows README.md types what CI ran.
func TestReadme(t *testing.T) {
	text := map[string]string{}
	for _, name := range []string{"README.md", ".ci/run", "Makefile"} {
		bytes, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		text[name] = string(bytes)
	}
	for _, complaint := range checkReadme(text["README.md"], text[".ci/run"], text["Makefile"]) {
		t.Error(complaint)
	}
}

func checkReadme(readme, gate, makefile string) []string {
	commands := readmeCommands(readme)
	ran := gateCommands(gate)
	var complaints []string
	for _, needed := range []string{"make demo", "make test"} {
		if !slices.Contains(commands, needed) {
			complaints = append(complaints, fmt.Sprintf("README.md: no %q in a block marked sh or console", needed))
		}
	}
	for _, command := range commands {
		for _, target := range makeTargets(command) {
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).MatchString(makefile) {
				complaints = append(complaints, fmt.Sprintf("README.md: %s: the Makefile has no target %s", command, target))
			}
		}
		if !slices.Contains(ran, command) && !excused(command) {
			complaints = append(complaints, fmt.Sprintf("README.md: %s: .ci/run does not run it, and notInCI does not say why", command))
		}
	}
	return complaints
}

var (
	fence       = regexp.MustCompile("(?s)\n *```(sh|bash|shell|console)[^\n]*(\n.*?\n) *```")
	assignments = regexp.MustCompile(`^(env\s+)?([A-Za-z_][A-Za-z0-9_]*=\S*\s+)*`)
	stageLine   = regexp.MustCompile(`(?m)^\s*stage\s+\S+\s+(.+)$`)
)

// readmeCommands gives the commands of the fenced blocks: in one marked console the lines that begin with "$ ", in one marked
// sh every line that is no comment. What is set in front of a command is left out.
func readmeCommands(readme string) []string {
	var commands []string
	for _, block := range fence.FindAllStringSubmatch("\n"+readme, -1) {
		language, body := block[1], strings.ReplaceAll(block[2], "\\\n", " ")
		for line := range strings.Lines(body) {
			line = strings.TrimSpace(line)
			if language == "console" {
				typed, isCommand := strings.CutPrefix(line, "$ ")
				if !isCommand {
					continue
				}
				line = typed
			}
			line, _, _ = strings.Cut(line, " #")
			if command := bare(line); command != "" && command[0] != '#' {
				commands = append(commands, command)
			}
		}
	}
	return commands
}

// gateCommands gives what the stages of .ci/run run.
func gateCommands(gate string) []string {
	var commands []string
	for _, found := range stageLine.FindAllStringSubmatch(gate, -1) {
		commands = append(commands, bare(found[1]))
	}
	return commands
}

// bare is the command without what is set for it, and with single spaces.
func bare(command string) string {
	command = strings.TrimSpace(command)
	return strings.Join(strings.Fields(command[len(assignments.FindString(command)):]), " ")
}

func makeTargets(command string) []string {
	words := strings.Fields(command)
	if len(words) == 0 || words[0] != "make" {
		return nil
	}
	var targets []string
	for _, word := range words[1:] {
		if !strings.Contains(word, "=") && word[0] != '-' {
			targets = append(targets, word)
		}
	}
	return targets
}

func excused(command string) bool {
	for _, excuse := range notInCI {
		if strings.HasPrefix(command, excuse.prefix) {
			return true
		}
	}
	return false
}

func TestCheckReadme(t *testing.T) {
	const gate = "stage build make build\nstage demo env DEMO_SECONDS=15 make demo\n  stage test make test\n"
	const makefile = "build: x ## y\ndemo:\ntest:\nfuzz:\n"
	for _, step := range []struct {
		name, readme string
		want         []string
	}{
		{name: "all is run", readme: "```console\n$ DEMO_SECONDS=15 make  demo # ends by itself\ntenant sent\n$ make \\\n  test\n```\n"},
		{name: "of a script, every line", readme: "```sh\n# first\nmake demo\nmake test\ncurl -i localhost\nmake fuzz FUZZTIME=1m\n```\n"},
		{name: "no README to speak of", readme: "make demo, make test\n", want: []string{
			`README.md: no "make demo" in a block marked sh or console`,
			`README.md: no "make test" in a block marked sh or console`,
		}},
		{name: "nobody runs it", readme: "```sh\nmake demo\nmake test\n./install\n```\n", want: []string{
			"README.md: ./install: .ci/run does not run it, and notInCI does not say why",
		}},
		{name: "no such target", readme: "```sh\nmake demo\nmake test\nmake sim\n```\n", want: []string{
			"README.md: make sim: the Makefile has no target sim",
		}},
		{name: "in a list", readme: "1. First:\n\n   ```sh\n   make demo\n   make test\n   ./install\n   ```\n", want: []string{
			"README.md: ./install: .ci/run does not run it, and notInCI does not say why",
		}},
		{name: "another language", readme: "```sh\nmake demo\nmake test\n```\n\n```yaml\ndomain: shop\n```\n"},
	} {
		t.Run(step.name, func(t *testing.T) {
			if diff := cmp.Diff(step.want, checkReadme(step.readme, gate, makefile)); diff != "" {
				t.Errorf("complaints, wanted (-), got (+):\n%s", diff)
			}
		})
	}
}
