package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"sluice/testharness/load"
	"sluice/testharness/oracle"
	"sluice/testharness/pace"
)

// hotRate is the limit of a key that all workers share, in leases.
var hotRate = oracle.Rate{Units: 500, Window: time.Second}

// TestHotKey: one key under leases through two Envoys with two workers each, at half of its limit and at twice. No window
// holds more than the limit, hardly less than was possible is admitted, and few requests cost a call.
func TestHotKey(t *testing.T) {
	for _, test := range []struct {
		name string
		load float64
	}{{"half", 0.5}, {"twice", 2}} {
		t.Run(test.name, func(t *testing.T) {
			pace.Try(t, func(p *pace.Trial) { hotKey(p, test.load*float64(hotRate.Units)) })
		})
	}
}

func hotKey(p *pace.Trial, perSecond float64) {
	p.Helper()
	t := p.T
	serve(t, onRedis)
	callsBefore := metric(t, "sluice_sync_total")
	var hot seen
	err := load.Run(t.Context(), load.Options{
		Targets: listeners(),
		Flows:   []load.Flow{{Request: request(http.MethodGet, "/hot", p.Name), Arrivals: poisson(perSecond, 7), Connections: 16}},
		For:     longer(4*time.Second, time.Minute),
		Observe: hot.observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	callsAfter := metric(t, "sluice_sync_total")
	hot.log(t, p.Name)
	checkHeld(t, p.Name, hot.admitted, hotRate)
	possible := load.Possible(hot.left, hotRate)
	share, calls := float64(len(hot.admitted))/float64(possible), (callsAfter-callsBefore)/float64(len(hot.left))
	t.Logf("%.3f of the %d possible, %.4f calls a request", share, possible, calls)
	if share < 0.95 {
		p.Shortf("%.3f of the possible were admitted, want at least 0.95", share)
	}
	if calls > 0.1 {
		p.Shortf("%.4f calls a request, want at most 0.1", calls)
	}
	if failed := hot.refused + hot.lost; failed > len(hot.left)/100 { // one in a hundred may pass its timeout
		p.Shortf("%d of %d failed", failed, len(hot.left))
	}
}

// longer gives the second duration where SLUICE_LONG asks for tests that take their time.
func longer(short, long time.Duration) time.Duration {
	if os.Getenv("SLUICE_LONG") != "" {
		return long
	}
	return short
}

// healsWithin is how long the workers may take to ask again once there is somebody to ask.
const healsWithin = 2 * time.Second

// TestLeasesOutage: the service is killed, and Redis stands still, under load on a key whose units are leased. Workers go on
// by themselves at their shares: no request waits longer than its timeout, in all no more is admitted than the limit allows
// and once more, readiness says how it is, and two seconds after the end of it nobody goes by himself any more.
func TestLeasesOutage(t *testing.T) {
	for _, outage := range []struct {
		name         string
		breaks, heal func(r *running) error
	}{
		{
			"the service is killed",
			func(r *running) error { r.service.Kill(); return nil },
			func(*running) error { return startService(fleet.control) },
		},
		{
			"redis stands still",
			func(r *running) error { r.redis.Pause(); return nil },
			func(r *running) error { r.redis.Resume(); return nil },
		},
	} {
		t.Run(outage.name, func(t *testing.T) {
			pace.Try(t, func(p *pace.Trial) { leasesOutage(p, outage.breaks, outage.heal) })
		})
	}
}

func leasesOutage(p *pace.Trial, breaks, heal func(r *running) error) {
	p.Helper()
	t := p.T
	r := serve(t, onRedisBriskly)
	defer r.redis.Resume()
	const before, after = 2 * time.Second, 2 * time.Second
	const settles = timeout + 200*time.Millisecond // within which those who wait for an answer have given up
	lasts := longer(3*time.Second, 10*time.Second)
	rate := oracle.Rate{Units: 200, Window: time.Second}
	var all seen
	var records []load.Record
	var healed, checked time.Duration // when these were done, counted as the records are
	var atHeal, atCheck, atEnd int64
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	story := make(chan error, 1)
	go func() {
		defer cancel()
		story <- inOrder(
			func() error { time.Sleep(before); return breaks(r) },
			func() error { time.Sleep(lasts); return awaitReady(r, false) },
			func() error { return heal(r) },
			func() (err error) { healed = time.Since(began); atHeal, err = fallbacks(t.Context()); return err },
			// The filter's counters come with a tick.
			func() error { time.Sleep(healsWithin + 200*time.Millisecond); return awaitReady(r, true) },
			func() (err error) { checked = time.Since(began); atCheck, err = fallbacks(t.Context()); return err },
			func() (err error) { time.Sleep(after); atEnd, err = fallbacks(t.Context()); return err },
		)
	}()
	before0, err := fallbacks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = load.Run(ctx, load.Options{
		Targets: listeners(), Timeout: answerWithin,
		Flows: []load.Flow{{
			Request: request(http.MethodGet, "/leased", p.Name), Arrivals: poisson(2*float64(rate.Units), 11), Connections: 100,
		}},
		Observe: func(r load.Record) { all.observe(r); records = append(records, r) },
	})
	if err := errors.Join(err, <-story); err != nil {
		t.Fatal(err)
	}
	all.log(t, "all")
	away, since := between(records, before+settles, before+lasts), between(records, checked, time.Hour)
	t.Logf("healed at %v; %d admitted while away, %d after it; decided by the workers themselves: %d, then %d until all had recovered",
		healed, len(away.admitted), len(since.admitted), atHeal-before0, atCheck-atHeal)
	if all.lost+all.refused > 0 {
		t.Errorf("%d requests were not answered, %d neither with 200 nor with 429", all.lost, all.refused)
	}
	if all.latency.Max() > waitsAtMost {
		p.Shortf("a request took %v, want at most %v", all.latency.Max(), waitsAtMost)
	}
	windows := int64(records[len(records)-1].Answered/rate.Window) + 1
	t.Logf("%d admitted in %d windows", len(all.admitted), windows)
	if most := rate.Units * (windows + 1); int64(len(all.admitted)) > most { // besides, a busy machine's workers go on by themselves
		p.Shortf("%d were admitted within %d windows, want at most %d", len(all.admitted), windows, most)
	}
	if atHeal == before0 || float64(len(away.admitted)) < 0.5*float64(rate.Units)*(lasts-settles).Seconds() {
		p.Shortf("%d decisions by the workers themselves, %d admitted while away: want them to go on", atHeal-before0, len(away.admitted))
	}
	if atEnd != atCheck {
		p.Shortf("%d decisions by the workers themselves more than %v after the end of the outage", atEnd-atCheck, healsWithin)
		rate.Units += atEnd - atCheck
	}
	checkHeld(t, "after", since.admitted, rate)
	if float64(len(since.admitted)) < 0.9*float64(rate.Units)*after.Seconds() {
		p.Shortf("%d admitted in the %v after it", len(since.admitted), after)
	}
}

// inOrder does steps until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// fallbacks counts the decisions that the workers made without the service.
func fallbacks(ctx context.Context) (int64, error) {
	var sum int64
	for _, e := range fleet.envoys {
		for _, name := range []string{"wasmcustom.sluice.admitted.fallback", "wasmcustom.sluice.denied.fallback"} {
			stats, err := e.Stats(ctx, name)
			if err != nil {
				return 0, err
			}
			sum += stats[name]
		}
	}
	return sum, nil
}

// awaitReady waits until the service says that it is ready, or not; one that does not answer is not.
func awaitReady(r *running, want bool) error {
	client := http.Client{Timeout: answerWithin, Transport: &http.Transport{DisableKeepAlives: true}}
	return until(recoverWithin, func() error {
		response, err := client.Get("http://" + r.service.HTTP + "/readyz")
		is := false
		if err == nil {
			response.Body.Close()
			is = response.StatusCode == http.StatusOK
		}
		if is != want {
			return fmt.Errorf("readiness is %v, want %v: %v, %w", is, want, response, err)
		}
		return nil
	})
}
