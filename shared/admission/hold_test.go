package admission_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/wire"
)

// shaping is a key of a limit with max_wait.
func shaping(units int64, wait time.Duration) *admission.Key {
	l := leased(units)
	l.MaxWait = wait
	return admission.NewKey(l.Rule("", ""))
}

// at is a request for one unit that came then, behind others that are held.
func at(k *admission.Key, since instant.Instant, cost int64) admission.Input {
	return admission.Input{Patience: admission.Patience{Since: since}, Demands: []admission.Demand{{Key: k, Cost: cost, Ahead: k.Claimed()}}}
}

func TestHold(t *testing.T) {
	k := shaping(100, 100*time.Millisecond)
	a := admission.NewAnswer(0, 0, at(k, 0, 1), []wire.AskResult{lease(3, 40*time.Millisecond, 100*time.Millisecond)})
	start := 40*milli + 41
	out := a.Next(admission.Patience{})
	want(t, "the one that asked", out, admission.Hold, admission.FromLease)
	if out.RetryAfter != start.Sub(0) {
		t.Errorf("held for %v, want %v, until the lease starts", out.RetryAfter, start.Sub(0))
	}
	admission.Claim(at(k, 0, 1).Demands)
	want(t, "one that came later", admission.Step(milli, at(k, milli, 1)), admission.Hold, admission.FromLease)
	admission.Claim(at(k, 0, 1).Demands)
	want(t, "one that costs more than the claims leave", admission.Step(2*milli, at(k, 2*milli, 2)), admission.Ask, 0)
	want(t, "one behind requests that ask", admission.Step(2*milli, admission.Input{
		Patience: admission.Patience{Since: 2 * milli}, Demands: []admission.Demand{{Key: k, Cost: 1, Behind: true}},
	}), admission.Ask, 0)
	want(t, "one that has waited for too long", admission.Step(2*milli, at(k, start-100*milli-1, 1)), admission.Ask, 0)
	want(t, "one that costs more than the limit", admission.Step(2*milli, at(k, 2*milli, 101)), admission.Deny, admission.FromPolicy)

	first := admission.Input{Again: true, Demands: []admission.Demand{{Key: k, Cost: 1}}}
	want(t, "the first, just before the start", admission.Step(start-1, first), admission.Hold, admission.FromLease)
	want(t, "a newcomer at the start, behind two", admission.Step(start, at(k, start, 1)), admission.Admit, admission.FromLease)
	want(t, "the next newcomer", admission.Step(start, at(k, start, 1)), admission.Ask, 0)
	admission.Unclaim(first.Demands) // its client has left
	want(t, "a newcomer in its place", admission.Step(start, at(k, start, 1)), admission.Admit, admission.FromLease)
	want(t, "the second", admission.Step(start, first), admission.Admit, admission.FromLease)
}

// Of requests that one lease would serve, those that have to be decided before it starts are denied, and told when that is.
func TestOneThatCannotWaitForTheLease(t *testing.T) {
	k := shaping(100, 100*time.Millisecond)
	a := admission.NewAnswer(0, 0, at(k, 0, 1), []wire.AskResult{lease(3, 40*time.Millisecond, 100*time.Millisecond)})
	start := 40*milli + 41
	want(t, "one that waits for as long as the limit says", a.Next(admission.Patience{}), admission.Hold, admission.FromLease)
	want(t, "one that is just in time", a.Next(admission.Patience{Until: start}), admission.Hold, admission.FromLease)
	out := a.Next(admission.Patience{Until: start - 1})
	want(t, "one that is not", out, admission.Deny, admission.FromStore)
	if out.RetryAfter != start.Sub(0) {
		t.Errorf("to come again in %v; want %v, when the lease starts", out.RetryAfter, start.Sub(0))
	}
	late := at(k, milli, 1)
	late.Patience.Until = start - 1
	want(t, "one that comes later and is not", admission.Step(milli, late), admission.Ask, 0)
	late.Patience.Until = start
	want(t, "one that comes later and is", admission.Step(milli, late), admission.Hold, admission.FromLease)
}

func TestADenialThatEndsInTimeIsNone(t *testing.T) {
	k := shaping(1, 100*time.Millisecond)
	result := wire.AskResult{Limit: 1, Window: time.Second, Denied: true, Denial: wire.Denial{DenyFor: time.Second, RetryAfter: time.Second}}
	want(t, "denied for a second", admission.NewAnswer(0, 0, at(k, 0, 1), []wire.AskResult{result}).Next(admission.Patience{}), admission.Deny, admission.FromStore)
	want(t, "too early to wait", admission.Step(899*milli, at(k, 899*milli, 1)), admission.Deny, admission.FromDenial)
	want(t, "early enough", admission.Step(900*milli, at(k, 900*milli, 1)), admission.Ask, 0)
	want(t, "but not for one that has waited", admission.Step(900*milli, at(k, 899*milli, 1)), admission.Deny, admission.FromDenial)
}

