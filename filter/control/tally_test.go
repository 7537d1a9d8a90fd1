package control

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/wire"
)

// sum is what a report's tallies count, and how many of them name a limit.
func sum(r *wire.Report) (count int64, named int) {
	for _, t := range r.Tallies {
		count += t.Count
		if t.Limit != "" {
			named++
		}
	}
	return count, named
}

// one counts a request of a key's.
func (t *tallies) one(k *Key, is wire.Tally) {
	if !k.run.is(is.Route, is.Window, is.Result, admission.Source(is.Source)) {
		t.begin(0, k, run{route: is.Route, window: is.Window, result: is.Result, source: admission.Source(is.Source)})
	}
	k.run.count++
}

// However many limits and routes there are, each request is counted; those without room under their result and source.
func TestTalliesAreBounded(t *testing.T) {
	const limits, each = 600, 3
	for _, name := range []string{"limit-", string(make([]byte, 1000))} {
		tallies := newTallies(0)
		for i := range limits {
			what := wire.Tally{Limit: name + strconv.Itoa(i), Result: wire.Admitted + wire.Result(i%2), Source: uint8(i % 7)}
			tallies.count(0, what, 1, 0)
			tallies.count(0, what, each-1, 0)
		}
		tallies.make(instant.Instant(0).Add(time.Second))
		count, named := sum(&tallies.made)
		if want := int64(limits * each); count != want || tallies.made.Unlisted != want-int64(each*named) {
			t.Errorf("%d requests in tallies, %d unlisted, %d tallies with a limit; want %d requests", count, tallies.made.Unlisted, named, want)
		}
		if named == 0 || named == limits || len(tallies.made.Tallies) > wire.MaxTallies {
			t.Errorf("%d tallies, %d of them with a limit", len(tallies.made.Tallies), named)
		}
		if _, err := wire.ParseSyncRequest(wire.AppendSyncRequest(nil, &wire.SyncRequest{Report: &tallies.made})); err != nil {
			t.Error(err)
		}
	}
}

// Of many keys the busiest are told of first; none is told of twice, and what is forgotten is counted.
func TestTheBusiestKeysAreToldOfFirst(t *testing.T) {
	const keys, busy = maxTallied + 100, 100
	tallies := newTallies(0)
	all := make([]*Key, keys)
	for i := range all {
		all[i] = &Key{Ref: wire.KeyRef{Limit: "tenant", Key: strconv.Itoa(i)}}
		times := 1
		if i >= maxTallied-busy && i < maxTallied {
			times = 50
		}
		for range times {
			tallies.one(all[i], wire.Tally{Result: wire.Denied})
		}
	}
	told := map[wire.KeyRef]int64{}
	report := func() {
		tallies.count(0, wire.Tally{Result: wire.Admitted}, 1, 0)
		tallies.make(0)
		for _, k := range tallies.made.Keys {
			told[k.KeyRef] += k.Denied
		}
	}
	report()
	for _, k := range all[maxTallied-busy : maxTallied] {
		if told[k.Ref] != 50 {
			t.Fatalf("%v is told of %d times in the first report", k.Ref, told[k.Ref])
		}
	}
	if len(tallies.made.Keys) != wire.MaxKeyTallies {
		t.Errorf("%d keys in the first report", len(tallies.made.Keys))
	}
	const forgotten = 10 // of those for which there was no room
	for _, k := range all[keys-forgotten:] {
		tallies.drop(0, k)
	}
	lost := tallies.next.KeysLost
	for range keys / wire.MaxKeyTallies {
		report()
	}
	for _, k := range all[maxTallied : keys-forgotten] {
		tallies.one(k, wire.Tally{Result: wire.Denied}) // there is room now
	}
	report()
	if lost != forgotten || len(told) != keys-forgotten || len(tallies.keys) != 0 {
		t.Errorf("%d lost, %d told of, %d left; want %d lost, the others told of", lost, len(told), len(tallies.keys), forgotten)
	}
	if one := told[all[maxTallied].Ref]; one != 2 {
		t.Errorf("a key that found no room at first is told of %d times, want 2", one)
	}
}

