// Package policy is the compiled form of a policy: what the filter and the service decide by. It is made of the file by
// controlsvc/policyfile, and travels to the filter in GetPolicy.
package policy

import (
	"time"
)

// Bounds on a compiled policy, checked when it is made and again when it is read off the wire.
const (
	MaxIdentities = 256
	MaxLimits     = 16_384
	MaxKeyParts   = 8
	MaxMethods    = 32
	// MaxFieldMatches bounds the headers, and the query parameters, of one match, and MaxFieldValue what each is compared with,
	// in bytes.
	MaxFieldMatches = 16
	MaxFieldValue   = 512
	// MaxNetworks, MaxTemplates and MaxFirstOf bound what one identity is made of, MaxPathParts an attribute's or a claim's path.
	MaxNetworks  = 1024
	MaxTemplates = 1024
	MaxFirstOf   = 16
	MaxPathParts = 8
	// MaxMaxLength bounds Identity.MaxLength, and MaxDefaultLength Identity.Default, in bytes.
	MaxMaxLength     = 65_536
	MaxDefaultLength = 64
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
	// MaxUnitBytes bounds how many bytes of a request one unit stands for.
	MaxUnitBytes = 1 << 30
	// MaxPlans and MaxOverrides bound the exceptions from one limit.
	MaxPlans     = 256
	MaxOverrides = 16_384
	// MaxLists bounds the lists of one kind of a limit or of the policy, MaxListEntries the values, and the prefixes, of one.
	MaxLists       = 64
	MaxListEntries = 16_384
)

// Policy is one version of everything that is limited. It is read-only once made: many requests share it.
type Policy struct {
	// Version is the content hash that names it.
	Version string
	// Domain separates the keys of several policies in one store.
	Domain string
	// HashKey is the key that identities and entries of descriptors are hashed by, MinHashKey to MaxHashKey bytes; empty where none is.
	HashKey    Secret
	Identities []Identity
	Limits     []Limit
	// Block denies every request that stands on one of the lists; Allow takes one out of all limits. Block goes first.
	Allow, Block []List
	// ShadowHeader has the client told, in x-sluice-shadow, which limits in shadow would have denied its request.
	ShadowHeader bool
	// Responses are what denied clients are told; the first is for limits that name none. Without any, that is the default.
	Responses []Response
	// FieldStyles says which header fields tell clients of their limits.
	FieldStyles FieldStyles
}

// ResponseOf gives what a client is told that the limit denies.
func (p *Policy) ResponseOf(l *Limit) *Response {
	if int(l.Response) < len(p.Responses) {
		return &p.Responses[l.Response]
	}
	return &defaultResponse
}

var defaultResponse Response
