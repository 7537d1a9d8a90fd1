package telemetry

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/controlsvc/overlay"
	"sluice/controlsvc/store/memory"
	"sluice/controlsvc/traffic"
	"sluice/shared/instant"
)

// TestMetricsAreDocumented: docs/observability.md has every metric that there is, with its labels, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	m := NewMetrics()
	now := func() instant.Instant { return 0 }
	m.Store(memory.New(now, 1), now, nil, nil)
	m.Watch(func() int { return 0 }, func() int { return 0 })
	m.Traffic(func() traffic.Now { return traffic.Now{} })
	m.Overlay(func() overlay.Health { return overlay.Health{} })
	descriptions := make(chan *prometheus.Desc)
	go func() {
		m.registry.Describe(descriptions)
		close(descriptions)
	}()
	var there []string
	described := regexp.MustCompile(`fqName: "(sluice_\w+)".*variableLabels: \{([^}]*)\}`)
	for d := range descriptions {
		if found := described.FindStringSubmatch(d.String()); found != nil {
			there = append(there, found[1]+" "+strings.ReplaceAll(found[2], ",", ", "))
		}
	}
	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(sluice_\\w+)` \\| ([\\w, ]*)\\|").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, row[1]+" "+strings.TrimSpace(row[2]))
	}
	slices.Sort(there)
	slices.Sort(documented)
	if diff := cmp.Diff(there, documented); diff != "" || len(there) < 30 {
		t.Errorf("metrics and labels (-there +documented):\n%s", diff)
	}
}