// A report is the same until it is acknowledged, by its own id.
func TestAReportStaysUntilItIsAcknowledged(t *testing.T) {
	tallies, now := newTallies(0), instant.Instant(0)
	send := func(id uint64) *wire.Report {
		now = now.Add(time.Second)
		tallies.count(now, wire.Tally{Result: wire.Admitted}, 1, 0)
		var request wire.SyncRequest
		tallies.load(now, &call{id: id}, &request)
		return request.Report
	}
	first := *send(1)
	if second := send(2); second != nil {
		t.Fatalf("while a call carries one another one carries %+v", second)
	}
	tallies.unload(&call{id: 1}, false)
	again := send(3)
	if again == nil || again.ID != first.ID || again.Tallies[0].Count != first.Tallies[0].Count {
		t.Fatalf("after a call that failed: %+v, before %+v", again, first)
	}
	tallies.acknowledge(first.ID + 1)
	tallies.acknowledge(0)
	tallies.unload(&call{id: 3, sent: now}, true)
	if again = send(4); again == nil || again.ID != first.ID {
		t.Fatalf("without an acknowledgement: %+v", again)
	}
	tallies.acknowledge(first.ID)
	tallies.unload(&call{id: 4, sent: now}, true)
	if next := send(5); next == nil || next.ID != first.ID+1 || next.Tallies[0].Count != 4 {
		t.Fatalf("the next one is %+v", next)
	}
}

// Requests that follow each other are counted together while they have the route, window, result and source in common, and the
// report; whatever comes in between.
func TestRunsAreOfRequestsThatAreAlike(t *testing.T) {
	first := wire.Tally{Limit: "tenant", Route: "/v1", Window: time.Second, Result: wire.Admitted, Source: 2}
	other := first
	for _, change := range []func(){
		func() { other.Route = strings.Clone("/v1") }, func() { other.Route = "/v2" }, func() { other.Route = "" },
		func() { other.Window++ }, func() { other.Result++ }, func() { other.Source++ },
	} {
		other = first
		change()
		tallies, key := newTallies(0), &Key{Ref: wire.KeyRef{Limit: "tenant", Key: "acme"}}
		want := map[wire.Tally]int64{}
		for report, of := range [][]wire.Tally{{first, first, other, other, first}, {first}, {other, first}} {
			clear(want)
			for _, one := range of {
				tallies.one(key, one)
				want[one]++
			}
			tallies.make(0)
			for _, row := range tallies.made.Tallies {
				count := row.Count
				row.Count = 0
				if want[row] != count {
					t.Errorf("report %d: %d of %+v, want %d", report, count, row, want[row])
				}
				delete(want, row)
			}
			if keys := tallies.made.Keys; len(want) > 0 || len(keys) != 1 || keys[0].Admitted+keys[0].Denied != int64(len(of)) {
				t.Errorf("report %d: %v is not counted, and of the key %+v; want %d", report, want, keys, len(of))
			}
			tallies.made.ID = 0
		}
	}
}

// Of keys beyond those that reports tell of each request is in a tally all the same, and is the key's own until there is room.
func TestKeysWithoutRoomAreCounted(t *testing.T) {
	const keys, each = maxTallied + 3, 4
	tallies, all := newTallies(0), make([]Key, keys)
	for range each {
		for i := range all {
			tallies.one(&all[i], wire.Tally{Result: wire.Admitted})
		}
	}
	tallies.drop(0, &all[keys-2])
	tallies.make(0)
	if count, _ := sum(&tallies.made); count != keys*each {
		t.Errorf("%d requests in tallies, want %d", count, keys*each)
	}
	if own, lost := all[keys-1].tally.sum(), tallies.made.KeysLost; own != each || lost != each {
		t.Errorf("%d are the key's own, and %d are lost with the one that is forgotten; want %d of each", own, lost, each)
	}
}

// Requests under no limit are each in one report, and the first of them is enough for there to be one.
func TestUnboundRequestsAreReportedOnce(t *testing.T) {
	c := &Client{tallies: newTallies(0)}
	for report, requests := range []int64{3, 1, 0, 2} {
		for range requests {
			c.CountUnbound(instant.Instant(report))
		}
		if c.tallies.pending() != (requests > 0) {
			t.Errorf("report %d: pending %v with %d requests", report, c.tallies.pending(), requests)
		}
		c.tallies.make(instant.Instant(report))
		if count, _ := sum(&c.tallies.made); count != requests {
			t.Errorf("report %d: %d requests, want %d", report, count, requests)
		}
		c.tallies.made.ID = 0
	}
}
