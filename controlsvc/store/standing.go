package store

import (
	"cmp"
	"slices"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/limit"
)

// Windows gives one rate for each window of the key, in the policy's order: of rates that share a window, the one with the
// fewest units holds, and there is one count.
func Windows(rates []limit.Rate) []limit.Rate {
	if len(rates) == 1 {
		return rates
	}
	windows := make([]limit.Rate, 0, len(rates))
	for _, r := range rates {
		if i := find(windows, r.Window); i >= 0 {
			windows[i].Units = min(windows[i].Units, r.Units)
		} else {
			windows = append(windows, r)
		}
	}
	return windows
}

func find(windows []limit.Rate, window time.Duration) int {
	for i := range windows {
		if windows[i].Window == window {
			return i
		}
	}
	return -1
}

// Standing is how full one window is.
type Standing struct {
	Used int64
	// Reset is when the last of it leaves, from now.
	Reset time.Duration
}

// States gives a state for each of the rates, from the standings of their Windows.
func States(rates, windows []limit.Rate, standings []Standing) []authority.State {
	states := make([]authority.State, len(rates))
	for i, r := range rates {
		states[i] = state(r, standings[find(windows, r.Window)])
	}
	return states
}

func state(r limit.Rate, s Standing) authority.State {
	return authority.State{Rate: r, Remaining: max(0, r.Most()-s.Used), Reset: s.Reset}
}

// Inspection puts together what a store tells of a key: of the rates' Windows the standings and when so many units are free;
// and the leases that are out, in any order.
func Inspection(
	rates, windows []limit.Rate, standings []Standing, free []time.Duration, units int64, leases []authority.LiveLease,
) authority.Inspection {
	out := authority.Inspection{Rates: make([]authority.Inspected, len(rates))}
	for i, r := range rates {
		at := find(windows, r.Window)
		out.Rates[i] = authority.Inspected{State: state(r, standings[at]), Used: standings[at].Used}
		if units > r.Most() {
			out.Rates[i].Never = true
		} else {
			out.Rates[i].FreeIn = free[at]
		}
	}
	for i := range leases {
		leases[i].Age = max(0, leases[i].Age) // of two grants within one microsecond the later is minted a little ahead
	}
	slices.SortFunc(leases, func(a, b authority.LiveLease) int {
		return cmp.Or(cmp.Compare(a.EndIn, b.EndIn), cmp.Compare(a.Lease, b.Lease))
	})
	out.Leases = leases[:min(len(leases), authority.MaxLeasesTold)]
	return out
}

// Least gives the state of the rate with the smallest remaining share of its units, the earlier where two are equal.
func Least(rates, windows []limit.Rate, standings []Standing) authority.State {
	least := state(rates[0], standings[0])
	for _, r := range rates[1:] {
		if s := state(r, standings[find(windows, r.Window)]); s.Scarcer(least) {
			least = s
		}
	}
	return least
}

// How long a worker may deny by leases of others, which may come back: 1/20 of the window, within bounds.
const (
	pauseShare = 20
	minPause   = 20 * time.Millisecond
	maxPause   = time.Second
)

// Denial tells when to ask again: retryAfter is when enough is free if all leases are spent at their ends, certain is when
// it would be if none were there (at most retryAfter), window is that of the rate that denies for the longest.
func Denial(retryAfter, certain, window time.Duration) authority.Denial {
	pause := min(max(window/pauseShare, minPause), maxPause)
	return authority.Denial{RetryAfter: retryAfter, DenyFor: min(retryAfter, max(certain, pause))}
}
