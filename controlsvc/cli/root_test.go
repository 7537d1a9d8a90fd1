package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/shared/instant"
	"sluice/testharness/rig"
)

const goodPolicy = `
domain: shop
identities:
  tenant: {header: x-tenant-id}
limits:
  - name: tenant
    key: [tenant]
    rates: [100/s]
    algorithm: sliding_log
    mode: strict
  - name: slow
    key: [tenant]
    rates: [5/100s]
    mode: strict
`

// write puts a policy into a file of the test's own.
func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// command runs the command in this process, for what ends by itself.
func command(environment map[string]string, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Run(Process{
		Args:      args,
		LookupEnv: func(name string) (string, bool) { value, found := environment[name]; return value, found },
		Stdout:    &out, Stderr: &err,
		Now:   func() instant.Instant { return 0 },
		After: func(time.Duration) <-chan time.Time { return nil },
	})
	return code, out.String(), err.String()
}

// contain checks that a text has all of the parts.
func contain(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", what, part, text)
		}
	}
}

// says waits until a process has printed the parts: what it prints comes through a pipe, and may be later than its answers.
func says(t *testing.T, p *rig.Process, parts ...string) {
	t.Helper()
	eventually(t, func() error {
		output := p.Output()
		for _, part := range parts {
			if !strings.Contains(output, part) {
				return fmt.Errorf("it did not print %q, but:\n%s", part, output)
			}
		}
		return nil
	})
}

func TestArgumentsThatMakeNoSense(t *testing.T) {
	file := write(t, goodPolicy)
	for name, test := range map[string]struct {
		environment map[string]string
		args        []string
		code        int
		says        []string
	}{
		"an unknown command":  {nil, []string{"serf"}, 2, []string{`unknown command "serf"`}},
		"an unknown flag":     {nil, []string{"serve", "--polcy", file}, 2, []string{"sluice serve: unknown flag: --polcy", "sluice serve --help"}},
		"an extra argument":   {nil, []string{"serve", file}, 2, []string{"sluice serve"}},
		"no policy":           {nil, []string{"serve"}, 2, []string{"--policy (SLUICE_POLICY)"}},
		"nothing to validate": {nil, []string{"validate"}, 2, []string{"at least 1"}},
		"everything at once": {
			nil,
			[]string{
				"serve", "--policy", file, "--grpc", "9090", "--http", "[::1", "--store", "postgres://x", "--call-timeout", "2m",
				"--max-in-flight", "0", "--memory-keys", "-1", "--log-level", "loud", "--shutdown-timeout=-1s", "--grpc-tls-cert", "x",
			},
			2,
			[]string{
				`--grpc (SLUICE_GRPC): "9090": want HOST:PORT`, "--http", `--store (SLUICE_STORE): "postgres://x": want memory, or redis://`,
				"--call-timeout", "--max-in-flight", "--memory-keys", "--log-level", "--shutdown-timeout", "--grpc-tls-key",
			},
		},
		"a flag's value": {nil, []string{"serve", "--call-timeout", "soon"}, 2, []string{`"soon"`, "--call-timeout"}},
		"the environment's values, all of them": {
			map[string]string{"SLUICE_CALL_TIMEOUT": "soon", "SLUICE_MAX_IN_FLIGHT": "1.5"},
			[]string{"serve", "--policy", file},
			2,
			[]string{`SLUICE_CALL_TIMEOUT="soon" in the environment`, `SLUICE_MAX_IN_FLIGHT="1.5" in the environment`},
		},
		"the environment's value out of range": {
			map[string]string{"SLUICE_CALL_TIMEOUT": "1h", "SLUICE_POLICY": file}, []string{"serve"}, 2, []string{"SLUICE_CALL_TIMEOUT", "1h0m0s: want 1ms to 1m"},
		},
		"no such policy": {nil, []string{"serve", "--policy", filepath.Join(t.TempDir(), "none.yaml")}, 1, []string{"none.yaml"}},
		"a policy that is none": {
			map[string]string{"SLUICE_POLICY": write(t, "domain: [")}, []string{"serve"}, 1, []string{"policy.yaml"},
		},
		"no such certificate": {
			nil, []string{"serve", "--policy", file, "--grpc-tls-cert", "/nowhere.pem", "--grpc-tls-key", "/nowhere.key"}, 1, []string{"/nowhere.pem"},
		},
		"an address that is another's": {
			nil, []string{"serve", "--policy", file, "--grpc", "192.0.2.1:1"}, 1, []string{"--grpc", "192.0.2.1:1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := command(test.environment, test.args...)
			if code != test.code {
				t.Errorf("code %d; want %d", code, test.code)
			}
			contain(t, "what it says", stderr, test.says...)
		})
	}
}

