// Package authority decides who gets how many units, and when. It owns the Store port, behind which the charges live.
package authority

import (
	"context"
	"errors"
	"math/bits"
	"time"

	"sluice/shared/limit"
)

// Key is a key as the store knows it. Another window or algorithm is another count; the number of units is not in it.
type Key struct {
	// Name is domain/limit/identity, escaped; it is unique to the key, and all that is stored for the key shares it as its
	// hash tag, whatever the rates.
	Name      string
	Algorithm limit.Algorithm
	// Rates is never empty; a reserve is granted within all of them or not at all.
	Rates []limit.Rate
}

// Reserve asks for units of one key.
//
// At store time t a grant of n units starts at a ≥ t and has the score e ≥ a, so that for each rate of L units and window
// W: Σ units of charges with score > a − W, plus n, is at most L. With TTL 0 it is a strict charge, a = e = t.
type Reserve struct {
	Key Key
	// Call names the worker's call that the reserve is part of, among all calls in the life of the store; Part tells it from
	// every other reserve for the call, and from those of the same call where it reaches the service twice. Cancel finds
	// charges by them. Each at most 64 bytes of [0-9A-Za-z._-]; Part may be empty.
	Call, Part string
	// Want ≥ Min ≥ 1. What is granted is 0 or a whole multiple of Min, at most Want.
	Want, Min int64
	// TTL is how long the lease may be spent: end = start + TTL, or sooner where the algorithm says so. 0: a strict charge;
	// where a lease that starts now would be too short to be of use it is one too.
	TTL time.Duration
	// Horizon, with a TTL: how far ahead a lease may start where nothing is free now. 0: now or not at all.
	Horizon time.Duration
	// Shared says that units of a lease which this replica of the service holds will do, where it holds one.
	Shared bool
}

// Reserved is what a reserve was given.
type Reserved struct {
	// Err is set where the store did not execute this reserve, or its answer was lost; nothing else holds then.
	Err error
	// Lease names the grant; empty where Units is 0. It is minted afresh at each execution.
	Lease string
	Units int64
	// StartIn and EndIn are relative to the store's clock at the execution; both 0 for a strict charge.
	StartIn, EndIn time.Duration
	State          State
	// Denied says that another Min within Want was not to be had: Want − Units ≥ Min. Denial then tells when it could be.
	Denied bool
	Denial Denial
}

// State is how a key stands, for the rate with the smallest remaining share of its units (the earlier in the policy where
// equal).
type State struct {
	Rate limit.Rate
	// Remaining is what could be reserved at once, after this operation; never negative.
	Remaining int64
	// Reset is when the window is empty again if nothing more is charged; 0 where it is empty.
	Reset time.Duration
}

// Scarcer says whether a smaller share of the rate's units is left than of another's; nothing of nothing is a share of 0.
func (s State) Scarcer(than State) bool {
	if s.Remaining == 0 || than.Remaining == 0 {
		return s.Remaining == 0 && than.Remaining > 0
	}
	// Without rounding: s.Remaining ÷ s.Rate.Most() < than.Remaining ÷ than.Rate.Most().
	high, low := bits.Mul64(uint64(s.Remaining), uint64(than.Rate.Most()))
	thanHigh, thanLow := bits.Mul64(uint64(than.Remaining), uint64(s.Rate.Most()))
	return high < thanHigh || high == thanHigh && low < thanLow
}

// Inspection is what the store knows of a key, for people.
type Inspection struct {
	// Rates are in the key's order.
	Rates []Inspected
	// Leases are those that are out, the first to end first, at most MaxLeasesTold. Where the algorithm remembers no leases,
	// as a token bucket does not, there are none.
	Leases []LiveLease
}

// MaxLeasesTold bounds Inspection.Leases.
const MaxLeasesTold = 100

// Inspected is how a key stands within one rate.
type Inspected struct {
	State
	// Used is what counts within the window now, what is leased out included. It may be more than the rate has.
	Used int64
	// FreeIn is when the units that were asked about are to be had, if nothing more is charged and every lease out is spent at
	// its end; 0: now. Never: the rate does not hold so many.
	FreeIn time.Duration
	Never  bool
}

// LiveLease is a lease that may still be spent.
type LiveLease struct {
	Lease string
	// Call is the reserve's.
	Call  string
	Units int64
	// Age is how long ago it was granted. EndIn is how long it may still be spent; where charges are counted in buckets it is
	// rounded up to the end of one.
	Age, EndIn time.Duration
	// Parts are the sub-leases that a replica gave of a lease of its own, where it is this one; they may still be spent.
	Parts []LiveLease
}

