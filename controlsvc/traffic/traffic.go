// Package traffic keeps what workers report of their decisions, for people to look at: counts over time, which keys and
// routes are denied most, how long upstream and store take, who is connected. Its space is fixed, whatever is reported. It
// decides nothing.
//
// Every replica of the service keeps what was reported to it, and tells the others through the store, so that each of them
// shows all.
package traffic

import (
	"sync"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// What bounds the space: some 30 MB at most where keys are as long as they usually are, and far less where few limits and
// keys are denied anything.
const (
	// maxTimelines is how many limits have a timeline, those first that are heard of first; the others share one.
	maxTimelines = 256
	// keysKnown and routesKnown are the capacities of each sketch. Of N denials in a step of a range no key's count is wrong
	// by more than N/keysKnown.
	keysKnown   = 512
	routesKnown = 128
)

// Range is how far back a Snapshot looks.
type Range string

// The ranges.
const (
	FiveMinutes Range = "5m"
	Hour        Range = "1h"
	Day         Range = "24h"
)

// span is how a range is kept, in seconds.
type span struct {
	of              Range
	length          int64
	step            int64 // of its series
	latencyStep     int64
	sketchStep      int64
	sketches        int64
	fineTimeline    bool
	fineLatencyRing bool
}

// The sketches of a range cover all of it, and up to one step more.
var spans = [...]span{
	{of: FiveMinutes, length: 300, step: 1, latencyStep: 10, sketchStep: 60, sketches: 6, fineTimeline: true, fineLatencyRing: true},
	{of: Hour, length: 3600, step: 60, latencyStep: 60, sketchStep: 300, sketches: 13},
	{of: Day, length: 86_400, step: 900, latencyStep: 900, sketchStep: 3600, sketches: 25},
}

// ParseRange gives the range of that name; false where there is none.
func ParseRange(text string) (Range, bool) {
	for _, s := range spans {
		if string(s.of) == text {
			return s.of, true
		}
	}
	return "", false
}

// denied is what is denied most, in steps of one range.
type denied struct{ keys, routes *sketch }

// Config says what a Traffic stands on. Now and Replica have to be set.
type Config struct {
	// Now reads a clock that never steps back, in microseconds since 1970.
	Now func() instant.Instant
	// Replica is a random number that no other replica has.
	Replica uint64
}

// Traffic is what was reported to this replica, and what the others told of themselves. Its methods may be called by many
// goroutines at once.
type Traffic struct {
	config Config
	since  instant.Instant

	mu        sync.Mutex
	policy    *policy.Policy
	names     *Names // of the policy
	total     *timeline
	timelines map[string]*timeline
	most      [len(spans)]ring[denied]
	upstream  latencies
	store     latencies
	fallbacks fallbacks
	workers   workers
	leases    leases
	others    []state
	heard     instant.Instant // when the others were
	lost      []lost          // of them, the last one last
	last      instant.Instant // when a request was last reported; 0: never
}

// New gives a Traffic that has seen nothing.
func New(config Config) *Traffic {
	t := &Traffic{
		config: config, since: config.Now(), names: NewNames(&policy.Policy{}), total: newTimeline(), timelines: make(map[string]*timeline),
		upstream: newLatencies(), store: newLatencies(), workers: workers{known: make(map[uint64]*known)},
		leases: leases{live: make(map[string]*lease), ends: make(map[int64][]string), units: make(map[string]*LeaseUnits)},
	}
	for i, s := range spans {
		t.most[i] = newRing[denied](s.sketchStep, s.sketches)
	}
	return t
}

// SetPolicy says which policy is in force. The timelines of limits that it does not have go.
func (t *Traffic) SetPolicy(p *policy.Policy) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.policy, t.names = p, NewNames(p)
	for name := range t.timelines {
		if t.names.Limit(name) != name {
			delete(t.timelines, name)
		}
	}
	for name := range t.leases.units {
		if t.names.Limit(name) != name {
			delete(t.leases.units, name)
		}
	}
}

