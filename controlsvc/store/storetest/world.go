package storetest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/controlsvc/authority"
	"sluice/shared/limit"
	"sluice/testharness/oracle"
)

// stepsOfWorld is how many steps one drawn world lives: a hundred worlds make more than ten thousand.
const stepsOfWorld = 120

// testLikeOracle: under random costs, arrivals, lost answers, repeats and reports in any order the store says exactly what
// the oracle says, and what is spent keeps to every rate.
func testLikeOracle(t *testing.T, h Harness) {
	t.Helper()
	testWorlds(t, h, false)
}

// testClockStepsBack: where the store's clock steps back now and then, no window of the time that really passes holds more
// than the limit.
func testClockStepsBack(t *testing.T, h Harness) {
	t.Helper()
	testWorlds(t, h, true)
}

func testWorlds(t *testing.T, h Harness, stepsBack bool) {
	t.Helper()
	if !h.needsClock(t) {
		return
	}
	var worlds, steps int
	rapid.Check(t, func(rt *rapid.T) {
		worlds++
		w := newWorld(t, rt, h, fmt.Sprintf("world/%v/%d", stepsBack, worlds))
		if stepsBack {
			w.oracle = nil
		}
		for range stepsOfWorld {
			w.step(rt)
			w.check(rt)
			steps++
		}
	})
	t.Logf("%d worlds, %d steps", worlds, steps)
}

// world is one key, the workers that hold its leases, and the network between them and the store.
type world struct {
	h      Harness
	key    authority.Key
	oracle limiter // nil where the store's clock steps back: then it cannot follow
	// now is the time that has really passed since 1970, as far as the store knew when the world began.
	now   time.Duration
	calls int

	held    []*heldLease
	reports []report // under way, or to be repeated
	given   []string // calls that were given up: their answers admit nothing
	// charges are how many there were; order has, of each call and of each lease, how many there were before it.
	charges int
	order   map[string]int
	retryAt []time.Duration
	spent   []oracle.Interval
}

// heldLease is what a worker may spend: from start, until end.
type heldLease struct {
	name       string
	number     int
	left       int64
	start, end time.Duration
	uses       []oracle.Use
}

// report is a settle as it was sent: its ages are those of the sending.
type report struct {
	settle authority.Settle
	number int
}

func newWorld(t *testing.T, rt *rapid.T, h Harness, name string) *world {
	t.Helper()
	w := &world{h: h, key: h.key(name), now: *h.read, order: map[string]int{}}
	var rates []oracle.Rate
	for range rapid.IntRange(1, 3).Draw(rt, "rates") {
		w.key.Rates = append(w.key.Rates, drawRate(rt))
	}
	for _, r := range w.key.Rates {
		rates = append(rates, oracle.Rate{Units: r.Units, Window: r.Window})
	}
	w.oracle = h.expected.oracle(rates...)
	return w
}

// step does one thing.
func (w *world) step(t *rapid.T) {
	actions := []func(*rapid.T){
		w.pass, w.pass, w.reserve, w.reserve, w.reserve, w.spend, w.spend, w.spend, w.retire, w.retire, w.deliver, w.deliver,
		w.cancel, w.record, w.peek,
	}
	if rapid.IntRange(0, 199).Draw(t, "rare") == 0 {
		w.reset(t)
		return
	}
	actions[rapid.IntRange(0, len(actions)-1).Draw(t, "action")](t)
}

// check is the guarantee.
func (w *world) check(t *rapid.T) {
	for _, r := range w.key.Rates {
		if got := oracle.WorstWindow(w.spent, r.Window); got > w.h.expected.most(r) {
			t.Fatalf("%d units were spent within one window of %v", got, r)
		}
		if !w.h.expected.flows {
			continue
		}
		if got := oracle.MostMissing(w.spent, oracle.Rate{Units: r.Units, Window: r.Window}); got > r.Most() {
			t.Fatalf("%d units were missing at once, of a bucket of %v", got, r)
		}
	}
}

// pass lets time pass: a little, much, or until just before, or exactly, something becomes free.
func (w *world) pass(t *rapid.T) {
	d := time.Duration(rapid.IntRange(0, 40_000).Draw(t, "µs")) * micro
	switch rapid.IntRange(0, 5).Draw(t, "how far") {
	case 0:
		d = time.Duration(rapid.IntRange(0, 2).Draw(t, "few µs")) * micro
	case 1, 2:
		if len(w.retryAt) > 0 {
			at := rapid.SampledFrom(w.retryAt).Draw(t, "until") - time.Duration(rapid.IntRange(0, 1).Draw(t, "early"))*micro
			d = max(0, at-w.now)
		}
	}
	w.retryAt = slices.DeleteFunc(w.retryAt, func(at time.Duration) bool { return at <= w.now+d })
	w.now += d
	w.h.Advance(d)
	if w.oracle == nil && rapid.IntRange(0, 9).Draw(t, "step back") == 0 {
		w.h.Advance(-time.Duration(rapid.IntRange(1, 100_000).Draw(t, "back")) * micro)
	}
}

