package replay

import "sluice/controlsvc/accesslog"

// feed reads a log ahead, in a goroutine of its own that ends with the log: parsing takes about as long as deciding.
type feed struct {
	full, empty chan *batch
}

// batch is some entries, in order. With err or last there is no other one.
type batch struct {
	entries []accesslog.Entry
	err     error
	last    bool
}

const (
	batchSize = 512
	batches   = 4
)

func newFeed(log *accesslog.Log) *feed {
	f := &feed{full: make(chan *batch, batches), empty: make(chan *batch, batches)}
	for range batches {
		f.empty <- &batch{entries: make([]accesslog.Entry, 0, batchSize)}
	}
	go f.read(log)
	return f
}

func (f *feed) read(log *accesslog.Log) {
	for b := range f.empty {
		b.fill(log)
		f.full <- b
		if b.last || b.err != nil {
			return
		}
	}
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
