package demo

import "strings"

// filterPrefix begins the names of the filter's counters in Envoy.
const filterPrefix = "wasmcustom.sluice."

// counts are the filters' own counters.
type counts struct {
	// requests are all that a filter saw; onTheSpot those of them that it denied without asking anybody, and calls how
	// often it asked, each time for many requests where many wait.
	requests, onTheSpot, calls int64
	// fallback are requests let through while the service did not answer.
	fallback int64
	// held are requests that waited for a unit, under a limit with max_wait.
	held int64
}

// askedDenials end the names of the counters of denials that took a call.
const askedDenials = "denied.store"

func countsOf(stats map[string]int64) counts {
	c := counts{
		requests: stats[filterPrefix+"requests"],
		calls:    stats[filterPrefix+"calls"],
		fallback: stats[filterPrefix+"admitted.fallback"],
		held:     stats[filterPrefix+"held"],
	}
	for name, n := range stats {
		short, _ := strings.CutPrefix(name, filterPrefix)
		if strings.HasPrefix(short, "denied.") && short != askedDenials {
			c.onTheSpot += n
		}
	}
	return c
}

func (c counts) add(d counts) counts {
	return counts{c.requests + d.requests, c.onTheSpot + d.onTheSpot, c.calls + d.calls, c.fallback + d.fallback, c.held + d.held}
}

func (c counts) since(base counts) counts {
	return counts{c.requests - base.requests, c.onTheSpot - base.onTheSpot, c.calls - base.calls, c.fallback - base.fallback, c.held - base.held}
}
