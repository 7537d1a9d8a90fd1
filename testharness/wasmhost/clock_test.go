package wasmhost

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestGuestClocks: the guest's clocks are the Host's, and each can move without
// the other.
func TestGuestClocks(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	h := newHost(t, Config{Wall: start})
	look := func(mono time.Duration, wall time.Time) {
		t.Helper()
		h.ClearLogs()
		h.Worker(0).Request(asked("request", "clocks; time")).Cancel()
		checkLines(t, transcript(h)[2:4], fmt.Sprintf("clocks -> monotonic %v wall %d\ntime -> 0 \"%d\"", mono, wall.UnixNano(), wall.UnixNano()))
	}
	look(0, start)
	h.Advance(1500 * time.Millisecond)
	look(1500*time.Millisecond, start.Add(1500*time.Millisecond))
	h.SetWall(start.Add(-time.Hour))
	look(1500*time.Millisecond, start.Add(-time.Hour))
	h.Advance(time.Second)
	look(2500*time.Millisecond, start.Add(-time.Hour+time.Second))
	if h.Wall() != start.Add(-time.Hour+time.Second) || h.Now() != time.Hour+2500*time.Millisecond {
		t.Errorf("the host's own clocks: %v %v", h.Wall(), h.Now())
	}
}

// TestTicks: a tick comes each period; a new period counts from when it was set.
func TestTicks(t *testing.T) {
	h := newHost(t, Config{Workers: 2, PluginConfig: []byte("configure: tick 100\ntick: clocks")})
	transcript(h)
	ticks := func(want string) {
		t.Helper()
		checkLines(t, ticksOf(h), want)
	}
	h.Advance(99 * time.Millisecond)
	ticks("")
	h.Advance(201 * time.Millisecond) // Two workers.
	ticks("100ms\n100ms\n200ms\n200ms\n300ms\n300ms")
	h.Advance(50 * time.Millisecond)
	h.Worker(0).Request(asked("request", "tick 1000")).Cancel()
	h.Worker(1).Request(asked("request", "tick 0")).Cancel()
	transcript(h)
	h.Advance(2 * time.Second)
	ticks("1.35s\n2.35s")
	if d, ok := h.NextEvent(); !ok || d != time.Second {
		t.Errorf("the next event is in %v, %v", d, ok)
	}
	// A step of the wall clock moves no tick.
	h.SetWall(h.Wall().Add(24 * time.Hour))
	h.Advance(time.Second)
	ticks("3.35s")
}

// ticksOf reads the monotonic clock that each tick saw.
func ticksOf(h *Host) (out []string) {
	for _, line := range transcript(h) {
		if rest, ok := strings.CutPrefix(line, "clocks -> monotonic "); ok {
			out = append(out, strings.Fields(rest)[0])
		}
	}
	return out
}

// TestMainThread is configured and ticks, and sees no request.
func TestMainThread(t *testing.T) {
	h := newHost(t, Config{PluginConfig: []byte("configure: tick 100; shared")})
	transcript(h)
	main, err := h.MainThread()
	if err != nil {
		t.Fatal(err)
	}
	again, _ := h.MainThread()
	if again != main || main.Index() != -1 || h.Workers() != 1 || h.Worker(1) != nil || h.Worker(-1) != nil {
		t.Error("the main thread is not an instance of its own")
	}
	transcript(h)
	h.Advance(100 * time.Millisecond)
	checkLines(t, transcript(h), "on_tick root\non_tick root")
	s := main.Request(asked("request", "reply 403"))
	if s.Outcome().Kind != Continued || len(transcript(h)) != 0 {
		t.Errorf("a request on the main thread met the filter: %v", s.Outcome())
	}
}

// TestRandomness is the seed's: the same again with the same seed, and different
// for each instance and each life.
func TestRandomness(t *testing.T) {
	draw := func(seed uint64) []string {
		h := newHost(t, Config{Workers: 2, Seed: seed, PluginConfig: []byte("configure: random")})
		if err := h.Worker(1).Reload(); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, line := range transcript(h) {
			if rest, ok := strings.CutPrefix(line, "random -> "); ok {
				out = append(out, rest)
			}
		}
		return out
	}
	one, two, other := draw(1), draw(1), draw(2)
	if diff := cmp.Diff(one, two); diff != "" {
		t.Errorf("the same seed gave (-first +second):\n%s", diff)
	}
	seen := map[string]bool{}
	for _, s := range append(one, other...) {
		seen[s] = true
	}
	if len(seen) != 6 {
		t.Errorf("6 lives drew %v and %v", one, other)
	}
}

// TestEventOrder: whatever is scheduled and taken back, events happen by time,
// and in the order of scheduling within one instant.
func TestEventOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &Host{}
		type mark struct {
			due time.Duration
			seq int
		}
		var want, got []mark
		var events []*event
		cancelled := map[int]bool{}
		for i := range rapid.IntRange(0, 40).Draw(t, "events") {
			m := mark{time.Duration(rapid.IntRange(-3, 10).Draw(t, "delay")), i}
			events = append(events, h.clock.after(m.due, func() { got = append(got, mark{h.clock.mono, m.seq}) }))
			m.due = max(m.due, 0)
			want = append(want, m)
			if j := rapid.IntRange(0, 3*i).Draw(t, "cancel"); j <= i {
				h.clock.cancel(events[j])
				h.clock.cancel(events[j]) // Twice does no harm.
				cancelled[j] = true
			}
		}
		for range 12 {
			h.Advance(time.Duration(rapid.IntRange(0, 3).Draw(t, "step")))
		}
		end := h.Now()
		naive := []mark(nil)
		for due := time.Duration(0); due <= end; due++ {
			for _, m := range want {
				if m.due == due && !cancelled[m.seq] {
					naive = append(naive, m)
				}
			}
		}
		if diff := cmp.Diff(naive, got, cmp.AllowUnexported(mark{})); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// TestLivelock: a guest that calls for each reply, answered without delay, stops
// the instant, and it shows.
func TestLivelock(t *testing.T) {
	h := newHost(t, Config{
		PluginConfig: []byte("configure: call a /x 0\nreply: call a /x 0"),
		HTTPCall:     func(*Call) Reply { return StatusReply(200, "") },
	})
	if n := h.Advance(time.Second); n != maxEventsAtOnce {
		t.Errorf("%d events", n)
	}
	checkKinds(t, h, Livelock)
}
