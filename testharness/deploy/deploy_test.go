// Package deploy runs what users deploy, without containers: the Dockerfile's steps, the services of docker-compose.yaml, the
// pod of envoy/kubernetes, and the cluster that envoy/istio names. Every command, flag, path and port in those files is used
// as it stands; what a container would give is given here: files of its own, beneath a folder, and addresses.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/testharness/rig"
)

// patience is how long a busy machine may take for what is waited for.
const patience = 2 * time.Minute

// root is the checkout's.
const root = "../.."

// network gives every port of every host an address on the loopback.
type network map[string]string

// address is HOST:PORT on the loopback, always the same for a host and its port.
func (n network) address(t *testing.T, host, port string) string {
	t.Helper()
	name := host + ":" + port
	if n[name] == "" {
		address, err := rig.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		n[name] = address
	}
	return n[name]
}

// container is a process that finds its files beneath a folder, and its neighbours on the loopback.
type container struct {
	name    string
	network network
	// neighbours are the hosts that it knows by name.
	neighbours []string
	// files has what the container would have: its /etc/x is files/etc/x.
	files   string
	program string
	args    []string
	// env is NAME=VALUE.
	env []string
	dir string
}

var (
	socketAddress = regexp.MustCompile(`address: ([\w.-]+), port_value: (\d+)`)
	hostPort      = regexp.MustCompile(`\b([a-z0-9][\w.-]*):(\d+)\b`)
	absolutePath  = regexp.MustCompile(`(^|[\s="'])(/[\w.][\w./-]*)`)
)

// loopback is a host of its own for each container: what listens there is not reached from elsewhere.
func loopback(name string) string { return "the loopback of " + name }

// local puts the addresses and the files that there are here in the place of those in a text.
func (c *container) local(t *testing.T, text string) string {
	t.Helper()
	replaceAddress := func(pattern *regexp.Regexp, format string) {
		text = pattern.ReplaceAllStringFunc(text, func(match string) string {
			parts := pattern.FindStringSubmatch(match)
			host := parts[1]
			switch {
			case host == "0.0.0.0":
				host = c.name
			case host == rig.Loopback:
				host = loopback(c.name)
			case !slices.Contains(c.neighbours, host):
				return match
			}
			address, port, _ := net.SplitHostPort(c.network.address(t, host, parts[2]))
			return fmt.Sprintf(format, address, port)
		})
	}
	replaceAddress(hostPort, "%s:%s") // first: what the other one writes is not of this form
	replaceAddress(socketAddress, "address: %s, port_value: %s")
	return absolutePath.ReplaceAllStringFunc(text, func(match string) string {
		parts := absolutePath.FindStringSubmatch(match)
		here := filepath.Join(c.files, parts[2])
		if _, err := os.Stat(here); err != nil {
			return match
		}
		return parts[1] + here
	})
}

// mount puts a file, or the files of a folder, into the container's, with what is named in them made local.
func (c *container) mount(t *testing.T, from, at string) {
	t.Helper()
	found, err := os.Stat(from)
	if err != nil {
		t.Fatalf("%s mounts what is not there: %v", c.name, err)
	}
	if !found.IsDir() {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		c.write(t, at, c.local(t, string(text)))
		return
	}
	entries, err := os.ReadDir(from)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%s mounts an empty folder %s (%v)", c.name, from, err)
	}
	for _, entry := range entries {
		c.mount(t, filepath.Join(from, entry.Name()), at+"/"+entry.Name())
	}
}

func (c *container) write(t *testing.T, at, text string) {
	t.Helper()
	path := filepath.Join(c.files, at)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// start runs the container until the test ends. It is ready once its port, where it is not empty, is connected to, or once it
// answers 200 on the port at the path.
func (c *container) start(t *testing.T, port, path string) *rig.Process {
	t.Helper()
	command := rig.Command{Name: c.name, Path: c.program, Env: c.env, Dir: c.dir, ReadyWithin: patience, StopWithin: patience}
	for _, arg := range c.args {
		command.Args = append(command.Args, c.local(t, arg))
	}
	if port != "" {
		address := c.network.address(t, c.name, port)
		command.Ready = func(context.Context) error {
			if path != "" {
				_, err := get("http://" + address + path)
				return err
			}
			connection, err := net.DialTimeout("tcp", address, patience)
			if err == nil {
				connection.Close()
			}
			return err
		}
	}
	p, err := rig.Start(t.Context(), command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("%s %q printed:\n%s", c.program, command.Args, p.Output())
		}
	})
	return p
}

// get gives the body of a 200.
func get(url string) (string, error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	return string(body), err
}

// program finds a program on the PATH; package is Debian's, for who has it not.
func program(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v (Debian: apt-get install %s)", err, debian)
	}
	return path
}

func envoyProgram(t *testing.T) string {
	t.Helper()
	venv, err := rig.EnvoyVenv(".")
	if err != nil {
		t.Fatal(err)
	}
	path, err := rig.FindEnvoy(t.Context(), venv, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func within(t *testing.T, limit time.Duration, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// copyTree copies the files beneath a folder, but for those that skip names, by their paths from the folder.
func copyTree(from, to string, skip func(path string) bool) error {
	return filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case relative != "." && skip(relative):
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, relative), 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		return copyFile(path, filepath.Join(to, relative))
	})
}

func copyFile(from, to string) error {
	found, err := os.Stat(from)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, found.Mode().Perm())
}

func trimmedLines(text string) []string {
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}
