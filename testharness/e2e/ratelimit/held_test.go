package ratelimit

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"sluice/testharness/load"
	"sluice/testharness/oracle"
	"sluice/testharness/pace"
)

// upstream notes when requests come, by their paths.
type upstream struct {
	began time.Time

	mu   sync.Mutex
	came map[string][]time.Duration
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.came == nil {
		u.came = map[string][]time.Duration{}
	}
	u.came[r.URL.Path] = append(u.came[r.URL.Path], time.Since(u.began))
	w.WriteHeader(http.StatusOK)
}

// of gives when those of a path came, each up to spare before it was noted.
func (u *upstream) of(path string, spare time.Duration) (came []oracle.Interval) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, at := range u.came[path] {
		came = append(came, oracle.Interval{Left: at - spare, Answered: at, Units: 1})
	}
	return came
}

// flow is what became of requests of one key.
type flow struct {
	admitted       []oracle.Interval
	denied, failed int
	// waited is of those admitted, refused of those denied.
	waited, refused load.Histogram
}

func (f *flow) observe(r load.Record) {
	switch {
	case errors.Is(r.Err, load.ErrBehind):
	case r.Admitted():
		f.admitted = append(f.admitted, oracle.Interval{Left: r.Left, Answered: r.Answered, Units: 1})
		f.waited.Add(r.Answered - r.Left)
	case r.Denied():
		f.denied++
		f.refused.Add(r.Answered - r.Left)
	default:
		f.failed++
	}
}

// send sends requests of a key to a listener, so many a second, under a path for each header that has the key.
func (f *fleet) send(p *pace.Trial, listener string, perSecond float64, lasts time.Duration, headers ...string) []flow {
	p.Helper()
	flows := make([]flow, len(headers))
	options := load.Options{
		Targets: []string{f.envoy.Listener(listener)}, For: lasts,
		Observe: func(r load.Record) { flows[r.Flow].observe(r) },
	}
	for i, header := range headers {
		options.Flows = append(options.Flows, load.Flow{
			Request:  load.NewRequest(http.MethodGet, path(p, header), [][2]string{{header, p.Name}}, ""),
			Arrivals: load.Poisson(perSecond, rand.New(rand.NewPCG(uint64(i), 7))), Connections: 32,
		})
	}
	if err := load.Run(p.Context(), options); err != nil {
		p.Fatal(err)
	}
	for i := range flows {
		r := &flows[i]
		p.Logf("%s: %d admitted, after %v at the median, %d denied, after %v and %v at most, %d failed", headers[i],
			len(r.admitted), r.waited.Quantile(0.5), r.denied, r.refused.Quantile(0.5), r.refused.Max(), r.failed)
	}
	return flows
}

func path(p *pace.Trial, header string) string { return "/" + p.Name + "/" + header }

