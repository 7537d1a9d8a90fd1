package authority

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// Sentinels that callers decide by.
var (
	// ErrInvalid is wrapped by what Sync says of a request that makes no sense as a whole.
	ErrInvalid = errors.New("invalid request")
	// ErrNoPolicy says that no policy is in force yet.
	ErrNoPolicy = errors.New("no policy is in force")
	// ErrStoreTime is the cause with which the context of a call ends whose caller still waits for the answer: what it waits
	// for the store is over.
	ErrStoreTime = errors.New("the call's time for the store is over")
)

// Observer is told what was decided. Its methods are called by many goroutines at once and must not wait.
type Observer interface {
	// Decided counts requests that a limit of the policy admitted and denied, and those for which the store did not answer.
	Decided(limit string, admitted, denied, unanswered int64)
	// RolledBack counts grants that were taken back because another limit of the same requests denied.
	RolledBack(grants int)
	// Leaked counts charges that could not be taken back and are left to run out of their windows.
	Leaked(charges int)
	// Called notes that a worker called.
	Called(call Call)
	// Leased notes a lease that a worker was granted, which ends so long from now.
	Leased(worker uint64, limit, lease string, units int64, endIn time.Duration)
	// Settled notes that a lease or a strict charge is settled, and how many of its units will never be spent. It may be told
	// twice, where a worker did not hear the answer.
	Settled(limit, lease string, unused int64)
	// Reported hands over what a worker has decided, each report once. It is not written to any more.
	Reported(worker uint64, report *wire.Report)
}

// Call is what there is to note of a worker's call.
type Call struct {
	Worker uint64
	// Version is that of the policy that the worker decides by, Asks how many asks the call has.
	Version string
	Asks    int
	// Active says that the worker has asked before, or asks now: a filter that has seen no request never does. Own says that it
	// is one of this replica's.
	Active, Own bool
}

// own is the key of what Own says in a context.
type own struct{}

// Own says that the calls made with a context are those of a worker in this process, and not of a filter's.
func Own(ctx context.Context) context.Context { return context.WithValue(ctx, own{}, true) }

// Config says what an Authority stands on. Store, Now and Random have to be set.
type Config struct {
	Store Store
	// Now reads a clock that never steps back; only durations between its readings count.
	Now func() instant.Instant
	// Random draws numbers that no other execution draws, in this process or any other; unpredictable ones are not needed.
	Random func() uint64
	// Observer may be nil.
	Observer Observer
	// Together runs parts of a call that do not depend on each other, and returns when all are done; nil: one after the other. In
	// front of a store that is far away it has them run at once.
	Together func(parts []func())
	// WorkerTTL is for how long a worker counts as connected after its last call; 0: DefaultWorkerTTL.
	WorkerTTL time.Duration
}

// DefaultWorkerTTL is six times as long as a worker's local denial may stand before it asks again.
const DefaultWorkerTTL = 30 * time.Second

// Authority answers what workers ask, out of the store. Its methods may be called by many goroutines at once.
type Authority struct {
	config   Config
	inForce  atomic.Pointer[ruleBook]
	contests contests
	debts    debts
	sizing   sizing
	shares   shares
	taken    taken
}

// ruleBook is a policy with its limits by name.
type ruleBook struct {
	policy *policy.Policy
	limits map[string]booked
}

// booked is a limit, and a rate for each window that keys of it may be counted in.
type booked struct {
	limit *policy.Limit
	all   []limit.Rate
}

// New gives an authority without a policy; SetPolicy has to follow.
func New(config Config) *Authority {
	if config.WorkerTTL <= 0 {
		config.WorkerTTL = DefaultWorkerTTL
	}
	if config.Observer == nil {
		config.Observer = Nobody{}
	}
	return &Authority{config: config, sizing: newSizing()}
}

// Nobody is an Observer that takes no notice.
type Nobody struct{}

// Decided implements Observer.
func (Nobody) Decided(string, int64, int64, int64) {}

// RolledBack implements Observer.
func (Nobody) RolledBack(int) {}

// Leaked implements Observer.
func (Nobody) Leaked(int) {}

// Called implements Observer.
func (Nobody) Called(Call) {}

// Settled implements Observer.
func (Nobody) Settled(string, string, int64) {}

// Reported implements Observer.
func (Nobody) Reported(uint64, *wire.Report) {}

// Leased implements Observer.
func (Nobody) Leased(uint64, string, string, int64, time.Duration) {}

// SetPolicy puts a policy in force, for every call that begins from now on. The policy is not written to any more.
func (a *Authority) SetPolicy(p *policy.Policy) {
	book := &ruleBook{policy: p, limits: make(map[string]booked, len(p.Limits))}
	for i := range p.Limits {
		l := &p.Limits[i]
		book.limits[l.Name] = booked{limit: l, all: l.AllRates()}
	}
	a.inForce.Store(book)
}

// Policy gives the policy in force; nil where there is none yet.
func (a *Authority) Policy() *policy.Policy {
	if book := a.inForce.Load(); book != nil {
		return book.policy
	}
	return nil
}

