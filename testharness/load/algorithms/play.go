package main

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/testharness/oracle"
)

// outcome is what an algorithm did with all traces: how many units it admitted, the fullest window by the limit, and in how
// many traces a window held more than that.
type outcome struct {
	admitted int64
	worst    float64
	over     int
}

// play gives what an algorithm admits of requests for one unit at instants since 1970.
func play(ctx context.Context, algorithm limit.Algorithm, rate limit.Rate, requests []time.Duration) ([]oracle.Interval, error) {
	var now instant.Instant
	s := memory.New(func() instant.Instant { return now }, 1)
	key := authority.Key{Name: "trace", Algorithm: algorithm, Rates: []limit.Rate{rate}}
	var admitted []oracle.Interval
	for i, at := range requests {
		now = instant.Instant(at.Microseconds())
		out := s.Reserve(ctx, []authority.Reserve{{Key: key, Call: strconv.Itoa(i), Want: 1, Min: 1}})[0]
		if out.Err != nil {
			return nil, out.Err
		}
		if out.Units > 0 {
			admitted = append(admitted, oracle.Interval{Left: at, Answered: at, Units: 1})
		}
	}
	return admitted, nil
}

// drawTrace gives a limit, and three windows of requests: a steady stream or bursts, from half of the limit to five times.
func drawTrace(r *rand.Rand) (limit.Rate, []time.Duration) {
	rate := limit.Rate{
		Units:  int64(1 + r.IntN([]int{10, 60, 200}[r.IntN(3)])),
		Window: []time.Duration{100 * time.Millisecond, time.Second, time.Minute}[r.IntN(3)],
	}
	load := []float64{0.5, 0.9, 1, 1.5, 5}[r.IntN(5)]
	burst := 1
	if r.IntN(2) == 0 {
		burst += r.IntN(int(rate.Units))
	}
	mean := float64(rate.Window) / (load * float64(rate.Units)) * float64(burst)
	start := 1_800_000_000*time.Second + time.Duration(r.Int64N(int64(rate.Window)))
	var requests []time.Duration
	for at := start; at < start+3*rate.Window; {
		at += time.Duration(-math.Log(1-r.Float64()) * mean).Truncate(time.Microsecond)
		for range burst {
			requests = append(requests, at)
		}
	}
	return rate, requests
}

func playTraces(ctx context.Context, traces int) ([]outcome, error) {
	r := rand.New(rand.NewPCG(1, 2))
	outcomes := make([]outcome, len(algorithms))
	for range traces {
		rate, requests := drawTrace(r)
		for i, algorithm := range algorithms {
			admitted, err := play(ctx, algorithm, rate, requests)
			if err != nil {
				return nil, err
			}
			o := &outcomes[i]
			worst := oracle.WorstWindow(admitted, rate.Window)
			o.admitted += int64(len(admitted))
			o.worst = max(o.worst, float64(worst)/float64(rate.Units))
			if worst > rate.Units {
				o.over++
			}
		}
	}
	return outcomes, nil
}

// curve is how full an algorithm's sliding window was, by the limit, at moments of the burst.
type curve struct {
	algorithm limit.Algorithm
	seconds   []float64
	held      []float64
	worst     float64
}

// The burst: of 1000 a minute, nothing in the first minute but five seconds, and then twenty times as much as the limit.
const (
	burstUnits  = 1000
	burstWindow = time.Minute
	burstBegins = 55 * time.Second
	burstEnds   = 190 * time.Second
	burstEvery  = 3 * time.Millisecond
)

func playBurst(ctx context.Context) ([]curve, error) {
	const origin = 1_800_000_000 * time.Second // a minute begins
	rate := limit.Rate{Units: burstUnits, Window: burstWindow}
	var requests []time.Duration
	for at := burstBegins; at < burstEnds; at += burstEvery {
		requests = append(requests, origin+at)
	}
	var curves []curve
	for _, algorithm := range algorithms {
		admitted, err := play(ctx, algorithm, rate, requests)
		if err != nil {
			return nil, err
		}
		c := curve{algorithm: algorithm, worst: float64(oracle.WorstWindow(admitted, burstWindow)) / burstUnits}
		for at := time.Duration(0); at <= burstEnds; at += 500 * time.Millisecond {
			held := 0
			for _, a := range admitted {
				if a.Left <= origin+at && a.Left > origin+at-burstWindow {
					held++
				}
			}
			c.seconds, c.held = append(c.seconds, at.Seconds()), append(c.held, float64(held)/burstUnits)
		}
		curves = append(curves, c)
	}
	return curves, nil
}
