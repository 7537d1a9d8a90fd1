package admission

import "sluice/shared/instant"

// Standing gives how a demand's key stands, as far as the worker knows, for one of several limits that a request was decided
// under: denied says that the request was, and the verdict then whether this limit denies it as well. It spends nothing.
func (d Demand) Standing(now instant.Instant, denied bool) Output {
	k := d.Key
	if denied {
		if k.async() {
			if out, is := d.denyCounted(now); is {
				return out
			}
		} else if d.Lacks(now) {
			if out, is := d.deny(now, Patience{Since: now}); is {
				return out
			}
		}
	}
	out := k.report(now)
	switch {
	case k.async():
		out = k.countReport(now, k.countFree(now))
	case out.Rate.Window == 0: // the store has not been heard
		out.Rate = k.rule.Rates[0]
		out.Remaining, out.Reset = max(0, out.Rate.Units-k.logs[0].AtMost(now)), k.logs[0].EmptyIn(now)
	default:
		out.Remaining += k.Free(now)
	}
	out.Verdict, out.Source = Admit, FromLease
	return out
}
