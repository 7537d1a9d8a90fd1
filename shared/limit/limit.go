// Package limit names what a limit is: so many units per window, with an algorithm and a mode.
package limit

import (
	"errors"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Bounds on what a rate may say. They keep every product and sum of units and microseconds within 63 bits, and within
// the 53 bits that Redis' scripts count with.
const (
	MaxUnits  = 1_000_000_000_000
	MinWindow = time.Millisecond
	MaxWindow = 366 * 24 * time.Hour
	// MaxRates is how many rates one limit may have.
	MaxRates = 8
)

// Rate is at most Units within every half-open interval (s − Window, s]. Units is 0 to MaxUnits (0 admits nothing);
// Window is MinWindow to MaxWindow, in whole microseconds.
type Rate struct {
	Units  int64
	Window time.Duration
	// Burst is what a token bucket holds, 0 to MaxUnits; 0: Units. Of the other algorithms none has it.
	Burst int64
}

// Most is what can be had at once: the units, or a token bucket's burst.
func (r Rate) Most() int64 {
	if r.Burst > 0 {
		return r.Burst
	}
	return r.Units
}

// ValidBurst says whether a token bucket of the rate may have its burst: what flows in within MaxWindow, at most MaxUnits.
func (r Rate) ValidBurst() bool {
	burstHigh, burstLow := bits.Mul64(uint64(r.Burst), uint64(r.Window))
	high, low := bits.Mul64(uint64(r.Units), uint64(MaxWindow))
	return r.Burst >= 0 && r.Burst <= MaxUnits && (burstHigh < high || burstHigh == high && burstLow <= low)
}

// SameWindow says whether what counts within one of two rates' windows counts within the other's too.
func (r Rate) SameWindow(other Rate) bool { return r.Window == other.Window }

// String gives the rate as a policy writes it: "100/s", "100/24h", "120/60s".
func (r Rate) String() string {
	return strconv.FormatInt(r.Units, 10) + "/" + windowString(r.Window)
}

func windowString(w time.Duration) string {
	switch w {
	case time.Second:
		return "s"
	case time.Minute:
		return "m"
	case time.Hour:
		return "h"
	}
	switch {
	case w%time.Hour == 0:
		return strconv.FormatInt(int64(w/time.Hour), 10) + "h"
	case w%time.Second == 0:
		return strconv.FormatInt(int64(w/time.Second), 10) + "s"
	case w%time.Millisecond == 0:
		return strconv.FormatInt(int64(w/time.Millisecond), 10) + "ms"
	}
	return strconv.FormatInt(w.Microseconds(), 10) + "us"
}

// ErrRate is what every error of ParseRate wraps.
var ErrRate = errors.New(`want a rate such as "10/s", "600/m", "120/60s" or "100/24h"`)

// rateError says what was wrong with a rate's text, and what was expected.
type rateError struct{ text, what string }

func (e *rateError) Error() string {
	return strconv.Quote(clip(e.text)) + ": " + e.what + "; " + ErrRate.Error()
}
func (e *rateError) Unwrap() error { return ErrRate }

func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// ParseRate reads "UNITS/WINDOW", where WINDOW is s, m, h or d, or a Go duration such as 60s, 24h, 250ms. Its errors
// wrap ErrRate.
func ParseRate(text string) (Rate, error) {
	fail := func(what string) (Rate, error) { return Rate{}, &rateError{text, what} }
	before, after, found := strings.Cut(strings.TrimSpace(text), "/")
	if !found {
		return fail("has no slash")
	}
	units, err := strconv.ParseInt(strings.TrimSpace(before), 10, 64)
	if err != nil || units < 0 || units > MaxUnits {
		return fail("units are not a whole number from 0 to " + strconv.FormatInt(MaxUnits, 10))
	}
	window, err := parseWindow(strings.TrimSpace(after))
	if err != nil {
		return fail("the window is not a duration")
	}
	if window < MinWindow || window > MaxWindow || window%time.Microsecond != 0 {
		return fail("the window is not from " + MinWindow.String() + " to " + MaxWindow.String() + " in whole microseconds")
	}
	return Rate{Units: units, Window: window}, nil
}

func parseWindow(text string) (time.Duration, error) {
	switch text {
	case "s", "m", "h":
		return time.ParseDuration("1" + text)
	case "d":
		return 24 * time.Hour, nil
	}
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// Algorithm says how units within a window are counted.
type Algorithm uint8

// The algorithms. SlidingLog and SlidingBuckets never admit more than the limit in any window; of the others each says
// what it trades. Numbers are the wire's and never change.
const (
	SlidingLog           Algorithm = 1 // exact: one entry for each charge
	SlidingBuckets       Algorithm = 2 // never over, a unit comes back late by at most 1/128 of the window
	SlidingWindowCounter Algorithm = 3 // approximate: two fixed windows, the earlier one weighted by its overlap
	FixedWindow          Algorithm = 4 // up to twice the limit across a boundary
	TokenBucket          Algorithm = 5 // rate exact, bursts as configured
)

// maxLogged is the most units within a window of which auto keeps each charge.
const maxLogged = 1000

// Auto gives the algorithm that the word auto stands for: SlidingLog where none of the rates has more than 1,000 units,
// else SlidingBuckets. They are all the rates that the limit may ever have for any key, of its plans and overrides too, so
// that no key changes its algorithm, and so its count, when it changes its plan.
func Auto(rates []Rate) Algorithm {
	for _, r := range rates {
		if r.Units > maxLogged {
			return SlidingBuckets
		}
	}
	return SlidingLog
}

var algorithmNames = [...]string{
	SlidingLog: "sliding_log", SlidingBuckets: "sliding_buckets", SlidingWindowCounter: "sliding_window_counter",
	FixedWindow: "fixed_window", TokenBucket: "token_bucket",
}

// String gives the policy's word for the algorithm, or "algorithm(N)" for a number that is none.
func (a Algorithm) String() string { return name(algorithmNames[:], uint8(a), "algorithm") }

// NeverOver says that no window ever holds more than the limit's units: what was spent within one counts for a whole window.
func (a Algorithm) NeverOver() bool { return a == SlidingLog || a == SlidingBuckets }

// Buckets is into how many parts SlidingBuckets divides a window, and a few more where it is not a multiple of so many
// microseconds. A unit counts for at most one of them too long.
const Buckets = 128

// BucketWidth gives the length of one bucket of a window, in whole microseconds.
func BucketWidth(window time.Duration) time.Duration {
	return (window / Buckets).Truncate(time.Microsecond)
}

// ParseAlgorithm reads the policy's word for an algorithm; false where there is none of that name.
func ParseAlgorithm(text string) (Algorithm, bool) {
	n, ok := number(algorithmNames[:], text)
	return Algorithm(n), ok
}

// Mode says where a request's units come from.
type Mode uint8

// The modes. Numbers are the wire's and never change.
const (
	Strict Mode = 1 // one call for each batch of requests, except while a denial stands
	Lease  Mode = 2 // a local leased unit if there is one, else a call for a lease
	Async  Mode = 3 // never paused; the global count follows
)

var modeNames = [...]string{Strict: "strict", Lease: "lease", Async: "async"}

// String gives the policy's word for the mode, or "mode(N)" for a number that is none.
func (m Mode) String() string { return name(modeNames[:], uint8(m), "mode") }

// ParseMode reads the policy's word for a mode; false where there is none of that name.
func ParseMode(text string) (Mode, bool) {
	n, ok := number(modeNames[:], text)
	return Mode(n), ok
}

// Unavailable says what a limit does while the service or the store does not answer.
type Unavailable uint8

// The choices while the service does not answer. Numbers are the wire's and never change.
const (
	Local Unavailable = 1 // the worker's own log, at the worker's share of the limit
	Allow Unavailable = 2 // every request passes this limit
	Deny  Unavailable = 3 // no request passes this limit
)

var unavailableNames = [...]string{Local: "local", Allow: "allow", Deny: "deny"}

// String gives the policy's word for the choice, or "on_unavailable(N)" for a number that is none.
func (u Unavailable) String() string { return name(unavailableNames[:], uint8(u), "on_unavailable") }

// ParseUnavailable reads the policy's word for a choice; false where there is none of that name.
func ParseUnavailable(text string) (Unavailable, bool) {
	n, ok := number(unavailableNames[:], text)
	return Unavailable(n), ok
}

func name(names []string, n uint8, kind string) string {
	if n != 0 && int(n) < len(names) {
		return names[n]
	}
	return kind + "(" + strconv.Itoa(int(n)) + ")"
}

func number(names []string, text string) (uint8, bool) {
	for n, s := range names {
		if s == text && s != "" {
			return uint8(n), true
		}
	}
	return 0, false
}
