package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	"sluice/shared/admission"
	sluicev1 "sluice/shared/proto/sluice/v1"
	"sluice/testharness/rig"
)

// monitoring is where what Prometheus and Grafana are given is.
const monitoring = "../../envoy/prometheus"

func TestAlertRules(t *testing.T) {
	promtool, err := rig.FindPromtool(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		command := exec.CommandContext(t.Context(), promtool, args...)
		command.Dir = monitoring
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
}

// expressions gives those of the dashboard, by their panels, as Grafana would ask them of Prometheus.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(monitoring, "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				RefID string `json:"refId"`
				Expr  string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all[p.Title+" "+target.RefID] = strings.NewReplacer("$__rate_interval", "10s", "$limit", ".*").Replace(target.Expr)
		}
	}
	if len(all) < 20 {
		t.Fatalf("found %d expressions in the dashboard", len(all))
	}
	return all
}

// tallied is a report of everything that there is to report.
func tallied(id uint64) *sluicev1.Report {
	of := func(limit string, result sluicev1.Result, source admission.Source, count uint64) *sluicev1.Tally {
		return &sluicev1.Tally{Limit: limit, Route: "/v1", Window: 1e6, Result: result, Source: uint32(source), Count: count, Near: count / 10}
	}
	return &sluicev1.Report{
		ReportId: id, Age: id * 100_000, Span: 100_000, Away: 1000, Waits: 3, Waited: 6000,
		Tallies: []*sluicev1.Tally{
			of("tenant", sluicev1.Result_RESULT_ADMITTED, admission.FromLease, 100), of("tenant", sluicev1.Result_RESULT_DENIED, admission.FromDenial, 20),
			of("tenant", sluicev1.Result_RESULT_SHADOW_DENIED, admission.FromStore, 4), of("tenant", sluicev1.Result_RESULT_SHADOW_ADMITTED, admission.FromStore, 8),
		},
		UpstreamMicros: []uint32{1000, 2000, 40_000},
	}
}

// TestDashboard runs every expression of the dashboard against a Prometheus that asks a service at work: each has a number.
func TestDashboard(t *testing.T) {
	policy := strings.Replace(goodPolicy, "mode: strict", "mode: lease", 1)
	service := start(t, rig.ServiceOptions{Store: "memory", Policy: write(t, policy)})
	prometheus, err := rig.StartPrometheus(t.Context(), t.Output(), t.TempDir(), service.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(prometheus.Stop)
	client := sluicev1.NewControlClient(connect(t, service.GRPC, insecure.NewCredentials()))
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	working.Go(func() {
		for id := uint64(1); ctx.Err() == nil; id++ {
			_, err := client.Sync(ctx, &sluicev1.SyncRequest{
				WorkerId: 7, CallId: id, Active: true, Report: tallied(id),
				Asks: []*sluicev1.Ask{{Limit: "tenant", Key: "acme", Want: 5, Min: 1}},
			})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	left := expressions(t)
	eventually(t, func() error {
		var missing []error
		for where, expression := range left {
			values, err := prometheus.Query(t.Context(), expression)
			if err != nil {
				t.Fatal(err)
			}
			is := false
			for _, v := range values {
				is = is || !math.IsNaN(v) && !math.IsInf(v, 0)
			}
			if is {
				delete(left, where)
				continue
			}
			missing = append(missing, fmt.Errorf("%s is empty: %s", where, expression))
		}
		return errors.Join(missing...)
	})
}
