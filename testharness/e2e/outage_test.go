package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/testharness/load"
	"sluice/testharness/oracle"
	"sluice/testharness/pace"
)

// When things break and heal, from the start of the load; and from when on the outcome is the one chosen: a denial that
// stood before may stand for a second more, and three calls have to fail first, which are under way at once.
const (
	breaksAt  = 1300 * time.Millisecond
	settledAt = breaksAt + timeout + 1300*time.Millisecond
	healsAt   = settledAt + 1250*time.Millisecond
	// The breaker's pauses have grown to a second by then, and Envoy may have to find out that its connection is dead.
	recoveredAt = healsAt + 3500*time.Millisecond
	endsAt      = recoveredAt + 1200*time.Millisecond
)

// waitsAtMost is the filter's timeout and what a busy machine adds; two calls in a row, one after the other, would take longer.
const waitsAtMost = timeout + 900*time.Millisecond

// TestOutage: the service or its store goes away under load and comes back. No request waits longer than its timeout, each
// limit does what was chosen for it, and afterwards all hold again.
func TestOutage(t *testing.T) {
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
			"the service stands still",
			func(r *running) error { r.service.Pause(); return nil },
			func(r *running) error { r.service.Resume(); return nil },
		},
		{
			"redis stands still",
			func(r *running) error { r.redis.Pause(); return nil },
			func(r *running) error { r.redis.Resume(); return nil },
		},
	} {
		t.Run(outage.name, func(t *testing.T) {
			pace.Try(t, func(p *pace.Trial) {
				r := serve(t, onRedisBriskly)
				defer r.redis.Resume()
				records := loadWith(p, map[time.Duration]func() error{
					breaksAt: func() error { return outage.breaks(r) },
					healsAt:  func() error { return outage.heal(r) },
				})
				for flow, choice := range choices {
					checkChoice(p, choice, records[flow])
				}
			})
		})
	}
}

// choices are the limits' on_unavailable, which are also their paths.
var choices = []string{"local", "allow", "deny"}

