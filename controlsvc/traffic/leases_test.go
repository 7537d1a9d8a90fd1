package traffic

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/shared/instant"
)

// Whatever replicas grant and are told, in whatever order and however often: summed up, what is granted is spent, returned,
// expired or still out, once what was reported elsewhere is taken off.
func TestLeaseUnitsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{now: start}
		replicas := []*Traffic{newTraffic(c, 1, "tenant"), newTraffic(c, 2, "tenant")}
		pick := func() *Traffic { return replicas[rapid.IntRange(0, 1).Draw(t, "replica")] }
		type out struct {
			name  string
			units int64
			ends  instant.Instant
		}
		var live []out
		var granted, unreported int64
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			c.pass(time.Duration(rapid.Int64Range(0, 3000).Draw(t, "passes")) * time.Millisecond)
			if rapid.Bool().Draw(t, "grant") || len(live) == 0 {
				l := out{fmt.Sprint("lease-", i), rapid.Int64Range(1, 100).Draw(t, "units"), 0}
				ttl := time.Duration(rapid.Int64Range(1, 5000).Draw(t, "ttl")) * time.Millisecond
				l.ends = c.now.Add(ttl)
				pick().Leased(1, "tenant", l.name, l.units, ttl)
				live, granted, unreported = append(live, l), granted+l.units, unreported+l.units
				continue
			}
			at := rapid.IntRange(0, len(live)-1).Draw(t, "of")
			l := live[at]
			live = append(live[:at], live[at+1:]...)
			if c.now.Sub(l.ends) >= leaseGrace-time.Second {
				continue // its report is lost
			}
			to, unused := pick(), rapid.Int64Range(-1, l.units+1).Draw(t, "unused")
			to.Settled("tenant", l.name, l.units, unused)
			unreported -= l.units
		}
		var outNow int64
		sum := func() (all LeaseUnits) {
			outNow = 0
			for _, r := range replicas {
				now := r.Now()
				u := now.Leases["tenant"]
				all.Granted += u.Granted
				all.Spent += u.Spent
				all.Returned += u.Returned
				all.Expired += u.Expired
				all.Elsewhere += u.Elsewhere
				outNow += now.OutUnits
			}
			return all
		}
		c.pass(time.Minute)
		all := sum()
		if all.Granted != granted || all.Expired-all.Elsewhere != unreported || outNow != 0 ||
			all.Granted != all.Spent+all.Returned+all.Expired-all.Elsewhere {
			t.Fatalf("%+v, %d out; granted were %d, nobody reported %d", all, outNow, granted, unreported)
		}
		for _, r := range replicas {
			if len(r.leases.live) != 0 || len(r.leases.ends) != 0 {
				t.Fatalf("%d leases are followed for ever", len(r.leases.live))
			}
		}
	})
}

func TestLeasesOut(t *testing.T) {
	c := &clock{now: start}
	tr := newTraffic(c, 1, "tenant")
	tr.Called(asking(7, "v1"))
	tr.Called(asking(8, "v0"))
	tr.Leased(7, "tenant", "a", 10, time.Second)
	tr.Leased(7, "tenant", "b", 5, 2*time.Second)
	tr.Leased(8, "gone", "c", 1, 2*time.Second)
	workers := func() (all []string) {
		for _, w := range tr.Snapshot(Query{}).Workers {
			all = append(all, fmt.Sprint(w.ID[15:], " ", w.Leases, " ", w.Units))
		}
		return all
	}
	if diff := cmp.Diff([]string{"7 2 15", "8 1 1"}, workers()); diff != "" {
		t.Errorf("workers, leases and units (-want +got):\n%s", diff)
	}
	now := tr.Now()
	if now.Workers != 2 || now.Stale != 1 || now.Out != 3 || now.OutUnits != 16 || now.Leases[Other].Granted != 1 {
		t.Errorf("%+v", now)
	}
	for range 2 { // the answer to the first was lost
		tr.Settled("tenant", "a", 0, 3) // its name does not say how many it had
	}
	c.pass(time.Second)
	if diff := cmp.Diff([]string{"7 1 5", "8 1 1"}, workers()); diff != "" {
		t.Errorf("workers, leases and units (-want +got):\n%s", diff)
	}
	tr.Settled("tenant", "of another replica", 0, 3)
	c.pass(2*leaseGrace - time.Second)
	want := map[string]LeaseUnits{
		"tenant": {Leases: 2, Granted: 15, Spent: 7, Returned: 3, Expired: 5},
		Other:    {Leases: 1, Granted: 1, Expired: 1},
	}
	if diff := cmp.Diff(want, tr.Now().Leases); diff != "" {
		t.Errorf("units (-want +got):\n%s", diff)
	}
	for i := range maxLeases + 10 {
		tr.Leased(7, "tenant", fmt.Sprint(i), 1, time.Second)
	}
	if n := len(tr.leases.live); n != maxLeases {
		t.Errorf("%d leases are followed", n)
	}
}
