package replay

import (
	"sluice/controlsvc/accesslog"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// feed reads a log ahead and binds its requests to limits, each in a goroutine of its own that ends with the log: either takes
// about as long as to decide.
type feed struct {
	empty, read, bound chan *batch
	made               int
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
	// batches are few, so that what stands in them is in the processor's cache still when the next one comes to it.
	batches = 8
)

func newFeed(log *accesslog.Log, bind func(*batch)) *feed {
	f := &feed{empty: make(chan *batch, batches), read: make(chan *batch, batches), bound: make(chan *batch, batches)}
	go func() {
		defer close(f.read)
		for {
			b := f.spare()
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

// spare gives a batch to fill. No more are made than are needed, for one that waits to be filled keeps the text that it held.
func (f *feed) spare() *batch {
	select {
	case b := <-f.empty:
		return b
	default:
	}
	if f.made == batches {
		return <-f.empty
	}
	f.made++
	return &batch{entries: make([]accesslog.Entry, 0, batchSize)}
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

// bound is what of a policy.Bound is needed to decide; it stays valid when other requests are bound.
type bound struct {
	limit  int32
	listed policy.Listed
	shadow bool
	rates  []limit.Rate
	key    string
	cost   int64
	hash   uint64
	// seen is the key that there was when keys were looked for; nil for none.
	seen *key
}

// bindings are what binds the entries of a batch: of the i-th, those before ends[i] and not before that of the one before.
type bindings struct {
	bounds []bound
	ends   []int
	room   []policy.Bound
}

func (b *bindings) bind(binder *policy.Binder, r *request, entries []accesslog.Entry) {
	before := len(b.bounds)
	b.bounds, b.ends = b.bounds[:0], b.ends[:0]
	for i := range entries {
		r.entry = &entries[i]
		b.room = binder.Bind(r, b.room[:0])
		for j := range b.room {
			from := &b.room[j]
			if from.Listed != 0 {
				b.bounds = append(b.bounds, bound{limit: int32(from.Limit), listed: from.Listed})
				continue
			}
			b.bounds = append(b.bounds, bound{
				limit: int32(from.Limit), shadow: from.Rule.Shadow, rates: from.Rule.Rates, key: from.Key, cost: from.Cost,
				hash: hashOf(from.Limit, from.Key),
			})
		}
		b.ends = append(b.ends, len(b.bounds))
	}
	if n := len(b.bounds); n < before {
		clear(b.bounds[n:before]) // it would keep the log's text
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
