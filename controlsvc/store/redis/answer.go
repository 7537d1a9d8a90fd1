package redis

import (
	"errors"
	"fmt"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/limit"
)

// The places in a reserve's answer; the standings of the windows follow. See operations.reserve in sliding_log.lua.
const (
	atUnits = iota
	atName
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

func readReserved(answer any, rates, windows []limit.Rate) (authority.Reserved, error) {
	standings, err := readStandings(answer, atStandings, len(windows))
	if err != nil {
		return authority.Reserved{}, err
	}
	fields := answer.([]any) //nolint:forcetypeassert // readStandings has read it
	name, ok := fields[atName].(string)
	if !ok {
		return authority.Reserved{}, fmt.Errorf("%w: name %v", errAnswer, fields[atName])
	}
	fields[atName] = int64(0)
	n, err := readNumbers(answer, 0, atStandings)
	if err != nil {
		return authority.Reserved{}, err
	}
	out := authority.Reserved{
		Lease: name, Units: n[atUnits], StartIn: micros(n[atStart]), EndIn: micros(n[atEnd]),
		State: store.Least(rates, windows, standings),
	}
	switch denies := n[atWindow] - 1; n[atDenied] {
	case deniedForNow:
		if denies < 0 || denies >= int64(len(windows)) {
			return authority.Reserved{}, fmt.Errorf("%w: window %d of %d denies", errAnswer, denies+1, len(windows))
		}
		out.Denied = true
		out.Denial = store.Denial(micros(n[atRetry]), micros(n[atCertain]), windows[denies].Window)
	case deniedForEver:
		out.Denied, out.Denial.Never = true, true
	}
	return out, nil
}

func readStandings(answer any, from, windows int) ([]store.Standing, error) {
	n, err := readNumbers(answer, from, 2*windows)
	if err != nil {
		return nil, err
	}
	standings := make([]store.Standing, windows)
	for i := range standings {
		standings[i] = store.Standing{Used: n[2*i], Reset: micros(n[2*i+1])}
	}
	return standings, nil
}

func readInspection(answer any, rates, windows []limit.Rate, units int64) (authority.Inspection, error) {
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
	fields := answer.([]any) //nolint:forcetypeassert // readNumbers has read it
	for at := perWindow * len(windows); at < len(fields); at += perLease {
		name, isName := fields[at].(string)
		grant, isGrant := store.ParseGrant(name)
		times, err := readNumbers(answer, at+1, perLease-1)
		if !isName || !isGrant || err != nil {
			return authority.Inspection{}, fmt.Errorf("%w: lease %v", errAnswer, fields[at:])
		}
		leases = append(leases, authority.LiveLease{
			Lease: name, Call: grant.Call, Units: grant.Units, Age: micros(times[0]), EndIn: micros(times[1]),
		})
	}
	return store.Inspection(rates, windows, standings, free, units, leases), nil
}

// readNumbers reads so many numbers of an answer.
func readNumbers(answer any, from, count int) ([]int64, error) {
	fields, ok := answer.([]any)
	if !ok || len(fields) < from+count {
		return nil, fmt.Errorf("%w: %v", errAnswer, answer)
	}
	numbers := make([]int64, count)
	for i := range numbers {
		if numbers[i], ok = fields[from+i].(int64); !ok {
			return nil, fmt.Errorf("%w: %v in place %d", errAnswer, fields[from+i], from+i)
		}
	}
	return numbers, nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
