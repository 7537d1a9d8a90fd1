package e2e

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/testharness/load"
	"sluice/testharness/oracle"
	"sluice/testharness/pace"
)

// TestReloadUnderLoad: the policy file is rewritten ten times a second under load through both Envoys; two limits go up and
// down, and a third comes and goes. No request is lost or answered with an error, and no window holds more than the larger of
// a limit's two rates.
func TestReloadUnderLoad(t *testing.T) {
	pace.Try(t, reloadUnderLoad)
}

func reloadUnderLoad(p *pace.Trial) {
	p.Helper()
	t := p.T
	serve(t, onRedis)
	lasts := longer(3*time.Second, 10*time.Second)
	const every = 100 * time.Millisecond
	low, high := oracle.Rate{Units: 60, Window: time.Second}, oracle.Rate{Units: 100, Window: time.Second}
	base := strings.TrimRight(policy, "\n") + "\n"
	reloaded := func(rate, mode string) string {
		name := "reloaded-" + mode
		return "  - {name: " + name + ", match: {path: {prefix: /" + name + "}}, key: [tenant], rates: [" + rate + "], mode: " + mode + "}\n"
	}
	const third = "  - {name: passing, match: {path: {prefix: /reloaded}}, key: [tenant], rates: [1000000/s]}\n"
	versions := []string{
		base + reloaded("60/s", "strict") + reloaded("100/s", "lease"),
		base + reloaded("100/s", "strict") + third + reloaded("60/s", "lease"),
		base + third + reloaded("60/s", "lease") + reloaded("60/s", "strict"),
		base + reloaded("100/s", "lease") + reloaded("100/s", "strict"),
	}
	defer func() {
		reloadPolicy(t, policy)
		awaitPolicy(t, "probe")
	}()
	reloadPolicy(t, versions[0])
	for _, path := range []string{"/reloaded-strict", "/reloaded-lease"} {
		awaitLimited(t, path)
	}
	applied := func() float64 { return metric(t, "sluice_policy_reloads_total", `result="applied"`) }
	before := applied()
	aloneBefore, err := fallbacks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	requestsBefore := filterStats(t, "requests")
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	written := make(chan error, 1)
	go func() { written <- rewrite(ctx, versions, every) }()
	var strict, lease seen
	bad := map[int]int{}
	err = load.Run(t.Context(), load.Options{
		Targets: listeners(),
		Flows: []load.Flow{
			{Request: request(http.MethodGet, "/reloaded-strict", p.Name), Arrivals: poisson(150, 21), Connections: 16},
			{Request: request(http.MethodGet, "/reloaded-lease", p.Name), Arrivals: poisson(150, 22), Connections: 16},
		},
		For: lasts, Timeout: answerWithin,
		Observe: func(r load.Record) {
			[2]*seen{&strict, &lease}[r.Flow].observe(r)
			if !r.Admitted() && !r.Denied() && !errors.Is(r.Err, load.ErrBehind) {
				bad[r.Status]++
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	after := applied()
	awaitFilterStat(t, "requests", requestsBefore+int64(len(strict.left)+len(lease.left)))
	alone, err := fallbacks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v policies were put in force within %v", after-before, lasts)
	if want := 0.5 * lasts.Seconds() / every.Seconds(); after-before < want {
		p.Shortf("%v policies were put in force, want at least %v", after-before, want)
	}
	if len(bad) > 0 {
		t.Errorf("answers by status that are neither 200 nor 429, 0 for none: %v", bad)
	}
	if n := alone - aloneBefore; n > 0 { // a busy machine: what a worker admits of its share may come on top
		t.Logf("%d decisions were the workers' own, for the service did not answer in time", n)
		high.Units += n
	}
	for name, s := range map[string]*seen{"strict": &strict, "lease": &lease} {
		s.log(t, name)
		checkHeld(t, name, s.admitted, high)
		if least := int(float64(low.Units) * lasts.Seconds() * 0.8); len(s.admitted) < least {
			p.Shortf("%s: %d were admitted within %v, want at least %d", name, len(s.admitted), lasts, least)
		}
	}
}

// rewrite writes the policy file anew so often, with one version after the other, until the context ends.
func rewrite(ctx context.Context, versions []string, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := 1; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		file := filepath.Join(fleet.directory, "policy.yaml")
		if err := os.WriteFile(file, []byte(versions[i%len(versions)]), 0o600); err != nil {
			return err
		}
	}
}

// awaitLimited waits until both Envoys' workers, as far as can be told from outside, limit a path.
func awaitLimited(t *testing.T, path string) {
	t.Helper()
	deadline := time.Now().Add(recoverWithin)
	for inARow := 0; inARow < 12*envoyCount; inARow++ {
		if ask(t, inARow%envoyCount, http.MethodGet, path, "x-tenant-id", "await").header.Get("ratelimit-policy") != "" {
			continue
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is under no limit", path)
		}
		inARow = -1
		time.Sleep(20 * time.Millisecond)
	}
}
