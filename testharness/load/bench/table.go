package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// median gives the middle of the values, of two the mean; 0 where there is none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

func medianOf(samples []sample, of func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	return median(values)
}

func micros(of func(sample) time.Duration) func(sample) float64 {
	return func(s sample) float64 { return float64(of(s)) / float64(time.Microsecond) }
}

// pairedRatio is the median of the rounds' ratios: what slows the machine down for a while is in both.
func pairedRatio(a, b []sample) float64 {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = a[i].perSecond / b[i].perSecond
	}
	return median(ratios)
}

// pairedExtra is the median of the rounds' differences of CPU time for a request, in microseconds.
func pairedExtra(a, b []sample) float64 {
	extra := make([]float64, min(len(a), len(b)))
	for i := range extra {
		extra[i] = float64(a[i].cpu()-b[i].cpu()) / float64(time.Microsecond)
	}
	return median(extra)
}

// table gives the medians as Markdown.
func table(all []contender, samples [][]sample) string {
	plain, global := samples[indexOf(all, plainName)], samples[indexOf(all, globalName)]
	var b strings.Builder
	b.WriteString("| | requests/s | ÷ no filter | ÷ global | p50 µs | p99 µs | CPU µs a request: Envoy | service | Redis | all, above no filter |\n")
	b.WriteString("| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n")
	for i, c := range all {
		s := samples[i]
		cell := func(p bool, of func(sample) time.Duration) string {
			if !p {
				return ""
			}
			return fmt.Sprintf("%.1f", medianOf(s, micros(of)))
		}
		fmt.Fprintf(&b, "| %s | %.0f | %.2f | %.2f | %.0f | %.0f | %.1f | %s | %s | %+.1f |\n", c.name,
			medianOf(s, func(s sample) float64 { return s.perSecond }), pairedRatio(s, plain), pairedRatio(s, global),
			medianOf(s, micros(func(s sample) time.Duration { return s.typical })),
			medianOf(s, micros(func(s sample) time.Duration { return s.nearly })),
			medianOf(s, micros(func(s sample) time.Duration { return s.envoy })),
			cell(c.service != nil, func(s sample) time.Duration { return s.service }),
			cell(c.store != nil, func(s sample) time.Duration { return s.kv }),
			pairedExtra(s, plain))
	}
	return b.String()
}

// unexpected says which contenders got answers that were not the ones to be measured, or none.
func unexpected(all []contender, samples [][]sample) string {
	var b strings.Builder
	for i, c := range all {
		var other, missing int64
		for _, s := range samples[i] {
			other, missing = other+s.unexpected, missing+s.missing
		}
		if other+missing > 0 {
			fmt.Fprintf(&b, "%s: %d answers were not %d, and %d requests got none.\n", c.name, other, c.status, missing)
		}
	}
	return b.String()
}

// The targets, on the medians.
const (
	leastOfPlain   = 0.85
	leastOfGlobal  = 1.8
	mostExtraMicro = 15.0
)

// verdict holds the lease against its targets.
func verdict(all []contender, samples [][]sample) string {
	lease, plain, global := samples[indexOf(all, leaseName)], samples[indexOf(all, plainName)], samples[indexOf(all, globalName)]
	say := func(ok bool) string {
		if ok {
			return "met"
		}
		return "missed"
	}
	ofPlain, ofGlobal, extra := pairedRatio(lease, plain), pairedRatio(lease, global), pairedExtra(lease, plain)
	return fmt.Sprintf("`lease` on Redis: %.2f of no filter (target ≥ %.2f: %s), %.2f × the global filter (target ≥ %.1f: %s), "+
		"%+.1f µs of CPU a request in all processes (target ≤ +%.0f: %s).\n",
		ofPlain, leastOfPlain, say(ofPlain >= leastOfPlain), ofGlobal, leastOfGlobal, say(ofGlobal >= leastOfGlobal),
		extra, mostExtraMicro, say(extra <= mostExtraMicro))
}

func indexOf(all []contender, name string) int {
	return slices.IndexFunc(all, func(c contender) bool { return c.name == name })
}
