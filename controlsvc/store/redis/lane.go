package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// maxFlights is how many pipelines are under way to one server at a time. While they are, calls gather for the next;
	// where fewer are, a call goes at once.
	maxFlights = 2
	// maxBatch is how many operations one pipeline takes of waiting calls; a call that has more goes whole.
	maxBatch = 256
	// maxWaiting is how many operations wait for one server; a call beyond fails at once.
	maxWaiting = 1 << 14
	// maxLanes bounds how many servers' lanes are remembered; a cluster's nodes come and go.
	maxLanes = 1 << 10
)

// errBusy is what the errors of calls wrap for which there was no room.
var errBusy = errors.New("too many operations wait for this server")

// freight is what one call has for one server.
type freight struct {
	ctx         context.Context //nolint:containedctx // the call's: its deadline goes along with it
	lane        *lane
	invocations []invocation
	// places are those of the invocations among the call's.
	places  []int
	answers [][]int64
	errs    []error
	done    chan struct{} // closed once answers and errs are there
}

// lane carries calls to one server, many in a pipeline where many come at once.
type lane struct {
	mu      sync.Mutex
	waiting []*freight
	queued  int // the operations of those
	flying  int
}

// lanes are the servers' lanes, by the servers' addresses: a server that stands still holds nobody up but those who want it.
type lanes struct {
	mu sync.Mutex
	of map[string]*lane
}

func (l *lanes) get(address string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.of[address]
	if found == nil {
		if l.of == nil || len(l.of) >= maxLanes {
			l.of = make(map[string]*lane) // what is under way on the old ones ends there
		}
		found = &lane{}
		l.of[address] = found
	}
	return found
}

// laneOf gives the lane of the server that a key is believed to be on. Where that is wrong the client follows the server's
// answer, and learns.
func (s *Store) laneOf(ctx context.Context, cluster *goredis.ClusterClient, key string) (*lane, error) {
	server, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("asking which server has the key: %w", err)
	}
	return s.lanes.get(server.Options().Addr), nil
}

// carry executes some of a call's operations, and gives the answers and errors in their order.
func (s *Store) carry(ctx context.Context, invocations []invocation) (answers [][]int64, errs []error) {
	if err := ctx.Err(); err != nil || len(invocations) == 0 {
		return make([][]int64, len(invocations)), fill(make([]error, len(invocations)), err)
	}
	cluster, several := s.client.(*goredis.ClusterClient)
	if !several {
		f := newFreight(ctx, s.lanes.get(""), invocations...)
		s.join(f, true) //nolint:contextcheck // a flight serves many calls
		return f.result(ctx)
	}
	answers, errs = make([][]int64, len(invocations)), make([]error, len(invocations))
	var freights []*freight // one for each server
	for i := range invocations {
		l, err := s.laneOf(ctx, cluster, invocations[i].key())
		if err != nil {
			errs[i] = err
			continue
		}
		at := slices.IndexFunc(freights, func(f *freight) bool { return f.lane == l })
		if at < 0 {
			at, freights = len(freights), append(freights, newFreight(ctx, l))
		}
		f := freights[at]
		f.invocations, f.places = append(f.invocations, invocations[i]), append(f.places, i)
	}
	for n, f := range freights {
		s.join(f, n == len(freights)-1) //nolint:contextcheck // a flight serves many calls
	}
	for _, f := range freights {
		a, e := f.result(ctx)
		for n, i := range f.places {
			answers[i], errs[i] = a[n], e[n]
		}
	}
	return answers, errs
}

func newFreight(ctx context.Context, l *lane, invocations ...invocation) *freight {
	return &freight{ctx: ctx, lane: l, invocations: invocations, done: make(chan struct{})}
}

// fail answers all of a freight with an error.
func (f *freight) fail(err error) {
	f.answers, f.errs = make([][]int64, len(f.invocations)), fill(make([]error, len(f.invocations)), err)
	close(f.done)
}

