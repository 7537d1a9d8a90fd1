package control

import (
	"strconv"
	"time"

	"sluice/filter/host"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/wire"
)

// call is a Sync that is under way.
type call struct {
	id       uint64
	host     host.CallID
	epoch    uint32 // the breaker's when it was sent
	sent     instant.Instant
	deadline instant.Instant
	// groups are those that it asks for; their members were all paused before it was sent.
	groups []*group
	// ahead are keys that it asks for before any request needs them, after those of the groups.
	ahead []*Key
	// counted are keys whose global count it asks for, after those.
	counted []counted
	// wants is what each of its asks wants.
	wants []int64
	// What it reports, in the order of the request.
	abandoned, settles, records []*report
}

// takeCall gives an empty call.
func (c *Client) takeCall() *call {
	if n := len(c.freeCall); n > 0 {
		cl := c.freeCall[n-1]
		c.freeCall = c.freeCall[:n-1]
		return cl
	}
	return &call{}
}

// putCall takes back a call that is over; nothing refers to it any more.
func (c *Client) putCall(cl *call) {
	clearGroups(cl.groups)
	clearKeys(cl.ahead)
	for i := range cl.counted {
		cl.counted[i].key = nil
	}
	*cl = call{groups: cl.groups[:0], ahead: cl.ahead[:0], counted: cl.counted[:0], wants: cl.wants[:0]}
	if len(c.freeCall) < maxCalls {
		c.freeCall = append(c.freeCall, cl)
	}
}

func clearKeys(keys []*Key) {
	for i := range keys {
		keys[i] = nil
	}
}

func clearGroups(groups []*group) {
	for i := range groups {
		groups[i] = nil
	}
}

// send makes a call of its groups, and of what there is to report.
func (c *Client) send(now instant.Instant, cl *call) {
	c.lastCall++
	cl.id, cl.epoch, cl.sent = c.lastCall, c.breaker.epoch, now
	cl.deadline = now.Add(c.config.Timeout)
	if len(cl.groups) > 0 {
		c.active = true
		cl.deadline = now // until the last of its requests
	}
	asks, trace := c.request.Asks[:0], ""
	for i, g := range cl.groups {
		c.waiting.remove(g)
		if trace == "" {
			trace = g.members.first.Trace // a call is a part of one trace, whoever else it is for
		}
		g.call, g.asked = cl, g.members.n
		// The latest of its requests': those that ask again stand first, with a deadline of their own.
		cl.deadline = max(cl.deadline, g.members.first.deadline, g.members.last.deadline)
		asks = c.askFor(now, cl, g, uint32(i+1), asks)
	}
	asks = c.askCounts(now, cl, c.askAhead(now, cl, asks))
	for i := range asks {
		cl.wants = append(cl.wants, asks[i].Want)
	}
	c.request.Asks = asks
	c.request.WorkerID, c.request.CallID = c.worker, cl.id
	c.request.Active = c.active
	c.request.Round = max(c.round, c.lastRound)
	c.request.PolicyVersion = c.policy.Version
	c.reports.load(now, cl, &c.request)
	c.tallies.load(now, cl, &c.request)
	cl.noteReported()
	c.lastSync = now

	timeout := wholeMillis(cl.deadline.Sub(now))
	c.message = wire.AppendSyncRequest(c.message[:0], &c.request)
	id, err := c.dispatch(syncPath, trace, timeout)
	if err != nil {
		// It never left, so that there is nothing to cancel.
		c.Counts.Failures++
		c.failed(now, cl, "the proxy did not take it: "+err.Error())
		return
	}
	cl.host = id
	c.calls = append(c.calls, cl)
}

// askFor appends what a group needs of the store: units of the keys whose leases do not hold enough.
func (c *Client) askFor(now instant.Instant, cl *call, g *group, number uint32, asks []wire.Ask) []wire.Ask {
	g.held = g.held[:0]
	lacking := 0
	within := g.within(now.Add(c.round))
	in := c.input(now, g.members.first)
	for _, d := range in.Demands {
		lacks := !d.Covered(now, in.Patience)
		g.held = append(g.held, !lacks)
		if lacks {
			lacking++
		}
	}
	if lacking < 2 {
		number = 0
	}
	for j, k := range g.keys {
		k.underWay = cl
		c.collect(now, k)
		if g.held[j] {
			continue
		}
		cost := g.demands[j].Cost
		want := cost * int64(g.members.n)
		if k.leases() {
			want += k.Admission.Expected(now, cost)
		}
		asks = append(asks, wire.Ask{
			KeyRef: k.Ref, Plan: k.plan(), Min: cost, Waiting: uint32(g.members.n), Group: number, Within: within,
			Want: min(want, wire.MaxUnits) / cost * cost,
		})
	}
	return asks
}

