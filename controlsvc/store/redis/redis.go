// Package redis is a store in Redis: one server, one with Sentinels, or a cluster. Each operation is one execution of an
// embedded script, on the keys of one hash tag, at one reading of Redis' clock; strict charges of sliding logs go many to one,
// where no cluster has their keys apart.
//
// What a key holds is named
//
//	sluice:{NAME}:ALGORITHM:WINDOW       its count of one window, given in microseconds; under sliding_log its charges
//	sluice:{NAME}:sliding_log:WINDOW:n   what they sum up to
//	sluice:{NAME}:ALGORITHM:WINDOW:g     the grants that may come back, where the count is not of charges; under token_bucket
//	                                     the last charges
//	sluice:{workers:DOMAIN}              the workers that are connected, and
//	sluice:{workers:DOMAIN}:rank         the same, in order
//	sluice:{replicas:DOMAIN}             what the service's replicas say to each other
//	sluice:{overlay:DOMAIN}              when the entries of the domain's overlay expire, and
//	sluice:{overlay:DOMAIN}:text         what they say
//	sluice:{primary}                     which server is the primary, and since when; only with a QuietPeriod
//
// and everything but the last has a time to live. NAME ends at the last brace, so no two names share a key; a name with a
// brace of its own is only less well spread over a cluster. An ACL user needs ~sluice:* and +eval +evalsha +ping +info +time
// +get +getrange +set +setrange +hdel +hget +hgetall +hkeys +hmget +hset +lrange +ltrim +rpush +rpushx +zadd +zcard +zrange
// +zrangebyscore +zrank +zrem +zremrangebyrank +zscan +zscore +pttl +pexpire +del, and +wait with WaitReplicas.
package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/limit"
)

// Store implements authority.Store.
type Store struct {
	client     goredis.UniversalClient
	algorithms map[limit.Algorithm]*algorithm
	strict     script // makes strict charges of sliding logs, many at once
	workers    script
	exchange   script
	overlay    script
	lanes      lanes
	slots      atomic.Bool                          // the one server is a cluster's, and refuses scripts on keys of several slots
	quiet      *quiet                               // nil: it is never quiet
	after      func(time.Duration) <-chan time.Time // nil: no second try
}

var _ authority.Store = (*Store)(nil)

// newStore gives a store whose scripts' sources are changed; see asItIs.
func newStore(client goredis.UniversalClient, change func(source string) string) *Store {
	return &Store{
		client: client, algorithms: newAlgorithms(change), strict: newScript(change(headSource + accountSource + strictSource)),
		workers: newScript(change(workersSource)), exchange: newScript(change(exchangeSource)), overlay: newScript(change(overlaySource)),
	}
}

// batch collects the operations that can be executed, and remembers which those were.
type batch struct {
	invocations []invocation
	place       []int
}

func (b *batch) add(place int, i invocation) {
	b.invocations, b.place = append(b.invocations, i), append(b.place, place)
}

// moreArgs is how many arguments most operations have beyond those that invoke gives them.
const moreArgs = 6

// keyNames gives what a key's window is kept in; where its algorithm has one key only, second is empty.
func (a *algorithm) keyNames(key *authority.Key, window time.Duration) (first, second string) {
	name := "sluice:{" + key.Name + "}:" + key.Algorithm.String() + ":" + strconv.FormatInt(window.Microseconds(), 10) + a.second
	if a.second == "" {
		return name, ""
	}
	return name[:len(name)-len(a.second)], name
}

// invoke begins an operation on a key's windows.
func (s *Store) invoke(operation string, key authority.Key, windows []limit.Rate) invocation {
	algorithm := s.algorithms[key.Algorithm]
	args := make([]any, atKeys, atKeys+2*len(windows)+2+3*len(windows)+moreArgs)
	for _, w := range windows {
		first, second := algorithm.keyNames(&key, w.Window)
		args = append(args, first)
		if second != "" {
			args = append(args, second)
		}
	}
	args[atCount] = len(args) - atKeys
	args = append(args, operation, len(windows))
	for _, w := range windows {
		args = append(args, w.Window.Microseconds(), w.Units, w.Most())
	}
	return invocation{script: &algorithm.script, charges: operation == "reserve" || operation == "record", args: args}
}

// invokeReserve gives the execution of a reserve.
func (s *Store) invokeReserve(r *authority.Reserve, windows []limit.Rate) invocation {
	if r.TTL == 0 && r.Want%r.Min == 0 && r.Want <= store.MaxHeld && r.Key.Algorithm == limit.SlidingLog && len(windows) == 1 {
		first, second := s.algorithms[limit.SlidingLog].keyNames(&r.Key, windows[0].Window)
		return invocation{
			script: &s.strict, charges: true, units: r.Want,
			otherwise: func() invocation { return s.invokeAnyReserve(r, windows) },
			args: []any{
				"", "", 2, first, second,
				windows[0].Window.Microseconds(), windows[0].Units, string(store.Strict) + ":" + r.Call + ":" + r.Part + ":", r.Want,
			},
		}
	}
	return s.invokeAnyReserve(r, windows)
}

