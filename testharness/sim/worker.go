package sim

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"sluice/controlsvc/authority"
	"sluice/filter/host"
	"sluice/filter/plugin"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// worker is one Envoy worker thread: the proxy around the real filter core. It implements host.Proxy.
type worker struct {
	run    *run
	number int
	// life counts the reloads of the VM; what belongs to an earlier one is ignored.
	life   int
	plugin host.Plugin
	// The monotonic clock: where it began and its rate error in millionths.
	clockOrigin instant.Instant
	ppm         int64
	born        instant.Instant

	policy     *policy.Policy // the last one delivered
	cutUntil   instant.Instant
	streams    map[host.ContextID]*stream
	current    *stream
	lastStream host.ContextID
	lastCall   host.CallID
	lastTick   int
	calls      map[host.CallID]bool // true while it has not ended
	// ended is the call whose end is being told to the plugin: what it was granted as strict charges, by key.
	ended *answered
	ids   *rand.Rand
	syncs map[host.CallID]*inFlight
	// share is the worker's, as it was last told; 0 of 0: never. While it hears of one it may still go by the one before: for
	// requests whose time was up when the answer came.
	share, before authority.Share
	// failures counts the asks that were not answered since one was; stopped is when they were so many that the worker asked
	// nobody any more.
	failures int
	stopped  instant.Instant
	told     *life
}

// stream is one request on its way through the proxy.
type stream struct {
	id      host.ContextID
	tenant  string
	paid    bool // of that plan
	arrived instant.Instant
	bound   []boundKey
	paused  bool
	over    bool
	waited  bool
}

// boundKey is a key that a request is under, by the policy of its worker.
type boundKey struct{ limit, key string }

const pluginConfiguration = `{"control_cluster": "sluice", "timeout_ms": `

func (r *run) newWorker(number int) *worker {
	w := &worker{
		run: r, number: number,
		clockOrigin: instant.Instant(r.world.random.Int64N(1e12)),
		born:        r.world.now,
		ids:         rand.New(rand.NewPCG(r.scenario.Seed, uint64(number))),
	}
	if drift := r.scenario.Faults.Drift; drift > 0 {
		w.ppm = r.world.random.Int64N(2*drift+1) - drift
		if r.world.chance(0.5) { // as far off as it may be, either way
			w.ppm = []int64{-drift, drift}[r.world.random.IntN(2)]
		}
	}
	w.start()
	return w
}

// start begins a life of the VM.
func (w *worker) start() {
	w.life++
	w.streams, w.calls = map[host.ContextID]*stream{}, map[host.CallID]bool{}
	w.failures, w.stopped = 0, 0
	w.policy, w.syncs, w.share, w.before = nil, map[host.CallID]*inFlight{}, authority.Share{}, authority.Share{}
	w.told = &life{reports: map[uint64]*wire.Report{}, taken: map[uint64]bool{}}
	w.plugin = plugin.New(w)
	milliseconds := strconv.FormatInt(w.run.scenario.Timeout.Milliseconds(), 10)
	if !w.plugin.Start([]byte(pluginConfiguration + milliseconds + "}")) {
		panic("the plugin refuses its configuration")
	}
}

// reload is a VM that trapped: whoever waited is cut off, what was under way is forgotten.
func (w *worker) reload() {
	for _, s := range w.streams {
		s.over = true
	}
	w.told.crashed = true
	w.start()
}

// arrive brings a request of a tenant's.
func (w *worker) arrive(tenant string) {
	if w.policy == nil {
		return // nothing is limited before the first policy, and nothing is promised
	}
	w.lastStream++
	s := &stream{id: w.lastStream, tenant: tenant, arrived: w.run.world.now}
	if w.run.scenario.Paid > 0 {
		s.paid = w.ids.IntN(2) == 0
	}
	for _, l := range w.policy.Limits {
		s.bound = append(s.bound, boundKey{l.Name, keyOf(l, tenant)})
	}
	w.streams[s.id], w.current = s, s
	w.run.figures.Requests++
	w.run.ideal(s)
	action := w.plugin.RequestHeaders(s.id)
	w.current = nil
	switch {
	case s.over: // it was answered
	case action == host.Proceed:
		w.admitted(s)
	default:
		s.paused, s.waited = true, true
		w.run.figures.Waited++
		if w.run.world.chance(w.run.scenario.Faults.Leave) {
			life := w.life
			w.run.world.after(w.run.world.spread(5*time.Millisecond), func() { w.leave(life, s) })
		}
	}
}

// leave takes away the client of a request that waits.
func (w *worker) leave(life int, s *stream) {
	if life != w.life || !s.paused || s.over {
		return
	}
	w.told.ended[wire.Left]++
	w.end(s)
}

func (w *worker) end(s *stream) {
	s.over, s.paused = true, false
	w.plugin.Done(s.id)
	delete(w.streams, s.id)
}

// admitted releases a request to its upstream.
func (w *worker) admitted(s *stream) {
	w.run.noteLate(s)
	w.run.judge.admit(w, s)
	w.run.judge.inTurn(w, s)
	w.run.figures.Admitted++
	w.told.ended[wire.Admitted]++
	w.run.figures.ByWorker[w.number]++
	w.run.figures.Longest = max(w.run.figures.Longest, w.run.world.now.Sub(s.arrived))
	w.end(s)
}

// Now implements host.Proxy.
func (w *worker) Now() instant.Instant {
	passed := int64(w.run.world.now - w.born)
	return w.clockOrigin + instant.Instant(passed+passed*w.ppm/1_000_000)
}