func TestFlagWinsOverTheEnvironment(t *testing.T) {
	// The environment's value would be refused.
	environment := map[string]string{"SLUICE_CALL_TIMEOUT": "soon", "SLUICE_GRPC": "192.0.2.1:1"}
	code, _, stderr := command(environment, "serve", "--policy", write(t, goodPolicy), "--call-timeout", "50ms")
	if code != 1 {
		t.Errorf("code %d; want 1, for the environment's address", code)
	}
	contain(t, "what it says", stderr, "192.0.2.1:1")
}

func TestValidate(t *testing.T) {
	good, bad := write(t, goodPolicy), write(t, "domain: shop\nlimits:\n  - name: tenant\n    key: [nobody]\n    rates: [fast]\n")
	code, stdout, stderr := command(nil, "validate", good)
	if code != 0 || stderr != "" {
		t.Errorf("a good file: code %d, %s", code, stderr)
	}
	contain(t, "what it says of a good file", stdout, good+": valid: domain shop, 1 identity, 2 limits, version ")
	code, stdout, stderr = command(nil, "validate", bad, good)
	if code != 1 {
		t.Errorf("a bad file: code %d; want 1", code)
	}
	contain(t, "what it says of the good one beside it", stdout, good)
	contain(t, "what it says of a bad file", stderr, bad+":4:", bad+":5:", "nobody", "fast", "1 of 2 files are invalid")
}

func TestVersionAndHelp(t *testing.T) {
	code, stdout, _ := command(nil, "version")
	if code != 0 || !strings.HasPrefix(stdout, "sluice ") {
		t.Errorf("version: code %d, %q", code, stdout)
	}
	code, stdout, _ = command(nil)
	contain(t, "help", stdout, "serve", "validate", "demo", "SLUICE_CALL_TIMEOUT")
	if code != 0 {
		t.Errorf("help: code %d", code)
	}
}

// What the demo is to do is checked before anything is started.
func TestDemoIsTold(t *testing.T) {
	for _, c := range []struct {
		environment map[string]string
		args, says  string
	}{
		{map[string]string{"DEMO_OUTAGE": "long"}, "demo", `DEMO_OUTAGE="long" in the environment: want a whole number`},
		{map[string]string{"DEMO_SECONDS": "15", "DEMO_OUTAGE": "8"}, "demo", "want 0 to 7, half of the traffic's seconds"},
		{nil, "demo --outage 11", "want 0 to 10"},
		{nil, "demo --outage -1", "want 0 to 10"},
		{map[string]string{"DEMO_SECONDS": "-1"}, "demo", "want 0 to 86400"},
	} {
		code, _, stderr := command(c.environment, strings.Fields(c.args)...)
		if code == 0 || !strings.Contains(stderr, c.says) {
			t.Errorf("%v %s: %d, %q; want %q", c.environment, c.args, code, stderr, c.says)
		}
	}
}

func TestTopCompletesWhatItKnows(t *testing.T) {
	for flag, want := range map[string]string{"--by": "keys\nroutes\nlimits\nshadow\n:4\n", "--range": "5m\n1h\n24h\n:4\n"} {
		if _, out, _ := command(nil, "__complete", "top", flag, ""); out != want {
			t.Errorf("%s: %q", flag, out)
		}
	}
}