// Denial says when to ask again.
type Denial struct {
	// RetryAfter is when Min units will be free, if nothing more is charged and every lease out is spent at its end. At
	// exactly that instant they are free; a microsecond earlier they are not.
	RetryAfter time.Duration
	// DenyFor is for how long nobody needs to ask: for as long as settled and strict units alone deny, which is RetryAfter
	// where no lease is out; where that is shorter, for W/20 within [20 ms, 1 s], W the window of the rate that denies for
	// the longest, since leases may be given back; and never for longer than RetryAfter.
	DenyFor time.Duration
	// Never: Min is more than the limit holds. RetryAfter and DenyFor are 0 then.
	Never bool
}

// Use is units spent Age before the store executes the report.
type Use struct {
	Age   time.Duration
	Units int64
}

// Settle reports a retired lease: Uses when units were spent, Unused that never will be. What is missing to the lease's
// units keeps its score; more than the lease's units is cut down to it, unused first, then the earliest uses. Many different
// ages are joined to at most 63, each of them the youngest's. The first settle of a lease takes effect, whole; a later one,
// or one of a lease that has run out of the window or that the store never named, does nothing. A strict charge is settled
// like a lease: what is given back of it at once is free at once.
type Settle struct {
	Key    Key
	Lease  string
	Uses   []Use
	Unused int64
}

// Cancel removes every unsettled charge that a call was granted on a key; with a Part only what that part was granted.
// Cancelling what was not granted does nothing.
type Cancel struct {
	Key        Key
	Call, Part string
}

// Record charges units that were admitted without asking; the key may be over its limit afterwards.
type Record struct {
	Key  Key
	Call string
	Uses []Use
}

// Share is a worker's place among the workers connected anywhere.
type Share struct{ Workers, Rank uint32 }

// Entry is a text that the store keeps for a domain, for all replicas, until it expires.
type Entry struct {
	// Name is unique within the domain: 1 to 4096 bytes. Text is at most 4096 bytes.
	Name, Text string
	// ExpiresIn is from the store's now on: 1 ms to limit.MaxWindow.
	ExpiresIn time.Duration
}

// Edit changes the overlay of a domain, or only asks for it.
type Edit struct {
	Domain string
	// Remove is the name of an entry that is to go; empty: none. After that Put is put in, in the place of one with its name;
	// one without a name: none.
	Remove string
	Put    Entry
	// Known is the revision that the caller has; 0: none. Where it still is the one after the edit no entries are given.
	Known uint64
}

// Overlay is what a domain's overlay holds.
type Overlay struct {
	// Revision is another number after each change, an entry's expiry included; 0 where there was none for long.
	Revision uint64
	// Entries are sorted by their names; none where Revision is Edit.Known.
	Entries []Entry
	// Removed says that Edit.Remove was there.
	Removed bool
}

// MaxEntries is how many entries a domain's overlay has room for; an edit beyond changes nothing and fails with ErrFull.
const MaxEntries = 1000

// ErrFull is what the error of an edit wraps for which there is no room.
var ErrFull = errors.New("the overlay is full")

// ErrUnavailable is what errors of a store that did not answer in time wrap.
var ErrUnavailable = errors.New("the store did not answer")

// Store is where charges live. Per key its operations are serial; each reads the store's clock once. Every method takes
// many operations, on any keys, and sends them together; the results are in the order of the operations. A deadline on the
// context bounds every call. Repeating any operation may cost capacity and never admits more.
type Store interface {
	Reserve(ctx context.Context, operations []Reserve) []Reserved
	// Settle, Cancel and Record give one error for each operation, nil where it was executed.
	Settle(ctx context.Context, operations []Settle) []error
	Cancel(ctx context.Context, operations []Cancel) []error
	Record(ctx context.Context, operations []Record) []error
	// Peek gives a state for each rate of the key, without charging anything.
	Peek(ctx context.Context, key Key) ([]State, error)
	// Inspect tells what Peek does and more, without charging anything: when so many units, 1 or more, are free, and which
	// leases are out. It may look at everything that is stored for the key.
	Inspect(ctx context.Context, key Key, units int64) (Inspection, error)
	// Reset forgets every charge of the key, those of leases that are out too: these may still be spent.
	Reset(ctx context.Context, key Key) error
	// Overlay changes what a domain's overlay holds, and gives it; see Edit. It forgets what has expired by the store's clock.
	Overlay(ctx context.Context, edit Edit) (Overlay, error)
	// Connected notes that a worker of the domain is there, for ttl, and gives its share.
	Connected(ctx context.Context, domain string, worker uint64, ttl time.Duration) (Share, error)
	// Exchange keeps what a replica of the domain's service says, for ttl or until it says something else, and gives what the
	// others say, in any order. It is not counted by and says nothing of keys.
	Exchange(ctx context.Context, domain string, replica uint64, says []byte, ttl time.Duration) ([][]byte, error)
	// Ping says whether the store answers.
	Ping(ctx context.Context) error
	Close() error
}
