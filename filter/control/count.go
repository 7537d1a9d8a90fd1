package control

import (
	"time"

	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/wire"
)

// counted is a key whose count a call asks for.
type counted struct {
	key *Key
	// total is what the worker had admitted of the key when the call was sent; outside is what of it had not been
	// acknowledged and is not reported by this call.
	total, outside int64
}

// counts says whether the key is decided by the global count.
func (k *Key) counts() bool { return k.Admission.Limit().Mode == limit.Async }

// took reports what was admitted without the store, and has it counted.
func (c *Client) took(now instant.Instant, k *Key) {
	units := k.Admission.TakeFallback()
	if units == 0 {
		return
	}
	c.reports.spend(now, k, units, &c.Counts)
	k.total += units
	c.recount(k)
}

// recount has a key's count asked for when it is due.
func (c *Client) recount(k *Key) {
	if !k.counts() || k.recount {
		return
	}
	k.recount = true
	c.counts = append(c.counts, k)
	c.countDue = min(c.countDue, k.countAfter)
}

// recountAll notes that requests were denied by the count, which may be out of date.
func (c *Client) recountAll(now instant.Instant, keys []*Key) {
	for _, k := range keys {
		c.recount(k)
	}
	c.countWhenDue(now)
}

// countWhenDue makes a call where a key's count is due.
func (c *Client) countWhenDue(now instant.Instant) {
	if now >= c.countDue && !c.busy(now) && c.breaker.state != open && c.policy != nil {
		c.send(now, c.takeCall())
	}
}

// askCounts asks for the counts that are due.
func (c *Client) askCounts(now instant.Instant, cl *call, asks []wire.Ask) []wire.Ask {
	if now < c.countDue || c.breaker.state == open {
		return asks
	}
	kept := c.counts[:0]
	c.countDue = instant.Never
	for _, k := range c.counts {
		switch {
		case !k.recount || !k.counts(): // it was dropped, or is in another mode by now
			k.recount = false
			continue
		case now < k.countAfter || k.underWay != nil || len(asks) >= maxAsks:
			kept = append(kept, k)
			c.countDue = min(c.countDue, max(k.countAfter, now.Add(time.Millisecond)))
			continue
		}
		k.recount = false
		k.countAfter = now.Add(k.Admission.RecountEvery())
		k.underWay, k.asked = cl, *k.Admission.Rule()
		k.groups++ // it is in use until the call has ended
		cl.counted = append(cl.counted, counted{key: k, total: k.total})
		asks = append(asks, wire.Ask{KeyRef: k.Ref, Plan: k.plan(), Min: k.cost()})
	}
	clearKeys(c.counts[len(kept):])
	c.counts = kept
	return asks
}

// noteReported notes, once the call's reports are in it, what it leaves out.
func (cl *call) noteReported() {
	cl.sumRecords(false)
	for i := range cl.counted {
		k := cl.counted[i].key
		cl.counted[i].outside = k.Admission.Untold - k.carried
	}
}

// sumRecords sums up, for each key that the call asks the count of, the units of its records, or of those that were not
// acknowledged.
func (cl *call) sumRecords(undone bool) {
	for i := range cl.counted {
		cl.counted[i].key.carried = 0
	}
	for _, r := range cl.records {
		if !undone || !r.done {
			r.key.carried += r.units()
		}
	}
}

// heardCounts takes over how keys stand.
func (c *Client) heardCounts(now instant.Instant, cl *call, results []wire.AskResult) {
	cl.sumRecords(true)
	for i := range cl.counted {
		one := &cl.counted[i]
		k := one.key
		if results[i].Problem != wire.NoProblem {
			c.recount(k)
			continue
		}
		if k.counts() {
			k.follow(now, &k.asked)
			k.Admission.HoldCount(cl.sent, now, one.outside+k.carried+k.total-one.total, &results[i])
		}
	}
}

// units is what a record tells of.
func (r *report) units() (sum int64) {
	for _, use := range r.spent {
		sum += use.Units
	}
	return sum
}

// finish marks a report as dealt with.
func (r *report) finish() {
	if !r.done && r.key != nil {
		r.key.Admission.Untold -= r.units()
	}
	r.done = true
}
