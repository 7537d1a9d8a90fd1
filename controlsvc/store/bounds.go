// Package store is what the stores behind authority.Store agree on: the bounds of an operation, how a charge is named, what
// becomes of a lease that is settled, and how a key's standing is told. The charges themselves live in the packages beneath.
package store

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/limit"
)

// Bounds on what an operation may say, and on what a key may hold.
const (
	// MaxName is in bytes. The authority hashes long identities well before.
	MaxName = 4096
	MaxCall = 64
	MaxUses = 1 << 16
	// MaxCharges is how many charges one key may hold in one window; a grant beyond is refused with an error.
	MaxCharges = 1 << 20
	// MaxWindows is how many windows of one length have a count at the same time: the current one, and those in which a
	// lease will start.
	MaxWindows = 512
	// MaxHeld bounds the units that one key may hold in one window, so that their sum is exact in a double.
	MaxHeld = 1 << 52
	// MaxAhead bounds a ttl and a horizon.
	MaxAhead = limit.MaxWindow
	// MaxPresence bounds for how long a worker is noted as connected.
	MaxPresence = 24 * time.Hour
	// MaxEntryText bounds an entry's text, in bytes.
	MaxEntryText = 4096
	// MaxWorkers is how many workers of one domain are told apart. Those beyond are told the share of one more.
	MaxWorkers = 1 << 16
	// MaxSays is how many bytes a replica may say to the others, and MaxReplicas how many of one domain may say something.
	MaxSays     = 256 << 10
	MaxReplicas = 64
)

// algorithms are those that every store has.
var algorithms = [...]limit.Algorithm{
	limit.SlidingLog, limit.SlidingBuckets, limit.SlidingWindowCounter, limit.FixedWindow, limit.TokenBucket,
}

// CheckReserve says what is wrong with a reserve, if anything.
func CheckReserve(r authority.Reserve) error {
	if err := CheckKey(r.Key); err != nil {
		return err
	}
	if err := CheckCall(r.Call); err != nil {
		return err
	}
	if err := checkPart(r.Part); err != nil {
		return err
	}
	if r.Min < 1 || r.Want < r.Min {
		return fmt.Errorf("want %d, min %d: expected want ≥ min ≥ 1", r.Want, r.Min)
	}
	if r.TTL < 0 || r.TTL > MaxAhead {
		return fmt.Errorf("ttl %v: expected 0 to %v", r.TTL, MaxAhead)
	}
	if r.Horizon < 0 || r.Horizon > MaxAhead {
		return fmt.Errorf("horizon %v: expected 0 to %v", r.Horizon, MaxAhead)
	}
	return nil
}

// CheckSettle says what is wrong with a settle, if anything. A lease that no store could have named is none of it: it is
// settled like one that has gone.
func CheckSettle(s authority.Settle) error {
	if err := CheckKey(s.Key); err != nil {
		return err
	}
	if s.Unused < 0 {
		return fmt.Errorf("unused %d: expected 0 or more", s.Unused)
	}
	return checkUses(s.Uses)
}

// CheckCancel says what is wrong with a cancel, if anything.
func CheckCancel(c authority.Cancel) error {
	if err := CheckKey(c.Key); err != nil {
		return err
	}
	if err := CheckCall(c.Call); err != nil {
		return err
	}
	return checkPart(c.Part)
}

// CheckRecord says what is wrong with a record, if anything.
func CheckRecord(r authority.Record) error {
	if err := CheckKey(r.Key); err != nil {
		return err
	}
	if err := CheckCall(r.Call); err != nil {
		return err
	}
	if err := checkUses(r.Uses); err != nil {
		return err
	}
	var sum int64
	for _, u := range r.Uses {
		if sum += u.Units; sum > MaxHeld {
			return fmt.Errorf("more than %d units in one record", int64(MaxHeld))
		}
	}
	return nil
}

// CheckInspect says what is wrong with an inspection, if anything.
func CheckInspect(k authority.Key, units int64) error {
	if err := CheckKey(k); err != nil {
		return err
	}
	if units < 1 || units > limit.MaxUnits {
		return fmt.Errorf("%d units: expected 1 to %d", units, int64(limit.MaxUnits))
	}
	return nil
}

// CheckEdit says what is wrong with an edit of an overlay, if anything.
func CheckEdit(e authority.Edit) error {
	if e.Domain == "" || len(e.Domain) > MaxName {
		return fmt.Errorf("domain of %d bytes: expected 1 to %d", len(e.Domain), MaxName)
	}
	if len(e.Remove) > MaxName {
		return fmt.Errorf("an entry's name of %d bytes: expected at most %d", len(e.Remove), MaxName)
	}
	switch p := e.Put; {
	case p.Name == "":
		return nil
	case len(p.Name) > MaxName:
		return fmt.Errorf("an entry's name of %d bytes: expected at most %d", len(p.Name), MaxName)
	case len(p.Text) > MaxEntryText:
		return fmt.Errorf("an entry of %d bytes: expected at most %d", len(p.Text), MaxEntryText)
	case p.ExpiresIn < time.Millisecond || p.ExpiresIn > MaxAhead:
		return fmt.Errorf("an entry that expires in %v: expected %v to %v", p.ExpiresIn, time.Millisecond, MaxAhead)
	}
	return nil
}