// Called notes that a worker called. Of calls only those are counted that ask for something: a worker that has nothing to ask
// calls once a second to report, and to hear of a new policy.
func (t *Traffic) Called(call authority.Call) {
	now := t.config.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if call.Asks > 0 {
		t.total.add(now, now, Counts{}, 1)
	}
	t.workers.called(call, now)
}

// Stored notes how long a call of the store took.
func (t *Traffic) Stored(took time.Duration) {
	now := t.config.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.store.add(now, took.Microseconds())
}

// Reported takes a worker's report, which comes once.
func (t *Traffic) Reported(worker uint64, report *wire.Report) {
	now := t.config.Now()
	from := now.Add(-max(report.Span, 0))
	sums, total := make(map[string]Counts), Counts{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range report.Tallies {
		tally := &report.Tallies[i]
		counts := countsOf(tally)
		total.add(counts)
		if tally.Limit == "" {
			continue
		}
		limit := t.names.Limit(tally.Limit)
		sum := sums[limit]
		sum.add(counts)
		sums[limit] = sum
		if tally.Route != "" {
			t.denials(now, func(d *denied) { d.routes.add(name{limit, t.names.Route(tally.Route)}, counts) })
		}
		if counts.Fallback > 0 {
			t.fallbacks.add(limit, from, now, counts.Fallback)
		}
	}
	t.total.add(from, now, total, 0)
	if total.Admitted+total.Denied+total.Left > 0 {
		t.last = now
	}
	for limit, counts := range sums {
		t.mu.Unlock() // a report of minutes of many limits is not to keep all others waiting
		t.mu.Lock()
		t.timeline(t.names.Limit(limit)).add(from, now, counts, 0)
	}
	for i := range report.Keys {
		k := &report.Keys[i]
		limit, is := t.names.Key(k.Limit, k.Key)
		if !is {
			continue
		}
		counts := Counts{Admitted: k.Admitted, Denied: k.Denied, ShadowAdmitted: k.ShadowAdmitted, ShadowDenied: k.ShadowDenied}
		t.denials(now, func(d *denied) { d.keys.add(name{limit, k.Key}, counts) })
	}
	for _, micros := range report.UpstreamMicros {
		t.upstream.add(now, int64(micros))
	}
	t.workers.reported(worker, report, total, now)
}

// denials visits the sketches of all ranges that an instant lies in.
func (t *Traffic) denials(now instant.Instant, visit func(*denied)) {
	for i := range t.most {
		visit(t.most[i].at(now, func(d *denied) {
			if d.keys != nil {
				d.keys.clear()
				d.routes.clear()
			}
		}).ready())
	}
}

// ready makes the sketches of a step that is the first of its slot.
func (d *denied) ready() *denied {
	if d.keys == nil {
		d.keys, d.routes = newSketch(keysKnown), newSketch(routesKnown)
	}
	return d
}

func (t *Traffic) timeline(limit string) *timeline {
	if l := t.timelines[limit]; l != nil {
		return l
	}
	if len(t.timelines) >= maxTimelines {
		limit = Other
	}
	l := t.timelines[limit]
	if l == nil {
		l = newTimeline()
		t.timelines[limit] = l
	}
	return l
}

// countsOf gives a tally's counts; none where it has a result that is not known.
func countsOf(tally *wire.Tally) (c Counts) {
	n := max(tally.Count, 0)
	switch tally.Result {
	case wire.Admitted:
		c.Admitted, c.Near = n, min(max(tally.Near, 0), n)
	case wire.Denied:
		c.Denied = n
	case wire.ShadowAdmitted:
		c.ShadowAdmitted = n
	case wire.ShadowDenied:
		c.ShadowDenied = n
	case wire.Left:
		c.Left = n
	}
	if admission.Source(tally.Source) == admission.FromFallback && (tally.Result == wire.Admitted || tally.Result == wire.Denied) {
		c.Fallback = n
	}
	return c
}
