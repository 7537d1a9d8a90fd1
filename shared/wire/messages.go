// Package wire puts the messages of sluice.v1.Control into bytes and back without reflection, for the filter, and frames
// them for gRPC. The messages mirror shared/proto/sluice/v1/control.proto, which says what each field means; units are
// as there. Absent and zero are the same.
//
// The encoding is protobuf's (https://protobuf.dev/programming-guides/encoding), held against the generated code by the
// tests. It is written out here, because protobuf's own package for it, protowire, brings fmt, os and file access with
// it: 0.34 MB of a filter of 2.6 MB, in every worker.
package wire

import (
	"time"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

// Bounds on what a message may hold: the reader refuses more, so that garbage cannot make it allocate. A writer has to
// keep the counts and the size; numbers out of range it writes as the nearest that is in range.
const (
	MaxAsks      = 1024
	MaxSettles   = 1024
	MaxAbandoned = 64
	MaxRecords   = 1024
	MaxUses      = 64
	// MaxKeysPerCall bounds the keys of one abandoned call: a call asks for no more.
	MaxKeysPerCall = MaxAsks
	// MaxTextLength bounds every text of a Sync, in bytes; the longest key, policy.MaxKeyLength, is within it.
	MaxTextLength = 4096
	// MaxUnits bounds every count of units.
	MaxUnits = limit.MaxUnits
	// MaxDuration bounds every duration: ten times the longest window.
	MaxDuration = 10 * limit.MaxWindow
	// MaxMessageSize bounds a message, in bytes; it is what gRPC accepts by default.
	MaxMessageSize = 4 << 20
)

// KeyRef names a key as a worker does.
type KeyRef struct{ Limit, Key string }

// SyncRequest is sluice.v1.SyncRequest.
type SyncRequest struct {
	WorkerID      uint64
	CallID        uint64
	PolicyVersion string
	Abandoned     []Abandoned
	Settles       []Settle
	Asks          []Ask
	Records       []Record
	Active        bool
	// Report is nil where there is none.
	Report *Report
	// Round is how long an answer takes the worker; 0 where it does not say.
	Round time.Duration
}

// Abandoned names a call that the worker gave up, and the keys it asked for.
type Abandoned struct {
	CallID uint64
	Keys   []KeyRef
}

// Use is units spent Age ago.
type Use struct {
	Age   time.Duration
	Units int64
}

// Settle reports a retired lease, whole and once.
type Settle struct {
	KeyRef
	Lease  string
	Uses   []Use
	Unused int64
}

// Record reports units admitted while the service was away.
type Record struct {
	KeyRef
	Uses []Use
	ID   uint64
	Plan string
}

// Ask asks for units of one key.
type Ask struct {
	KeyRef
	Want, Min int64
	Waiting   uint32
	Group     uint32
	Plan      string
	Within    time.Duration
}

// SyncResponse is sluice.v1.SyncResponse.
type SyncResponse struct {
	Results       []AskResult
	Settled       []uint32
	Abandoned     []uint32
	Recorded      []uint32
	PolicyVersion string
	Workers, Rank uint32
	Reported      uint64
}

// Problem says why an ask has neither a grant nor a denial.
type Problem uint8

// The problems, by their numbers on the wire.
const (
	NoProblem    Problem = 0
	UnknownLimit Problem = 1
	StoreProblem Problem = 2
	InvalidAsk   Problem = 3
)

// AskResult answers one Ask.
type AskResult struct {
	Problem        Problem
	Lease          string
	Units          int64
	StartIn, EndIn time.Duration
	Limit          int64
	Window         time.Duration
	Remaining      int64
	Reset          time.Duration
	// Denied says that fewer than the wanted units were granted, and Denial holds.
	Denied bool
	Denial Denial
}

// Denial says for how long: DenyFor, to the worker, who denies by itself until then, and RetryAfter, until units are free if
// every lease that is out is spent at its end.
type Denial struct {
	DenyFor, RetryAfter time.Duration
	Never               bool
}

// Earliest is how long a client has to wait at least: where leases deny, which may come back, it is sooner than RetryAfter. A
// denial that is in doubt, which stands for no time at all, tells nothing better than that.
func (d Denial) Earliest() time.Duration {
	if d.DenyFor > 0 {
		return min(d.DenyFor, d.RetryAfter)
	}
	return d.RetryAfter
}

// GetPolicyRequest is sluice.v1.GetPolicyRequest.
type GetPolicyRequest struct {
	// Version is what the worker has; empty where it has none.
	Version string
}

// GetPolicyResponse is sluice.v1.GetPolicyResponse.
type GetPolicyResponse struct {
	// Version is the one in force.
	Version string
	// Policy is nil where the request named the version in force. Its own Version is that of the response.
	Policy *policy.Policy
}