// dispatch sends c.message as a unary gRPC call, as a part of a trace where that is not empty.
func (c *Client) dispatch(path, trace string, timeout time.Duration) (host.CallID, error) {
	c.Counts.Calls++
	c.frame = wire.AppendFrame(c.frame[:0], c.message)
	headers := c.callHeaders(path, timeout)
	if trace != "" {
		headers = append(headers, host.Header{"traceparent", trace})
	}
	return c.proxy.Call(c.config.Cluster, headers, c.frame, timeout)
}

// CallEnded takes the answer to a call. One that nobody waits for any more, or never did, is ignored.
func (c *Client) CallEnded(id host.CallID, reply host.Reply) {
	now := c.proxy.Now()
	c.release(now)
	c.expire(now) // an answer after the deadline is none
	switch cl := c.take(id); {
	case cl != nil:
		c.ended(now, cl, reply)
	case c.fetch.underWay && c.fetch.host == id:
		c.fetched(now, reply)
	}
	c.flush(now)
	c.decideShadows(now)
}

// take takes a call out of those under way; nil where there is none of that name.
func (c *Client) take(id host.CallID) *call {
	for i, cl := range c.calls {
		if cl.host == id {
			c.calls = append(c.calls[:i], c.calls[i+1:]...)
			return cl
		}
	}
	return nil
}

func (c *Client) ended(now instant.Instant, cl *call, reply host.Reply) {
	bytes, failure := message(reply)
	if failure != "" {
		c.fail(now, cl, failure)
		return
	}
	response, err := wire.ParseSyncResponse(bytes)
	if err != nil {
		c.fail(now, cl, err.Error())
		return
	}
	if failure := nonsense(cl, &response); failure != "" {
		c.fail(now, cl, failure)
		return
	}
	c.answered(now, cl, &response)
}

// nonsense says why a response cannot be the answer to a call; empty where it can.
func nonsense(cl *call, response *wire.SyncResponse) string {
	if len(response.Results) != len(cl.wants) {
		return strconv.Itoa(len(response.Results)) + " results for " + strconv.Itoa(len(cl.wants)) + " asks"
	}
	n := 0
	for _, g := range cl.groups {
		for i, k := range g.keys {
			if g.held[i] {
				continue
			}
			paused := g.demands[i].Cost * int64(g.asked)
			if wrong := nonsensical(&response.Results[n], k, g.demands[i].Cost, paused, cl.wants[n]); wrong != "" {
				return wrong
			}
			n++
		}
	}
	for _, k := range cl.ahead {
		if wrong := nonsensical(&response.Results[n], k, 1, 0, cl.wants[n]); wrong != "" {
			return wrong
		}
		n++
	}
	for _, one := range cl.counted {
		if wrong := nonsensical(&response.Results[n], one.key, 1, 0, 0); wrong != "" {
			return wrong
		}
		n++
	}
	return ""
}

// nonsensical says why a result cannot answer an ask of want units, of which paused requests need so many; empty where it
// can. What is no lease is spent at its own instant, by requests that are paused.
func nonsensical(result *wire.AskResult, k *Key, cost, paused, want int64) string {
	lease := result.StartIn != 0 || result.EndIn != 0
	most := paused
	if lease {
		most = want
	}
	switch {
	case result.Units < 0 || result.Units > most || result.Units%cost != 0:
		return strconv.FormatInt(result.Units, 10) + " units for an ask of " + strconv.FormatInt(most, 10) +
			", by " + strconv.FormatInt(cost, 10)
	case result.Units > 0 && result.Problem != wire.NoProblem:
		return "units and a problem in one result"
	case lease && (!k.leases() || result.EndIn < result.StartIn || result.Lease == ""):
		return "a lease of a limit that has none"
	}
	return ""
}

