package branch

import (
	"context"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/instant"
)

const (
	// tickEvery is how soon the store is told of what comes back.
	tickEvery = 20 * time.Millisecond
	// answerWithin bounds how long the store may take.
	answerWithin = 250 * time.Millisecond
	// maxOwed bounds what waits for the store to answer, and maxDebt for how long. Beyond that it runs out by itself.
	maxOwed = 4096
	maxDebt = time.Minute
)

// debt is something to tell the store: a lease that is over, or a call whose answer was lost.
type debt struct {
	of     authority.Key
	lease  *held // nil: a cancel
	cancel authority.Cancel
	until  instant.Instant
}

func (b *Branch) owe(debts ...debt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owed = append(b.owed, debts[:min(len(debts), maxOwed-len(b.owed))]...)
}

// Run calls Tick until the context ends.
func (b *Branch) Run(ctx context.Context, after func(time.Duration) <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-after(tickEvery):
		}
		b.Tick(ctx)
	}
}

// Tick settles leases that are over or that nobody needs any more, and repeats what the store did not answer.
func (b *Branch) Tick(ctx context.Context) { b.settleAll(ctx, false) }

// Stop settles every lease. What workers still may spend of them counts as spent at the lease's end.
func (b *Branch) Stop(ctx context.Context) { b.settleAll(ctx, true) }

func (b *Branch) settleAll(ctx context.Context, end bool) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	now := b.config.Now()
	for i := range b.shards {
		b.owe(b.shards[i].retire(now, end)...)
	}
	b.mu.Lock()
	debts := b.owed
	b.owed = nil
	b.mu.Unlock()
	if len(debts) == 0 {
		return
	}
	var settles []authority.Settle
	var cancels []authority.Cancel
	for _, d := range debts {
		if d.lease != nil {
			settles = append(settles, d.lease.report(d.of, now))
		} else {
			cancels = append(cancels, d.cancel)
		}
	}
	var settled, cancelled []error
	if len(settles) > 0 {
		settled = b.Store.Settle(ctx, settles)
	}
	if len(cancels) > 0 {
		cancelled = b.Store.Cancel(ctx, cancels)
	}
	var left []debt
	for _, d := range debts {
		var err error
		if d.lease != nil {
			err, settled = settled[0], settled[1:]
		} else {
			err, cancelled = cancelled[0], cancelled[1:]
		}
		if err != nil && now < d.until {
			left = append(left, d)
		}
	}
	b.owe(left...)
}
