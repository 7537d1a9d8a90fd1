package authority_test

import (
	"testing"
	"time"

	"sluice/shared/wire"
)

// An ask with want 0 is told how the key stands, and charges nothing.
func TestCounts(t *testing.T) {
	w := newWorld()
	look := func(cost int64) wire.AskResult {
		return w.sync(t, w.request(wire.Ask{KeyRef: wire.KeyRef{Limit: "wide", Key: "acme"}, Min: cost})).Results[0]
	}
	equal(t, "an empty key", look(1), wire.AskResult{Limit: 10, Window: 100 * time.Millisecond, Remaining: 10})

	spent := w.request(wire.Ask{KeyRef: wire.KeyRef{Limit: "wide", Key: "acme"}, Min: 3})
	spent.Records = []wire.Record{{
		KeyRef: wire.KeyRef{Limit: "wide", Key: "acme"}, ID: 1, Uses: []wire.Use{{Age: 40 * time.Millisecond, Units: 8}},
	}}
	response := w.sync(t, spent)
	equal(t, "acknowledged", response.Recorded, []uint32{0})
	until := 60 * time.Millisecond
	equal(t, "what the same call reported is counted, and a request of 3 is denied until it leaves", response.Results[0], wire.AskResult{
		Limit: 10, Window: 100 * time.Millisecond, Remaining: 2, Reset: until,
		Denied: true, Denial: wire.Denial{DenyFor: until, RetryAfter: until},
	})
	equal(t, "one of 2 still fits", look(2).Denied, false)
	equal(t, "one of 11 never does", look(11).Denial, wire.Denial{Never: true})
	equal(t, "left after all that looking", w.left(t, "wide", "acme"), []int64{2})
	equal(t, "no limit of that name", w.sync(t, w.request(wire.Ask{KeyRef: wire.KeyRef{Limit: "gone", Key: "k"}, Min: 1})).Results[0].Problem, wire.UnknownLimit)
	equal(t, "no cost", w.sync(t, w.request(wire.Ask{KeyRef: wire.KeyRef{Limit: "wide", Key: "k"}})).Results[0].Problem, wire.InvalidAsk)
}
