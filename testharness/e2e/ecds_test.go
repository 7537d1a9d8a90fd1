package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/envoy"
	"sluice/testharness/load"
	"sluice/testharness/oracle"
	"sluice/testharness/pace"
	"sluice/testharness/rig"
)

// dynamic is an Envoy started from the files of envoy/dynamic, with nothing but addresses and paths changed in them.
type dynamic struct {
	*rig.Envoy
	folder string
}

// nextCluster is a second service's, beside the one of the files.
const nextCluster = "sluice-next"

func startDynamic(t *testing.T, next string) dynamic {
	t.Helper()
	d := dynamic{folder: t.TempDir()}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", "envoy", "dynamic", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	bootstrap := read("bootstrap.yaml")
	_, cluster, found := strings.Cut(bootstrap, "    - name: sluice\n")
	if !found {
		t.Fatal("bootstrap.yaml does not end with the cluster sluice")
	}
	bootstrap += "    - name: " + nextCluster + "\n" +
		replace(t, cluster, "cluster_name: sluice", "cluster_name: "+nextCluster, "port_value: 9090", port(next))
	upstream, err := startUpstream()
	if err != nil {
		t.Fatal(err)
	}
	bootstrap = strings.ReplaceAll(bootstrap, "envoy/dynamic", d.folder)
	bootstrap = replace(t, bootstrap, "port_value: 9901", "port_value: 0", "port_value: 8080", port(upstream),
		"port_value: 9090", port(fleet.control))
	for name, text := range map[string]string{
		"lds.yaml":  replace(t, strings.ReplaceAll(read("lds.yaml"), "envoy/dynamic", d.folder), "port_value: 10000", "port_value: 0"),
		"ecds.yaml": replace(t, read("ecds.yaml"), "bin/sluice.wasm", fleet.wasm, "timeout_ms: 200", "timeout_ms: 1000"),
	} {
		if err := os.WriteFile(filepath.Join(d.folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.Envoy, err = rig.StartEnvoy(t.Context(), rig.EnvoyOptions{
		Binary: fleet.envoyBinary, Bootstrap: []byte(bootstrap), Concurrency: workerCount,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Stop)
	return d
}

// replace puts each second text in the place of the one before it, which has to be there exactly once.
func replace(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if n := strings.Count(text, pairs[i]); n != 1 {
			t.Fatalf("%q is there %d times, want 1:\n%s", pairs[i], n, text)
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

func port(address string) string {
	return "port_value: " + address[strings.LastIndexByte(address, ':')+1:]
}

// tell changes what the filter is told, as bootstrap.yaml says: by moving another file over ecds.yaml.
func (d dynamic) tell(t *testing.T, pairs ...string) {
	t.Helper()
	file, next := filepath.Join(d.folder, "ecds.yaml"), filepath.Join(d.folder, "next.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(next, []byte(replace(t, string(text), pairs...)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}

func (d dynamic) stat(t *testing.T, name string) int64 {
	t.Helper()
	stats, err := d.Stats(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	value, found := stats[name]
	if !found {
		t.Fatalf("Envoy has no statistic %s", name)
	}
	return value
}

// awaitLimit waits until the filter in every worker limits probes by a policy whose limit for them has that name.
func (d dynamic) awaitLimit(t *testing.T, name string) {
	t.Helper()
	headers := map[string]string{"x-probe": "probe"}
	if err := rig.AwaitFilter(t.Context(), d.Listener(envoy.Listener), headers, `"`+name+`"`, recoverWithin); err != nil {
		t.Fatalf("%v; Envoy printed:\n%s", err, last(d.Output(), 4000))
	}
}

// TestConfigurationChanges: the filter's configuration changes while requests pass.
func TestConfigurationChanges(t *testing.T) {
	serve(t, inMemory)
	d := startDynamic(t, startNext(t).GRPC)
	d.awaitLimit(t, "probe")
	t.Run("to another service and back", func(t *testing.T) { pace.Try(t, d.changeService) })
	t.Run("under a flood", func(t *testing.T) { pace.Try(t, d.changeUnderFlood) })
}

// changeService: the filter is told of another service, and of the first one again. Each time the other service's policy
// holds, in every worker; no request is answered with anything but what a policy says, no connection is cut, no listener is
// replaced. Configuration that the filter refuses changes nothing.
func (d dynamic) changeService(p *pace.Trial) {
	p.Helper()
	t := p.T
	const failed = "extension_config_discovery.http_filter.sluice.config_fail"
	failedBefore := d.stat(t, failed)
	flows := d.under(p, func() {
		const changes = 4
		clusters := [2]string{"control_cluster: sluice\n", "control_cluster: " + nextCluster + "\n"}
		limits := [2]string{"probe", "probe-next"}
		for change := range changes {
			began := time.Now()
			d.tell(t, clusters[change%2], clusters[(change+1)%2])
			d.awaitLimit(t, limits[(change+1)%2])
			t.Logf("change %d is in force in every worker after %v", change+1, time.Since(began).Round(time.Millisecond))
			time.Sleep(betweenChanges)
		}
		const good, bad = "timeout_ms: 1000", "timeout_ms: -4"
		d.tell(t, good, bad)
		d.awaitStat(t, failed, failedBefore+1)
		d.awaitLimit(t, limits[changes%2])
		d.tell(t, bad, good)
	})
	if flows[0].denied+flows[2].denied > 0 {
		t.Error("want probes and what no limit is over to be admitted always")
	}
	if len(flows[0].admitted) == 0 || flows[1].denied == 0 || len(flows[2].admitted) == 0 {
		p.Shortf("want probes and what no limit is over to be admitted, and some of the flood to be denied")
	}
	for name, want := range map[string]int64{
		failed: failedBefore + 1, "listener_manager.listener_modified": 0, "http.ingress.downstream_cx_destroy_local_active_rq": 0,
	} {
		if got := d.stat(t, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}

// changeUnderFlood: a filter that starts anew, again and again, lets no more through.
func (d dynamic) changeUnderFlood(p *pace.Trial) {
	p.Helper()
	t := p.T
	const reloads, base = "extension_config_discovery.http_filter.sluice.config_reload", 1000
	flows := d.under(p, func() {
		text := func(change int) string { return fmt.Sprintf("timeout_ms: %d\n", base+change) }
		const changes = 6
		for change := range changes {
			before := d.stat(t, reloads)
			d.tell(t, text(change), text(change+1))
			d.awaitStat(t, reloads, before+1)
			time.Sleep(betweenChanges)
		}
		d.tell(t, text(changes), text(0))
	})
	checkHeld(t, "flooded", flows[1].admitted, oracle.Rate{Units: 100, Window: time.Second})
}

// awaitStat waits until a statistic of Envoy's has come to a number.
func (d dynamic) awaitStat(t *testing.T, name string, want int64) {
	t.Helper()
	err := until(recoverWithin, func() error {
		if got := d.stat(t, name); got < want {
			return fmt.Errorf("%s is %d, want %d", name, got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// betweenChanges is long enough for a window's worth of requests.
const betweenChanges = 500 * time.Millisecond

// under does something while requests pass, every one of which must be admitted or denied; then it gives what became of the
// probes, of a flooded limit's, and of those that no limit is over.
func (d dynamic) under(p *pace.Trial, do func()) (flows [3]seen) {
	p.Helper()
	t := p.T
	sending, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		err := load.Run(sending, load.Options{
			Targets: []string{d.Listener(envoy.Listener)}, Timeout: answerWithin,
			Flows: []load.Flow{
				// Each of these waits for the service: some always do while the configuration changes.
				{Request: load.NewRequest("GET", "/", [][2]string{{"x-probe", "under load"}}, ""), Arrivals: poisson(200, 1), Connections: 8},
				{Request: request("GET", "/flood", p.Name), Arrivals: poisson(300, 2), Connections: 8},
				{Request: load.NewRequest("GET", "/free", nil, ""), Arrivals: poisson(100, 3), Connections: 4},
			},
			Observe: func(r load.Record) {
				flows[r.Flow].observe(r)
				if r.Status == 0 && !errors.Is(r.Err, load.ErrBehind) {
					t.Errorf("at %v, flow %d: %v", r.Left, r.Flow, r.Err)
				}
			},
		})
		if err != nil {
			t.Error(err)
		}
	})
	defer func() {
		stop()
		running.Wait()
		for i, name := range []string{"probes", "flooded", "free"} {
			flows[i].log(t, name)
			// A flooded limit's answer is 503 where a busy machine keeps the service from answering in time.
			if n := flows[i].refused; n > 0 && i == 1 {
				p.Shortf("%s: %d were answered neither with 200 nor with 429", name, n)
			} else if n > 0 {
				t.Errorf("%s: %d were answered neither with 200 nor with 429", name, n)
			}
		}
	}()
	do()
	return flows
}

// startNext starts a second service, whose limits have other names.
func startNext(t *testing.T) *rig.Service {
	t.Helper()
	// Beside the first one's: the file of its key is named from there.
	file := filepath.Join(fleet.directory, "next.yaml")
	text := strings.Replace(policy, "name: probe\n", "name: probe-next\n", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	service, err := rig.StartService(t.Context(), rig.ServiceOptions{Binary: fleet.sluice, Policy: file, Store: "memory"})
	if err != nil {
		t.Fatal(fmt.Errorf("a second service: %w", err))
	}
	t.Cleanup(service.Stop)
	return service
}
