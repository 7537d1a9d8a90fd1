package control

import (
	"math"
	"math/bits"
	"time"
	"unsafe"

	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/wire"
)

// Bounds on what is counted between two reports.
const (
	// reportEvery is for how long a report gathers at least. A call that has nothing else to say goes out once a second.
	reportEvery = 200 * time.Millisecond
	// spareTallies are kept for requests whose own tally finds no room: one for each result and source.
	spareTallies = 64
	// maxTallyBytes bounds the texts of a report's tallies, and maxKeyBytes those of its keys.
	maxTallyBytes = 96 << 10
	maxKeyBytes   = 64 << 10
	// maxTallied bounds the keys that wait for a report. Another one's requests are counted by itself until there is room.
	maxTallied = 4096
	// UpstreamOf is how many admitted requests there are for one whose time at the upstream is wanted.
	UpstreamOf = 64
)

// tallies counts what is decided, each request once, until a report takes it. A report that is made does not change until
// the service has acknowledged it; so that a service that is away lets nothing grow, what comes meanwhile adds to the next.
type tallies struct {
	born instant.Instant
	// next is the report that gathers, since the instant since; made is the one on its way, of id 0 where there is none.
	next, made wire.Report
	since      instant.Instant
	lastMade   instant.Instant
	lastID     uint64
	// carrier is the call under way that carries it; 0: none does, and one may from retry on.
	carrier uint64
	retry   instant.Instant

	// byName finds a tally of next by all but its counts.
	byName map[wire.Tally]int
	bytes  int
	// keys have counts that no report has taken; loose is the one besides that has a run, where they are too many.
	keys  []*Key
	loose *Key
	// elements are those of lists that requests were decided by.
	elements map[wire.KeyRef]*Key
	// unbound stands for requests under no limit, and keyless for others that no key has decided. No report tells of them as keys.
	unbound, keyless Key
	// sampled is when each of next's denials was.
	sampled [wire.MaxDenialSamples]instant.Instant
	ticked  instant.Instant
}

func newTallies(now instant.Instant) tallies {
	return tallies{
		born: now, ticked: now, byName: map[wire.Tally]int{}, elements: map[wire.KeyRef]*Key{},
		unbound: Key{tallied: true}, keyless: Key{tallied: true},
	}
}

// run is requests of one key that are counted alike and have come one after the other. They go into the report's tally at once,
// when another comes that differs, or the report is made: that nearly every request is one number more, beside what its
// decision has touched already, is what keeps counting cheap. The zero value is none.
type run struct {
	route       string
	window      time.Duration
	result      wire.Result
	source      admission.Source
	count, near int64
}

// keyTally counts a key's requests by their result, from wire.Admitted.
type keyTally [wire.ShadowDenied]uint32

func (t *keyTally) sum() (n uint64) {
	for _, count := range t {
		n += uint64(count)
	}
	return n
}

// CountUnbound counts a request under no limit.
func (c *Client) CountUnbound(now instant.Instant) {
	k := &c.tallies.unbound // all its requests are alike
	if k.run.count == 0 {
		c.tallies.begin(now, k, run{result: wire.Admitted, source: admission.FromPolicy})
	}
	k.run.count++
}

// Count counts a request that no key of a limit decided: an element of the limit's list or of the policy's, which ref names,
// or nothing.
func (c *Client) Count(now instant.Instant, r *Request, ref wire.KeyRef, out *admission.Output) {
	k, result := &c.tallies.keyless, resultOf(out)
	if ref.Key != "" {
		k = c.tallies.element(now, ref)
	}
	if !k.run.is(r.Route, 0, result, out.Source) {
		c.tallies.begin(now, k, run{route: r.Route, result: result, source: out.Source})
	}
	k.run.count++
	if result == wire.Denied && k.run.count == 1 {
		c.sample(now, r, ref, r.Route, out)
	}
}

// element gives what counts the requests that an element of a list decided. There are as many as the policy has, and no more
// than maxTallied at once: those that go have been reported, or will be if there was room for them.
func (t *tallies) element(now instant.Instant, ref wire.KeyRef) *Key {
	k := t.elements[ref]
	if k == nil {
		if len(t.elements) >= maxTallied {
			for _, gone := range t.elements {
				t.drop(now, gone)
			}
			clear(t.elements)
		}
		k = &Key{Ref: ref}
		t.elements[ref] = k
	}
	return k
}

