package authority

import (
	"context"

	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

const (
	// maxLeaseLength bounds the name of a lease in a settle, in bytes.
	maxLeaseLength = 256
	// maxCancels bounds what one call has cancelled; abandoned calls beyond are not acknowledged, and come again.
	maxCancels = 4 * wire.MaxKeysPerCall
)

// batch is operations on the store, each made of one item of a request's list. An item is done when each of its operations
// was executed; one without any, for it makes no sense or its limit is gone, is done at once: sending it again helps nobody.
type batch[T any] struct {
	operations []T
	parts      []part
	// left are items whose turn has not come.
	left []uint32
}

// part says that an operation, by its index, is one of an item's.
type part struct{ item, operation int }

func (b *batch[T]) add(item int, operation T) {
	b.parts = append(b.parts, part{item, len(b.operations)})
	b.operations = append(b.operations, operation)
}

// run executes the operations and gives the indices of the items, out of so many, that are done, rising.
func (b *batch[T]) run(ctx context.Context, items int, execute func(context.Context, []T) []error) []uint32 {
	failed := make([]bool, items)
	for _, i := range b.left {
		failed[i] = true
	}
	if len(b.operations) > 0 {
		errs := execute(ctx, b.operations)
		for _, p := range b.parts {
			if errs[p.operation] != nil {
				failed[p.item] = true
			}
		}
	}
	done := make([]uint32, 0, items)
	for i := range failed {
		if !failed[i] {
			done = append(done, uint32(i))
		}
	}
	return done
}

// settle reports retired leases to the store, and gives the indices of those that need not be sent again. What several groups
// of requests give back of the strict charge that was made for them together is one settle, for only the first takes effect.
func (a *Authority) settle(ctx context.Context, book *ruleBook, settles []wire.Settle) []uint32 {
	type charge struct {
		wire.KeyRef

		lease string
	}
	var b batch[Settle]
	first := make(map[charge]int, len(settles))
	for i := range settles {
		s := &settles[i]
		key, known := book.everyCount(s.KeyRef)
		if !known || !validName(s.Lease, maxLeaseLength) || !policy.ValidKey(s.Key) ||
			s.Unused < 0 || s.Unused > limit.MaxUnits || !validUses(s.Uses) {
			continue
		}
		if len(s.Uses) == 0 {
			of := charge{s.KeyRef, s.Lease}
			if with, is := first[of]; is {
				b.operations[with].Unused += s.Unused
				b.parts = append(b.parts, part{i, with})
				continue
			}
			first[of] = len(b.operations)
		}
		b.add(i, Settle{Key: key, Lease: s.Lease, Uses: uses(s.Uses), Unused: s.Unused})
	}
	return b.run(ctx, len(settles), a.config.Store.Settle)
}

// cancel takes back what calls were granted that the worker gave up, and gives the indices of those that need not be
// named again.
func (a *Authority) cancel(ctx context.Context, book *ruleBook, worker uint64, abandoned []wire.Abandoned) []uint32 {
	var b batch[Cancel]
	for i := range abandoned {
		if len(b.operations)+len(abandoned[i].Keys) > maxCancels {
			b.left = append(b.left, uint32(i))
			continue
		}
		for _, ref := range abandoned[i].Keys {
			key, known := book.everyCount(ref)
			if !known || !policy.ValidKey(ref.Key) {
				continue
			}
			b.add(i, Cancel{Key: key, Call: callName(worker, abandoned[i].CallID)})
		}
	}
	return b.run(ctx, len(abandoned), a.config.Store.Cancel)
}

// record charges what workers admitted by themselves, and gives the indices of those that need not be sent again.
func (a *Authority) record(ctx context.Context, book *ruleBook, worker uint64, records []wire.Record) []uint32 {
	var b batch[Record]
	for i := range records {
		r := &records[i]
		key, _, known := book.key(r.KeyRef, r.Plan)
		if !known || !policy.ValidKey(r.Key) || len(r.Uses) == 0 || !validUses(r.Uses) {
			continue
		}
		b.add(i, Record{Key: key, Call: nameOf(worker, recordMark, r.ID), Uses: uses(r.Uses)})
	}
	return b.run(ctx, len(records), a.config.Store.Record)
}

func validUses(uses []wire.Use) bool {
	if len(uses) > wire.MaxUses {
		return false
	}
	for _, u := range uses {
		if u.Age < 0 || u.Age > limit.MaxWindow || u.Units < 0 || u.Units > limit.MaxUnits {
			return false
		}
	}
	return true
}

func uses(from []wire.Use) []Use {
	all := make([]Use, 0, len(from))
	for _, u := range from {
		all = append(all, Use{Age: u.Age, Units: u.Units})
	}
	return all
}

// validName says whether a name is 1 to most bytes of printable ASCII.
func validName(name string, most int) bool {
	if name == "" || len(name) > most {
		return false
	}
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' {
			return false
		}
	}
	return true
}
