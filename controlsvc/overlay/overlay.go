package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/controlsvc/authority"
	"sluice/shared/instant"
	"sluice/shared/policy"
)

// Config says what an Overlay stands on; all of it has to be set.
type Config struct {
	Store authority.Store
	// Timeout bounds each call of the store.
	Timeout time.Duration
	// Now reads a clock that never steps back.
	Now    func() instant.Instant
	Logger *slog.Logger
	// InForce is called with each policy that is to be in force from now on, by one goroutine at a time.
	InForce func(*policy.Policy)
}

// PollEvery is how soon an entry that was set at another replica is known.
const PollEvery = time.Second

// Overlay keeps the policy in force: what the file says, and over it what the store has for all replicas. While the store is
// away the last overlay holds; what expires meanwhile does so by the replica's own clock.
type Overlay struct {
	config Config

	mu       sync.Mutex // held while the store is asked, so that answers take effect in their order
	file     *policy.Policy
	revision uint64 // the store's, when it last gave the entries
	stale    bool   // the entries are not all that the revision has any more
	entries  []entry

	state atomic.Pointer[State]
	// answered is when the store last gave the overlay, or when this began; failed is how often it did not since.
	answered, failed atomic.Int64
}

// entry is an item as the store has it.
type entry struct {
	item    Item
	expires instant.Instant
	unread  error // why it could not be read; nil where it could
}

// State is what an Overlay holds. It is read-only.
type State struct {
	// File and InForce are the policies; nil before the first SetFile.
	File, InForce *policy.Policy
	Entries       []Held
	// Changed is when the policy in force last changed.
	Changed instant.Instant
	// Problem is why the store did not give the overlay when it was last asked; nil where it did.
	Problem error
}

// Held is an item of the overlay.
type Held struct {
	Item
	Expires instant.Instant
	// WhyNot is why it is not in force; nil where it is.
	WhyNot error
}

// New gives an Overlay with nothing in force yet.
func New(config Config) *Overlay {
	o := &Overlay{config: config}
	o.state.Store(&State{})
	o.answered.Store(int64(config.Now()))
	return o
}

// Health is how an Overlay and the store stand.
type Health struct {
	// Items is how many there are of each kind, with those that are not in force.
	Items map[Kind]int
	// Age is how long ago the store last gave the overlay, or how long ago this began where it never did.
	Age time.Duration
	// Failures is how often the store did not give it.
	Failures int64
}

// Health gives it as it is now. Every kind that there is has a number of items; one that this build does not know has none.
func (o *Overlay) Health() Health {
	h := Health{
		Items: map[Kind]int{Override: 0, Block: 0, Allow: 0}, Failures: o.failed.Load(),
		Age: max(0, o.config.Now().Sub(instant.Instant(o.answered.Load()))),
	}
	for _, held := range o.State().Entries {
		if _, known := h.Items[held.Kind]; known {
			h.Items[held.Kind]++
		}
	}
	return h
}

// State gives what it holds now.
func (o *Overlay) State() *State { return o.state.Load() }

// SetFile puts another file's policy in force, with the overlay over it.
func (o *Overlay) SetFile(file *policy.Policy) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.file = file
	o.lay(o.State().Problem)
}

// Poll asks the store for the overlay and puts in force what has changed.
func (o *Overlay) Poll(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, err := o.edit(ctx, authority.Edit{})
	return err
}

// Run polls until the context ends.
func (o *Overlay) Run(ctx context.Context, after func(time.Duration) <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-after(PollEvery):
		}
		known := o.State().Problem
		switch err := o.Poll(ctx); {
		case ctx.Err() != nil:
		case err != nil && known == nil:
			o.config.Logger.Warn("overrides and lists that operators set stay as they are, for the store does not give them", "why", err.Error())
		case err == nil && known != nil:
			o.config.Logger.Info("overrides and lists that operators set are up to date again")
		}
	}
}

// ErrRefused is wrapped by the errors of items that would not be in force.
var ErrRefused = errors.New("it would not be in force")

// Put adds an item for so long, at all replicas, or puts it in the place of the one with its name.
func (o *Overlay) Put(ctx context.Context, item Item, expiresIn time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	others := slices.DeleteFunc(o.items(), func(other Item) bool { return other.Name() == item.Name() })
	if _, why := Lay(o.file, append(others, item)); why[len(others)] != nil {
		return fmt.Errorf("%w: %w", ErrRefused, why[len(others)])
	}
	_, err := o.edit(ctx, authority.Edit{Put: authority.Entry{Name: item.Name(), Text: item.text(), ExpiresIn: expiresIn}})
	return err
}

// Remove takes the item of that name out, at all replicas, and says whether it was there.
func (o *Overlay) Remove(ctx context.Context, name string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.edit(ctx, authority.Edit{Remove: name})
}

// edit asks the store, and takes over what it says.
func (o *Overlay) edit(ctx context.Context, e authority.Edit) (removed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.config.Timeout)
	defer cancel()
	e.Domain, e.Known = o.file.Domain, o.revision
	if o.stale {
		e.Known = 0
	}
	got, err := o.config.Store.Overlay(ctx, e)
	if err == nil {
		o.answered.Store(int64(o.config.Now()))
	} else if errors.Is(err, authority.ErrUnavailable) {
		o.failed.Add(1)
	}
	changed, wentBack := false, false
	switch {
	case err != nil && !errors.Is(err, authority.ErrUnavailable):
		return false, err
	case err != nil:
		changed = o.expire()
	case got.Revision != o.revision || o.stale:
		changed, wentBack = true, got.Revision < o.revision // a store that keeps what it holds only counts on
		o.take(&got)
	}
	if changed {
		before := o.State().Entries
		o.lay(err)
		o.logChanges(ctx, before, o.State().Entries, &e, wentBack)
	} else if known := o.State(); (err == nil) != (known.Problem == nil) {
		now := *known
		now.Problem = err
		o.state.Store(&now)
	}
	return got.Removed, err
}

// items gives what the entries say.
func (o *Overlay) items() []Item {
	items := make([]Item, 0, len(o.entries)+1)
	for i := range o.entries {
		items = append(items, o.entries[i].item)
	}
	return items
}

// take takes over what the store has.
func (o *Overlay) take(got *authority.Overlay) {
	o.revision, o.stale, o.entries = got.Revision, false, nil
	now := o.config.Now()
	for i := range got.Entries {
		item, err := read(&got.Entries[i])
		o.entries = append(o.entries, entry{item: item, expires: now.Add(got.Entries[i].ExpiresIn), unread: err})
	}
}

// expire forgets what would have expired, were the store there to say so. What it says next takes its place.
func (o *Overlay) expire() (changed bool) {
	now, before := o.config.Now(), len(o.entries)
	o.entries = slices.DeleteFunc(o.entries, func(e entry) bool { return e.expires <= now })
	if len(o.entries) == before {
		return false
	}
	o.stale = true
	return true
}

// lay puts in force what the file and the overlay say together, where that is another policy than before.
func (o *Overlay) lay(problem error) {
	before := o.State()
	after := &State{File: o.file, InForce: before.InForce, Changed: before.Changed, Problem: problem}
	whole, why := Lay(o.file, o.items())
	for i, e := range o.entries {
		if e.unread != nil {
			why[i] = e.unread
		}
		after.Entries = append(after.Entries, Held{Item: e.item, Expires: e.expires, WhyNot: why[i]})
	}
	changed := before.InForce == nil || before.InForce.Version != whole.Version
	if changed {
		after.InForce, after.Changed = whole, o.config.Now()
	}
	o.state.Store(after)
	if changed {
		o.config.InForce(whole)
	}
}
