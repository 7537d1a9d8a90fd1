package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice/controlsvc/authority"
)

// What becomes of an operation that has failed, by its answer:
//
//	MOVED, ASK                     not executed; the client follows, three times at most
//	NOSCRIPT                       not executed; sent again with the script's source
//	TRYAGAIN, or still MOVED, ASK  not executed, for the key's slot is being moved, which takes milliseconds: sent again after a pause
//	CLUSTERDOWN, READONLY, LOADING, MASTERDOWN, NOREPLICAS, a connection that cannot be made
//	                               not executed, and it would not be for seconds: the call fails; the next finds out anew
//	a connection that breaks, a deadline
//	                               nobody knows whether it was executed: the call fails, and is never repeated here
//
// Repeating would be safe in every case, since a script mints a new name at each execution: a second grant is charged
// besides the first. So what is repeated is a question of capacity only: a grant nobody knows of is held until it is
// cancelled or runs out.

const (
	// maxTries bounds how often an operation is sent that was not executed.
	maxTries = 32
	// The pause before the next try doubles from the first to the longest; each is shortened at random by up to half.
	firstPause   = time.Millisecond
	longestPause = 16 * time.Millisecond
)

// run executes invocations, and gives answers and errors in their order.
func (s *Store) run(ctx context.Context, invocations []invocation) (answers [][]int64, errs []error) {
	answers, errs = s.carry(ctx, invocations)
	for try, pause := 1, firstPause; try < maxTries; try, pause = try+1, min(2*pause, longestPause) {
		var which []int
		for i, err := range errs {
			if slotMoves(err) {
				which = append(which, i)
			}
		}
		if len(which) == 0 || !s.wait(ctx, pause) {
			break
		}
		again := make([]invocation, len(which))
		for n, i := range which {
			again[n] = invocations[i]
		}
		a, e := s.carry(ctx, again)
		for n, i := range which {
			answers[i], errs[i] = a[n], e[n]
		}
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = explain(err)
		}
	}
	return answers, errs
}

// slotMoves says whether an operation was not executed because the slot of its key is on its way to another server.
func slotMoves(err error) bool {
	return err != nil && (goredis.IsTryAgainError(err) || goredis.HasErrorPrefix(err, "MOVED") || goredis.HasErrorPrefix(err, "ASK"))
}

// wait lets a pause pass; false where the call's time is over before.
func (s *Store) wait(ctx context.Context, pause time.Duration) bool {
	if s.after == nil {
		return false
	}
	select {
	case <-s.after(pause/2 + rand.N(pause/2)):
		return true
	case <-ctx.Done():
		return false
	}
}

// errRefused is what errors wrap that a script itself answered.
var errRefused = errors.New("the store refused")

// explain says what a caller can decide by: whether the store refused, or was not there to do so.
func explain(err error) error {
	if noRoom(err) {
		return fmt.Errorf("%w: %w", authority.ErrFull, err)
	}
	if goredis.HasErrorPrefix(err, "FULL") || goredis.HasErrorPrefix(err, "TWICE") {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return fmt.Errorf("%w: %w", authority.ErrUnavailable, err)
}