// Sync answers one call of a worker. What a part of it could not be done for is said in that part's result; the error is
// for a call that makes no sense as a whole (ErrInvalid), or that comes too early (ErrNoPolicy). The deadline of the
// context bounds the call; a caller that waits for longer than that ends it with ErrStoreTime as the cause.
func (a *Authority) Sync(ctx context.Context, request *wire.SyncRequest) (*wire.SyncResponse, error) {
	book := a.inForce.Load()
	if book == nil {
		return nil, ErrNoPolicy
	}
	if err := check(request); err != nil {
		return nil, err
	}
	a.config.Observer.Called(Call{
		Worker: request.WorkerID, Version: request.PolicyVersion, Asks: len(request.Asks),
		Active: request.Active || len(request.Asks) > 0, Own: ctx.Value(own{}) != nil,
	})
	response := &wire.SyncResponse{PolicyVersion: book.policy.Version}
	// What is given back comes first, so that the asks of the same call find it.
	a.reported(ctx, book, request, response)
	if len(request.Asks) > 0 {
		response.Results = a.answer(ctx, book, request)
		for i := range response.Results {
			if r := &response.Results[i]; r.Lease != "" && r.EndIn > 0 {
				a.config.Observer.Leased(request.WorkerID, request.Asks[i].Limit, r.Lease, r.Units, r.EndIn)
			}
		}
	}
	if request.Active {
		response.Workers, response.Rank = a.share(ctx, book.policy.Domain, request.WorkerID)
	}
	// While the store does not answer, workers are still heard; one that has gone hears nothing, and may tell another replica.
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), ErrStoreTime) {
		response.Reported = a.take(request.WorkerID, request.Report)
	}
	return response, nil
}

// reported takes what a call reports: each part of it is of other charges than the others.
func (a *Authority) reported(ctx context.Context, book *ruleBook, request *wire.SyncRequest, response *wire.SyncResponse) {
	var parts []func()
	if len(request.Settles) > 0 {
		parts = append(parts, func() {
			response.Settled = a.settle(ctx, book, request.Settles)
			for _, i := range response.Settled {
				s := &request.Settles[i]
				a.config.Observer.Settled(s.Limit, s.Lease, s.Unused)
			}
		})
	}
	if len(request.Abandoned) > 0 {
		parts = append(parts, func() { response.Abandoned = a.cancel(ctx, book, request.WorkerID, request.Abandoned) })
	}
	if len(request.Records) > 0 {
		parts = append(parts, func() { response.Recorded = a.record(ctx, book, request.WorkerID, request.Records) })
	}
	if len(parts) > 1 && a.config.Together != nil {
		a.config.Together(parts)
		return
	}
	for _, part := range parts {
		part()
	}
}

func check(request *wire.SyncRequest) error {
	keysPerCall := 0
	for i := range request.Abandoned {
		keysPerCall = max(keysPerCall, len(request.Abandoned[i].Keys))
	}
	switch {
	case request.WorkerID == 0:
		return fmt.Errorf("%w: worker_id is 0; want the random id of the worker's life", ErrInvalid)
	case request.CallID == 0:
		return fmt.Errorf("%w: call_id is 0; want the worker's calls counted from 1", ErrInvalid)
	}
	for _, list := range []struct {
		name      string
		len, most int
	}{
		{"asks", len(request.Asks), wire.MaxAsks},
		{"settles", len(request.Settles), wire.MaxSettles},
		{"abandoned", len(request.Abandoned), wire.MaxAbandoned},
		{"keys of an abandoned call", keysPerCall, wire.MaxKeysPerCall},
		{"records", len(request.Records), wire.MaxRecords},
	} {
		if list.len > list.most {
			return fmt.Errorf("%w: %d %s; want at most %d", ErrInvalid, list.len, list.name, list.most)
		}
	}
	return nil
}

// callName names a worker's call, wherever it arrives. Names are short, in base 36, for they are in those of grants, each of
// which the store keeps.
func callName(worker, call uint64) string { return nameOf(worker, "", call) }

// The marks of what is not a worker's call are no digits of base 36.
const (
	replicaMark = "R" // a replica's call
	recordMark  = "A" // a record, which cannot be cancelled
)

// ReplicaCall names a call by which a replica has units granted that it divides among workers.
func ReplicaCall(replica, call uint64) string { return nameOf(replica, replicaMark, call) }

func nameOf(who uint64, mark string, number uint64) string {
	return strconv.FormatUint(who, 36) + "." + mark + strconv.FormatUint(number, 36)
}

// find gives a limit by its name, or with the rate that a call of Envoy's own rate limit filter brings.
func (b *ruleBook) find(name string) (booked, bool) {
	if found, is := b.limits[name]; is {
		return found, true
	}
	of, rate, is := policy.CutRate(name)
	found := b.limits[of]
	if !is || found.limit == nil || len(found.limit.Descriptor) == 0 {
		return booked{}, false
	}
	own := found.limit.WithRate(rate)
	if own.NameWithRate() != name {
		return booked{}, false // each has one name
	}
	return booked{limit: own, all: own.Rates}, true
}

// key gives a key as the store knows it, with the rates that hold for it in a plan; false where the policy has no such
// limit, or does not limit the key.
func (b *ruleBook) key(ref wire.KeyRef, plan string) (Key, *policy.Limit, bool) {
	found, is := b.find(ref.Limit)
	if !is {
		return Key{}, nil, false
	}
	l := found.limit
	rule := l.Rule(plan, ref.Key)
	if rule.Unlimited {
		return Key{}, nil, false
	}
	return Key{Name: policy.StoreName(b.policy.Domain, ref.Limit, ref.Key), Algorithm: l.Algorithm, Rates: rule.Rates}, l, true
}

// everyCount gives the key with all windows that it may be counted in, whatever plan it was in when units of it were
// granted; false where the policy has no such limit, or one that limits nobody.
func (b *ruleBook) everyCount(ref wire.KeyRef) (Key, bool) {
	found, is := b.find(ref.Limit)
	if !is || len(found.all) == 0 {
		return Key{}, false
	}
	l := found.limit
	return Key{Name: policy.StoreName(b.policy.Domain, ref.Limit, ref.Key), Algorithm: l.Algorithm, Rates: found.all}, true
}