// answered takes over what the service says.
func (c *Client) answered(now instant.Instant, cl *call, response *wire.SyncResponse) {
	c.reports.acknowledge(cl, response)
	c.tallies.acknowledge(response.Reported)
	if response.Workers > 0 && response.Rank < response.Workers {
		c.workers, c.rank = response.Workers, response.Rank
	}
	if response.PolicyVersion != "" && response.PolicyVersion != c.policy.Version {
		c.fetch.soon(now)
	}
	results, good := response.Results, len(cl.groups)+len(cl.counted) == 0
	for i := range results {
		good = good || results[i].Problem != wire.StoreProblem
	}
	cl.noteGrants(results)
	opened := false
	if good {
		if c.breaker.succeeded(len(cl.groups)+len(cl.counted) > 0) {
			c.complain(now, host.Info, "cluster "+c.config.Cluster+" is asked again")
		}
	} else {
		c.Counts.Failures++
		opened = c.breaker.failed(now, cl.epoch, c.proxy.Random())
	}
	c.measure(now.Sub(cl.sent))
	for _, g := range cl.groups {
		asked := results
		results = results[g.lacked():]
		c.decide(now, cl, g, asked[:len(asked)-len(results)])
	}
	c.heldAhead(now, cl, results[:len(cl.ahead)])
	c.heardCounts(now, cl, results[len(cl.ahead):])
	c.abandonProblems(now, cl, response.Results)
	c.end(now, cl, true)
	if opened {
		c.opened(now, "the service's store does not answer")
	}
}

// noteGrants marks the keys that a call was granted units of: it may not be cancelled there any more.
func (cl *call) noteGrants(results []wire.AskResult) {
	n := 0
	note := func(k *Key) {
		if results[n].Units > 0 {
			k.granted = cl.id
		}
		n++
	}
	for _, g := range cl.groups {
		for i, k := range g.keys {
			if !g.held[i] {
				note(k)
			}
		}
	}
	for _, k := range cl.ahead {
		note(k)
	}
}

// decide gives a group's members what the store granted, in the order in which they came, and gives the rest back.
func (c *Client) decide(now instant.Instant, cl *call, g *group, asked []wire.AskResult) {
	results := c.results[:0]
	for i := range g.keys {
		if g.held[i] {
			results = append(results, wire.AskResult{Problem: admission.NotAsked})
			continue
		}
		results = append(results, asked[0])
		asked = asked[1:]
	}
	c.results = results
	g.follow(now)
	answer := admission.NewAnswer(cl.sent, now, c.Input(g.demands), results)
	c.lookAgain(now)
	limited := g.follow(now)
	c.heldFirst(now, cl, g, answer.AtOnce())
	if g.members.first != nil {
		c.held.lookAhead(g.members.first) // the answer's demands are the group's
	}
	var again *Request
	for r := g.members.first; r != nil; r = again {
		again = r.links[inGroup].after
		out := answer.Next(r.patience())
		if out.Verdict == admission.Ask {
			continue
		}
		if out.Verdict == admission.Admit {
			c.recordFallback(now, g)
		}
		c.conclude(now, r, out)
	}
	g.decided = true
	c.askAgain(now, g)
	for _, s := range answer.Surplus() {
		k := g.keys[s.Demand]
		c.Counts.Surplus += s.Unused
		due := now.Add(k.reportWithin())
		c.reports.settle(due, wire.Settle{KeyRef: k.Ref, Lease: s.Lease, Unused: s.Unused}, nil, &c.Counts)
	}
	for _, k := range g.keys {
		if !limited {
			k.Admission.GiveBack()
		}
		c.collect(now, k)
	}
}

// askAgain lets requests that a call's answer has left over wait for another call, before those that came after them: a
// lease that should have served them is spent, or was enough for others only. Where they may be held they have as long again
// to wait for the answer, and so have those behind them.
func (c *Client) askAgain(now instant.Instant, g *group) {
	if g.members.n == 0 {
		return
	}
	next := c.waiting.find(g.keys, g.demands)
	for r := g.members.first; r != nil; r = g.members.first {
		g.members.remove(r)
		r.group = next
		next.members.insert(r)
	}
	wait := g.maxWait()
	for r := next.members.first; r != nil; r = r.links[inGroup].after {
		if now < r.patience().Ends(wait) {
			c.paused.remove(r)
			c.pause(now, r)
		}
	}
}