// count counts a request that has been decided, by the limit that it is told of.
func (c *Client) count(now instant.Instant, r *Request, keys []*Key, out *admission.Output) {
	result, route := resultOf(out), r.Route
	if r.shadow != nil {
		route = r.shadow.Key.Admission.Limit().Match.Route()
		result += wire.ShadowAdmitted - wire.Admitted
	}
	k := &c.tallies.keyless
	if out.Demand >= 0 {
		k = keys[out.Demand]
	}
	n := &k.run
	if !n.is(route, out.Rate.Window, result, out.Source) {
		c.tallies.begin(now, k, run{route: route, window: out.Rate.Window, result: result, source: out.Source})
	}
	n.count++
	const near = 20 // 5 %
	if out.Verdict == admission.Deny {
		if out.Demand >= 0 && n.count == 1 {
			c.sample(now, r, k.Ref, route, out)
		}
	} else if out.Remaining*near <= out.Rate.Units && out.Rate.Units > 0 {
		n.near++
	}
}

func resultOf(out *admission.Output) wire.Result {
	if out.Verdict == admission.Deny {
		return wire.Denied
	}
	return wire.Admitted
}

// is says whether a request is counted as the run's are.
func (n *run) is(route string, window time.Duration, result wire.Result, source admission.Source) bool {
	return n.result == result && n.source == source && n.window == window && same(n.route, route)
}

// begin ends a key's run and begins another, whose tally is in the report from now on.
func (t *tallies) begin(now instant.Instant, k *Key, n run) {
	t.end(now, k)
	if !k.tallied && len(t.keys) < maxTallied {
		k.tallied = true
		t.keys = append(t.keys, k)
	}
	if !k.tallied {
		if t.loose != nil {
			t.end(now, t.loose)
		}
		t.loose = k
	}
	k.run = n
	t.find(now, k.run.of(k))
}

// of is what a run's requests have in common.
func (n *run) of(k *Key) wire.Tally {
	return wire.Tally{Limit: k.Ref.Limit, Route: n.route, Window: n.window, Result: n.result, Source: uint8(n.source)}
}

// end puts a key's run into the report.
func (t *tallies) end(now instant.Instant, k *Key) {
	if n := &k.run; n.count > 0 {
		t.count(now, n.of(k), n.count, n.near)
		if i := int(n.result - wire.Admitted); i < len(k.tally) {
			k.tally[i] = uint32(min(int64(k.tally[i])+n.count, math.MaxUint32))
		}
	}
	k.run = run{}
}

// count counts requests in their tally.
func (t *tallies) count(now instant.Instant, what wire.Tally, count, near int64) {
	row := &t.next.Tallies[t.find(now, what)]
	row.Count += count
	row.Near += near
	if row.Limit != what.Limit {
		t.next.Unlisted += count
	}
}

// same says whether two texts are equal. Most often they are one.
func same(a, b string) bool {
	return len(a) == len(b) && (unsafe.StringData(a) == unsafe.StringData(b) || a == b) //nolint:gosec // the pointers are compared only
}

// find gives the index of a tally, made now where there is none; where there is no room for it, of one without a limit.
func (t *tallies) find(now instant.Instant, what wire.Tally) int {
	if i, is := t.byName[what]; is {
		return i
	}
	if len(t.next.Tallies) == 0 {
		t.since = now
	}
	size := len(what.Limit) + len(what.Route)
	if size > 0 && (len(t.next.Tallies) >= wire.MaxTallies-spareTallies || t.bytes+size > maxTallyBytes) {
		return t.find(now, wire.Tally{Result: what.Result, Source: what.Source})
	}
	t.bytes += size
	t.byName[what] = len(t.next.Tallies)
	t.next.Tallies = append(t.next.Tallies, what)
	return len(t.next.Tallies) - 1
}

// samples says whether there is room for a denial of a key's among the samples, which has none yet.
func (t *tallies) samples(ref wire.KeyRef) bool {
	if len(t.next.Denials) >= wire.MaxDenialSamples {
		return false
	}
	for i := range t.next.Denials {
		if t.next.Denials[i].KeyRef == ref {
			return false
		}
	}
	return true
}

// sample takes a denial as a sample, where there is room. It is asked to for a run's first: the others would find none.
func (c *Client) sample(now instant.Instant, r *Request, ref wire.KeyRef, route string, out *admission.Output) {
	t := &c.tallies
	if !t.samples(ref) {
		return
	}
	trace := r.traceID
	if trace == "" {
		trace = c.listener.TraceID(r)
	}
	t.sampled[len(t.next.Denials)] = now
	t.next.Denials = append(t.next.Denials, wire.DenialSample{
		KeyRef: ref, Route: route, Window: out.Rate.Window, Source: uint8(out.Source), Remaining: out.Remaining, RetryAfter: out.RetryAfter,
		TraceID: trace, Shadow: r.shadow != nil,
	})
}

// Upstream takes in how long an admitted request, one of UpstreamOf, was at the upstream.
func (c *Client) Upstream(took time.Duration) {
	if t := &c.tallies; len(t.next.UpstreamMicros) < wire.MaxUpstream {
		t.next.UpstreamMicros = append(t.next.UpstreamMicros, uint32(min(max(0, took.Microseconds()), 1<<32-1)))
	}
}

