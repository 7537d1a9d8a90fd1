package authority_test

import (
	"context"
	"errors"
	"fmt"

	"sluice/controlsvc/authority"
)

// fault is what happens to one operation on its way.
type fault int

const (
	fine    fault = iota
	refused       // not executed, and an error
	lost          // executed, but the answer is lost
	late          // an error, and executed later: when the test calls arrive
)

var errInjected = fmt.Errorf("injected: %w", authority.ErrUnavailable)

// faulty is a store with faults between it and its caller.
type faulty struct {
	authority.Store

	// next gives the fault of the next operation; nil: fine.
	next func(operation string) fault
	// before and after are called around each call of the store; nil: nothing.
	before, after func(operation string)

	delayed []func()
}

func (f *faulty) fault(operation string) fault {
	if f.next == nil {
		return fine
	}
	return f.next(operation)
}

// arrive executes what was late.
func (f *faulty) arrive() {
	delayed := f.delayed
	f.delayed = nil
	for _, execute := range delayed {
		execute()
	}
}

// through executes operations one by one, in their order, with faults.
func through[T, R any](f *faulty, name string, operations []T, execute func(T) R, fail func(error) R) []R {
	if len(operations) == 0 {
		panic("the store is called to " + name + " nothing") // it would be counted as a call that was answered at once
	}
	if f.before != nil {
		f.before(name)
	}
	results := make([]R, 0, len(operations))
	for _, o := range operations {
		switch f.fault(name) {
		case fine:
			results = append(results, execute(o))
		case refused:
			results = append(results, fail(errInjected))
		case lost:
			execute(o)
			results = append(results, fail(errInjected))
		case late:
			f.delayed = append(f.delayed, func() { execute(o) })
			results = append(results, fail(errInjected))
		}
	}
	if f.after != nil {
		f.after(name)
	}
	return results
}

func (f *faulty) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	return through(f, "reserve", operations,
		func(o authority.Reserve) authority.Reserved { return f.Store.Reserve(ctx, []authority.Reserve{o})[0] },
		func(err error) authority.Reserved { return authority.Reserved{Err: err} })
}

func (f *faulty) Settle(ctx context.Context, operations []authority.Settle) []error {
	return through(f, "settle", operations,
		func(o authority.Settle) error { return errors.Join(f.Store.Settle(ctx, []authority.Settle{o})...) }, same)
}

func (f *faulty) Cancel(ctx context.Context, operations []authority.Cancel) []error {
	return through(f, "cancel", operations,
		func(o authority.Cancel) error { return errors.Join(f.Store.Cancel(ctx, []authority.Cancel{o})...) }, same)
}

func (f *faulty) Record(ctx context.Context, operations []authority.Record) []error {
	return through(f, "record", operations,
		func(o authority.Record) error { return errors.Join(f.Store.Record(ctx, []authority.Record{o})...) }, same)
}

func same(err error) error { return err }
