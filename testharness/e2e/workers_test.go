package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"sluice/envoy"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
	"sluice/testharness/load"
	"sluice/testharness/oracle"
	"sluice/testharness/pace"
)

type object = map[string]any

// moreListeners is the file with the listeners that the Envoys have besides, which they watch. An Envoy takes seconds to compile
// the filter, and none to have it once more: under another root_id it is another worker in each of its threads.
func moreListeners() string { return filepath.Join(fleet.directory, "listeners.json") }

// watching gives a bootstrap whose Envoy watches that file, and writes it, with none in it.
func watching(b envoy.Bootstrap) ([]byte, error) {
	text, err := b.JSON()
	if err != nil {
		return nil, err
	}
	var tree object
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	tree["node"] = object{"id": "e2e", "cluster": "e2e"}
	tree["dynamic_resources"] = object{"lds_config": object{
		"resource_api_version": "V3", "path_config_source": object{"path": moreListeners()},
	}}
	if err := haveListeners(); err != nil {
		return nil, err
	}
	return json.Marshal(tree)
}

// haveListeners puts listeners into the file. Envoy reads it when another one is moved over it.
func haveListeners(listeners ...any) error {
	text, err := json.Marshal(object{"resources": append([]any{}, listeners...)})
	if err != nil {
		return err
	}
	if err := os.WriteFile(moreListeners()+".next", text, 0o600); err != nil {
		return err
	}
	return os.Rename(moreListeners()+".next", moreListeners())
}

// widen has each Envoy listen on so many addresses besides, each with workers of its own, and gives all addresses. The listeners go
// with the test; their workers stay for as long as Envoy drains, and see no request.
func widen(t *testing.T, times int) (addresses []string) {
	t.Helper()
	// Nobody waits for the last of the workers to have the policy: one that has none denies.
	bootstrap, err := envoy.Bootstrap{
		Upstream: fleet.upstream, Control: fleet.control, Wasm: fleet.wasm,
		Plugin: object{"control_cluster": envoy.ControlCluster, "timeout_ms": int(timeout.Milliseconds()), "without_policy": "deny"},
	}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var more []any
	var names []string
	for n := range times {
		names = append(names, "more-"+strconv.Itoa(n))
		var tree struct {
			Static struct {
				Listeners []json.RawMessage `json:"listeners"`
			} `json:"static_resources"`
		}
		if err := json.Unmarshal(bootstrap, &tree); err != nil {
			t.Fatal(err)
		}
		var listener object
		text := replace(t, string(tree.Static.Listeners[0]), `"root_id": "sluice"`, `"root_id": "`+names[n]+`"`)
		if err := json.Unmarshal([]byte(text), &listener); err != nil {
			t.Fatal(err)
		}
		listener["@type"], listener["name"] = "type.googleapis.com/envoy.config.listener.v3.Listener", names[n]
		more = append(more, listener)
	}
	t.Cleanup(func() {
		if err := haveListeners(); err != nil {
			t.Error(err)
		}
	})
	if err := haveListeners(more...); err != nil {
		t.Fatal(err)
	}
	for _, e := range fleet.envoys {
		for _, name := range append(names, envoy.Listener) {
			if err := until(recoverWithin, func() error {
				if err := e.FindListeners(t.Context()); err != nil || e.Listener(name) == "" {
					return fmt.Errorf("there is no listener %s: %w", name, err)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			addresses = append(addresses, e.Listener(name))
		}
	}
	return addresses
}

// TestSubLeases: one key under leases, at twice its limit, through two Envoys with 16 workers each. So many ask for it that the
// service holds leases of it and divides them: into parts for workers that expect more, and into units for requests that wait.
// No window holds more than the limit, no part outlives its lease, nor are there more units in the parts of a lease than it has;
// and Redis is asked for units less often than the service.
func TestSubLeases(t *testing.T) {
	serve(t, onRedis)
	addresses := widen(t, 7)
	pace.Try(t, func(p *pace.Trial) { subLeases(p, addresses) })
}

func subLeases(p *pace.Trial, addresses []string) {
	p.Helper()
	t := p.T
	rate := oracle.Rate{Units: 600, Window: time.Second}
	asks := func() float64 { return metric(t, "sluice_sync_asks_sum") }
	reserves := func() float64 { return metric(t, "sluice_store_seconds_count", `operation="reserve"`) }
	path := "/parted/" + p.Name
	asksBefore, reservesBefore, upstreamBefore := asks(), reserves(), fleet.upstreamHits.of(path)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var looking sync.WaitGroup
	parts := 0
	looking.Go(func() { parts = watchParts(ctx, t, "parted", p.Name) })
	var all seen
	err := load.Run(t.Context(), load.Options{
		Targets: addresses,
		Flows:   []load.Flow{{Request: request(http.MethodGet, path, p.Name), Arrivals: poisson(2*float64(rate.Units), 7), Connections: 4}},
		For:     3 * time.Second,
		Observe: all.observe,
	})
	cancel()
	looking.Wait()
	if err != nil {
		t.Fatal(err)
	}
	asked, reserved := asks()-asksBefore, reserves()-reservesBefore
	all.log(t, p.Name)
	checkHeld(t, p.Name, all.admitted, rate)
	if through := int(fleet.upstreamHits.of(path) - upstreamBefore); through < len(all.admitted) || through > len(all.admitted)+all.lost {
		t.Errorf("%d came through to the upstream, where clients saw %d, and %d no answer", through, len(all.admitted), all.lost)
	}
	share := float64(len(all.admitted)) / float64(load.Possible(all.left, rate))
	t.Logf("%.3f of the possible; %.0f asks of the service, %.0f times it asked Redis; at most %d parts out", share, asked, reserved, parts)
	if share < 0.9 || all.denied == 0 {
		p.Shortf("%.3f of the possible were admitted, %d denied", share, all.denied)
	}
	// Inspect tells of parts for workers. Where all that is given are units for requests that wait, Redis is asked for hardly any.
	if parts == 0 && reserved > asked/2 || reserved > asked*9/10 {
		p.Shortf("at most %d parts were out, and the service asked Redis %.0f times where it was asked %.0f times", parts, reserved, asked)
	}
}

// watchParts looks at a key's leases until the context ends, and gives the most parts of them that were out at once.
func watchParts(ctx context.Context, t *testing.T, limit, key string) (most int) {
	connection, err := grpc.NewClient(current.service.Admin, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Error(err)
		return 0
	}
	defer connection.Close()
	client := adminv1.NewAdminClient(connection)
	const spare = uint64(time.Millisecond / time.Microsecond) // between the store's clock and the service's
	for ctx.Err() == nil {
		told, err := client.Inspect(ctx, &adminv1.InspectRequest{Key: &adminv1.Key{Limit: limit, Key: key}})
		if err != nil {
			continue // it is over, or the store was not in time
		}
		parts := 0
		for _, lease := range told.GetLeases() {
			parts += len(lease.GetParts())
			units := uint64(0)
			for _, part := range lease.GetParts() {
				units += part.GetUnits()
				if part.GetEndIn() > lease.GetEndIn()+spare {
					t.Errorf("a part ends in %d µs, and its lease in %d", part.GetEndIn(), lease.GetEndIn())
					return most
				}
			}
			if units > lease.GetUnits() {
				t.Errorf("%d units are out in parts of a lease of %d", units, lease.GetUnits())
				return most
			}
		}
		most = max(most, parts)
		time.Sleep(5 * time.Millisecond)
	}
	return most
}