// CheckConnected says what is wrong with a note that a worker is there, if anything.
func CheckConnected(domain string, ttl time.Duration) error {
	if domain == "" || len(domain) > MaxName {
		return fmt.Errorf("domain of %d bytes: expected 1 to %d", len(domain), MaxName)
	}
	if ttl < time.Millisecond || ttl > MaxPresence {
		return fmt.Errorf("ttl %v: expected %v to %v", ttl, time.Millisecond, MaxPresence)
	}
	return nil
}

// CheckExchange says what is wrong with what a replica says, if anything.
func CheckExchange(domain string, says []byte, ttl time.Duration) error {
	if len(says) > MaxSays {
		return fmt.Errorf("a replica says %d bytes: expected at most %d", len(says), MaxSays)
	}
	return CheckConnected(domain, ttl)
}

// CheckKey says what is wrong with a key, if anything.
func CheckKey(k authority.Key) error {
	// A name that begins with a brace would close its own hash tag, and its rates would lie in different slots.
	if k.Name == "" || len(k.Name) > MaxName || k.Name[0] == '}' {
		return fmt.Errorf("key name %s of %d bytes: expected 1 to %d bytes, the first of them not }", clip(k.Name), len(k.Name), MaxName)
	}
	if !slices.Contains(algorithms[:], k.Algorithm) {
		return fmt.Errorf("algorithm %v: the store has only %v", k.Algorithm, algorithms)
	}
	if len(k.Rates) == 0 || len(k.Rates) > limit.MaxRates {
		return fmt.Errorf("%d rates: expected 1 to %d", len(k.Rates), limit.MaxRates)
	}
	for _, r := range k.Rates {
		if r.Units < 0 || r.Units > limit.MaxUnits || r.Window < limit.MinWindow || r.Window > limit.MaxWindow || r.Window%time.Microsecond != 0 {
			return fmt.Errorf("rate of %d units in %v: expected 0 to %d, in %v to %v of whole microseconds",
				r.Units, r.Window, int64(limit.MaxUnits), limit.MinWindow, limit.MaxWindow)
		}
		if err := checkBurst(k.Algorithm, r); err != nil {
			return err
		}
	}
	return nil
}

// checkBurst says what is wrong with a rate's burst, if anything.
func checkBurst(algorithm limit.Algorithm, r limit.Rate) error {
	switch {
	case r.Burst == 0:
		return nil
	case algorithm != limit.TokenBucket:
		return fmt.Errorf("burst of %d: %v has none", r.Burst, algorithm)
	case !r.ValidBurst():
		return fmt.Errorf("burst of %d at %v: expected 0 to %d, and at most what flows in within %v", r.Burst, r, int64(limit.MaxUnits), limit.MaxWindow)
	}
	return nil
}

// Shortest is the least that a lease lasts, unless it was asked for less: a shorter one would be over before its answer is
// there. Where an algorithm has it end sooner it is a strict charge, or not granted at all where it would start later.
const Shortest = 20 * time.Millisecond

// CheckCall says what is wrong with a call's id, if anything.
func CheckCall(call string) error {
	if call == "" || len(call) > MaxCall {
		return fmt.Errorf("call id of %d bytes: expected 1 to %d", len(call), MaxCall)
	}
	for i := range len(call) {
		c := call[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("call id %s: expected only 0-9, A-Z, a-z, dot, underscore and dash", clip(call))
		}
	}
	return nil
}

// checkPart says what is wrong with the part of a call, if anything. It may be empty, and is bounded as a call is.
func checkPart(part string) error {
	if part == "" {
		return nil
	}
	if err := CheckCall(part); err != nil {
		return fmt.Errorf("part: %w", err)
	}
	return nil
}

func checkUses(uses []authority.Use) error {
	if len(uses) > MaxUses {
		return fmt.Errorf("%d uses: expected at most %d", len(uses), MaxUses)
	}
	for _, u := range uses {
		if u.Age < 0 || u.Units < 0 || u.Units > limit.MaxUnits {
			return fmt.Errorf("use of %d units %v ago: expected 0 to %d units, in the past", u.Units, u.Age, int64(limit.MaxUnits))
		}
	}
	return nil
}

// clip quotes the first bytes of what came from outside.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}
