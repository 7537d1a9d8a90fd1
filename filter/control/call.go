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
	*cl = call{groups: cl.groups[:0]}
	if len(c.freeCall) < maxCalls {
		c.freeCall = append(c.freeCall, cl)
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
	asks := c.request.Asks[:0]
	for i, g := range cl.groups {
		c.waiting.remove(g)
		g.call, g.asked = cl, g.members.n
		cl.deadline = max(cl.deadline, g.members.last.deadline)
		together := uint32(0)
		if len(g.keys) > 1 {
			together = uint32(i + 1)
		}
		for j, k := range g.keys {
			k.underWay = cl
			cost := g.demands[j].Cost
			asks = append(asks, wire.Ask{
				KeyRef: k.Ref, Min: cost, Waiting: uint32(g.members.n), Group: together,
				Want: min(cost*int64(g.members.n), wire.MaxUnits/cost*cost),
			})
		}
	}
	c.request.Asks = asks
	c.request.WorkerID, c.request.CallID = c.worker, cl.id
	c.request.Active = c.active
	c.request.PolicyVersion = c.policy.Version
	c.reports.load(now, cl, &c.request)
	c.lastSync = now

	timeout := wholeMillis(cl.deadline.Sub(now))
	c.message = wire.AppendSyncRequest(c.message[:0], &c.request)
	id, err := c.dispatch(syncPath, timeout)
	if err != nil {
		// It never left, so that there is nothing to cancel.
		c.Counts.Failures++
		c.failed(now, cl, "the proxy did not take it: "+err.Error())
		return
	}
	cl.host = id
	c.calls = append(c.calls, cl)
}

// dispatch sends c.message as a unary gRPC call.
func (c *Client) dispatch(path string, timeout time.Duration) (host.CallID, error) {
	c.Counts.Calls++
	c.frame = wire.AppendFrame(c.frame[:0], c.message)
	return c.proxy.Call(c.config.Cluster, c.callHeaders(path, timeout), c.frame, timeout)
}

// CallEnded takes the answer to a call. One that nobody waits for any more, or never did, is ignored.
func (c *Client) CallEnded(id host.CallID, reply host.Reply) {
	now := c.proxy.Now()
	c.expire(now) // an answer after the deadline is none
	switch cl := c.take(id); {
	case cl != nil:
		c.ended(now, cl, reply)
	case c.fetch.underWay && c.fetch.host == id:
		c.fetched(now, reply)
	}
	c.flush(now)
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

// nonsense says why a response cannot be the answer to a call; empty where it can. Only requests that are paused were asked
// for, so that a grant is spent at its own instant, and there are no leases to spend later.
func nonsense(cl *call, response *wire.SyncResponse) string {
	asks := 0
	for _, g := range cl.groups {
		asks += len(g.keys)
	}
	if len(response.Results) != asks {
		return strconv.Itoa(len(response.Results)) + " results for " + strconv.Itoa(asks) + " asks"
	}
	n := 0
	for _, g := range cl.groups {
		for i := range g.keys {
			result, cost := &response.Results[n], g.demands[i].Cost
			n++
			switch {
			case result.Units < 0 || result.Units > cost*int64(g.asked) || result.Units%cost != 0:
				return strconv.FormatInt(result.Units, 10) + " units for " + strconv.Itoa(g.asked) + " requests of " +
					strconv.FormatInt(cost, 10)
			case result.Units > 0 && result.Problem != wire.NoProblem:
				return "units and a problem in one result"
			case result.StartIn != 0 || result.EndIn != 0:
				return "a lease for requests that are paused"
			}
		}
	}
	return ""
}

// answered takes over what the service says.
func (c *Client) answered(now instant.Instant, cl *call, response *wire.SyncResponse) {
	c.reports.acknowledge(cl, response)
	if response.Workers > 0 && response.Rank < response.Workers {
		c.workers, c.rank = response.Workers, response.Rank
	}
	if response.PolicyVersion != "" && response.PolicyVersion != c.policy.Version {
		c.fetch.soon(now)
	}
	results, good := response.Results, len(cl.groups) == 0
	for i := range results {
		good = good || results[i].Problem != wire.StoreProblem
	}
	opened := false
	if good {
		if c.breaker.succeeded(len(cl.groups) > 0) {
			c.complain(now, host.Info, "cluster "+c.config.Cluster+" is asked again")
		}
	} else {
		c.Counts.Failures++
		opened = c.breaker.failed(now, cl.epoch, c.proxy.Random())
	}
	for _, g := range cl.groups {
		c.decide(now, cl, g, results[:len(g.keys)])
		results = results[len(g.keys):]
	}
	c.abandonProblems(now, cl, response.Results)
	c.end(now, cl, true)
	if opened {
		c.opened(now, "the service's store does not answer")
	}
}

// decide gives a group's members what the store granted, in the order in which they came, and gives the rest back.
func (c *Client) decide(now instant.Instant, cl *call, g *group, results []wire.AskResult) {
	answer := admission.NewAnswer(cl.sent, now, c.Input(g.demands), results)
	for r := g.members.first; r != nil; r = g.members.first {
		out := answer.Next()
		if out.Verdict == admission.Admit {
			c.spent(now, cl, g, results)
		}
		c.detach(r)
		c.listener.Decided(now, r, out)
	}
	for _, s := range answer.Surplus() {
		k := g.keys[s.Demand]
		c.Counts.Surplus += s.Unused
		due := now.Add(k.reportWithin())
		c.reports.settle(due, wire.Settle{KeyRef: k.Ref, Lease: s.Lease, Unused: s.Unused}, &c.Counts)
	}
}

// spent notes for an admitted request what was spent of the store's grants, and records what was admitted without one.
func (c *Client) spent(now instant.Instant, cl *call, g *group, results []wire.AskResult) {
	for i, k := range g.keys {
		switch {
		case results[i].Units > 0:
			k.spent = cl.id
		case results[i].Problem != wire.UnknownLimit:
			c.reports.spend(now, k, g.demands[i].Cost, &c.Counts)
		}
	}
}

// abandonProblems gives up what an answered call may have been charged where the store's answer was lost. A key that units
// were spent of in the same call is left out: cancelling would take back what was spent. That costs capacity only.
func (c *Client) abandonProblems(now instant.Instant, cl *call, results []wire.AskResult) {
	var refs []wire.KeyRef
	within := maxReportDelay
	n := 0
	for _, g := range cl.groups {
		for _, k := range g.keys {
			if results[n].Problem == wire.StoreProblem && k.spent != cl.id {
				refs = append(refs, k.Ref)
				within = min(within, k.reportWithin())
			}
			n++
		}
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
		for _, k := range g.keys {
			refs = append(refs, k.Ref)
			within = min(within, k.reportWithin())
		}
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
	for _, g := range cl.groups {
		for _, k := range g.keys {
			k.underWay = nil
		}
		c.waiting.release(g)
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
