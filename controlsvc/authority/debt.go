package authority

import (
	"cmp"
	"context"
	"fmt"
	"sync"
)

// giveBack takes one charge back: a cancel where Lease is empty, else a settle of the lease's surplus. It may be executed
// twice, and late: no grant of the same part is ever made after it.
type giveBack struct {
	key    Key
	call   string
	part   string
	lease  string
	unused int64
}

const (
	// maxDebts bounds the charges that wait to be taken back while the store does not answer.
	maxDebts = 1 << 14
	// repayAtOnce is how many are taken back in one call of the store.
	repayAtOnce = 256
)

// debts are the charges that nobody was admitted for and that could not be taken back yet. Until they are, they cost
// capacity only.
type debts struct {
	mu      sync.Mutex
	waiting []giveBack
}

// owe notes charges to be taken back later, and gives how many there was no room for.
func (d *debts) owe(charges []giveBack) (dropped int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	room := min(len(charges), maxDebts-len(d.waiting))
	d.waiting = append(d.waiting, charges[:room]...)
	return len(charges) - room
}

// take gives the oldest debts, at most so many.
func (d *debts) take(most int) []giveBack {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(most, len(d.waiting))
	taken := append([]giveBack(nil), d.waiting[:n]...)
	d.waiting = append(d.waiting[:0], d.waiting[n:]...)
	return taken
}

// Owed is how many charges wait to be taken back.
func (a *Authority) Owed() int {
	a.debts.mu.Lock()
	defer a.debts.mu.Unlock()
	return len(a.debts.waiting)
}

// Repay takes back what could not be taken back when it should have been, until nothing is left or the store fails. It is
// to be called now and then; the deadline of the context bounds it.
func (a *Authority) Repay(ctx context.Context) error {
	for {
		charges := a.debts.take(repayAtOnce)
		if len(charges) == 0 {
			return nil
		}
		failed, err := a.execute(ctx, charges)
		a.leak(a.debts.owe(failed))
		if err != nil {
			return fmt.Errorf("%d of %d charges could not be taken back, the first: %w", len(failed), len(charges), err)
		}
	}
}

// takeBack takes charges back at once, or owes them where the store fails. True where all are back.
func (a *Authority) takeBack(ctx context.Context, charges []giveBack) bool {
	if len(charges) == 0 {
		return true
	}
	failed := charges
	if ctx.Err() == nil {
		failed, _ = a.execute(ctx, charges)
	}
	a.leak(a.debts.owe(failed))
	return len(failed) == 0
}

func (a *Authority) leak(charges int) {
	if charges > 0 {
		a.config.Observer.Leaked(charges)
	}
}

// execute gives the charges that were not taken back, and why the first of them was not.
func (a *Authority) execute(ctx context.Context, charges []giveBack) (failed []giveBack, err error) {
	var cancels []Cancel
	var settles []Settle
	var cancelled, settled []int
	for i, c := range charges {
		if c.lease == "" {
			cancels, cancelled = append(cancels, Cancel{Key: c.key, Call: c.call, Part: c.part}), append(cancelled, i)
			continue
		}
		settles = append(settles, Settle{Key: c.key, Lease: c.lease, Unused: c.unused}) // the rest stays as it is
		settled = append(settled, i)
	}
	collect := func(of []int, errs []error) {
		for i, one := range errs {
			if one != nil {
				failed = append(failed, charges[of[i]])
				err = cmp.Or(err, one) // the others say the same, or much like it
			}
		}
	}
	if len(cancels) > 0 {
		collect(cancelled, a.config.Store.Cancel(ctx, cancels))
	}
	if len(settles) > 0 {
		collect(settled, a.config.Store.Settle(ctx, settles))
	}
	return failed, err
}
