// Package control is the filter's conversation with the service: what it asks for, what it reports, and what it does while
// no answer comes. One Client lives in every worker; nothing is called concurrently.
//
// Requests that need the same of the same keys form a group, which one call speaks for. There is one call at a time for a
// key; requests that come meanwhile go into the next one. Every request and every call has a deadline that Tick enforces,
// so that a call whose answer never comes holds nobody up: its requests are decided by their limits' on_unavailable, its
// keys may be asked for again, and its late answer admits nothing.
package control

import (
	"time"

	"sluice/filter/host"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// Bounds on the conversation.
const (
	// maxCalls is how many Syncs are under way at once, where Config does not say.
	maxCalls = 8
	// maxAsks and maxCallBytes bound what one call asks for.
	maxAsks      = 512
	maxCallBytes = 1 << 20
	// heartbeat is how often the service hears from a worker that has nothing to say, so that a new policy arrives.
	heartbeat = time.Second
	// maxReportDelay is how long a report waits, at most, for a call that carries it.
	maxReportDelay = time.Second
	// MaxHeld bounds the requests that wait for a lease to start, where Config does not say.
	MaxHeld = 1024
)

// Config is what the conversation needs to know of the plugin's configuration.
type Config struct {
	// Cluster is the proxy's name for the service.
	Cluster string
	// Timeout is how long a request waits for an answer at most. Positive.
	Timeout time.Duration
	// MaxPaused bounds the requests that wait at once. Positive.
	MaxPaused int
	// MaxCalls is how many calls are under way at once, 1 to 8; what needs one meanwhile goes into the next. 0: 8.
	MaxCalls int
	// Apart is for how long a call is the only one since it was sent, unless it is answered earlier: what needs one meanwhile goes
	// into the next. 0: others may be sent at once.
	Apart time.Duration
	// MaxHeld bounds the requests that wait for a lease to start; 0: MaxHeld.
	MaxHeld int
}

// Listener hears what comes of the conversation. It may call Forget; it calls nothing else of the Client's.
type Listener interface {
	// Decided ends a paused request, exactly once unless it was forgotten: Admit or Deny.
	Decided(now instant.Instant, r *Request, out admission.Output)
	// ShadowDecided tells what a limit in shadow would have made of a request.
	ShadowDecided(now instant.Instant, s Shadow, out admission.Output)
	// TraceID gives the W3C trace id of a request that is denied or begins to wait, for a sample; empty where it has none or it
	// is not known.
	TraceID(r *Request) string
	// PolicyArrived tells of a policy of another version than before.
	PolicyArrived(p *policy.Policy)
}

// Counts is what has happened since the client was made.
type Counts struct {
	// Calls were made, Failures of them without a usable answer. Abandoned are those given up although the service may have
	// acted on them.
	Calls, Failures, Abandoned int64
	// Surplus units were granted to requests that could no longer take them, and are given back.
	Surplus int64
	// Dropped reports did not fit the bounds; that costs capacity and admits nothing.
	Dropped int64
	// Held requests have waited for a lease to start.
	Held int64
}

// Client is the conversation of one worker.
type Client struct {
	// Counts may be read at any time.
	Counts Counts

	proxy    host.Proxy
	config   Config
	listener Listener
	worker   uint64

	policy        *policy.Policy
	workers, rank uint32
	active        bool

	lastKey  uint64
	lastCall uint64
	lastScan uint64
	lastSync instant.Instant
	breaker  breaker
	waiting  groups
	paused   line
	held     held
	lastSeq  uint64
	// asking is the request that asks just now, and early what its ask came to before it returned.
	asking *Request
	early  admission.Output
	// shadows wait to be decided; for the sake of shadowsAsked others the store is asked. spare is the next one's request.
	shadows      []Shadow
	shadowsAsked int
	spare        *Request
	calls        []*call
	freeCall     []*call
	reports      reports
	tallies      tallies
	fetch        fetch
	// leased are the keys that hold leases, wishes those to be asked for before a request needs them.
	leased, wishes []*Key
	// counts are the keys whose count is to be asked for; countDue is when the first of them is due.
	counts   []*Key
	countDue instant.Instant
	// round is how long an answer takes, on average.
	round time.Duration
	// lastRound is how long the last one took.
	lastRound time.Duration
	logged    instant.Instant // when a failure was last logged

	// Space that is used again by every call.
	request        wire.SyncRequest
	headers        []host.Header
	message, frame []byte
	results        []wire.AskResult
	shadowKey      [1]*Key
	shadowDemand   [1]admission.Demand
}

// New gives a client that will fetch its policy with the first Tick.
func New(proxy host.Proxy, config Config, listener Listener) *Client {
	c := &Client{
		proxy: proxy, config: config, listener: listener,
		worker:  proxy.Random(),
		waiting: groups{byHash: map[uint64]*group{}},
		paused:  line{which: inLine},
		held:    newHeld(),
		round:   firstRound, countDue: instant.Never,
		reports: newReports(),
		tallies: newTallies(proxy.Now()),
	}
	if c.worker == 0 {
		c.worker = 1
	}
	return c
}

// busy says whether no more calls may be under way yet.
func (c *Client) busy(now instant.Instant) bool {
	most := c.config.MaxCalls
	if most == 0 {
		most = maxCalls
	}
	n := len(c.calls)
	return n >= most || n > 0 && now.Sub(c.calls[n-1].sent) < c.config.Apart
}

// SetConfig changes the configuration; requests and calls that are under way keep their deadlines.
func (c *Client) SetConfig(config Config) { c.config = config }

// Input gives the admission's input for the demands, as the conversation stands.
func (c *Client) Input(demands []admission.Demand) admission.Input {
	return admission.Input{Demands: demands, Away: c.breaker.state == open, Workers: c.workers, Rank: c.rank}
}

// input gives the admission's input for a request of a group's, with the keys under the group's rules.
func (c *Client) input(now instant.Instant, r *Request) admission.Input {
	g := r.group
	g.follow(now)
	c.held.lookAhead(r)
	in := c.Input(g.demands)
	in.Again, in.Patience = true, r.patience()
	return in
}

// ask pauses a request until it is decided, which may be before ask returns. False: the request cannot wait, and is to be
// decided as if the service were away.
func (c *Client) ask(now instant.Instant, r *Request, keys []*Key, demands []admission.Demand) bool {
	if c.breaker.state == open || c.paused.n >= c.config.MaxPaused || len(keys) > maxAsks {
		return false
	}
	g := c.waiting.find(keys, demands)
	r.group, r.seq, r.since = g, c.nextSeq(), now
	g.members.insert(r)
	c.pause(now, r)
	// Whoever waited before this request waits for a key or for a place among the calls: a scan would find this group only.
	if g.members.n == 1 && !c.busy(now) && g.unhindered() {
		cl := c.takeCall()
		cl.groups = append(cl.groups, g)
		c.send(now, cl)
	}
	return true
}

// pause gives a request that waits for an answer its deadline.
func (c *Client) pause(now instant.Instant, r *Request) {
	r.deadline = now.Add(c.config.Timeout)
	if last := c.paused.last; last != nil {
		r.deadline = max(r.deadline, last.deadline) // in order, also after the timeout was made shorter
	}
	c.paused.push(r)
}

func (c *Client) nextSeq() uint64 {
	c.lastSeq++
	return c.lastSeq
}

// unhindered says whether nothing stands before a group that has just begun to wait.
func (g *group) unhindered() bool {
	for _, k := range g.keys {
		if k.underWay != nil || k.waiting > 1 {
			return false
		}
	}
	return true
}

// Forget drops a paused request whose stream is gone. What its group is granted for it goes to others or back.
func (c *Client) Forget(r *Request) {
	if r.group != nil {
		c.left(r)
		if r.held {
			c.held.due = 0 // those behind it move up
		}
		c.detach(r)
	}
}

// detach takes a request out of its group, and the group out of those that wait where it was the last.
func (c *Client) detach(r *Request) {
	g := r.group
	if r.held {
		c.held.remove(r)
		return
	}
	r.group = nil
	g.members.remove(r)
	c.paused.remove(r)
	if g.call == nil && g.members.n == 0 {
		c.waiting.remove(g)
		c.waiting.release(g)
	}
}

// Tick does what time alone brings about. It is called every few milliseconds; nothing depends on how regularly.
func (c *Client) Tick() {
	now := c.proxy.Now()
	c.tick(now)
	c.decideShadows(now)
}

func (c *Client) tick(now instant.Instant) {
	c.release(now) // before those whose time is up take what is left
	c.expire(now)
	c.tendLeases(now)
	c.flush(now)
	c.fetchWhenDue(now)
	c.countWhenDue(now)
	c.tallies.tick(now, c.breaker.state == open)
	if c.policy == nil || c.busy(now) {
		return
	}
	due := min(c.lastSync.Add(heartbeat), c.reports.due)
	if c.breaker.state == open {
		due = c.breaker.backoff.due
		if c.probing() {
			return
		}
	}
	if now >= due {
		c.send(now, c.takeCall())
	}
}

// probing says whether a call of this epoch of the breaker's is under way.
func (c *Client) probing() bool {
	for _, cl := range c.calls {
		if cl.epoch == c.breaker.epoch {
			return true
		}
	}
	return false
}

// expire decides the requests whose deadline has passed, and gives up the calls whose deadline has.
func (c *Client) expire(now instant.Instant) {
	for r := c.paused.first; r != nil && r.deadline <= now; r = c.paused.first {
		// One that was held before it asked has a later deadline than those behind it, which must not pass it.
		c.decideAway(now, r.group.members.first)
	}
	for i := 0; i < len(c.calls); {
		cl := c.calls[i]
		if cl.deadline > now {
			i++
			continue
		}
		c.calls = append(c.calls[:i], c.calls[i+1:]...)
		c.fail(now, cl, "no answer in time")
	}
}

// decideAway decides a paused request by on_unavailable.
func (c *Client) decideAway(now instant.Instant, r *Request) {
	g := r.group
	in := c.input(now, r)
	in.Away = true
	out := admission.Step(now, in)
	if out.Verdict == admission.Admit {
		c.admitted(now, g.keys)
	}
	c.conclude(now, r, out)
}

// conclude ends the wait for an answer: by a verdict, or for a lease in hand to start.
func (c *Client) conclude(now instant.Instant, r *Request, out admission.Output) {
	if out.Verdict == admission.Hold {
		if c.hold(now, r, out.RetryAfter) {
			return
		}
		out.Verdict = admission.Deny // there is no room to wait
	}
	c.decided(now, r, out)
}

// admitted notes that a request was admitted on the spot. What was admitted without the store's consent is told to the
// store when it answers again; a lease that runs low or ends soon is followed by another one.
func (c *Client) admitted(now instant.Instant, keys []*Key) {
	for _, k := range keys {
		c.took(now, k)
		c.wish(now, k)
	}
	c.countWhenDue(now)
	if len(c.wishes) > 0 && !c.busy(now) && c.breaker.state == closed {
		c.send(now, c.takeCall())
	}
}

// flush sends what waits and may go.
func (c *Client) flush(now instant.Instant) {
	for c.waiting.n > 0 && !c.busy(now) && c.breaker.state != open {
		if !c.scan(now) {
			return
		}
	}
}

// scan makes one call of the groups that may go, the longest waiting first, and says whether there was any. A key that one
// of them waits for is not given to those behind it, so that a group of many keys is not passed over for ever.
func (c *Client) scan(now instant.Instant) bool {
	c.lastScan++
	cl := c.takeCall()
	asks, size := 0, 0
	var after *group
	for g := c.waiting.first; g != nil; g = after {
		after = g.after
		if !g.mayGo(c.lastScan) {
			for _, k := range g.keys {
				k.blocked = c.lastScan
			}
			continue
		}
		if c.decidedMeanwhile(now, g) {
			continue
		}
		asks += len(g.keys)
		size += g.size()
		if len(cl.groups) > 0 && (asks > maxAsks || size > maxCallBytes) {
			break
		}
		cl.groups = append(cl.groups, g)
	}
	if len(cl.groups) == 0 {
		c.putCall(cl)
		return false
	}
	c.send(now, cl)
	return true
}

// decidedMeanwhile decides the requests of a waiting group that can be decided on the spot by now, as after a denial or a
// lease that came for others, and says whether those were all.
func (c *Client) decidedMeanwhile(now instant.Instant, g *group) bool {
	for {
		out := admission.Step(now, c.input(now, g.members.first))
		if out.Verdict == admission.Ask {
			return false
		}
		if out.Verdict == admission.Admit {
			for _, k := range g.keys {
				c.took(now, k)
				c.wish(now, k)
			}
		}
		r, last := g.members.first, g.members.n == 1
		c.conclude(now, r, out)
		if last {
			return true
		}
	}
}

func (g *group) mayGo(scan uint64) bool {
	for _, k := range g.keys {
		if k.underWay != nil || k.blocked == scan {
			return false
		}
	}
	return true
}

// size is about how many bytes the group's asks take.
func (g *group) size() int {
	size := 0
	for _, k := range g.keys {
		size += refSize(k.Ref)
	}
	return size
}

func refSize(ref wire.KeyRef) int { return len(ref.Limit) + len(ref.Key) + 48 }