// loadWith loads a limit of each choice with twice what it holds, and does something at instants of the run. It gives the
// records of each choice, in their order.
func loadWith(p *pace.Trial, actions map[time.Duration]func() error) [][]load.Record {
	p.Helper()
	t := p.T
	records := make([][]load.Record, len(choices))
	var flows []load.Flow
	for i, choice := range choices {
		flows = append(flows, load.Flow{
			Name: choice, Request: request(http.MethodGet, "/"+choice, p.Name), Arrivals: poisson(80, uint64(i)), Connections: 64,
		})
	}
	done := make(chan error, len(actions))
	for at, action := range actions {
		time.AfterFunc(at, func() { done <- action() }) // the run lasts longer
	}
	err := load.Run(t.Context(), load.Options{
		Targets: listeners(), Flows: flows, For: endsAt, Timeout: answerWithin,
		Observe: func(r load.Record) { records[r.Flow] = append(records[r.Flow], r) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for range actions {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	return records
}

// tally counts outcomes.
type tally struct {
	admitted                    []oracle.Interval
	denied, unavailable, failed int
	slowest                     time.Duration
}

// between tallies the requests that left from one instant on and before another.
func between(records []load.Record, from, to time.Duration) tally {
	var n tally
	for _, r := range records {
		if r.Left < from || r.Left >= to {
			continue
		}
		switch {
		case errors.Is(r.Err, load.ErrBehind):
			continue // it never left: the machine did not keep up with what was due
		case r.Admitted():
			n.admitted = append(n.admitted, oracle.Interval{Left: r.Left, Answered: r.Answered, Units: 1})
		case r.Denied():
			n.denied++
		case r.Status == http.StatusServiceUnavailable:
			n.unavailable++
		default:
			n.failed++
		}
		n.slowest = max(n.slowest, r.Latency())
	}
	return n
}

// checkChoice judges a limit. Where a busy machine keeps a worker waiting at another time than in the outage, the choice holds
// there too: only "deny" lets no window have more then.
func checkChoice(p *pace.Trial, choice string, records []load.Record) {
	p.Helper()
	t := p.T
	limit := oracle.Rate{Units: 40, Window: time.Second}
	// What leaves just before a change may be decided after it.
	const spare = 250 * time.Millisecond
	before, away := between(records, 0, breaksAt-spare), between(records, settledAt, healsAt-spare)
	after, all := between(records, recoveredAt, endsAt), between(records, 0, endsAt)
	for name, n := range map[string]tally{"before": before, "away": away, "after": after, "all": all} {
		t.Logf("%s, %s: %d admitted, %d denied, %d unavailable, %d failed, slowest %v", choice, name,
			len(n.admitted), n.denied, n.unavailable, n.failed, n.slowest)
	}
	if all.failed > 0 {
		t.Errorf("%s: %d requests got neither 200, 429 nor 503", choice, all.failed)
	}
	if all.slowest > waitsAtMost {
		p.Shortf("%s: a request took %v, want at most %v", choice, all.slowest, waitsAtMost)
	}
	// Up to the outage and after it, the limit holds, and lets through.
	for name, n := range map[string]tally{"before": before, "after": after} {
		if choice == "deny" {
			checkHeld(t, choice+", "+name, n.admitted, limit)
		} else if worst := oracle.WorstWindow(n.admitted, limit.Window); worst > limit.Units {
			p.Shortf("%s, %s: %d were admitted within %v, where %d may be", choice, name, worst, limit.Window, limit.Units)
		}
		if len(n.admitted) < 35 || n.denied == 0 || n.unavailable > 0 {
			p.Shortf("%s, %s: %d admitted, %d denied, %d unavailable", choice, name, len(n.admitted), n.denied, n.unavailable)
		}
	}
	switch choice {
	case "allow":
		if away.denied+away.unavailable > 0 || len(away.admitted) == 0 {
			p.Shortf("allow: %d admitted, %d denied, %d unavailable", len(away.admitted), away.denied, away.unavailable)
		}
	case "deny":
		if len(away.admitted)+away.denied > 0 || away.unavailable == 0 {
			p.Shortf("deny: %d admitted, %d denied, %d unavailable", len(away.admitted), away.denied, away.unavailable)
		}
	case "local":
		// Each worker at its share, so that all of them together stay near the limit.
		if len(away.admitted) < 20 || away.denied == 0 || away.unavailable > 0 {
			p.Shortf("local: %d admitted, %d denied, %d unavailable", len(away.admitted), away.denied, away.unavailable)
		}
		if worst := oracle.WorstWindow(away.admitted, limit.Window); worst > limit.Units {
			p.Shortf("local, away: %d were admitted within %v, where %d are near the limit", worst, limit.Window, limit.Units)
		}
	}
}

// TestClientsLeave: clients that go away while their requests wait for an answer disturb nobody, and cost the limit at most
// what they asked for.
func TestClientsLeave(t *testing.T) {
	r := serve(t, onRedis)
	defer r.service.Resume()
	pace.Try(t, func(p *pace.Trial) {
		clientsLeave(p, r)
		r.service.Resume()
		awaitPolicy(t, "probe")
	})
	awaitRecovery(t, "/deny", "leaving")
	for _, e := range fleet.envoys {
		if e.Ended() || syscall.Kill(e.PID(), 0) != nil {
			t.Fatal("an Envoy has gone")
		}
	}
}

// clientsLeave has sixty clients ask a service that stands still, and leave.
func clientsLeave(p *pace.Trial, r *running) {
	p.Helper()
	t := p.T
	leftBefore := filterStats(t, "left")
	r.service.Pause()
	var clients []*load.Client
	for i := range 60 {
		client := &load.Client{Address: listeners()[i%2], Timeout: 30 * time.Millisecond}
		if err := client.Connect(); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
	}
	var sending sync.WaitGroup
	for _, client := range clients {
		sending.Go(func() { _, _ = client.Send(request(http.MethodGet, "/deny", "leaving"), func() {}) }) // it closes when its time is over
	}
	sending.Wait()
	err := until(5*time.Second, func() error {
		if left := filterStats(t, "left") - leftBefore; left < 20 {
			return fmt.Errorf("%d requests were noted to have lost their clients, of 60", left)
		}
		return nil
	})
	if err != nil { // they came after those that wait had been given up
		p.Shortf("%v", err)
	}
}
