package control

import (
	"slices"
	"strings"

	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/ratefields"
	"sluice/shared/wire"
)

// Keys holds what a worker knows of keys: up to so many, the one used longest ago goes first. One that a paused request
// needs stays, so that it may hold a little more for a moment.
type Keys struct {
	client *Client
	policy *policy.Policy
	max    int
	// tables holds one for each of the policy's limits, in their order.
	tables []*table
	// newest and oldest are the ends of the list of all, by last use.
	newest, oldest *Entry
	n              int
	// sweep is the next entry, on the way from the oldest to the newest, that a new policy has yet to reach; unswept is
	// how many there are at most.
	sweep   *Entry
	unswept int
}

// NewKeys gives a client's keys, without a policy yet: SetPolicy has to follow. It holds at most so many.
func NewKeys(client *Client, most int) *Keys { return &Keys{client: client, max: most} }

// SetMost changes how many keys are held at most.
func (t *Keys) SetMost(most int) { t.max = most }

// Len is how many keys are known.
func (t *Keys) Len() int { return t.n }

// Told gives what clients are told of a limit's own rule, by its index.
func (t *Keys) Told(limit int) *ratefields.Limit { return t.tables[limit].told[0] }

// table holds the keys of one limit. A limit that is gone is nil, and its keys go.
type table struct {
	policy *policy.Policy
	limit  *policy.Limit
	// told is what clients are told of the limit's own rule, and of those of its plans.
	told  []*ratefields.Limit
	byKey map[string]*Entry
}

// sweepStep is how many keys a tick takes over to a new policy. All at once would hold up the requests of the worker: 46 ms
// for 100,000 keys.
const sweepStep = 2000

// Entry is a key that the worker knows, and what clients are told of its limit. It is valid until the next call of Keys.
type Entry struct {
	Key  *Key
	Told *ratefields.Limit
	// table is the one that holds it.
	table        *table
	newer, older *Entry
	bound        string // its name in the table
}

// Get gives the key of a limit, made now where it is not known. The text may be lent.
func (t *Keys) Get(now instant.Instant, b *policy.Bound) *Entry {
	in := t.tables[b.Limit]
	limit, name := in.name(b)
	if e := in.byKey[name]; e != nil {
		e.follow(now, b.Rule)
		t.touch(e)
		return e
	}
	name = strings.Clone(name)
	key := name
	if b.Rule.Limit != in.limit {
		key = strings.Clone(b.Key)
	}
	e := &Entry{
		Key:   t.client.NewKey(wire.KeyRef{Limit: limit, Key: key}, *b.Rule),
		table: in, bound: name, Told: in.tell(b.Rule),
	}
	t.shrink()
	in.byKey[name] = e
	t.link(e)
	t.n++
	return e
}

// Free gives the units of leases in hand that may be spent of a key now, less those that were admitted without the store and that
// it has not been told of; 0 of one that is not known.
func (t *Keys) Free(now instant.Instant, b *policy.Bound) int64 {
	in := t.tables[b.Limit]
	_, name := in.name(b)
	if e := in.byKey[name]; e != nil {
		return e.Key.Admission.Free(now) - e.Key.Admission.Untold
	}
	return 0
}

// name gives what a key's limit is called, and the key's name in the table.
func (in *table) name(b *policy.Bound) (limit, name string) {
	if b.Rule.Limit == in.limit {
		return in.limit.Name, b.Key
	}
	limit = b.Rule.Limit.NameWithRate() // the request brings a rate of its own
	return limit, limit + " " + b.Key   // no key has a space in it
}

// touch counts an entry as used now.
func (t *Keys) touch(e *Entry) {
	if t.newest != e {
		t.unlink(e)
		t.link(e)
	}
}

// follow puts the key under the rule that holds for it now.
func (e *Entry) follow(now instant.Instant, rule *policy.Rule) {
	if !rule.Same(e.Key.Admission.Rule()) {
		e.Key.Admission.SetRule(now, *rule)
	}
	if !rule.Same(&e.Told.Rule) {
		e.Told = e.table.tell(rule)
	}
}

// tell gives what clients are told of a rule. Of a key with an override it is its own.
func (in *table) tell(rule *policy.Rule) *ratefields.Limit {
	for _, told := range in.told {
		if rule.Same(&told.Rule) {
			return told
		}
	}
	return ratefields.New(in.policy, *rule)
}

func (t *Keys) link(e *Entry) {
	e.newer, e.older = nil, t.newest
	if t.newest == nil {
		t.oldest = e
	} else {
		t.newest.newer = e
	}
	t.newest = e
}

func (t *Keys) unlink(e *Entry) {
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
func (t *Keys) shrink() {
	const tries = 16
	for i := 0; i < tries && t.n >= t.max && t.oldest != nil; i++ {
		e := t.oldest
		if e.Key.InUse() {
			t.touch(e)
			continue
		}
		t.drop(e)
	}
}

func (t *Keys) drop(e *Entry) {
	t.client.Drop(e.Key)
	t.unlink(e)
	delete(e.table.byKey, e.bound)
	t.n--
}

// SetPolicy goes over to another policy: keys of limits that count the same as before stay, the others go. A key is taken
// over when it is next used, or by the sweep.
func (t *Keys) SetPolicy(p *policy.Policy) {
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
			t.tables[i] = &table{byKey: map[string]*Entry{}}
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

// Tick takes some more keys over to a new policy.
func (t *Keys) Tick(now instant.Instant) { t.tick(now, sweepStep) }

func (t *Keys) tick(now instant.Instant, step int) {
	for i := 0; i < step && t.sweep != nil && t.unswept > 0; i++ {
		e := t.sweep
		t.sweep = e.newer
		t.unswept--
		if e.table.limit == nil || e.Key.Ref.Limit != e.table.limit.Name {
			t.drop(e)
			continue
		}
		rule := e.table.limit.Rule(e.Key.Admission.Rule().Plan, e.bound)
		if rule.Unlimited {
			t.drop(e)
		} else {
			e.follow(now, &rule)
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
	if !slices.Equal(before.Descriptor, after.Descriptor) {
		return false
	}
	for i := range before.Key {
		if !policy.SameValues(oldPolicy, before.Key[i], newPolicy, after.Key[i]) {
			return false
		}
	}
	return true
}