func TestWhatWasGrantedToOthersIsAskedForAnew(t *testing.T) {
	k := shaping(10, time.Second)
	result := lease(1, 0, 50*time.Millisecond)
	result.Denied, result.Denial = true, wire.Denial{DenyFor: 20 * time.Millisecond, RetryAfter: 300 * time.Millisecond}
	a := admission.NewAnswer(0, 0, at(k, 0, 1), []wire.AskResult{result})
	want(t, "the first", a.Next(admission.Patience{}), admission.Admit, admission.FromStore)
	want(t, "the second", a.Next(admission.Patience{}), admission.Ask, 0)
	want(t, "the third, which cannot wait for so long", a.Next(admission.Patience{Since: -800 * milli}), admission.Deny, admission.FromStore)
}

// heldRequest is one that the property's line holds.
type heldRequest struct {
	since instant.Instant
	cost  int64
}

// TestTheLine plays a line of requests under one key at random: leases come, start and end, requests come, are held, leave and
// are let through. The order is kept; nothing is spent before a lease starts or after it ends, nor more than it holds; nobody
// is held for longer than he may be; and what is claimed is what the line needs.
func TestTheLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const wait = 100 * time.Millisecond
		k := shaping(1000, wait)
		now, claimed := instant.Instant(0), int64(0)
		var line []heldRequest
		// inHand is what leases hold that may be spent now, counted apart from the key's own count.
		type grant struct {
			from, until instant.Instant
			units       int64
		}
		var grants []grant
		spend := func(units int64) {
			slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.until, b.until) })
			for i := range grants {
				if g := &grants[i]; now >= g.from && now <= g.until {
					took := min(units, g.units)
					g.units -= took
					units -= took
				}
			}
			if units > 0 {
				t.Fatalf("at %d: %d units were spent that no lease holds", now, units)
			}
		}
		one := func(r heldRequest, ahead int64, again bool) admission.Output {
			return admission.Step(now, admission.Input{
				Again: again, Patience: admission.Patience{Since: r.since}, Demands: []admission.Demand{{Key: k, Cost: r.cost, Ahead: ahead}},
			})
		}
		release := func() {
			ahead, kept := int64(0), line[:0]
			for _, r := range line {
				demands := []admission.Demand{{Key: k, Cost: r.cost}}
				switch out := one(r, ahead, true); out.Verdict {
				case admission.Admit:
					if ahead > 0 {
						t.Fatalf("at %d: one passed others that are held for %d units", now, ahead)
					}
					spend(r.cost)
				case admission.Hold:
					if until := now.Add(out.RetryAfter); until > r.since.Add(wait) {
						t.Fatalf("held until %d, since %d", until, r.since)
					}
					ahead += r.cost
					kept = append(kept, r)
					continue
				}
				admission.Unclaim(demands)
				claimed -= r.cost
			}
			line = kept
		}
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			now += instant.Instant(rapid.Int64Range(0, 20_000).Draw(t, "pause"))
			release()
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				result := lease(rapid.Int64Range(1, 5).Draw(t, "units"), time.Duration(rapid.Int64Range(0, 80).Draw(t, "start"))*time.Millisecond, 0)
				result.EndIn = result.StartIn + time.Duration(rapid.Int64Range(1, 40).Draw(t, "lasts"))*time.Millisecond
				k.Hold(now, now, result)
				g := grant{now, now.Add(result.EndIn), result.Units}
				if result.StartIn > 0 {
					g.from = now.Add(result.StartIn)
				}
				grants = append(grants, g)
				release() // those who wait come first
			case 1:
				if len(line) > 0 {
					i := rapid.IntRange(0, len(line)-1).Draw(t, "leaves")
					admission.Unclaim([]admission.Demand{{Key: k, Cost: line[i].cost}})
					claimed -= line[i].cost
					line = append(line[:i], line[i+1:]...)
				}
			default:
				r := heldRequest{now, rapid.Int64Range(1, 3).Draw(t, "cost")}
				switch out := one(r, k.Claimed(), false); out.Verdict {
				case admission.Admit:
					spend(r.cost)
				case admission.Hold:
					admission.Claim([]admission.Demand{{Key: k, Cost: r.cost}})
					claimed += r.cost
					line = append(line, r)
				}
			}
			if k.Claimed() != claimed {
				t.Fatalf("%d units are claimed, the line needs %d", k.Claimed(), claimed)
			}
		}
	})
}
