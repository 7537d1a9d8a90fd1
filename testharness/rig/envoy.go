package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// envoyReadyWithin is generous: compiling the filter takes seconds, and much more on a machine that is busy otherwise.
const envoyReadyWithin = 4 * time.Minute

// EnvoyOptions is how to start an Envoy.
type EnvoyOptions struct {
	// Binary is what FindEnvoy gave.
	Binary string
	// Bootstrap is the configuration, in JSON or YAML. Its ports may be 0: Envoy then takes free ones, which Admin and
	// Listener give.
	Bootstrap []byte
	// Concurrency is the number of worker threads; 0: 2.
	Concurrency int
	// LogLevel is Envoy's, from trace to off; empty: warning.
	LogLevel string
	// Dir is the working directory, against which Envoy takes paths that are not absolute; empty: the starter's own.
	Dir string
}

// Envoy is a running Envoy.
type Envoy struct {
	*Process
	// Admin is its admin interface, HOST:PORT.
	Admin string
	// listeners are the bound addresses by the listeners' names.
	listeners map[string]string
}

// StartEnvoy starts an Envoy and waits until it is live, which includes that the filter's policy of readiness, if it has
// any, lets it be.
func StartEnvoy(ctx context.Context, options EnvoyOptions) (*Envoy, error) {
	if options.Concurrency == 0 {
		options.Concurrency = 2
	}
	if options.LogLevel == "" {
		options.LogLevel = "warning"
	}
	directory, err := os.MkdirTemp("", "sluice-envoy-")
	if err != nil {
		return nil, err
	}
	// Envoy has read both files by the time that it is live.
	defer os.RemoveAll(directory)
	configuration := filepath.Join(directory, "bootstrap.yaml") // Envoy goes by the name's end; JSON is YAML too
	adminFile := filepath.Join(directory, "admin")
	if err := os.WriteFile(configuration, options.Bootstrap, 0o600); err != nil {
		return nil, err
	}
	envoy := &Envoy{}
	envoy.Process, err = Start(ctx, Command{
		Name: "envoy", Path: options.Binary, Dir: options.Dir,
		Args: []string{
			"-c", configuration, "--concurrency", strconv.Itoa(options.Concurrency), "--log-level", options.LogLevel,
			// Several Envoys on one machine share no memory and take over from no other.
			"--disable-hot-restart", "--admin-address-path", adminFile,
		},
		Ready:       func(ctx context.Context) error { return envoy.findAddresses(ctx, adminFile) },
		ReadyWithin: envoyReadyWithin,
	})
	if err != nil {
		return nil, err
	}
	return envoy, nil
}

func (e *Envoy) findAddresses(ctx context.Context, adminFile string) error {
	admin, err := os.ReadFile(adminFile)
	if err != nil {
		return err
	}
	e.Admin = strings.TrimSpace(string(admin))
	if _, err := adminGet(ctx, e.Admin, "/ready"); err != nil {
		return err
	}
	return e.FindListeners(ctx)
}

// FindListeners finds the listeners that there are now, where they have changed since the start.
func (e *Envoy) FindListeners(ctx context.Context) error {
	listeners, err := adminGet(ctx, e.Admin, "/listeners?format=json")
	if err != nil {
		return err
	}
	e.listeners, err = parseListeners(listeners)
	return err
}

func parseListeners(answer []byte) (map[string]string, error) {
	var status struct {
		Listeners []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Host string `json:"address"`
					Port int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(answer, &status); err != nil {
		return nil, fmt.Errorf("reading Envoy's list of listeners: %w", err)
	}
	if len(status.Listeners) == 0 {
		return nil, errors.New("Envoy has no listener yet")
	}
	found := make(map[string]string, len(status.Listeners))
	for _, l := range status.Listeners {
		found[l.Name] = net.JoinHostPort(l.Address.Socket.Host, strconv.Itoa(l.Address.Socket.Port))
	}
	return found, nil
}

// Listener gives the address, HOST:PORT, of the listener of that name; empty where there is none.
func (e *Envoy) Listener(name string) string { return e.listeners[name] }

// Stats reads Envoy's counters and gauges whose names have the substring, by their names.
func (e *Envoy) Stats(ctx context.Context, substring string) (map[string]int64, error) {
	answer, err := adminGet(ctx, e.Admin, "/stats?type=All")
	if err != nil {
		return nil, fmt.Errorf("reading Envoy's statistics: %w", err)
	}
	found := map[string]int64{}
	for line := range strings.Lines(string(answer)) {
		name, value, isPair := strings.Cut(strings.TrimSpace(line), ": ")
		if !isPair || !strings.Contains(name, substring) {
			continue
		}
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			found[name] = n
		}
	}
	return found, nil
}

// The probe of AwaitFilter: that many answers in a row, each over a connection of its own, for the kernel spreads
// connections over Envoy's workers by chance. One of two workers is missed in one of 2,000 probes.
const filterProbes = 12

// AwaitFilter waits until the filter limits requests at the address, in every worker as far as can be told from outside: a
// request with the headers gets an answer whose RateLimit-Policy has the text, time after time; any text, where it is
// empty. The probes are charged to the headers' key.
func AwaitFilter(ctx context.Context, address string, headers map[string]string, text string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for limited := 0; limited < filterProbes; {
		policy, err := rateLimitPolicy(ctx, address, headers)
		if policy != "" && strings.Contains(policy, text) {
			limited++
			continue
		}
		limited = 0
		timer := time.NewTimer(pollEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("after %v the filter at %s says it is under %q, want %q: %w", within, address, policy, text, errors.Join(err, ctx.Err()))
		case <-timer.C:
		}
	}
	return nil
}

func rateLimitPolicy(ctx context.Context, address string, headers map[string]string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return "", err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return "", err
	}
	response.Body.Close()
	return response.Header.Get("ratelimit-policy"), nil
}

// httpClient is for admin interfaces and probes; it keeps no connection, for processes come and go.
var httpClient = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// adminGet gives the body of a 200; any other status is an error. At most 16 MiB are read.
func adminGet(ctx context.Context, address, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s%s answered %s: %s", address, path, response.Status, strings.TrimSpace(string(body)))
	}
	return body, err
}

// ValidateBootstrap has Envoy check a configuration, without starting it; the error carries what Envoy said.
func ValidateBootstrap(ctx context.Context, options EnvoyOptions) error {
	file, err := os.CreateTemp("", "sluice-bootstrap-*.yaml")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(options.Bootstrap); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	p, err := Start(ctx, Command{
		Name: "envoy --mode validate", Path: options.Binary, Dir: options.Dir,
		Args: []string{"--mode", "validate", "-c", file.Name(), "--log-level", "warning", "--disable-hot-restart"},
	})
	if err != nil {
		return err
	}
	defer p.Stop()
	select {
	case <-p.Done():
	case <-time.After(envoyReadyWithin):
		return fmt.Errorf("envoy --mode validate did not end within %v", envoyReadyWithin)
	}
	if p.err != nil {
		return fmt.Errorf("envoy refuses the bootstrap: %w:\n%s", p.err, p.Output())
	}
	return nil
}

// AwaitStill waits until look gives the same twice, a tenth of a second apart, or until within is over.
func AwaitStill(ctx context.Context, within time.Duration, look func() any) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(5 * pollEvery)
	defer ticker.Stop()
	for last := look(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := look()
		if now == last {
			return
		}
		last = now
	}
}
