package replay

import (
	"sluice/controlsvc/accesslog"
	"sluice/shared/policy"
)

// feed reads a log ahead and binds its requests to limits, each in a goroutine of its own that ends with the log: either takes
// about as long as to decide.
type feed struct {
	empty, read, bound chan *batch
}

// batch is some entries, in order, and what binds them. With err or last there is no other one.
type batch struct {
	entries []accesslog.Entry
	// bindings are by the policy to try and by today's.
	bindings [2]bindings
	err      error
	last     bool
}

const (
	batchSize = 512
	batches   = 6
)

func newFeed(log *accesslog.Log, bind func(*batch)) *feed {
	f := &feed{empty: make(chan *batch, batches), read: make(chan *batch, batches), bound: make(chan *batch, batches)}
	for range batches {
		f.empty <- &batch{entries: make([]accesslog.Entry, 0, batchSize)}
	}
	go func() {
		defer close(f.read)
		for b := range f.empty {
			b.fill(log)
			f.read <- b
			if b.last || b.err != nil {
				return
			}
		}
	}()
	go func() {
		for b := range f.read {
			bind(b)
			f.bound <- b
		}
	}()
	return f
}

func (b *batch) fill(log *accesslog.Log) {
	b.entries = b.entries[:0]
	for len(b.entries) < batchSize {
		e, err := log.Next()
		if err != nil {
			b.err = err
			return
		}
		if e == nil {
			b.last = true
			return
		}
		b.entries = b.entries[:len(b.entries)+1]
		b.entries[len(b.entries)-1].CopyFrom(e)
	}
}

// bound is a policy.Bound that stays valid when other requests are bound.
type bound struct {
	limit  int
	listed policy.Listed
	rule   policy.Rule
	key    string
	cost   int64
}

// bindings are what binds the entries of a batch: of the i-th, those before ends[i] and not before that of the one before.
type bindings struct {
	bounds []bound
	ends   []int
	room   []policy.Bound
}

func (b *bindings) bind(binder *policy.Binder, r *request, entries []accesslog.Entry) {
	b.bounds, b.ends = b.bounds[:0], b.ends[:0]
	for i := range entries {
		r.entry = &entries[i]
		b.room = binder.Bind(r, b.room[:0])
		for j := range b.room {
			from := &b.room[j]
			to := bound{limit: from.Limit, listed: from.Listed, key: from.Key, cost: from.Cost}
			if from.Listed == 0 {
				to.rule = *from.Rule
			}
			b.bounds = append(b.bounds, to)
		}
		b.ends = append(b.ends, len(b.bounds))
	}
}

// of gives what binds the i-th entry.
func (b *bindings) of(i int) []bound {
	from := 0
	if i > 0 {
		from = b.ends[i-1]
	}
	return b.bounds[from:b.ends[i]]
}
