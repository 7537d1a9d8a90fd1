package admission

import (
	"time"

	"sluice/shared/instant"
)

// A limit with max_wait shapes: a request that it has no units for now is held, where a lease in hand that starts in time
// has units left for it, and spends them then. A lease's units serve the requests that are held in the order in which they
// came; whoever comes later sees what they leave. That is a forecast, and no more: a unit is spent by Step alone, within
// its lease, so that holding a request admits nothing that would not be admitted without (RATIONALE.md, max_wait).

// Patience says since when a request waits, and until when it may be held at most, whatever its limits' max_wait; Until 0:
// for as long as they say.
type Patience struct{ Since, Until instant.Instant }

// Ends gives until when the request may be held under a limit of that max_wait.
func (p Patience) Ends(wait time.Duration) instant.Instant {
	ends := p.Since.Add(wait)
	if p.Until != 0 {
		ends = min(ends, p.Until)
	}
	return ends
}

// MaxWait gives for how long a request may be held for units of the key; 0: not at all, as in shadow.
func (k *Key) MaxWait() time.Duration {
	if k.rule.Shadow {
		return 0
	}
	return k.rule.Limit.MaxWait
}

// Claim notes that a request is held: the units that it waits for are not for those that come after it. Unclaim has to
// follow, once.
func Claim(demands []Demand) {
	for _, d := range demands {
		d.Key.claimed += d.Cost
	}
}

// Unclaim notes that a request is not held any more: it spends its units, or leaves them to others.
func Unclaim(demands []Demand) {
	for _, d := range demands {
		d.Key.claimed -= d.Cost
	}
}

// Claimed gives how many units requests are held for: what is ahead of one that comes now.
func (k *Key) Claimed() int64 { return k.claimed }

// Covered says whether the demand of a request need not be asked for: the leases hold its units, now or in time.
func (d Demand) Covered(now instant.Instant, p Patience) bool {
	if !d.Lacks(now) {
		return true
	}
	_, is := d.hold(now, p)
	return is
}

// hold gives when the leases in hand will have the demand's units, beyond those for requests ahead of it; false where that
// is too late, and how late is told, or never, and for limits without max_wait.
func (d Demand) hold(now instant.Instant, p Patience) (Output, bool) {
	k := d.Key
	if k.MaxWait() == 0 || d.Behind {
		return Output{}, false
	}
	need := d.Ahead + d.Cost
	for _, l := range k.leases {
		if l.Over(now) {
			continue
		}
		if need -= l.Left(); need > 0 {
			continue
		}
		out := k.report(now)
		out.Verdict, out.Source, out.Remaining, out.RetryAfter = Hold, FromLease, 0, max(0, l.From.Sub(now))
		return out, k.waits(now, p, out.RetryAfter)
	}
	return Output{}, false
}

// waits says whether a request may wait for so much longer.
func (k *Key) waits(now instant.Instant, p Patience, longer time.Duration) bool {
	return k.MaxWait() > 0 && now.Add(longer) <= p.Ends(k.MaxWait())
}

// GiveUp denies a request that has been held for as long as it may be, since the leases that it waited for are gone.
func GiveUp(now instant.Instant, in Input) Output {
	out := Output{Verdict: Admit, Demand: -1}
	for i, d := range in.Demands {
		if !d.Lacks(now) {
			continue
		}
		one := d.Key.report(now)
		one.Verdict, one.Source, one.Remaining, one.Demand = Deny, FromLease, 0, i
		one.RetryAfter = max(d.Key.rule.Rates[0].Window/20, d.Key.denial.retryAt.Sub(now))
		out = Worse(out, one)
	}
	out.Verdict = Deny
	return out
}