// recordFallback notes what of a group was admitted without the store.
func (c *Client) recordFallback(now instant.Instant, g *group) {
	for _, k := range g.keys {
		c.took(now, k)
	}
}

// abandonProblems gives up what an answered call may have been charged where the store's answer was lost. A key that units
// were granted of in the same call is left out: cancelling would take them back while they are spent. That costs capacity only.
func (c *Client) abandonProblems(now instant.Instant, cl *call, results []wire.AskResult) {
	var refs []wire.KeyRef
	within := maxReportDelay
	n := 0
	for _, g := range cl.groups {
		for i, k := range g.keys {
			if g.held[i] {
				continue
			}
			if results[n].Problem == wire.StoreProblem && k.granted != cl.id {
				refs = append(refs, k.Ref)
				within = min(within, k.reportWithin())
			}
			n++
		}
	}
	for _, k := range cl.ahead {
		if results[n].Problem == wire.StoreProblem && k.granted != cl.id {
			refs = append(refs, k.Ref)
			within = min(within, k.reportWithin())
		}
		n++
	}
	if len(refs) > 0 {
		c.abandon(now, cl, refs, within)
	}
}

// fail ends a call without a usable answer: its requests are decided as if the service were away, and whatever the store
// charged for it is to be cancelled.
func (c *Client) fail(now instant.Instant, cl *call, why string) {
	c.Counts.Failures++
	var refs []wire.KeyRef
	within := maxReportDelay
	for _, g := range cl.groups {
		for i, k := range g.keys {
			if !g.held[i] {
				refs = append(refs, k.Ref)
				within = min(within, k.reportWithin())
			}
		}
	}
	for _, k := range cl.ahead {
		refs = append(refs, k.Ref)
		within = min(within, k.reportWithin())
	}
	if len(refs) > 0 {
		c.abandon(now, cl, refs, within)
	}
	c.failed(now, cl, why)
}

func (c *Client) abandon(now instant.Instant, cl *call, refs []wire.KeyRef, within time.Duration) {
	c.Counts.Abandoned++
	c.reports.abandon(now.Add(within), wire.Abandoned{CallID: cl.id, Keys: refs}, &c.Counts)
}

// failed decides a failed call's requests, and all that wait where that was one failure too many.
func (c *Client) failed(now instant.Instant, cl *call, why string) {
	opened := c.breaker.failed(now, cl.epoch, c.proxy.Random())
	for _, g := range cl.groups {
		for r := g.members.first; r != nil; r = g.members.first {
			c.decideAway(now, r)
		}
	}
	c.end(now, cl, false)
	if opened {
		c.opened(now, why)
	} else {
		c.complain(now, host.Warn, "a call to cluster "+c.config.Cluster+" failed: "+why)
	}
}

// end lets go of what a call held.
func (c *Client) end(now instant.Instant, cl *call, answered bool) {
	c.reports.unload(now, cl, answered, &c.Counts)
	c.tallies.unload(cl, answered)
	for _, g := range cl.groups {
		for _, k := range g.keys {
			k.underWay = nil
		}
		c.waiting.release(g)
	}
	for _, k := range cl.ahead {
		k.underWay = nil
		k.groups--
	}
	for _, one := range cl.counted {
		one.key.underWay = nil
		one.key.groups--
		if !answered {
			c.recount(one.key)
		}
	}
	c.putCall(cl)
}

// opened decides everybody who waits, now that nothing is asked.
func (c *Client) opened(now instant.Instant, why string) {
	c.complain(now, host.Error, "cluster "+c.config.Cluster+" is not asked for now, and each limit's on_unavailable decides: "+why)
	for c.waiting.first != nil {
		c.decideAway(now, c.waiting.first.members.first)
	}
}

// complain logs what went wrong, a warning at most once a second.
func (c *Client) complain(now instant.Instant, level host.Level, line string) {
	const pause = time.Second
	if level == host.Warn && c.logged != 0 && now < c.logged.Add(pause) {
		return
	}
	c.logged = now
	c.proxy.Log(level, "sluice: "+line)
}
