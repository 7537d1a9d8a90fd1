package plugin

import (
	"strings"

	"sluice/filter/control"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// keys holds what a worker knows of keys: up to so many, the one used longest ago goes first. One that a paused request
// needs stays, so that it may hold a little more for a moment.
type keys struct {
	client *control.Client
	policy *policy.Policy
	max    int
	// byLimit holds a table for each of the policy's limits, in their order.
	byLimit []map[string]*entry
	// newest and oldest are the ends of the list of all, by last use.
	newest, oldest *entry
	n              int
}

type entry struct {
	key *control.Key
	// table is the one that holds it.
	table        map[string]*entry
	newer, older *entry
	bound        string // its name in the table
}

// get gives the key of a limit, made now where it is not known. The text may be lent.
func (t *keys) get(b policy.Bound) *control.Key {
	table := t.byLimit[b.Limit]
	if e := table[b.Key]; e != nil {
		t.touch(e)
		return e.key
	}
	l := &t.policy.Limits[b.Limit]
	text := strings.Clone(b.Key)
	e := &entry{
		key:   t.client.NewKey(wire.KeyRef{Limit: l.Name, Key: text}, l),
		table: table, bound: text,
	}
	t.shrink()
	table[text] = e
	t.link(e)
	t.n++
	return e.key
}

func (t *keys) touch(e *entry) {
	if t.newest != e {
		t.unlink(e)
		t.link(e)
	}
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
	delete(e.table, e.bound)
	t.n--
}

// setPolicy goes over to another policy: keys of limits that count the same as before stay, the others go.
func (t *keys) setPolicy(p *policy.Policy) {
	old, tables := t.policy, t.byLimit
	t.policy, t.byLimit = p, make([]map[string]*entry, len(p.Limits))
	before := map[string]int{}
	if old != nil {
		for i := range old.Limits {
			before[old.Limits[i].Name] = i
		}
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		j, there := before[l.Name]
		if !there || !sameCount(old, &old.Limits[j], p, l) {
			t.byLimit[i] = map[string]*entry{}
			continue
		}
		t.byLimit[i], tables[j] = tables[j], nil
		for _, e := range t.byLimit[i] {
			e.key.Admission.SetLimit(l)
		}
	}
	for _, gone := range tables {
		for _, e := range gone {
			t.drop(e)
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
		if oldPolicy.Identities[before.Key[i]] != newPolicy.Identities[after.Key[i]] {
			return false
		}
	}
	return true
}
