package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/controlsvc/accesslog"
	"sluice/shared/instant"
	"sluice/shared/limit"
)

// TestKeysAreFound: whatever the hashes are, and looked for ahead or not, a limit's key is what was made for it, until it is
// dropped; and then a new one.
func TestKeysAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := newKeys(rapid.SampledFrom([]int{2, 8, 40, 2000}).Draw(t, "most"))
		names := rapid.SampledFrom([]int{5, 60, 1500}).Draw(t, "names")
		hash := rapid.SampledFrom([]func(name uint64) uint64{
			func(uint64) uint64 { return 7 },
			func(name uint64) uint64 { return firstSlots - 3 + name%5 },
			func(name uint64) uint64 { return hashOf(1, fmt.Sprint(name)) },
		}).Draw(t, "hash")
		made := map[string]*key{} // those that are there
		now := instant.Instant(1)
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			bounds := make([]bound, rapid.IntRange(1, 30).Draw(t, "bounds"))
			for i := range bounds {
				name := rapid.IntRange(0, names).Draw(t, "name")
				bounds[i] = bound{
					limit: rapid.Int32Range(0, 1).Draw(t, "limit"), key: fmt.Sprint(name), hash: hash(uint64(name)), cost: 1,
					rates: []limit.Rate{{Units: 100, Window: time.Second}},
				}
			}
			if rapid.Bool().Draw(t, "ahead") {
				k.look(bounds)
			}
			for i := range bounds {
				b := &bounds[i]
				id := fmt.Sprint(b.limit, " ", b.key)
				got := k.get(now, b, limit.SlidingLog)
				switch {
				case !got.is(b):
					t.Fatalf("%s: got limit %d's %s", id, got.limit, got.name)
				case made[id] == nil && got.requests != 1:
					t.Fatalf("%s was dropped, and is there with %d requests", id, got.requests)
				case made[id] == nil:
					made[id] = got
					keep(t, &k, made)
				case got != made[id]:
					t.Fatalf("%s is another key than it was", id)
				}
				k.charge(got, b, now, 0)
				now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "pause")) * time.Millisecond)
			}
		}
	})
}

// keep takes out of made those that were dropped, and checks that the others, and nothing else, can be found.
func keep(t *rapid.T, k *keys, made map[string]*key) {
	there := map[*key]slot{}
	for _, s := range k.slots {
		if s.key != nil {
			there[s.key] = s
		}
	}
	if len(there) != k.n || k.n > k.most {
		t.Fatalf("%d keys are there, %d counted, at most %d wanted", len(there), k.n, k.most)
	}
	for id, one := range made {
		s, is := there[one]
		if !is {
			delete(made, id)
		} else if found := k.find(&bound{limit: one.limit, key: one.name, hash: s.hash}); found != one {
			t.Fatalf("%s is not found", id)
		}
	}
	if len(made) != k.n {
		t.Fatalf("%d keys are there, %d were made", k.n, len(made))
	}
}

// TestDroppingWhatDoesNotCount: as long as nothing goes that counts, few keys at once give the verdicts that many do.
func TestDroppingWhatDoesNotCount(t *testing.T) {
	p := parse(t, `domain: shop
identities: {tenant: {header: x-tenant-id}, client: {address: {}}}
limits:
  - {name: tenant, key: [tenant], rates: [1/1s]}
  - {name: client, key: [client], rates: [2/1s]}
`)
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		at := time.Duration(0)
		for range rapid.IntRange(1, 100).Draw(t, "requests") {
			at += time.Duration(rapid.IntRange(0, 600).Draw(t, "after")) * time.Millisecond
			s := sent{
				at: at, tenant: fmt.Sprint("t", rapid.IntRange(0, 9).Draw(t, "tenant")), path: "/",
				client: fmt.Sprint("192.0.2.", rapid.IntRange(0, 9).Draw(t, "client")),
			}
			text.WriteString(s.line() + "\n")
		}
		run := func(most int) (Totals, int64) {
			player, err := New(Config{Policy: p, MaxKeys: most})
			if err != nil {
				t.Fatal(err)
			}
			reader, err := accesslog.NewReader("log", strings.NewReader(text.String()), accesslog.Config{Want: player.Want(), Format: accesslog.JSON})
			if err != nil {
				t.Fatal(err)
			}
			log, err := accesslog.NewLog(reader)
			if err != nil {
				t.Fatal(err)
			}
			if err := player.Play(log, nil); err != nil {
				t.Fatal(err)
			}
			return player.tally.totals, player.new.keys.evicted
		}
		want, _ := run(1000)
		if got, evicted := run(rapid.IntRange(6, 12).Draw(t, "most")); evicted == 0 && got != want {
			t.Fatalf("%+v; with many keys %+v", got, want)
		}
	})
}