// Random implements host.Proxy.
func (w *worker) Random() uint64 { return w.ids.Uint64() }

// Log implements host.Proxy.
func (w *worker) Log(host.Level, string) {}

// SetTick implements host.Proxy. Envoy's timers are late, never early.
func (w *worker) SetTick(period time.Duration) {
	life := w.life
	w.lastTick++
	serial := w.lastTick
	var tick func()
	tick = func() {
		if life != w.life || serial != w.lastTick {
			return
		}
		w.plugin.Tick()
		w.run.world.after(period+w.run.world.spread(time.Millisecond), tick)
	}
	if period > 0 {
		w.run.world.after(period, tick)
	}
}

// RequestHeader implements host.Proxy.
func (w *worker) RequestHeader(name string) (string, int) {
	switch {
	case w.current == nil:
		return "", 0
	case name == "x-tenant-id":
		return w.current.tenant, 1
	case name == "x-tier" && w.current.paid:
		return paidPlan, 1
	case name == ":authority":
		return "shop", 1
	case name == ":path":
		return "/", 1
	case name == ":method":
		return "GET", 1
	}
	return "", 0
}

// Property implements host.Proxy.
func (w *worker) Property(...string) (string, bool) { return "", false }

// AddResponseHeader implements host.Proxy.
func (w *worker) AddResponseHeader(string, string) {}

// Continue implements host.Proxy.
func (w *worker) Continue(id host.ContextID) bool {
	s := w.streams[id]
	if s == nil || !s.paused {
		w.run.judge.complain("worker %d continues stream %d, which does not wait", w.number, id)
		return false
	}
	w.admitted(s)
	return true
}

// Respond implements host.Proxy.
func (w *worker) Respond(id host.ContextID, status int, _ []host.Header, _ string, _ int) bool {
	s := w.streams[id]
	if s == nil || s.over {
		w.run.judge.complain("worker %d answers stream %d a second time, with %d", w.number, id, status)
		return false
	}
	w.run.figures.Denied++
	w.told.ended[wire.Denied]++
	w.run.noteLate(s)
	waited := w.run.world.now.Sub(s.arrived)
	if most := w.run.scenario.longestWait(); waited > most {
		w.run.judge.complain("a request waited %v, more than %v", waited, most)
	}
	if s == w.current {
		s.over = true
		delete(w.streams, id)
		return true
	}
	w.end(s)
	return true
}

// maxTickDelay is how late a deadline may be noticed.
const maxTickDelay = 100 * time.Millisecond

var errCluster = errors.New("no such cluster")

// Call implements host.Proxy.
func (w *worker) Call(cluster string, headers []host.Header, body []byte, timeout time.Duration) (host.CallID, error) {
	if cluster != "sluice" {
		return 0, errCluster
	}
	w.lastCall++
	id, life := w.lastCall, w.life
	w.calls[id] = true
	path := ""
	for _, h := range headers {
		if h[0] == ":path" {
			path = h[1]
		}
	}
	if path == "/sluice.v1.Control/Sync" {
		w.sentSync(id, body)
	}
	w.run.send(w, life, id, path, append([]byte(nil), body...))
	w.run.world.after(timeout, func() { w.callEnded(life, id, nil) })
	return id, nil
}

// callEnded tells the plugin that a call is over, once. No answer: it failed.
func (w *worker) callEnded(life int, id host.CallID, a *answered) {
	if life != w.life || !w.calls[id] {
		return
	}
	delete(w.calls, id)
	if a != nil && a.policy != nil {
		w.policy = a.policy
	}
	if w.syncs[id] != nil {
		w.noteAnswer(a)
	}
	w.syncEnded(id, a)
	if a != nil && a.response != nil && a.response.Workers > 0 {
		w.share = authority.Share{Workers: a.response.Workers, Rank: a.response.Rank}
	}
	w.ended = a
	w.plugin.CallEnded(id, reply{a})
	w.ended, w.before = nil, w.share
}

// noteAnswer notes whether the service has answered a Sync; one that asks for nothing says nothing of the store.
func (w *worker) noteAnswer(a *answered) {
	const most = 3
	failed := a == nil || a.response == nil
	if !failed {
		if len(a.response.Results) == 0 {
			return
		}
		failed = true
		for i := range a.response.Results {
			failed = failed && a.response.Results[i].Problem == wire.StoreProblem
		}
	}
	if !failed {
		w.failures = 0
		return
	}
	if w.failures++; w.failures >= most {
		w.stopped = w.run.world.now
	}
}

// Counter implements host.Proxy.
func (w *worker) Counter(string) host.Metric { return 0 }

// Gauge implements host.Proxy.
func (w *worker) Gauge(string) host.Metric { return 0 }

// Add implements host.Proxy.
func (w *worker) Add(host.Metric, int64) {}

// Record implements host.Proxy.
func (w *worker) Record(host.Metric, int64) {}

// reply is how a call ended, as the plugin reads it.
type reply struct{ a *answered }

func (r reply) Header(name string) (string, bool) {
	if r.a == nil || name != ":status" {
		return "", false
	}
	return "200", true
}

func (r reply) Trailer(name string) (string, bool) {
	if r.a == nil || name != "grpc-status" {
		return "", false
	}
	return "0", true
}

func (r reply) Body(limit int) ([]byte, bool) {
	if r.a == nil {
		return nil, true
	}
	return r.a.body, len(r.a.body) <= limit
}
