package e2e

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"sluice/testharness/load"
	"sluice/testharness/oracle"
	"sluice/testharness/pace"
)

// seen is what a flow's client saw.
type seen struct {
	left     []time.Duration
	admitted []oracle.Interval
	// Of those that left, refused were answered neither 200 nor 429, lost not at all. Those behind never left: the machine did
	// not keep up with what was due.
	denied, refused, lost, behind int
	latency, admittedLatency      load.Histogram
}

func (s *seen) observe(r load.Record) {
	switch {
	case errors.Is(r.Err, load.ErrBehind):
		s.behind++
		return
	case r.Admitted():
		s.admitted = append(s.admitted, oracle.Interval{Left: r.Left, Answered: r.Answered, Units: 1})
		s.admittedLatency.Add(r.Latency())
	case r.Denied():
		s.denied++
	case r.Status != 0:
		s.refused++
	default:
		s.lost++
	}
	s.left = append(s.left, r.Left)
	s.latency.Add(r.Latency())
}

func (s *seen) log(t *testing.T, name string) {
	t.Helper()
	t.Logf("%s: %d sent, %d admitted, %d denied, %d refused, %d lost, %d behind; p50 %v, p99 %v, worst %v; of the admitted p50 %v, p99 %v", name,
		len(s.left), len(s.admitted), s.denied, s.refused, s.lost, s.behind,
		s.latency.Quantile(0.5), s.latency.Quantile(0.99), s.latency.Max(),
		s.admittedLatency.Quantile(0.5), s.admittedLatency.Quantile(0.99))
}

// checkHeld: no window held more than a rate's units.
func checkHeld(t *testing.T, name string, admissions []oracle.Interval, rates ...oracle.Rate) {
	t.Helper()
	for _, rate := range rates {
		worst := oracle.WorstWindow(admissions, rate.Window)
		t.Logf("%s: worst window %d of %d/%v", name, worst, rate.Units, rate.Window)
		if worst > rate.Units {
			t.Errorf("%s: %d were admitted within %v, where %d may be", name, worst, rate.Window, rate.Units)
		}
	}
}

func poisson(perSecond float64, seed uint64) load.Arrivals {
	return load.Poisson(perSecond, rand.New(rand.NewPCG(seed, 0)))
}

func request(method, path, tenant string) load.Request {
	return load.NewRequest(method, path, [][2]string{{"x-tenant-id", tenant}}, "")
}

// TestFlood: one key, fifteen times its limit, through both Envoys and all of their workers. At no instant had more than
// the limit been admitted within the window before it; hardly less than was possible was; and a tenant within its limit
// notices nothing.
func TestFlood(t *testing.T) {
	for _, store := range []struct {
		name string
		kind storeKind
	}{{"memory", inMemory}, {"redis", onRedis}} {
		t.Run(store.name, func(t *testing.T) {
			pace.Try(t, func(p *pace.Trial) { flood(p, store.kind, 4*time.Second) })
		})
	}
}

func flood(p *pace.Trial, store storeKind, lasts time.Duration) {
	p.Helper()
	t := p.T
	serve(t, store)
	rate := oracle.Rate{Units: 100, Window: time.Second}
	requestsBefore, callsBefore := filterStats(t, "requests"), filterStats(t, "calls")
	upstreamBefore := fleet.upstreamHits.of("/flood")
	admittedBefore, deniedBefore := counted(t, "flood")
	var flooding, calm seen
	err := load.Run(t.Context(), load.Options{
		Targets: listeners(),
		Flows: []load.Flow{
			{Request: request(http.MethodGet, "/flood", p.Name+"/flooding"), Arrivals: poisson(1500, 1), Connections: 12},
			{Request: request(http.MethodGet, "/flood", p.Name+"/calm"), Arrivals: poisson(40, 2), Connections: 4},
		},
		For:     lasts,
		Observe: func(r load.Record) { [2]*seen{&flooding, &calm}[r.Flow].observe(r) },
	})
	if err != nil {
		t.Fatal(err)
	}
	flooding.log(t, "flooding")
	calm.log(t, "calm")
	checkHeld(t, "flooding", flooding.admitted, rate)
	possible := load.Possible(flooding.left, rate)
	share := float64(len(flooding.admitted)) / float64(possible)
	t.Logf("admitted %d of %d possible: %.3f", len(flooding.admitted), possible, share)
	if share < 0.97 {
		p.Shortf("%.3f of the possible were admitted, want at least 0.97", share)
	}
	// On a busy machine a request may pass its time, and is then refused, as the limit says for that; and those within their
	// limit may come in heaps.
	sent, lost := len(flooding.left)+len(calm.left), flooding.lost+calm.lost
	if failed := flooding.refused + calm.refused + lost; failed > sent/100 || calm.denied > 0 {
		p.Shortf("%d of %d failed, and %d within their limit were denied", failed, sent, calm.denied)
	}
	all := len(flooding.admitted) + len(calm.admitted)
	if through := int(fleet.upstreamHits.of("/flood") - upstreamBefore); through < all || through > all+lost {
		t.Errorf("%d came through to the upstream, where clients saw %d, and %d no answer", through, all, lost)
	}
	awaitFilterStat(t, "requests", requestsBefore+int64(sent-lost))
	requests, calls := filterStats(t, "requests")-requestsBefore, filterStats(t, "calls")-callsBefore
	t.Logf("%d requests, %d calls: %.3f a request", requests, calls, float64(calls)/float64(requests))
	if calls > requests/2 {
		p.Shortf("%d calls for %d requests, most of which a standing denial answers", calls, requests)
	}
	checkCounted(t, "flood", admittedBefore, deniedBefore, all, sent, lost)
}

// counted is how many requests the service says a limit has admitted and denied, as the workers told it.
func counted(t *testing.T, limit string) (admitted, denied int) {
	t.Helper()
	of := func(result string) int {
		return int(metric(t, "sluice_decisions_total", `limit="`+limit+`"`, `result="`+result+`"`))
	}
	return of("admitted"), of("denied")
}

// checkCounted: the service's counters tell, to the last request, what the clients saw. Of those that were lost to a client's
// timeout it is not known whether they are among them.
func checkCounted(t *testing.T, limit string, admittedBefore, deniedBefore, admitted, all, lost int) {
	t.Helper()
	for deadline := time.Now().Add(recoverWithin); ; time.Sleep(50 * time.Millisecond) {
		a, d := counted(t, limit)
		a, d = a-admittedBefore, d-deniedBefore
		if a >= admitted && a <= admitted+lost && a+d >= all-lost && a+d <= all {
			t.Logf("counted: %d admitted, %d denied, as sent", a, d)
			return
		}
		if a > admitted+lost || a+d > all || time.Now().After(deadline) {
			t.Errorf("the service counted %d admitted and %d denied, where %d of %d were admitted", a, d, admitted, all)
			return
		}
	}
}
