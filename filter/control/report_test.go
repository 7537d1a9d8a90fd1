package control

import (
	"strconv"
	"testing"
	"time"

	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

func TestReportsAreBounded(t *testing.T) {
	l := &policy.Limit{Name: "tenant", Rates: []limit.Rate{{Units: 10, Window: time.Minute}}}
	newKey := func(i int) *Key {
		return &Key{Ref: wire.KeyRef{Limit: "tenant", Key: strconv.Itoa(i)}, Admission: admission.NewKey(l.Rule("", ""))}
	}
	var counts Counts
	q := newReports()
	for i := range 3 * wire.MaxAbandoned {
		q.abandon(0, wire.Abandoned{CallID: uint64(i)}, &counts)
	}
	for i := range 2 * wire.MaxRecords {
		q.spend(0, newKey(i), 1, &counts)
	}
	cl, request := &call{id: 1}, wire.SyncRequest{}
	q.load(0, cl, &request)
	if len(request.Abandoned) != wire.MaxAbandoned || len(request.Records) != wire.MaxRecords {
		t.Fatalf("%d abandoned, %d records", len(request.Abandoned), len(request.Records))
	}
	if first := request.Abandoned[0].CallID; first != 2*wire.MaxAbandoned {
		t.Errorf("the oldest is call %d; the older ones go first", first)
	}
	if want := int64(2*wire.MaxAbandoned + wire.MaxRecords); counts.Dropped != want {
		t.Errorf("%d dropped, want %d", counts.Dropped, want)
	}
	if message := wire.AppendSyncRequest(nil, &request); len(message) > 2*maxReportBytes {
		t.Errorf("a message of %d bytes", len(message))
	}

	// What is never acknowledged goes out a bounded number of times.
	tries := 0
	for len(cl.abandoned)+len(cl.records) > 0 {
		tries++
		q.unload(0, cl, true, &counts)
		cl = &call{id: uint64(tries + 1)}
		q.load(0, cl, &request)
	}
	if tries != maxTries {
		t.Errorf("went out %d times, want %d", tries, maxTries)
	}
}

func TestARecordTellsWhenUnitsWereSpent(t *testing.T) {
	const window, every = 10 * time.Second, time.Millisecond
	l := &policy.Limit{Name: "tenant", Rates: []limit.Rate{{Units: 10, Window: window}}}
	k := &Key{Admission: admission.NewKey(l.Rule("", ""))}
	var counts Counts
	q := newReports()
	now := instant.Instant(0)
	for range 3 * window / every {
		q.spend(now, k, 1, &counts)
		now = now.Add(every)
	}
	request := wire.SyncRequest{}
	q.load(now, &call{id: 1}, &request)
	uses := request.Records[0].Uses
	if len(uses) > wire.MaxUses {
		t.Fatalf("%d uses", len(uses))
	}
	// Of what was spent within any last while it tells all; ages are shortened by the drift margin.
	units := int64(0)
	for i := len(uses) - 1; i >= 0; i-- {
		spent := int64(uses[i].Age / every)
		units += uses[i].Units
		if units < spent {
			t.Errorf("%d units within %v, want at least %d", units, uses[i].Age, spent)
		}
	}
	if want := int64(window / every); units < want || units > want+want/30 {
		t.Errorf("%d units, want the %d of the window", units, want)
	}
	if k.recordOf("") != nil {
		t.Error("a record that has gone out still grows")
	}
}