func (s *Store) invokeAnyReserve(r *authority.Reserve, windows []limit.Rate) invocation {
	i := s.invoke("reserve", r.Key, windows)
	// More than fits a double is more than any limit, too.
	i.args = append(i.args, r.Call, r.Part, min(r.Want, store.MaxHeld), min(r.Min, store.MaxHeld), r.TTL.Microseconds(), r.Horizon.Microseconds())
	return i
}

// Reserve implements authority.Store.
func (s *Store) Reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	if left := s.quiet.left(); left > 0 {
		return denyAll(operations, left)
	}
	return s.withhold(ctx, operations, s.reserve(ctx, operations))
}

func (s *Store) reserve(ctx context.Context, operations []authority.Reserve) []authority.Reserved {
	out := make([]authority.Reserved, len(operations))
	windows := make([][]limit.Rate, len(operations))
	var b batch
	for place := range operations {
		r := &operations[place]
		if out[place].Err = store.CheckReserve(*r); out[place].Err != nil {
			out[place].Err = fmt.Errorf("reserve: %w", out[place].Err)
			continue
		}
		windows[place] = store.Windows(r.Key.Rates)
		b.add(place, s.invokeReserve(r, windows[place]))
	}
	answers, errs := s.run(ctx, b.invocations)
	for n, place := range b.place {
		err := errs[n]
		if err == nil {
			out[place], err = readReserved(&operations[place], windows[place], answers[n])
		}
		if err != nil {
			out[place] = authority.Reserved{Err: fmt.Errorf("reserve: %w", err)}
		}
	}
	return out
}

// Settle implements authority.Store.
func (s *Store) Settle(ctx context.Context, operations []authority.Settle) []error {
	out := make([]error, len(operations))
	var b batch
	for place, o := range operations {
		if out[place] = store.CheckSettle(o); out[place] != nil {
			continue
		}
		grant, ok := store.ParseGrant(o.Lease)
		if !ok {
			continue
		}
		groups, kept := store.Divide(grant.Units, o.Uses, o.Unused)
		i := s.invoke("settle", o.Key, store.Windows(o.Key.Rates))
		settled := string(store.Settled) + ":" + grant.Call + ":" + grant.Part + ":" + strconv.FormatInt(int64(grant.Minted), 10)
		i.args = append(i.args, o.Lease, settled, grant.Units, kept)
		b.add(place, i.with(groups))
	}
	return s.finish(ctx, "settle", b, out)
}

// Cancel implements authority.Store.
func (s *Store) Cancel(ctx context.Context, operations []authority.Cancel) []error {
	out := make([]error, len(operations))
	var b batch
	for place, o := range operations {
		if out[place] = store.CheckCancel(o); out[place] != nil {
			continue
		}
		call := o.Call + ":"
		if o.Part != "" {
			call += o.Part + ":"
		}
		i := s.invoke("cancel", o.Key, store.Windows(o.Key.Rates))
		i.args = append(i.args, call)
		b.add(place, i)
	}
	return s.finish(ctx, "cancel", b, out)
}

// Record implements authority.Store.
func (s *Store) Record(ctx context.Context, operations []authority.Record) []error {
	out := make([]error, len(operations))
	var b batch
	for place, o := range operations {
		if out[place] = store.CheckRecord(o); out[place] != nil {
			continue
		}
		groups := store.Group(o.Uses)
		var units int64
		for _, g := range groups {
			units += g.Units
		}
		if units == 0 {
			continue
		}
		i := s.invoke("record", o.Key, store.Windows(o.Key.Rates))
		i.args = append(i.args, o.Call, units)
		b.add(place, i.with(groups))
	}
	return s.finish(ctx, "record", b, out)
}

// with appends ages and units.
func (i invocation) with(groups []authority.Use) invocation {
	for _, g := range groups {
		i.args = append(i.args, g.Age.Microseconds(), g.Units)
	}
	return i
}

// finish executes operations that answer nothing, and puts their errors beside those of the operations that were wrong.
func (s *Store) finish(ctx context.Context, operation string, b batch, out []error) []error {
	_, errs := s.run(ctx, b.invocations)
	for n, place := range b.place {
		out[place] = errs[n]
	}
	for place, err := range out {
		if err != nil {
			out[place] = fmt.Errorf("%s: %w", operation, err)
		}
	}
	return out
}