func (w *world) reserve(t *rapid.T) {
	most := w.key.Rates[0].Units
	least := rapid.Int64Range(1, 3).Draw(t, "min")
	r := authority.Reserve{Key: w.key, Want: least + rapid.Int64Range(0, most).Draw(t, "more"), Min: least}
	w.calls++
	r.Call = fmt.Sprintf("call-%d", w.calls)
	if rapid.Bool().Draw(t, "lease") {
		r.TTL = time.Duration(rapid.IntRange(1, 30_000).Draw(t, "ttl")) * micro
		r.Horizon = time.Duration(rapid.SampledFrom([]int{0, 1_000, 50_000}).Draw(t, "horizon")) * micro
	}
	late := rapid.IntRange(0, 4).Draw(t, "its answer is late") == 0
	for late && rapid.Bool().Draw(t, "executed before") {
		w.execute(t, r) // the answer was lost, and the reserve repeated
	}
	if late && rapid.Bool().Draw(t, "cancelled before") {
		w.cancelCall(t, r.Call)
	}
	grant, number := w.execute(t, r)
	switch {
	case late:
		w.given = append(w.given, r.Call)
	case grant.Units == 0:
	case grant.EndIn == 0:
		// Spent at once: all, or what was asked for in the end, and the rest goes back.
		back := min(grant.Units-1, rapid.Int64Range(0, 2).Draw(t, "given back"))
		w.spent = append(w.spent, oracle.Interval{Left: w.now, Answered: w.now, Units: grant.Units - back})
		if back > 0 {
			w.reports = append(w.reports, report{number: number, settle: authority.Settle{
				Key: w.key, Lease: grant.Lease, Uses: []authority.Use{{Units: grant.Units - back}}, Unused: back,
			}})
		}
	default:
		w.held = append(w.held, &heldLease{
			name: grant.Lease, number: number, left: grant.Units, start: w.now + grant.StartIn, end: w.now + grant.EndIn,
		})
	}
}

// execute runs a reserve on both sides.
func (w *world) execute(t *rapid.T, r authority.Reserve) (authority.Reserved, int) {
	got := w.h.Store.Reserve(context.Background(), []authority.Reserve{r})[0]
	if got.Err != nil {
		t.Fatalf("reserve %+v: %v", r, got.Err)
	}
	if got.Denied && !got.Denial.Never {
		w.retryAt = append(w.retryAt, w.now+got.Denial.RetryAfter)
	}
	if _, before := w.order[r.Call]; !before {
		w.order[r.Call] = w.charges
	}
	w.order[got.Lease] = w.charges
	w.charges++
	if w.oracle == nil {
		return got, 0
	}
	grant := w.oracle.Reserve(w.now, r.Call, r.Want, r.Min, r.TTL, r.Horizon)
	want := authority.Reserved{
		Units: grant.Units, StartIn: grant.Start - w.now, EndIn: grant.End - w.now, State: stateOf(w.oracle.Least(w.now)),
		Denied: grant.Denied,
	}
	if grant.Denied {
		want.Denial = authority.Denial{RetryAfter: grant.RetryAt - w.now, DenyFor: grant.DenyUntil - w.now, Never: grant.Never}
	}
	lease := got.Lease
	got.Lease = ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("at %v, reserve %+v (-oracle +store):\n%s", w.now, r, diff)
	}
	got.Lease = lease
	return got, grant.Number
}

// known says that a store which knows the last charges only has to know a call's, or a lease.
func (w *world) known(name string) bool {
	known := w.h.expected.known
	return known == 0 || w.charges-w.order[name] <= known
}

func stateOf(s oracle.State) authority.State {
	return authority.State{Rate: rateOf(s.Rate), Remaining: s.Remaining, Reset: s.Reset}
}

// spend spends of a lease, which a worker does only between its start and its end.
func (w *world) spend(t *rapid.T) {
	for _, l := range w.held {
		if l.start > w.now || l.end < w.now || l.left == 0 {
			continue
		}
		units := rapid.Int64Range(0, l.left).Draw(t, "spend")
		if units == 0 {
			continue
		}
		l.left -= units
		l.uses = append(l.uses, oracle.Use{At: w.now, Units: units})
		w.spent = append(w.spent, oracle.Interval{Left: w.now, Answered: w.now, Units: units})
		return
	}
}

