package redis

import (
	"errors"
	"fmt"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// The places in a reserve's answer; the standings of the windows follow. See reserve in operations.lua.
const (
	atUnits = iota
	atMinted
	atStart
	atEnd
	atDenied
	atRetry
	atCertain
	atWindow
	atStandings
)

// What a reserve's answer says in the place of denied.
const (
	deniedForNow  = 1
	deniedForEver = 2
)

// errAnswer is what errors about the shape of an answer wrap. It means that a script and this code do not fit.
var errAnswer = errors.New("an answer that the script does not give")

// readReserved reads the answer to a reserve of windows, in which there is one rate for each of the key's.
func readReserved(r *authority.Reserve, windows []limit.Rate, answer []int64) (authority.Reserved, error) {
	var space [limit.MaxRates]store.Standing
	standings, err := readStandings(space[:0], answer, atStandings, len(windows))
	if err != nil {
		return authority.Reserved{}, err
	}
	out := authority.Reserved{
		Units: answer[atUnits], StartIn: micros(answer[atStart]), EndIn: micros(answer[atEnd]),
		State: store.Least(r.Key.Rates, windows, standings),
	}
	if out.Units > 0 {
		grant := store.Grant{Kind: store.Strict, Call: r.Call, Part: r.Part, Minted: instant.Instant(answer[atMinted]), Units: out.Units}
		if out.EndIn > 0 {
			grant.Kind = store.Lease
		}
		out.Lease = grant.Name()
	}
	switch denies := answer[atWindow] - 1; answer[atDenied] {
	case deniedForNow:
		if denies < 0 || denies >= int64(len(windows)) {
			return authority.Reserved{}, fmt.Errorf("%w: window %d of %d denies", errAnswer, denies+1, len(windows))
		}
		out.Denied = true
		out.Denial = store.Denial(micros(answer[atRetry]), micros(answer[atCertain]), windows[denies].Window)
	case deniedForEver:
		out.Denied, out.Denial.Never = true, true
	}
	return out, nil
}

// readStandings appends the standings of the windows, which an answer has from a place on.
func readStandings(to []store.Standing, answer []int64, from, windows int) ([]store.Standing, error) {
	if len(answer) != from+2*windows {
		return nil, fmt.Errorf("%w: %v, want %d numbers", errAnswer, answer, from+2*windows)
	}
	for at := from; at < len(answer); at += 2 {
		to = append(to, store.Standing{Used: answer[at], Reset: micros(answer[at+1])})
	}
	return to, nil
}

func readInspection(answer []any, rates, windows []limit.Rate, units int64) (authority.Inspection, error) {
	const perWindow, perLease = 3, 3
	n, err := readNumbers(answer, 0, perWindow*len(windows))
	if err != nil {
		return authority.Inspection{}, err
	}
	standings, free := make([]store.Standing, len(windows)), make([]time.Duration, len(windows))
	for i := range windows {
		of := n[perWindow*i:]
		standings[i], free[i] = store.Standing{Used: of[0], Reset: micros(of[1])}, micros(of[2])
	}
	var leases []authority.LiveLease
	for at := perWindow * len(windows); at < len(answer); at += perLease {
		name, isName := answer[at].(string)
		grant, isGrant := store.ParseGrant(name)
		times, err := readNumbers(answer, at+1, perLease-1)
		if !isName || !isGrant || err != nil {
			return authority.Inspection{}, fmt.Errorf("%w: lease %v", errAnswer, answer[at:])
		}
		leases = append(leases, authority.LiveLease{
			Lease: name, Call: grant.Call, Units: grant.Units, Age: micros(times[0]), EndIn: micros(times[1]),
		})
	}
	return store.Inspection(rates, windows, standings, free, units, leases), nil
}

// readNumbers reads so many numbers of an answer.
func readNumbers(answer []any, from, count int) ([]int64, error) {
	if len(answer) < from+count {
		return nil, fmt.Errorf("%w: %v", errAnswer, answer)
	}
	numbers := make([]int64, count)
	for i := range numbers {
		var is bool
		if numbers[i], is = answer[from+i].(int64); !is {
			return nil, fmt.Errorf("%w: %v in place %d", errAnswer, answer[from+i], from+i)
		}
	}
	return numbers, nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