// result waits for the answers, for as long as the call has time.
func (f *freight) result(ctx context.Context) ([][]int64, []error) {
	select {
	case <-f.done:
		return f.answers, f.errs
	case <-ctx.Done():
		return make([][]int64, len(f.invocations)), fill(make([]error, len(f.invocations)), ctx.Err())
	}
}

func fill(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// join has a freight executed: here and now where that is wanted and a flight more may be under way, else by a flight that
// takes it along with others.
func (s *Store) join(f *freight, here bool) {
	l := f.lane
	l.mu.Lock()
	if l.queued+len(f.invocations) > maxWaiting && l.queued > 0 {
		l.mu.Unlock()
		f.fail(fmt.Errorf("%w: %d", errBusy, maxWaiting))
		return
	}
	start := l.flying < maxFlights
	if start {
		l.flying++
	}
	here = here && start
	if !here {
		l.waiting, l.queued = append(l.waiting, f), l.queued+len(f.invocations)
	}
	l.mu.Unlock()
	switch {
	case here:
		s.fly(f.ctx, []*freight{f})
		s.hand(l)
	case start:
		go s.shuttle(l)
	}
}

// hand ends a caller's flight; whoever has come meanwhile flies on without it.
func (s *Store) hand(l *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		go s.shuttle(l)
	} else {
		l.flying--
	}
}

// shuttle makes flights until nobody waits.
func (s *Store) shuttle(l *lane) {
	for {
		batch, over := l.board()
		for _, f := range over {
			f.fail(f.ctx.Err())
		}
		if len(batch) == 0 {
			if len(over) == 0 {
				return
			}
			continue
		}
		ctx, cancel := longest(batch)
		s.fly(ctx, batch)
		cancel()
	}
}

// board takes what waits, up to a pipeline's worth, apart from the calls that have run out of time: those are never sent.
// Where nothing waits the flight has ended.
func (l *lane) board() (batch, over []*freight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, taken := 0, 0
	for _, f := range l.waiting {
		if f.ctx.Err() != nil {
			over = append(over, f)
		} else {
			if len(batch) > 0 && size+len(f.invocations) > maxBatch {
				break
			}
			batch, size = append(batch, f), size+len(f.invocations)
		}
		l.queued -= len(f.invocations)
		taken++
	}
	rest := copy(l.waiting, l.waiting[taken:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	if taken == 0 {
		l.flying--
	}
	return batch, over
}

// longest gives a context that lasts as long as the longest of a batch. Who has less time does not wait for it.
func longest(batch []*freight) (context.Context, context.CancelFunc) {
	var latest time.Time
	ctx := context.WithoutCancel(batch[0].ctx)
	for _, f := range batch {
		deadline, ok := f.ctx.Deadline()
		if !ok {
			return ctx, func() {}
		}
		if deadline.After(latest) {
			latest = deadline
		}
	}
	return context.WithDeadline(ctx, latest)
}

// fly executes a batch in one pipeline.
func (s *Store) fly(ctx context.Context, batch []*freight) {
	invocations := batch[0].invocations
	if len(batch) > 1 {
		invocations = nil
		for _, f := range batch {
			invocations = append(invocations, f.invocations...)
		}
	}
	answers, errs := s.execute(ctx, invocations)
	s.relearn(ctx, errs)
	from := 0
	for _, f := range batch {
		to := from + len(f.invocations)
		f.answers, f.errs = answers[from:to:to], errs[from:to:to]
		from = to
		close(f.done)
	}
}

// relearn has a cluster's client ask who has which slots, where a server has gone or does not know: nobody else tells it,
// for a server that is dead redirects nobody.
func (s *Store) relearn(ctx context.Context, errs []error) {
	cluster, ok := s.client.(*goredis.ClusterClient)
	if !ok {
		return
	}
	for _, err := range errs {
		var answered goredis.Error
		if err != nil && (!errors.As(err, &answered) || goredis.HasErrorPrefix(err, "CLUSTERDOWN") || goredis.HasErrorPrefix(err, "READONLY")) {
			cluster.ReloadState(ctx) // in the background
			return
		}
	}
}
