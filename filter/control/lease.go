package control

import (
	"time"

	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/wire"
)

const (
	// firstRound is how long an answer is taken to need before there was one.
	firstRound = 2 * time.Millisecond
	// maxAhead bounds the keys that one call asks for ahead of need; the others' turn comes with the next request.
	maxAhead = 64
	// aheadParts is how many leases are asked for at once where each starts when its units become free: several small ones
	// start sooner, one after the other, than one that holds as much.
	aheadParts = 2
)

// leases says whether the key's units may be leased.
func (k *Key) leases() bool { return k.Admission.Limit().Mode == limit.Lease }

// cost is what one request spends of the key.
func (k *Key) cost() int64 { return k.Admission.Limit().RequestCost() }

// measure takes in how long a call took.
func (c *Client) measure(took time.Duration) {
	c.lastRound = took
	c.round += (took - c.round) / 8
	c.round = max(c.round, 100*time.Microsecond)
}

// wish notes that a key is to be asked for before a request needs it.
func (c *Client) wish(now instant.Instant, k *Key) {
	if !k.leases() || k.wished || k.underWay != nil || len(c.wishes) >= maxAhead || now < k.aheadAfter ||
		k.Admission.Ahead(now, c.round) == 0 {
		return
	}
	k.wished = true
	k.groups++ // it is in use until the call has ended
	c.wishes = append(c.wishes, k)
}

// askAhead makes the wishes asks of a call.
func (c *Client) askAhead(now instant.Instant, cl *call, asks []wire.Ask) []wire.Ask {
	for i, k := range c.wishes {
		c.wishes[i] = nil
		k.wished = false
		want := k.Admission.Ahead(now, c.round)
		if k.underWay != nil || want == 0 || len(asks) >= maxAsks {
			k.groups--
			continue
		}
		k.groups--
		c.collect(now, k)
		k.underWay = cl
		asks = cl.askParts(k, want, asks)
	}
	c.wishes = c.wishes[:0]
	return asks
}

// askParts asks for leases that no request waits for yet.
func (cl *call) askParts(k *Key, want int64, asks []wire.Ask) []wire.Ask {
	parts, cost := int64(1), k.cost()
	requests := min(max(1, want/cost), wire.MaxUnits/cost)
	if k.Admission.Scarce() {
		parts = min(aheadParts, requests)
	}
	k.asked = *k.Admission.Rule()
	for i := range parts {
		k.groups++ // it is in use until the call has ended
		cl.ahead = append(cl.ahead, k)
		asks = append(asks, wire.Ask{KeyRef: k.Ref, Plan: k.plan(), Min: cost, Want: (requests + i) / parts * cost})
	}
	return asks
}

// heldAhead takes over what was granted ahead of need.
func (c *Client) heldAhead(now instant.Instant, cl *call, results []wire.AskResult) {
	for i, k := range cl.ahead {
		limited := k.follow(now, &k.asked)
		k.Admission.Hold(cl.sent, now, results[i])
		if !limited {
			k.Admission.GiveBack()
		}
		if results[i].Units == 0 {
			k.aheadAfter = now.Add(4 * c.round) // not worth a call for now
		}
		c.lookAgain(now)
		c.collect(now, k)
	}
}

// collect reports the key's leases that are over, and looks after those that are not.
func (c *Client) collect(now instant.Instant, k *Key) {
	if !k.leases() && !k.leased {
		return
	}
	k.Admission.Tidy(now)
	for _, r := range k.Admission.TakeRetired() {
		settle := wire.Settle{KeyRef: k.Ref, Lease: r.ID, Unused: r.Unused}
		// Nothing is lost while it is told before its first unit has left the window: the next lease's ask is soon enough.
		c.reports.settle(now.Add(2*k.reportWithin()), settle, r.Uses, &c.Counts)
	}
	if !k.leased && k.Admission.Leases() > 0 {
		k.leased = true
		c.leased = append(c.leased, k)
	}
}

// tendLeases retires the leases that are over or that nobody spends, and follows those that end soon.
func (c *Client) tendLeases(now instant.Instant) {
	kept := c.leased[:0]
	for _, k := range c.leased {
		if k.asking == 0 && k.Admission.Idle(now) {
			k.Admission.GiveBack()
		}
		c.collect(now, k)
		if k.Admission.Leases() == 0 {
			k.leased = false
			continue
		}
		kept = append(kept, k)
		c.wish(now, k)
	}
	clearKeys(c.leased[len(kept):])
	c.leased = kept
	if len(c.wishes) > 0 && !c.busy(now) && c.breaker.state == closed {
		c.send(now, c.takeCall())
	}
}

// Drop gives back what the worker holds of a key that it will not know any more.
func (c *Client) Drop(k *Key) {
	now := c.proxy.Now()
	c.tallies.drop(now, k)
	k.recount = false
	k.Admission.GiveBack()
	c.collect(now, k)
}

// Stop gives back everything, in one last call, and tells what was decided. Nothing is asked any more. Where a report is on
// its way the next one needs another Stop, once that has been acknowledged.
func (c *Client) Stop() {
	now := c.proxy.Now()
	for _, k := range c.leased {
		k.Admission.GiveBack()
		c.collect(now, k)
	}
	c.tallies.hurry(now)
	if c.policy != nil && (len(c.reports.settles)+len(c.reports.records) > 0 || c.tallies.pending()) {
		c.send(now, c.takeCall())
	}
}
