package authority_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/controlsvc/authority"
	"sluice/shared/wire"
)

// However often a worker's reports arrive, in whatever order, and whatever else the calls that carry them come to, each is
// taken once; and what was acknowledged was taken.
func TestEachReportIsTakenOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		type sent struct{ worker, report uint64 }
		var under []sent            // calls under way, some of them twice
		last := map[uint64]uint64{} // the report that each worker has made last
		acked := map[uint64]bool{1: true, 2: true, 3: true}
		want := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			who := rapid.Uint64Range(1, 3).Draw(t, "worker")
			if acked[who] { // one at a time
				last[who]++
				acked[who] = false
				want++
			}
			under = append(under, sent{who, last[who]})
			if rapid.Bool().Draw(t, "twice") {
				under = append(under, sent{who, last[who]})
			}
			if rapid.IntRange(0, 3).Draw(t, "later") == 0 {
				continue
			}
			i := rapid.IntRange(0, len(under)-1).Draw(t, "arrives")
			call := under[i]
			under = append(under[:i], under[i+1:]...)
			w.pass(time.Duration(rapid.IntRange(0, 9).Draw(t, "seconds")) * time.Second) // not as long as it is known
			request := w.request()
			request.WorkerID, request.Report = call.worker, &wire.Report{ID: call.report}
			response := w.sync(t, request)
			if response.Reported != call.report {
				t.Fatalf("report %d of worker %d: %d is acknowledged", call.report, call.worker, response.Reported)
			}
			if call.report == last[call.worker] && rapid.Bool().Draw(t, "the answer comes") {
				acked[call.worker] = true
			}
		}
		for who, id := range last { // the last ones come again until they are acknowledged
			request := w.request()
			request.WorkerID, request.Report = who, &wire.Report{ID: id}
			w.sync(t, request)
		}
		if got := len(w.observed.reports); got != want {
			t.Fatalf("%d reports were made, %d taken", want, got)
		}
	})
}

// A worker that is not heard of any more is forgotten, some time after its calls are.
func TestWorkersThatWentAwayAreForgotten(t *testing.T) {
	w := newWorld()
	report := func(worker uint64) {
		request := w.request()
		request.WorkerID, request.Report = worker, &wire.Report{ID: 1}
		w.sync(t, request)
	}
	report(7)
	w.pass(10 * time.Minute)
	report(8)
	report(7)
	if got := len(w.observed.reports); got != 2 {
		t.Fatalf("%d reports taken, want those of two workers", got)
	}
	for range 2 {
		w.pass(10 * time.Minute)
		report(8)
	}
	report(7) // another life with the same id, for all that is known
	if got := len(w.observed.reports); got != 3 {
		t.Fatalf("%d reports taken, want the third of a worker that was forgotten", got)
	}
}

// A worker is heard as long as it waits for the answer: also where the store has used up the time that the service gave it.
// One that has given the call up is not, for it may tell another replica.
func TestReportsAreTakenWhileTheStoreHangs(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		want  uint64
	}{
		"the worker waits":         {authority.ErrStoreTime, 1},
		"the worker has gone away": {context.Canceled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			ctx, over := context.WithCancelCause(t.Context())
			w.store.before = func(string) { over(c.cause) }
			w.store.next = func(string) fault { return refused }
			request := w.request(ask("wide", "acme", 1, 1, 0))
			request.Report = &wire.Report{ID: 1}
			response, err := w.Sync(ctx, request)
			if err != nil || response.Reported != c.want || len(w.observed.reports) != int(c.want) {
				t.Errorf("%+v, %v, %d reports taken; want %d", response, err, len(w.observed.reports), c.want)
			}
		})
	}
}

// The observer hears which workers decide requests, and which are this replica's own.
func TestWhoCalls(t *testing.T) {
	for name, c := range map[string]struct {
		ctx    context.Context
		asks   []wire.Ask
		active bool
		want   authority.Call
	}{
		"a filter without requests": {t.Context(), nil, false, authority.Call{}},
		"a filter that asks":        {t.Context(), []wire.Ask{ask("wide", "acme", 1, 1, 0)}, false, authority.Call{Asks: 1, Active: true}},
		"one that has asked":        {t.Context(), nil, true, authority.Call{Active: true}},
		"a replica's own worker":    {authority.Own(t.Context()), nil, true, authority.Call{Active: true, Own: true}},
	} {
		w := newWorld()
		request := w.request(c.asks...)
		request.Active, request.PolicyVersion = c.active, "v7"
		if _, err := w.Sync(c.ctx, request); err != nil {
			t.Fatal(err)
		}
		c.want.Worker, c.want.Version = request.WorkerID, "v7"
		if got := w.observed.called; len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