// Peek implements authority.Store.
func (s *Store) Peek(ctx context.Context, key authority.Key) ([]authority.State, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, fmt.Errorf("peek: %w", err)
	}
	windows := store.Windows(key.Rates)
	answers, errs := s.run(ctx, []invocation{s.invoke("peek", key, windows)})
	if errs[0] != nil {
		return nil, fmt.Errorf("peek: %w", errs[0])
	}
	standings, err := readStandings(nil, answers[0], 0, len(windows))
	if err != nil {
		return nil, fmt.Errorf("peek: %w", err)
	}
	return store.States(key.Rates, windows, standings), nil
}

// Inspect implements authority.Store.
func (s *Store) Inspect(ctx context.Context, key authority.Key, units int64) (authority.Inspection, error) {
	if err := store.CheckInspect(key, units); err != nil {
		return authority.Inspection{}, fmt.Errorf("inspect: %w", err)
	}
	windows := store.Windows(key.Rates)
	i := s.invoke("inspect", key, windows)
	i.args = append(i.args, units, authority.MaxLeasesTold)
	answer, err := s.tell(ctx, i)
	if err != nil {
		return authority.Inspection{}, fmt.Errorf("inspect: %w", err)
	}
	inspection, err := readInspection(answer, key.Rates, windows, units)
	if err != nil {
		return authority.Inspection{}, fmt.Errorf("inspect: %w", err)
	}
	return inspection, nil
}

// Reset implements authority.Store.
func (s *Store) Reset(ctx context.Context, key authority.Key) error {
	if err := store.CheckKey(key); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	if _, errs := s.run(ctx, []invocation{s.invoke("reset", key, store.Windows(key.Rates))}); errs[0] != nil {
		return fmt.Errorf("reset: %w", errs[0])
	}
	return nil
}

// Connected implements authority.Store.
func (s *Store) Connected(ctx context.Context, domain string, worker uint64, ttl time.Duration) (authority.Share, error) {
	if err := store.CheckConnected(domain, ttl); err != nil {
		return authority.Share{}, fmt.Errorf("connected: %w", err)
	}
	key := "sluice:{workers:" + domain + "}"
	i := s.workers.invoke([]string{key, key + ":rank"}, fmt.Sprintf("%016x", worker), ttl.Microseconds(), store.MaxWorkers)
	answers, errs := s.run(ctx, []invocation{i})
	if errs[0] != nil {
		return authority.Share{}, fmt.Errorf("connected: %w", errs[0])
	}
	if len(answers[0]) != 2 {
		return authority.Share{}, fmt.Errorf("connected: %w: %v, want 2 numbers", errAnswer, answers[0])
	}
	return authority.Share{Workers: uint32(answers[0][0]), Rank: uint32(answers[0][1])}, nil
}

// Exchange implements authority.Store.
func (s *Store) Exchange(ctx context.Context, domain string, replica uint64, says []byte, ttl time.Duration) ([][]byte, error) {
	if err := store.CheckExchange(domain, says, ttl); err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	i := s.exchange.invoke([]string{"sluice:{replicas:" + domain + "}"}, fmt.Sprintf("%016x", replica), says, ttl.Microseconds(), store.MaxReplicas)
	others, err := s.tell(ctx, i)
	if err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	heard := make([][]byte, 0, len(others))
	for _, one := range others {
		text, is := one.(string)
		if !is {
			return nil, fmt.Errorf("exchange: %w: a list with %T, want text", errAnswer, one)
		}
		heard = append(heard, []byte(text))
	}
	return heard, nil
}

// Ping implements authority.Store. Of a cluster, every master must answer.
func (s *Store) Ping(ctx context.Context) error {
	err := s.eachServer(ctx, func(ctx context.Context, server *goredis.Client) error { return server.Ping(ctx).Err() })
	if err != nil {
		s.relearn(ctx, []error{err})
		return fmt.Errorf("ping: %w: %w", authority.ErrUnavailable, err)
	}
	return nil
}

// Close implements authority.Store.
func (s *Store) Close() error {
	if err := s.client.Close(); err != nil && !errors.Is(err, goredis.ErrClosed) {
		return fmt.Errorf("closing the connections to Redis: %w", err)
	}
	return nil
}

// eachServer runs a function on the server, or on every master of a cluster.
func (s *Store) eachServer(ctx context.Context, do func(ctx context.Context, server *goredis.Client) error) error {
	switch client := s.client.(type) {
	case *goredis.ClusterClient:
		return client.ForEachMaster(ctx, do) //nolint:wrapcheck // its callers do
	case *goredis.Client:
		return do(ctx, client)
	}
	return fmt.Errorf("a client of type %T", s.client)
}
