package control

import (
	"time"

	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// Key is one key that the worker counts by: what admission knows of it, and what the conversation does.
type Key struct {
	// Ref names it to the service.
	Ref       wire.KeyRef
	Admission *admission.Key

	serial uint64 // tells keys apart in a group's hash
	groups int    // groups of requests that need it, waiting or in a call
	// underWay is the call that asks for it; nil for none. There is one at a time.
	underWay *call
	waiting  int // groups that wait for a call
	asking   int // groups that wait for an answer
	// asked is the rule under which it was last asked for without a request that waits.
	asked   policy.Rule
	passed  int64 // units that requests of the last look are held for, and scan which look that was
	scan    uint64
	lost    uint64 // the last look that found a lease gone that a request was held for
	blocked uint64 // the last scan in which a group that went before waited for it
	granted uint64 // the last call that was granted units of it
	// leased says that the client looks after the key's leases; wished, that it is to be asked for ahead of need.
	leased, wished bool
	// aheadAfter is when asking ahead of need may be worth while again.
	aheadAfter instant.Instant
	// records hold what was admitted without the store and no call has carried yet, under the two plans that the key was in
	// last; nil for none.
	records [2]*report
	// total is what the worker has admitted of the key without the store; see Admission.Untold. carried is space for a call's sums.
	total, carried int64
	// recount says that the key's count is to be asked for, not before countAfter.
	recount    bool
	countAfter instant.Instant
	// run is of its last requests, and tally of those before since the last report that told of it; tallied says that the next
	// one may.
	run     run
	tally   keyTally
	tallied bool
}

// NewKey gives a key that nothing is known of. The reference's texts are kept.
func (c *Client) NewKey(ref wire.KeyRef, rule policy.Rule) *Key {
	c.lastKey++
	return &Key{Ref: ref, Admission: admission.NewKey(rule), serial: c.lastKey}
}

// follow puts the key under a rule, or where that is of a policy before the one in force under the same plan's now: what was asked
// for one plan is not another's. False where that plan is unlimited now.
func (k *Key) follow(now instant.Instant, rule *policy.Rule) bool {
	of, is := k.Admission.Rule(), *rule
	if rule.Limit != of.Limit {
		is = of.Limit.Rule(rule.Plan, k.Ref.Key)
	}
	if !is.Unlimited && !is.Same(of) {
		k.Admission.SetRule(now, is)
	}
	return !is.Unlimited
}

// plan is what the service is told of which rule holds for the key.
func (k *Key) plan() string { return k.Admission.Rule().Plan }

// Demand gives what a request that comes now needs of the key.
func (k *Key) Demand(cost int64) admission.Demand {
	d := admission.Demand{Key: k.Admission, Cost: cost}
	if k.Admission.MaxWait() > 0 {
		d.Ahead, d.Behind = k.Admission.Claimed(), k.asking > 0
	}
	return d
}

// InUse says whether a paused request needs the key: it must not be forgotten then.
func (k *Key) InUse() bool { return k.groups > 0 }

// reportWithin is how soon what concerns the key is to be reported.
func (k *Key) reportWithin() time.Duration {
	within := maxReportDelay
	for _, rate := range k.Admission.Rule().Rates {
		within = min(within, rate.Window/4)
	}
	return within
}

// longestWindow is for how long units of the key count at most.
func (k *Key) longestWindow() time.Duration {
	var longest time.Duration
	for _, rate := range k.Admission.Rule().Rates {
		longest = max(longest, rate.Window)
	}
	return longest
}
