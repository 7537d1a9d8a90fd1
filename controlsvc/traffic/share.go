package traffic

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"sluice/shared/instant"
	"sluice/shared/policy"
)

const (
	// shareEvery is how often a replica tells the others what it knows.
	shareEvery = 3 * time.Second
	// shareWithin bounds one exchange.
	shareWithin = 2 * time.Second
	// leaveWithin bounds the last one, which the process waits for.
	leaveWithin = 500 * time.Millisecond
	// othersKept is for how long what the other replicas told is shown; they tell it again well before.
	othersKept = 15 * time.Second
)

// Board is where replicas tell each other what they know.
type Board interface {
	// Exchange keeps what a replica of the domain says, for ttl, and gives what the others say.
	Exchange(ctx context.Context, domain string, replica uint64, says []byte, ttl time.Duration) ([][]byte, error)
}

// Share tells the other replicas what this one knows, and hears what they do, until the context ends. Then it takes back what
// it has told, which goes with this replica.
func (t *Traffic) Share(ctx context.Context, board Board, logger *slog.Logger, after func(time.Duration) <-chan time.Time) {
	defer t.leave(ctx, board)
	failing := false
	for {
		err := t.exchange(ctx, board)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			logger.Warn("what other replicas know is not shown", "why", err.Error())
		case err == nil && failing:
			logger.Info("what other replicas know is shown again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-after(shareEvery):
		}
	}
}

// leave tells the others that this replica has nothing to tell any more. Where that fails they find out after othersKept.
func (t *Traffic) leave(ctx context.Context, board Board) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	if p := t.inForce(); p != nil {
		_, _ = board.Exchange(ctx, p.Domain, t.config.Replica, nil, time.Millisecond)
	}
}

func (t *Traffic) inForce() *policy.Policy {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.policy
}

// exchange tells and hears once.
func (t *Traffic) exchange(ctx context.Context, board Board) error {
	ctx, cancel := context.WithTimeout(ctx, shareWithin)
	defer cancel()
	p := t.inForce()
	if p == nil {
		return nil
	}
	says, err := t.state(t.config.Now(), spans[:]...).pack()
	if err != nil {
		return err
	}
	told, err := board.Exchange(ctx, p.Domain, t.config.Replica, says, othersKept)
	if err != nil {
		return err
	}
	var others []state
	for _, one := range told {
		if len(one) == 0 {
			continue // it has left
		}
		other, problem := unpack(one)
		if problem != nil {
			err = problem // the others are shown all the same
			continue
		}
		others = append(others, other)
	}
	t.mu.Lock()
	t.heard = t.config.Now()
	t.lose(others)
	t.others = others
	t.mu.Unlock()
	return err
}

// lost is a replica that has told what it knows, and does so no more.
type lost struct {
	replica string
	at      instant.Instant // when that was noticed
}

// maxLost bounds the replicas that are remembered; the one that was lost first goes.
const maxLost = 64

// lose notes which replicas have gone, now that the others have been heard. One that comes back has brought what it knows.
func (t *Traffic) lose(others []state) {
	tells := func(replica string) bool {
		return slices.ContainsFunc(others, func(s state) bool { return s.Replica == replica })
	}
	t.lost = slices.DeleteFunc(t.lost, func(l lost) bool { return tells(l.replica) })
	for i := range t.others {
		if !tells(t.others[i].Replica) {
			t.lost = append(t.lost, lost{t.others[i].Replica, t.heard})
		}
	}
	t.lost = t.lost[max(0, len(t.lost)-maxLost):]
}