// stats gives what the filter of a listener has counted.
func (f *fleet) stats(t *testing.T, listener string) (ok, over, failed, allowed int64) {
	t.Helper()
	prefix := "cluster.upstream.ratelimit." + listener + "."
	stats, err := f.envoy.Stats(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return stats[prefix+"ok"], stats[prefix+"over_limit"], stats[prefix+"error"], stats[prefix+"failure_mode_allowed"]
}

// judge: the requests of a flow held to one a window, whatever the machine's pace: so many windows in a row have admitted no more
// than so many. Envoy's filter let nothing pass but what the service admitted, and said so of the rest.
func (f *fleet) judge(t *testing.T, path string, r *flow, window time.Duration) {
	t.Helper()
	for windows := int64(1); windows <= 20; windows++ {
		if worst := oracle.WorstWindow(r.admitted, time.Duration(windows)*window); worst > windows {
			t.Errorf("%s: %d were admitted within %d windows of %v, where one may be in each", path, worst, windows, window)
		}
	}
	if came := len(f.upstream.of(path, 0)); came < len(r.admitted) || came > len(r.admitted)+r.failed {
		t.Errorf("%s: %d came through to the upstream, where clients saw %d, and %d had another answer or none", path, came, len(r.admitted), r.failed)
	}
}

// held: under max_wait, at twice the rate, Envoy's filter waits for the answers: those that a unit comes for in time are held until
// then, one after the other, and the others are denied at once.
func (f *fleet) held(p *pace.Trial) {
	const window, maxWait, lasts = 100 * time.Millisecond, 500 * time.Millisecond, 2500 * time.Millisecond
	const spare = 50 * time.Millisecond // a machine's, on the way from the service to the upstream
	ok, over, failed, allowed := f.stats(p.T, "long")
	headers := []string{"x-line", "x-bucket"}
	flows := f.send(p, "long", 20, lasts, headers...)
	var admitted, denied, errs int64
	for i := range flows {
		r, path := &flows[i], path(p, headers[i])
		f.judge(p.T, path, r, window)
		if worst := oracle.WorstWindow(f.upstream.of(path, spare), window); worst > 1 {
			p.Shortf("%s: %d came to the upstream within %v", path, worst, window-spare)
		}
		if n, least := len(r.admitted), int(lasts/window)*8/10; n < least || r.denied == 0 {
			p.Shortf("%s: %d were admitted and %d denied, want at least %d and some", path, n, r.denied, least)
		}
		if typical := r.waited.Quantile(0.5); typical < maxWait/4 || r.waited.Max() > maxWait+4*spare {
			p.Shortf("%s: those admitted waited for %v, at most %v, of %v", path, typical, r.waited.Max(), maxWait)
		}
		// One that was held, and whose unit the service came too late for, is denied late.
		if typical := r.refused.Quantile(0.5); typical > 2*spare {
			p.Shortf("%s: a denial took %v", path, typical)
		}
		admitted, denied, errs = admitted+int64(len(r.admitted)), denied+int64(r.denied), errs+int64(r.failed)
	}
	ok2, over2, failed2, allowed2 := f.stats(p.T, "long")
	if ok2-ok+over2-over < admitted+denied || ok2-ok+over2-over > admitted+denied+errs || allowed2 != allowed {
		p.Errorf("Envoy counts %d admitted, %d denied, %d let pass by an error; clients saw %d, %d and %d others",
			ok2-ok, over2-over, allowed2-allowed, admitted, denied, errs)
	}
	if failed2 != failed || errs > 0 {
		p.Shortf("%d were answered with an error, and %d seen so", failed2-failed, errs)
	}
}

// heldNoLonger: where Envoy's filter does not wait for as long as max_wait says, what it would give up is denied at once instead,
// with its wait.
func (f *fleet) heldNoLonger(p *pace.Trial) {
	const window, lasts = time.Second, time.Second
	const header = "x-patient"
	_, _, failed, allowed := f.stats(p.T, "short")
	r := &f.send(p, "short", 60, lasts, header)[0]
	f.judge(p.T, path(p, header), r, window)
	_, _, failed2, allowed2 := f.stats(p.T, "short")
	if allowed2 != allowed {
		p.Errorf("%d were let pass by an error", allowed2-allowed)
	}
	if failed2 != failed || r.failed > 0 {
		p.Shortf("%d were answered with an error, and %d seen so: want them denied in time", failed2-failed, r.failed)
	}
	if typical := r.refused.Quantile(0.5); len(r.admitted) == 0 || r.denied == 0 || typical > shortWait/2 {
		p.Shortf("%d admitted, %d denied, after %v: want denials at once", len(r.admitted), r.denied, typical)
	}
	for range 3 {
		status, told, _ := f.getAt(p.T, "short", header+"="+p.Name)
		retry, left := told.Get("Retry-After"), told.Get("X-Ratelimit-Remaining")
		switch {
		case status == http.StatusTooManyRequests && (retry != "1" && retry != "2" || left != "0"): // 2: after a lease that starts later
			p.Errorf("a denial tells to come again after %q s, with %q left", retry, left)
		case status != http.StatusTooManyRequests && status != http.StatusOK:
			p.Shortf("answered %d", status)
		}
	}
}
