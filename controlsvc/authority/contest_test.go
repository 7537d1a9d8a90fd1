package authority

import (
	"context"
	"testing"
)

// asks gives what contested says, on a channel.
func asks(ctx context.Context, e *entry) <-chan bool {
	answer := make(chan bool, 1)
	go func() { answer <- e.contested(ctx) }()
	return answer
}

// waitFor returns once somebody waits for what becomes of the key.
func waitFor(t *testing.T, c *contests, key string) {
	t.Helper()
	for t.Context().Err() == nil {
		c.mu.Lock()
		waits := c.keys[key] != nil && c.keys[key].changed != nil
		c.mu.Unlock()
		if waits {
			return
		}
	}
}

func TestDenialBesideARollbackIsContested(t *testing.T) {
	var c contests
	group := c.enter("k", true)
	denied := c.enter("k", false)
	answer := asks(t.Context(), &denied)
	waitFor(t, &c, "k")
	group.close(true)
	if !<-answer {
		t.Error("not contested, though another's units were rolled back after the reserve began")
	}
	denied.leave()
	group.leave()
	if len(c.keys) != 0 {
		t.Errorf("%d keys are kept, though nothing is under way", len(c.keys))
	}
}

func TestDenialBesideAGrantThatStandsIsFinal(t *testing.T) {
	var c contests
	group := c.enter("k", true)
	denied := c.enter("k", false)
	answer := asks(t.Context(), &denied)
	waitFor(t, &c, "k")
	later := c.enter("k", true) // not waited for: it came after the denial
	group.close(false)
	if <-answer {
		t.Error("contested, though nothing was rolled back")
	}
	for _, e := range []*entry{&group, &denied, &later} {
		e.leave()
	}
	if len(c.keys) != 0 {
		t.Errorf("%d keys are kept, though nothing is under way", len(c.keys))
	}
}

func TestContestIsNotWaitedForBeyondTheDeadline(t *testing.T) {
	var c contests
	group := c.enter("k", true)
	defer group.leave()
	denied := c.enter("k", false)
	defer denied.leave()
	ctx, cancel := context.WithCancel(t.Context())
	answer := asks(ctx, &denied)
	waitFor(t, &c, "k")
	cancel()
	if <-answer {
		t.Error("contested, though nothing was rolled back")
	}
}

func TestOwnRollbackAndOtherKeysAreNoContest(t *testing.T) {
	var c contests
	own := c.enter("k", true)
	other := c.enter("other", true)
	own.close(true)
	other.close(true)
	if own.contested(t.Context()) {
		t.Error("contested by its own rollback or by another key's")
	}
	after := c.enter("k", false)
	if after.contested(t.Context()) {
		t.Error("contested by a rollback that was over before the reserve began")
	}
}
