// Package policy is the compiled form of a policy: what the filter and the service decide by. It is made of the file by
// controlsvc/policyfile, and travels to the filter in GetPolicy.
package policy

import (
	"time"

	"sluice/shared/limit"
)

// Bounds on a compiled policy, checked when it is made and again when it is read off the wire.
const (
	MaxIdentities = 256
	MaxLimits     = 16_384
	MaxKeyParts   = 8
	MaxMethods    = 32
	// MaxNameLength bounds the domain's, identities', limits' and headers' names and the version, in bytes.
	MaxNameLength = 128
	// MaxPathLength bounds a path to match, in bytes.
	MaxPathLength = 1024
	// MaxMethodLength bounds a method's name, in bytes.
	MaxMethodLength = 32
	// MaxTrustedHops bounds how far from the right of X-Forwarded-For an address is read.
	MaxTrustedHops = 64
	// MaxMaxWait bounds for how long a limit may hold a request back.
	MaxMaxWait = time.Minute
	// MaxCost bounds what one request spends, in units.
	MaxCost = 1_000_000
)

// Policy is one version of everything that is limited. It is read-only once made: many requests share it.
type Policy struct {
	// Version is the content hash that names it.
	Version string
	// Domain separates the keys of several policies in one store.
	Domain     string
	Identities []Identity
	Limits     []Limit
}

// Source says where an identity's value is read from. Numbers are the wire's field numbers.
type Source uint8

// The sources of an identity.
const (
	FromHeader  Source = 2
	FromAddress Source = 3
)

// Identity is a value that tells callers apart.
type Identity struct {
	Name   string
	Source Source
	// Header is the header's name in lower case, for FromHeader.
	Header string
	// TrustedHops, for FromAddress: 0 takes the peer's address, n > 0 the n-th entry from the right of X-Forwarded-For, or
	// the peer's where there is no such entry or it is no address. Up to MaxTrustedHops.
	TrustedHops uint32
}

// Limit is one rule of the policy.
type Limit struct {
	Name  string
	Match Match
	// Key holds indices into Policy.Identities; a request that lacks one of them is not under this limit. Without any, all
	// requests share one count.
	Key []uint32
	// Rates hold all at once; there is at least one, each with another window.
	Rates         []limit.Rate
	Algorithm     limit.Algorithm
	Mode          limit.Mode
	OnUnavailable limit.Unavailable
	// MaxWait is for how long a request may be held back until a unit that is granted already may be spent: 0 to
	// MaxMaxWait, in whole microseconds. 0: not at all, which is all that modes other than Lease may say.
	MaxWait time.Duration
	// Cost is what one request spends: 1 to MaxCost units, and not more than the smallest rate holds. 0 stands for 1.
	Cost int64
}

// RequestCost gives what one request spends, in units.
func (l *Limit) RequestCost() int64 { return max(1, l.Cost) }

// Match is what a request has to be for a limit to bind it; an empty field matches everything.
//
// Paths are compared byte by byte, without the query, as the proxy shows them: it is the proxy that decodes, resolves
// dots and merges slashes (Envoy's normalize_path and merge_slashes), before anything matches.
type Match struct {
	PathExact string
	// PathPrefix matches whole segments, as Kubernetes' Gateway API and Envoy's path_separated_prefix have it: /v1/reports
	// matches /v1/reports, /v1/reports/ and /v1/reports/7, but not /v1/reportsX. A slash at its end changes nothing.
	PathPrefix string
	// Methods are compared case by case, as HTTP does (RFC 9110, 9.1).
	Methods []string
}
