package plugin

import (
	"strings"

	"sluice/filter/control"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/ratefields"
	"sluice/shared/wire"
)

// keys holds what a worker knows of keys: up to so many, the one used longest ago goes first. One that a paused request
// needs stays, so that it may hold a little more for a moment.
type keys struct {
	client *control.Client
	policy *policy.Policy
	max    int
	// tables holds one for each of the policy's limits, in their order.
	tables []*table
	// newest and oldest are the ends of the list of all, by last use.
	newest, oldest *entry
	n              int
	// sweep is the next entry, on the way from the oldest to the newest, that a new policy has yet to reach; unswept is
	// how many there are at most.
	sweep   *entry
	unswept int
}

// table holds the keys of one limit. A limit that is gone is nil, and its keys go.
type table struct {
	policy *policy.Policy
	limit  *policy.Limit
	// told is what clients are told of the limit's own rule, and of those of its plans.
	told  []*ratefields.Limit
	byKey map[string]*entry
}

// sweepStep is how many keys a tick takes over to a new policy. All at once would hold up the requests of the worker: 46 ms
// for 100,000 keys.
const sweepStep = 2000

type entry struct {
	key *control.Key
	// table is the one that holds it.
	table        *table
	newer, older *entry
	bound        string // its name in the table
	told         *ratefields.Limit
}

// get gives the key of a limit, made now where it is not known. The text may be lent.
func (t *keys) get(now instant.Instant, b *policy.Bound) *entry {
	in := t.tables[b.Limit]
	if e := in.byKey[b.Key]; e != nil {
		e.follow(now, b.Rule)
		t.touch(e)
		return e
	}
	text := strings.Clone(b.Key)
	e := &entry{
		key:   t.client.NewKey(wire.KeyRef{Limit: in.limit.Name, Key: text}, b.Rule),
		table: in, bound: text, told: in.tell(b.Rule),
	}
	t.shrink()
	in.byKey[text] = e
	t.link(e)
	t.n++
	return e
}

// touch counts an entry as used now.
func (t *keys) touch(e *entry) {
	if t.newest != e {
		t.unlink(e)
		t.link(e)
	}
}

// follow puts the key under the rule that holds for it now.
func (e *entry) follow(now instant.Instant, rule policy.Rule) {
	if !rule.Same(e.key.Admission.Rule()) {
		e.key.Admission.SetRule(now, rule)
		e.told = e.table.tell(rule)
	}
}

// tell gives what clients are told of a rule. Of a key with an override it is its own.
func (in *table) tell(rule policy.Rule) *ratefields.Limit {
	for _, told := range in.told {
		if rule.Same(&told.Rule) {
			return told
		}
	}
	return ratefields.New(in.policy, rule)
}

func (t *keys) link(e *entry) {
	e.newer, e.older = nil, t.newest
	if t.newest == nil {
		t.oldest = e
	} else {
		t.newest.newer = e
	}
	t.newest = e
}

func (t *keys) unlink(e *entry) {
	if t.sweep == e {
		t.sweep = e.newer
	}
	if e.newer == nil {
		t.newest = e.older
	} else {
		e.newer.older = e.older
	}
	if e.older == nil {
		t.oldest = e.newer
	} else {
		e.older.newer = e.newer
	}
	e.newer, e.older = nil, nil
}

// shrink makes room for one more. A few at a time: a key in use is passed over, and counts as used now.
func (t *keys) shrink() {
	const tries = 16
	for i := 0; i < tries && t.n >= t.max && t.oldest != nil; i++ {
		e := t.oldest
		if e.key.InUse() {
			t.touch(e)
			continue
		}
		t.drop(e)
	}
}

func (t *keys) drop(e *entry) {
	t.client.Drop(e.key)
	t.unlink(e)
	delete(e.table.byKey, e.bound)
	t.n--
}

// setPolicy goes over to another policy: keys of limits that count the same as before stay, the others go. A key is taken
// over when it is next used, or by the sweep.
func (t *keys) setPolicy(p *policy.Policy) {
	old, tables := t.policy, t.tables
	t.policy, t.tables = p, make([]*table, len(p.Limits))
	before := map[string]int{}
	if old != nil {
		for i := range old.Limits {
			before[old.Limits[i].Name] = i
		}
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		j, there := before[l.Name]
		if there && sameCount(old, &old.Limits[j], p, l) {
			t.tables[i], tables[j] = tables[j], nil
		} else {
			t.tables[i] = &table{byKey: map[string]*entry{}}
		}
		t.tables[i].setLimit(p, l)
	}
	for _, gone := range tables {
		if gone != nil {
			gone.limit = nil
		}
	}
	t.sweep, t.unswept = t.oldest, t.n
}

func (in *table) setLimit(p *policy.Policy, l *policy.Limit) {
	in.policy, in.limit = p, l
	in.told = append(in.told[:0:0], ratefields.New(p, l.Rule("", "")))
	for i := range l.Plans {
		in.told = append(in.told, ratefields.New(p, l.Rule(l.Plans[i].Name, "")))
	}
}

// tick takes up to step more keys over to a new policy.
func (t *keys) tick(now instant.Instant, step int) {
	for i := 0; i < step && t.sweep != nil && t.unswept > 0; i++ {
		e := t.sweep
		t.sweep = e.newer
		t.unswept--
		if e.table.limit == nil {
			t.drop(e)
			continue
		}
		rule := e.table.limit.Rule(e.key.Admission.Rule().Plan, e.bound)
		if rule.Unlimited {
			t.drop(e)
		} else {
			e.follow(now, rule)
		}
	}
}

// sameCount says whether two versions of a limit count the same requests: by the same algorithm, under keys made of the
// same values. That they hold other numbers, or match other requests, changes what is admitted and not what was spent;
// of other windows admission.Key.SetLimit keeps those that stay.
func sameCount(oldPolicy *policy.Policy, before *policy.Limit, newPolicy *policy.Policy, after *policy.Limit) bool {
	if before.Algorithm != after.Algorithm || len(before.Key) != len(after.Key) || oldPolicy.Domain != newPolicy.Domain {
		return false
	}
	for i := range before.Key {
		if !policy.SameValues(oldPolicy, before.Key[i], newPolicy, after.Key[i]) {
			return false
		}
	}
	return true
}