// retire gives a lease up and sends its report, or loses it with its worker.
func (w *world) retire(t *rapid.T) {
	if len(w.held) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.held)-1).Draw(t, "retired")
	l := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	if rapid.IntRange(0, 5).Draw(t, "crash") == 0 {
		return
	}
	r := report{number: l.number, settle: authority.Settle{Key: w.key, Lease: l.name, Unused: l.left}}
	for _, u := range l.uses {
		r.settle.Uses = append(r.settle.Uses, authority.Use{Age: w.now - u.At, Units: u.Units})
	}
	if rapid.IntRange(0, 5).Draw(t, "says less") == 0 {
		r.settle.Unused = rapid.Int64Range(0, r.settle.Unused).Draw(t, "unused")
	}
	w.reports = append(w.reports, r)
}

// deliver executes a report that was sent before, and keeps it to be repeated perhaps.
func (w *world) deliver(t *rapid.T) {
	if len(w.reports) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.reports)-1).Draw(t, "delivered")
	r := w.reports[i]
	if rapid.Bool().Draw(t, "for the last time") {
		w.reports = slices.Delete(w.reports, i, i+1)
	}
	if !w.known(r.settle.Lease) {
		return
	}
	mustAll(t, w.h.Store.Settle(context.Background(), []authority.Settle{r.settle}))
	if w.oracle == nil {
		return
	}
	var uses []oracle.Use
	for _, u := range r.settle.Uses {
		uses = append(uses, oracle.Use{At: w.now - u.Age, Units: u.Units})
	}
	w.oracle.Settle(r.number, uses, r.settle.Unused)
}

func (w *world) cancel(t *rapid.T) {
	if len(w.given) > 0 {
		w.cancelCall(t, rapid.SampledFrom(w.given).Draw(t, "cancelled"))
	}
}

func (w *world) cancelCall(t *rapid.T, call string) {
	if !w.known(call) {
		return
	}
	mustAll(t, w.h.Store.Cancel(context.Background(), []authority.Cancel{{Key: w.key, Call: call}}))
	if w.oracle != nil {
		w.oracle.Cancel(call)
	}
}

// record charges what the store was not asked for. It is not under the guarantee, but counts.
func (w *world) record(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "recorded") > 0 {
		return
	}
	u := authority.Use{
		Age:   time.Duration(rapid.IntRange(0, 60_000).Draw(t, "age")) * micro,
		Units: rapid.Int64Range(1, 3).Draw(t, "units"),
	}
	w.charges++
	if w.h.expected.flows { // a bucket that has been full for a window is forgotten, and when that was
		u.Age = min(u.Age, w.key.Rates[0].Window)
	}
	mustAll(t, w.h.Store.Record(context.Background(), []authority.Record{{Key: w.key, Call: "record", Uses: []authority.Use{u}}}))
	if w.oracle != nil {
		w.oracle.Record([]oracle.Use{{At: w.now - u.Age, Units: u.Units}})
	}
}

func (w *world) peek(t *rapid.T) {
	got, err := w.h.Store.Peek(context.Background(), w.key)
	if err != nil {
		t.Fatalf("peek: %v", err)
	}
	if w.oracle == nil {
		return
	}
	want := make([]authority.State, 0, len(w.key.Rates))
	for _, s := range w.oracle.States(w.now) {
		want = append(want, stateOf(s))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("at %v, peek (-oracle +store):\n%s", w.now, diff)
	}
}

// reset forgets what was charged; so must the world, for what is spent from then on is over the limit by right. Reports of
// what was before come all the same.
func (w *world) reset(t *rapid.T) {
	if err := w.h.Store.Reset(context.Background(), w.key); err != nil {
		t.Fatalf("reset: %v", err)
	}
	if w.oracle != nil {
		w.oracle.Reset()
	}
	for len(w.held) > 0 {
		l := w.held[0]
		w.held = w.held[1:]
		w.reports = append(w.reports, report{number: l.number, settle: authority.Settle{Key: w.key, Lease: l.name, Unused: math.MaxInt64}})
	}
	w.spent = nil
}

func mustAll(t *rapid.T, errs []error) {
	for _, err := range errs {
		if err != nil {
			t.Fatalf("%v", err)
		}
	}
}

// drawRate gives a rate so small that a world of a few dozen requests meets it.
func drawRate(t *rapid.T) limit.Rate {
	return limit.Rate{
		Units:  rapid.Int64Range(1, 12).Draw(t, "L"),
		Window: time.Duration(rapid.SampledFrom([]int{1_000, 20_000, 50_000, 50_001, 200_000}).Draw(t, "W")) * micro,
	}
}

func rateOf(r oracle.Rate) limit.Rate { return limit.Rate{Units: r.Units, Window: r.Window} }
