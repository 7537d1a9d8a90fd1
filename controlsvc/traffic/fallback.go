package traffic

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"sluice/shared/instant"
)

const (
	// maxFallbacks bounds the periods that are remembered; the oldest goes.
	maxFallbacks = 64
	// fallbackGap is for how long nothing is decided without the service until it counts as back. A worker's breaker asks
	// again after at most some seconds.
	fallbackGap = 10 * time.Second
)

// Fallback is a period in which a limit was decided without the service, as its on_unavailable says, by some workers or all.
type Fallback struct {
	Limit string `json:"limit"`
	// From and Until are seconds since 1970: the first and the last such decision known.
	From  float64 `json:"from"`
	Until float64 `json:"until"`
	// Requests were decided so, and Open says that the last of them was a moment ago.
	Requests int64 `json:"requests"`
	Open     bool  `json:"open"`
}

// fallbacks are the latest periods.
type fallbacks []Fallback

func (f *fallbacks) add(limit string, from, until instant.Instant, requests int64) {
	gap := fallbackGap.Seconds()
	for i := range *f {
		at := &(*f)[i]
		if at.Limit == limit && seconds(from) <= at.Until+gap && seconds(until) >= at.From-gap {
			at.From, at.Until = min(at.From, seconds(from)), max(at.Until, seconds(until))
			at.Requests += requests
			return
		}
	}
	if len(*f) >= maxFallbacks {
		oldest := 0
		for i := range *f {
			if (*f)[i].Until < (*f)[oldest].Until {
				oldest = i
			}
		}
		*f = slices.Delete(*f, oldest, oldest+1)
	}
	*f = append(*f, Fallback{Limit: limit, From: seconds(from), Until: seconds(until), Requests: requests})
}

// mergeFallbacks joins the periods that several replicas know of, the latest first, and drops what ended before since.
func mergeFallbacks(all []Fallback, since, now float64) []Fallback {
	slices.SortFunc(all, func(a, b Fallback) int {
		return cmp.Or(strings.Compare(a.Limit, b.Limit), compare(a.From, b.From))
	})
	var merged []Fallback
	for _, at := range all {
		if at.Until < since {
			continue
		}
		if last := len(merged) - 1; last >= 0 && merged[last].Limit == at.Limit && at.From <= merged[last].Until+fallbackGap.Seconds() {
			merged[last].Until = max(merged[last].Until, at.Until)
			merged[last].Requests += at.Requests
			continue
		}
		merged = append(merged, at)
	}
	for i := range merged {
		merged[i].Open = merged[i].Until+fallbackGap.Seconds() >= now
	}
	slices.SortStableFunc(merged, func(a, b Fallback) int { return compare(b.Until, a.Until) })
	return merged[:min(len(merged), maxFallbacks)]
}

func compare(a, b float64) int { return cmp.Compare(a, b) }
