package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sluice/testharness/rig"
)

// matching is a policy under which the cost of finding a request's limit and key is measured: one limit binds the request.
type matching struct {
	listener, name string
	limits         int
	identities     string
}

// matchings are compared with the first.
var matchings = []matching{
	{"limits-1", "1 limit", 1, "tenant"},
	{"limits-100", "100 limits", 100, "tenant"},
	{"limits-10000", "10,000 limits", 10_000, "tenant"},
	{"identities-3", "1 limit, a key of three identities", 1, "tenant, client, route"},
}

// policy gives a file whose limits have a path each. The one in the middle is the one that binds.
func (m matching) policy() []byte {
	var b strings.Builder
	b.WriteString("domain: bench\nidentities:\n  tenant: {header: x-tenant-id}\n  probe: {header: x-probe}\n" +
		"  client: {address: {trusted_hops: 0}}\n  route: {path_template: ['/matched/{n}']}\nlimits:\n" +
		"- {name: probe, key: [probe], rates: [1000000/s], mode: strict}\n")
	for i := range m.limits {
		fmt.Fprintf(&b, "- {name: l%d, match: {path: {exact: /matched/%d}}, key: [%s], rates: [1000000/s]}\n", i, i, m.identities)
	}
	return []byte(b.String())
}

// contender is where such a policy is in force.
func (m matching) contender(service *rig.Process) contender {
	return contender{
		name: m.name, listener: m.listener, path: "/matched/" + strconv.Itoa(m.limits/2), status: http.StatusOK, service: service,
	}
}

// startMatchings starts a service for each policy, in memory.
func (f *fleet) startMatchings(ctx context.Context, to *addresses) error {
	directory, err := os.MkdirTemp("", "sluice-bench-")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { os.RemoveAll(directory) })
	to.control, to.global = map[string]string{}, "127.0.0.1:9" // nobody asks Envoy's global filter here
	for _, m := range matchings {
		file := filepath.Join(directory, m.listener+".yaml")
		if err := os.WriteFile(file, m.policy(), 0o600); err != nil {
			return err
		}
		service, err := rig.StartService(ctx, rig.ServiceOptions{Binary: f.sluice, Policy: file, Store: "memory"})
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		f.matchings = append(f.matchings, service)
		to.control[m.listener] = service.GRPC
	}
	return nil
}

// matchingTable gives the medians as Markdown.
func matchingTable(all []contender, samples [][]sample) string {
	var b strings.Builder
	b.WriteString("| | requests/s | ÷ 1 limit | CPU µs a request in Envoy | above 1 limit |\n| --- | --: | --: | --: | --: |\n")
	for i, c := range all {
		fmt.Fprintf(&b, "| %s | %.0f | %.2f | %.1f | %+.1f |\n", c.name,
			medianOf(samples[i], func(s sample) float64 { return s.perSecond }), pairedRatio(samples[i], samples[0]),
			medianOf(samples[i], micros(func(s sample) time.Duration { return s.envoy })), pairedExtra(samples[i], samples[0]))
	}
	return b.String()
}
