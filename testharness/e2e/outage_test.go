package e2e

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"sluice/testharness/load"
	"sluice/testharness/oracle"
)

// When things break and heal, from the start of the load; and from when on the outcome is the one chosen: a denial that
// stood before may stand for a second more, and three calls have to fail first.
const (
	breaksAt  = 1500 * time.Millisecond
	settledAt = 3200 * time.Millisecond
	healsAt   = 4200 * time.Millisecond
	// The breaker's pauses have grown to about the length of the outage by then.
	recoveredAt = healsAt + 4*time.Second
	endsAt      = recoveredAt + 1200*time.Millisecond
)

// answerWithin is timeout_ms and what a busy machine adds; two calls in a row, one after the other, would take longer.
const answerWithin = 200*time.Millisecond + 400*time.Millisecond

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
			r := serve(t, onRedis)
			defer r.redis.Resume()
			records := loadWith(t, map[time.Duration]func() error{
				breaksAt: func() error { return outage.breaks(r) },
				healsAt:  func() error { return outage.heal(r) },
			})
			for flow, choice := range choices {
				checkChoice(t, choice, records[flow])
			}
		})
	}
}

// choices are the limits' on_unavailable, which are also their paths.
var choices = []string{"local", "allow", "deny"}

// loadWith loads a limit of each choice with twice what it holds, and does something at instants of the run. It gives the
// records of each choice, in their order.
func loadWith(t *testing.T, actions map[time.Duration]func() error) [][]load.Record {
	t.Helper()
	records := make([][]load.Record, len(choices))
	var flows []load.Flow
	for i, choice := range choices {
		flows = append(flows, load.Flow{
			Name: choice, Request: request(http.MethodGet, "/"+choice, t.Name()), Arrivals: poisson(80, uint64(i)), Connections: 16,
		})
	}
	done := make(chan error, len(actions))
	for at, action := range actions {
		time.AfterFunc(at, func() { done <- action() }) // the run lasts longer
	}
	err := load.Run(t.Context(), load.Options{
		Targets: listeners(), Flows: flows, For: endsAt, Timeout: 3 * time.Second,
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

func checkChoice(t *testing.T, choice string, records []load.Record) {
	t.Helper()
	limit := oracle.Rate{Units: 40, Window: time.Second}
	before, away := between(records, 0, breaksAt-250*time.Millisecond), between(records, settledAt, healsAt)
	after, all := between(records, recoveredAt, endsAt), between(records, 0, endsAt)
	for name, n := range map[string]tally{"before": before, "away": away, "after": after, "all": all} {
		t.Logf("%s, %s: %d admitted, %d denied, %d unavailable, %d failed, slowest %v", choice, name,
			len(n.admitted), n.denied, n.unavailable, n.failed, n.slowest)
	}
	if all.slowest > answerWithin {
		t.Errorf("%s: a request took %v, want at most %v", choice, all.slowest, answerWithin)
	}
	if all.failed > 0 {
		t.Errorf("%s: %d requests got neither 200, 429 nor 503", choice, all.failed)
	}
	// Up to the outage and after it, the limit holds, and lets through.
	for name, n := range map[string]tally{"before": before, "after": after} {
		checkHeld(t, choice+", "+name, n.admitted, limit)
		if len(n.admitted) < 35 || n.denied == 0 || n.unavailable > 0 {
			t.Errorf("%s, %s: %d admitted, %d denied, %d unavailable", choice, name, len(n.admitted), n.denied, n.unavailable)
		}
	}
	switch choice {
	case "allow":
		if away.denied+away.unavailable > 0 || len(away.admitted) == 0 {
			t.Errorf("allow: %d admitted, %d denied, %d unavailable", len(away.admitted), away.denied, away.unavailable)
		}
	case "deny":
		if len(away.admitted)+away.denied > 0 || away.unavailable == 0 {
			t.Errorf("deny: %d admitted, %d denied, %d unavailable", len(away.admitted), away.denied, away.unavailable)
		}
	case "local":
		// Each worker at its share, so that all of them together stay near the limit.
		if len(away.admitted) < 20 || away.denied == 0 || away.unavailable > 0 {
			t.Errorf("local: %d admitted, %d denied, %d unavailable", len(away.admitted), away.denied, away.unavailable)
		}
		checkHeld(t, "local, away", away.admitted, limit)
	}
}

// TestClientsLeave: clients that go away while their requests wait for an answer disturb nobody, and cost the limit at most
// what they asked for.
func TestClientsLeave(t *testing.T) {
	r := serve(t, onRedis)
	defer r.redis.Resume()
	leftBefore := filterStats(t, "left")
	r.redis.Pause()
	var clients []*load.Client
	for i := range 60 {
		client := &load.Client{Address: listeners()[i%2], Timeout: 30 * time.Millisecond}
		if err := client.Connect(); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
	}
	for _, client := range clients {
		go func() { _, _ = client.Send(request(http.MethodGet, "/deny", "leaving"), func() {}) }() // it closes when its time is over
	}
	time.Sleep(400 * time.Millisecond)
	if left := filterStats(t, "left") - leftBefore; left < 20 {
		t.Errorf("%d requests were noted to have lost their clients, of 60", left)
	}
	r.redis.Resume()
	awaitPolicy(t, "probe")
	deadline := time.Now().Add(recoverWithin)
	for ask(t, 0, http.MethodGet, "/deny", "x-tenant-id", "leaving").status != http.StatusOK {
		if time.Now().After(deadline) {
			t.Fatal("nothing comes through any more")
		}
	}
	for _, e := range fleet.envoys {
		if e.Ended() || syscall.Kill(e.PID(), 0) != nil {
			t.Fatal("an Envoy has gone")
		}
	}
}