// left counts a request whose client did not wait for the decision.
func (c *Client) left(r *Request) {
	c.tallies.count(c.proxy.Now(), wire.Tally{Route: r.Route, Result: wire.Left}, 1, 0)
}

// waited takes in that a request was paused until now.
func (t *tallies) waited(now instant.Instant, r *Request) {
	t.next.Waits++
	t.next.Waited += now.Sub(r.since)
}

// tick notes for how long the service has been given up.
func (t *tallies) tick(now instant.Instant, away bool) {
	if away {
		t.next.Away += now.Sub(t.ticked)
	}
	t.ticked = now
}

// load puts a report into a request, where there is one that no call carries.
func (t *tallies) load(now instant.Instant, cl *call, request *wire.SyncRequest) {
	request.Report = nil
	if t.made.ID == 0 && len(t.next.Tallies) > 0 && now.Sub(t.lastMade) >= reportEvery {
		t.make(now)
	}
	if t.made.ID != 0 && t.carrier == 0 && now >= t.retry {
		t.carrier = cl.id
		request.Report = &t.made
	}
}

// make makes a report of what has gathered.
func (t *tallies) make(now instant.Instant) {
	for _, k := range t.keys {
		t.end(now, k)
	}
	for _, k := range []*Key{&t.unbound, &t.keyless, t.loose} {
		if k != nil {
			t.end(now, k)
		}
	}
	t.loose = nil
	t.takeKeys()
	t.lastID++
	next := &t.next
	next.ID, next.Age, next.Span, next.UpstreamOf = t.lastID, now.Sub(t.born), now.Sub(t.since), UpstreamOf
	for i := range next.Denials {
		next.Denials[i].Age = now.Sub(t.sampled[i])
	}
	space := t.made
	t.made = t.next
	t.next = wire.Report{
		Tallies: space.Tallies[:0], Keys: space.Keys[:0], Denials: space.Denials[:0], UpstreamMicros: space.UpstreamMicros[:0],
	}
	clear(t.byName)
	t.bytes, t.lastMade, t.retry = 0, now, 0
}

// takeKeys puts the counts of the busiest keys into the report, and leaves the others'.
func (t *tallies) takeKeys() {
	var sizes [64]int // how many keys there are with sums of so many bits
	for _, k := range t.keys {
		sizes[bits.Len64(k.tally.sum())]++
	}
	least := len(sizes) - 1
	room := wire.MaxKeyTallies - sizes[least]
	for least > 1 && room > 0 {
		least--
		room -= sizes[least]
	}
	last := sizes[least] + min(0, room) // how many of the least there is room for
	kept, bytes := t.keys[:0], 0
	for _, k := range t.keys {
		size, sum := len(k.Ref.Limit)+len(k.Ref.Key), bits.Len64(k.tally.sum())
		if sum < least || sum == least && last == 0 || bytes+size > maxKeyBytes {
			kept = append(kept, k)
			continue
		}
		if sum == least {
			last--
		}
		bytes += size
		n := &k.tally
		t.next.Keys = append(t.next.Keys, wire.KeyTally{
			KeyRef: k.Ref, Admitted: int64(n[0]), Denied: int64(n[1]), ShadowAdmitted: int64(n[2]), ShadowDenied: int64(n[3]),
		})
		k.tally, k.tallied = keyTally{}, false
	}
	clearKeys(t.keys[len(kept):])
	t.keys = kept
}

// drop counts as lost what no report will tell of a key that is forgotten.
func (t *tallies) drop(now instant.Instant, k *Key) {
	t.end(now, k)
	if !k.tallied {
		t.next.KeysLost += int64(k.tally.sum())
		k.tally = keyTally{}
	}
}

// acknowledge forgets the report that the service has taken.
func (t *tallies) acknowledge(reported uint64) {
	if reported != 0 && reported == t.made.ID {
		t.made.ID = 0
	}
}

// unload takes the report back from a call that is over. Where an answer said nothing of it, it comes again with the next
// second's.
func (t *tallies) unload(cl *call, answered bool) {
	if t.carrier != cl.id {
		return
	}
	t.carrier, t.retry = 0, 0
	if answered {
		t.retry = cl.sent.Add(heartbeat)
	}
}

// hurry has the next call carry a report.
func (t *tallies) hurry(now instant.Instant) { t.lastMade, t.retry = now.Add(-reportEvery), now }

// pending says whether there is anything that a call could carry.
func (t *tallies) pending() bool {
	return t.made.ID != 0 && t.carrier == 0 || t.made.ID == 0 && len(t.next.Tallies) > 0
}
