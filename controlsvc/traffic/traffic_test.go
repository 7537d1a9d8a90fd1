package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/shared/admission"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

const start = instant.Instant(1_763_719_200_000_000)

// clock stands still until it is set.
type clock struct{ now instant.Instant }

func (c *clock) read() instant.Instant { return c.now }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

func shop(limits ...string) *policy.Policy {
	p := &policy.Policy{Version: "v1", Domain: "shop"}
	for _, limit := range limits {
		p.Limits = append(p.Limits, policy.Limit{Name: limit, Match: policy.Match{PathPrefix: "/v1"}})
	}
	return p
}

func newTraffic(c *clock, replica uint64, limits ...string) *Traffic {
	t := New(Config{Now: c.read, Replica: replica})
	t.SetPolicy(shop(limits...))
	return t
}

// asking is a call of a worker that asks for something.
func asking(worker uint64, version string) authority.Call {
	return authority.Call{Worker: worker, Version: version, Asks: 1, Active: true}
}

func tally(limit string, result wire.Result, count int64) wire.Tally {
	return wire.Tally{Limit: limit, Route: "/v1", Result: result, Source: uint8(admission.FromLease), Count: count}
}

func TestWhatIsReportedIsShown(t *testing.T) {
	c := &clock{now: start}
	tr := newTraffic(c, 7, "tenant", "reports", "quiet")
	c.pass(time.Second)
	tr.Called(asking(0xabc, "v1"))
	tr.Stored(time.Millisecond)
	tr.Stored(3 * time.Millisecond)
	near := tally("tenant", wire.Admitted, 10)
	near.Near = 3
	away := tally("reports", wire.Admitted, 4)
	away.Source = uint8(admission.FromFallback)
	tr.Reported(0xabc, &wire.Report{
		ID: 1, Age: time.Hour, Away: 2 * time.Second,
		Tallies: []wire.Tally{
			near, away, tally("tenant", wire.Denied, 5), tally("tenant", wire.ShadowDenied, 1), tally("tenant", wire.ShadowAdmitted, 3),
			tally("gone", wire.Denied, 2), tally("", wire.Admitted, 6), tally("", wire.Left, 1), tally("tenant", 99, 1000),
		},
		Keys: []wire.KeyTally{
			{KeyRef: wire.KeyRef{Limit: "tenant", Key: "acme"}, Admitted: 9, Denied: 5, ShadowAdmitted: 3, ShadowDenied: 1},
			{KeyRef: wire.KeyRef{Limit: "tenant", Key: "globex"}, Admitted: 1},
			{KeyRef: wire.KeyRef{Limit: "gone", Key: "acme"}, Denied: 2},
			{KeyRef: wire.KeyRef{Limit: "tenant", Key: "no key\n"}, Denied: 2},
			{KeyRef: wire.KeyRef{Limit: "tenant", Key: strings.Repeat("x", policy.MaxKeyLength+1)}, Denied: 2},
		},
		UpstreamMicros: []uint32{1000, 1000, 1000, 9000},
	})
	for _, of := range spans {
		s := tr.Snapshot(Query{Range: of.of})
		want := Counts{Admitted: 20, Denied: 7, Left: 1, ShadowAdmitted: 3, ShadowDenied: 1, Near: 3, Fallback: 4}
		if s.Range != of.of || s.Total != want || s.Calls != 1 || s.CallsPerRequest != 1/28. {
			t.Errorf("%s: %+v, calls %d, %v", s.Range, s.Total, s.Calls, s.CallsPerRequest)
		}
		wantKeys := []Key{
			{Limit: "tenant", Key: "acme", Counts: Counts{Admitted: 9, Denied: 5, ShadowAdmitted: 3, ShadowDenied: 1}, ShadowShare: .25},
			{Limit: Other, Key: "acme", Counts: Counts{Denied: 2}},
		}
		if diff := cmp.Diff(wantKeys, s.Keys); diff != "" || s.KeysMost != 0 {
			t.Errorf("%s: keys (-want +got), at most %d are missed:\n%s", s.Range, s.KeysMost, diff)
		}
		if diff := cmp.Diff(wantKeys[:1], s.Shadow); diff != "" {
			t.Errorf("%s: shadow (-want +got):\n%s", s.Range, diff)
		}
		if len(s.Routes) != 2 || s.Routes[0].Limit != "tenant" || s.Routes[0].Route != "/v1" || s.Routes[0].Denied != 5 {
			t.Errorf("%s: routes %+v", s.Range, s.Routes)
		}
		var limits []string
		for _, l := range s.Limits {
			limits = append(limits, fmt.Sprint(l.Name, " ", l.Admitted, " ", l.Denied, " ", l.Series.Denied != nil))
		}
		if got := strings.Join(limits, ", "); got != "tenant 10 5 true, reports 4 0 false, (other) 0 2 true" {
			t.Errorf("%s: limits %s", s.Range, got)
		}
		if s.Upstream.Count != 4 || s.Upstream.P50 != 960 || s.Upstream.P95 != 9216 || s.Store.Count != 2 || len(s.Store.Steps) != 1 {
			t.Errorf("%s: upstream %+v, store %+v", s.Range, s.Upstream, s.Store)
		}
		wantFallback := []Fallback{{Limit: "reports", From: seconds(c.now), Until: seconds(c.now), Requests: 4, Open: true}}
		if diff := cmp.Diff(wantFallback, s.Fallbacks); diff != "" {
			t.Errorf("%s: fallbacks (-want +got):\n%s", s.Range, diff)
		}
		for limit, want := range map[string]int{"reports": 1, "tenant": 0} {
			if of := tr.Snapshot(Query{Range: of.of, Limit: limit}); len(of.Fallbacks) != want {
				t.Errorf("%s of %s: fallbacks %+v, want %d", s.Range, limit, of.Fallbacks, want)
			}
		}
		wantWorkers := []Worker{{
			ID: "0000000000000abc", Replica: "0000000000000007", Age: 3600, LastSeen: seconds(c.now), Policy: "v1", Requests: 28, Away: 2,
		}}
		if diff := cmp.Diff(wantWorkers, s.Workers); diff != "" || s.Connected != 1 {
			t.Errorf("%s: workers, %d connected (-want +got):\n%s", s.Range, s.Connected, diff)
		}
		one := tr.Snapshot(Query{Range: of.of, Limit: "tenant"})
		if one.Total.Denied != 5 || one.Total.Admitted != 10 || len(one.Keys) != 1 || len(one.Routes) != 1 || len(one.Limits) != 1 ||
			one.Series.sum().Denied != 5 || one.Calls != 1 {
			t.Errorf("%s, of one limit: %+v", s.Range, one)
		}
		if none := tr.Snapshot(Query{Range: of.of, Limit: "quiet"}); none.Total != (Counts{}) || len(none.Keys) != 0 {
			t.Errorf("%s, of a quiet limit: %+v", s.Range, none)
		}
	}
}

// Nothing is shown for longer than its range, and for all of it.
func TestRangesEnd(t *testing.T) {
	for _, of := range spans {
		for _, step := range []struct {
			passes time.Duration
			want   int64
			keys   int
		}{
			{0, 3, 1},
			{time.Duration(of.length-1) * time.Second, 3, 1},
			{time.Duration(of.length+of.sketchStep+of.step) * time.Second, 0, 0},
		} {
			c := &clock{now: start}
			tr := newTraffic(c, 1, "tenant")
			tr.Reported(1, &wire.Report{
				Tallies: []wire.Tally{tally("tenant", wire.Denied, 3)},
				Keys:    []wire.KeyTally{{KeyRef: wire.KeyRef{Limit: "tenant", Key: "acme"}, Denied: 3}},
			})
			c.pass(step.passes)
			tr.Reported(1, &wire.Report{}) // the clock is only looked at where there is something to count
			s := tr.Snapshot(Query{Range: of.of})
			if s.Total.Denied != step.want || len(s.Keys) != step.keys {
				t.Errorf("%s after %v: %d denied, keys %v", of.of, step.passes, s.Total.Denied, s.Keys)
			}
			if s.Last != seconds(start) {
				t.Errorf("%s after %v: the last request is from %v, want %v", of.of, step.passes, s.Last, seconds(start))
			}
		}
	}
}

// Keys are listed since when it is said that they are, at every time of the hour, and never for less than the range.
func TestSinceWhenKeysAreRanked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SampledFrom(spans[:]).Draw(t, "range")
		end := start + instant.Instant(rapid.Int64Range(100_000, 200_000).Draw(t, "seconds")*microsPerSecond)
		began := instant.Instant(rapid.Int64Range(int64(start), int64(end)).Draw(t, "began"))
		c := &clock{now: end}
		tr := newTraffic(c, 1, "tenant")
		tr.since = began
		since := tr.Snapshot(Query{Range: of.of}).Ranked
		for _, at := range []struct {
			second int64
			key    string
		}{{int64(since) - 1, "before"}, {int64(since), "first"}, {int64(end) / microsPerSecond, "last"}} {
			c.now = instant.Instant(at.second * microsPerSecond)
			if c.now >= began.Add(-time.Second) {
				tr.Reported(1, &wire.Report{Keys: []wire.KeyTally{{KeyRef: wire.KeyRef{Limit: "tenant", Key: at.key}, Denied: 1}}})
			}
		}
		if c.now = end; since > max(seconds(end)-float64(of.length)+1, seconds(began)) {
			t.Fatalf("%s: ranked since %v of %v, up since %v", of.of, since, seconds(end), seconds(began))
		}
		keys := tr.Snapshot(Query{Range: of.of}).Keys
		if since > seconds(began) && (len(keys) != 2 || keys[0].Key != "first" || keys[1].Key != "last") {
			t.Fatalf("%s: ranked since %v: %v", of.of, since, keys)
		}
	})
}

// board is where the replicas of a test tell each other what they know.
type board struct {
	mu    sync.Mutex
	says  map[uint64][]byte
	fails bool
}

func (b *board) Exchange(_ context.Context, domain string, replica uint64, says []byte, _ time.Duration) (others [][]byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails {
		return nil, errors.New("the store is away")
	}
	if domain != "shop" {
		return nil, fmt.Errorf("domain %q", domain)
	}
	b.says[replica] = says
	for id, said := range b.says {
		if id != replica {
			others = append(others, said)
		}
	}
	return others, nil
}

// Whatever is reported to several replicas, each of them shows what one shows that all was reported to: exactly the counts,
// and the keys within what they say they may be wrong by.
func TestReplicasShowWhatOneWould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{now: start + instant.Instant(rapid.Int64Range(0, 2e9).Draw(t, "start"))}
		one := newTraffic(c, 99, "tenant", "reports")
		replicas := make([]*Traffic, rapid.IntRange(1, 3).Draw(t, "replicas"))
		for i := range replicas {
			replicas[i] = newTraffic(c, uint64(i), "tenant", "reports")
		}
		for range rapid.IntRange(1, 20).Draw(t, "reports") {
			c.pass(time.Duration(rapid.Int64Range(0, 20_000).Draw(t, "passes")) * time.Millisecond)
			at := replicas[rapid.IntRange(0, len(replicas)-1).Draw(t, "to")]
			report, worker := drawReport(t), rapid.Uint64Range(1, 3).Draw(t, "worker")
			report.Age = c.now.Sub(start) + time.Duration(worker)*time.Hour // it has one life
			took := time.Duration(rapid.Int64Range(0, 1e8).Draw(t, "took"))
			for _, to := range []*Traffic{at, one} {
				to.Called(asking(worker, "v1"))
				to.Reported(worker, report)
				to.Stored(took)
			}
		}
		b := &board{says: map[uint64][]byte{}}
		for range 2 {
			for _, r := range replicas {
				if err := r.exchange(context.Background(), b); err != nil {
					t.Fatal(err)
				}
			}
		}
		query := Query{Range: rapid.SampledFrom([]Range{FiveMinutes, Hour, Day}).Draw(t, "range"), Top: maxTop}
		query.Limit = rapid.SampledFrom([]string{"", "tenant", Other}).Draw(t, "limit")
		want := one.Snapshot(query)
		for i, r := range replicas {
			got := r.Snapshot(query)
			if len(got.Replicas) != len(replicas) {
				t.Fatalf("%d replicas shown of %d", len(got.Replicas), len(replicas))
			}
			compareSnapshots(t, i, got, want)
		}
	})
}

func compareSnapshots(t *rapid.T, replica int, got, want Snapshot) {
	got.Replicas, want.Replicas = nil, nil
	for _, s := range []*Snapshot{&got, &want} {
		for i := range s.Workers {
			// A replica forgets what a worker told it that then called another for a minute.
			s.Workers[i].Replica, s.Workers[i].Requests, s.Workers[i].Away = "", 0, 0
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("replica %d shows otherwise than one alone (-one +replica):\n%s", replica, diff)
	}
}

func drawReport(t *rapid.T) *wire.Report {
	r := &wire.Report{Span: time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "span")), Age: time.Second}
	for range rapid.IntRange(0, 4).Draw(t, "tallies") {
		one := tally(rapid.SampledFrom([]string{"", "tenant", "reports", "gone"}).Draw(t, "limit"),
			wire.Result(rapid.Uint8Range(0, 6).Draw(t, "result")), rapid.Int64Range(0, 100).Draw(t, "count"))
		one.Source = rapid.Uint8Range(0, 9).Draw(t, "source")
		one.Near = rapid.Int64Range(0, 100).Draw(t, "near")
		r.Tallies = append(r.Tallies, one)
	}
	for range rapid.IntRange(0, 4).Draw(t, "keys") {
		k := wire.KeyTally{
			KeyRef:   wire.KeyRef{Limit: "tenant", Key: fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "key"))},
			Admitted: rapid.Int64Range(0, 9).Draw(t, "admitted"), Denied: rapid.Int64Range(0, 9).Draw(t, "denied"),
			ShadowDenied: rapid.Int64Range(0, 2).Draw(t, "shadow"),
		}
		r.Keys = append(r.Keys, k)
	}
	for range rapid.IntRange(0, 3).Draw(t, "upstream") {
		r.UpstreamMicros = append(r.UpstreamMicros, rapid.Uint32().Draw(t, "micros"))
	}
	return r
}

// What the others told is shown for a while without them, and then not; and that they cannot be heard is said once.
func TestTheOthersGo(t *testing.T) {
	c := &clock{now: start}
	b := &board{says: map[uint64][]byte{}}
	here, there := newTraffic(c, 1, "tenant"), newTraffic(c, 2, "tenant")
	there.Reported(1, &wire.Report{Tallies: []wire.Tally{tally("tenant", wire.Denied, 3)}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log strings.Builder
	turn := make(chan time.Time)
	done := make(chan struct{})
	if err := there.exchange(ctx, b); err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{})
	go func() {
		defer close(done)
		here.Share(ctx, b, slog.New(slog.NewTextHandler(&log, nil)), func(time.Duration) <-chan time.Time {
			waits <- struct{}{}
			return turn
		})
	}()
	<-waits
	denied := func(want int64) {
		t.Helper()
		if got := here.Snapshot(Query{}).Total.Denied; got != want {
			t.Errorf("%d denied; want %d", got, want)
		}
	}
	denied(3)
	b.mu.Lock()
	b.fails = true
	b.mu.Unlock()
	for range 2 {
		turn <- time.Time{}
		<-waits
	}
	c.pass(othersKept - time.Second)
	denied(3)
	// What they told stays when it was.
	if series := here.Snapshot(Query{}).Series; series.Denied[int64(start)/microsPerSecond-series.From] != 3 {
		t.Errorf("denied at %d: %+v", int64(start)/microsPerSecond, series)
	}
	c.pass(time.Second)
	denied(0)
	b.mu.Lock()
	b.fails = false
	b.says[3] = []byte("garbage")
	b.mu.Unlock()
	turn <- time.Time{}
	<-waits
	denied(3)
	b.mu.Lock()
	delete(b.says, 3)
	b.mu.Unlock()
	turn <- time.Time{}
	<-waits
	cancel()
	<-done
	if text := log.String(); strings.Count(text, "is not shown") != 1 || strings.Count(text, "shown again") != 1 {
		t.Errorf("logged:\n%s", text)
	}
}

// What a replica knew is gone with it, and what one that has begun would have known before: from then on all is whole again. One
// that was only not heard of for a while has taken nothing with it.
func TestWhatReplicasTakeWithThem(t *testing.T) {
	c := &clock{now: start}
	b := &board{says: map[uint64][]byte{}}
	one, two := newTraffic(c, 1, "tenant"), newTraffic(c, 2, "tenant")
	whole := func(what string, want time.Duration, replicas ...*Traffic) {
		t.Helper()
		for range 3 { // what a replica has heard it tells the next time
			for _, r := range replicas {
				_ = r.exchange(t.Context(), b)
			}
		}
		for _, r := range replicas {
			s := r.Snapshot(Query{Range: Hour})
			if s.Whole != seconds(start.Add(want)) || s.Since != seconds(start) {
				t.Errorf("%s: replica %s shows all since %v, a part since %v; want %v, 0", what, r.Replica(), s.Whole-seconds(start), s.Since-seconds(start), want)
			}
		}
		c.pass(time.Minute)
	}
	whole("alone", 0, one)
	whole("both", 0, one, two)
	delete(b.says, 2)
	whole("the second is silent", 2*time.Minute, one)
	whole("it is back", 0, one, two)
	delete(b.says, 2)
	three := newTraffic(c, 3, "tenant")
	whole("it was restarted", 4*time.Minute, one, three)
	whole("still", 4*time.Minute, one, three)
	b.says[3] = nil
	whole("its heir says that it leaves", 6*time.Minute, one)
	whole("it was not so", 4*time.Minute, one, three)
	b.fails = true
	whole("the others cannot be heard", 8*time.Minute, one)
	whole("still", 9*time.Minute, one)
	b.fails = false
	for id := range uint64(2 * maxLost) {
		if err := newTraffic(c, 10+id, "tenant").exchange(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		_ = one.exchange(t.Context(), b)
		delete(b.says, 10+id)
	}
	if n := len(one.lost); n != maxLost {
		t.Errorf("%d lost replicas are remembered, want %d", n, maxLost)
	}
}

// A third of a million keys, and many workers, take no more space than a few thousand.
func TestMemoryIsFixed(t *testing.T) {
	c := &clock{now: start}
	var limits []string
	for i := range 2 * maxTimelines {
		limits = append(limits, fmt.Sprint("limit-", i))
	}
	tr := newTraffic(c, 1, limits...)
	report := func(from, to int, each time.Duration) {
		const keys = 20
		for i := from; i < to; i += keys {
			r := wire.Report{}
			for j := i; j < i+keys; j++ {
				limit := limits[j%len(limits)]
				r.Keys = append(r.Keys, wire.KeyTally{KeyRef: wire.KeyRef{Limit: limit, Key: fmt.Sprintf("%032d", j)}, Denied: 1})
				r.Tallies = append(r.Tallies, wire.Tally{Limit: limit, Route: "/v1", Result: wire.Denied, Count: 1})
			}
			tr.Reported(uint64(i), &r)
			c.pass(keys * each)
		}
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	report(0, 300_000, 300*time.Millisecond)      // 25 hours, with 1,000 keys in five minutes:
	report(300_000, 320_000, 30*time.Millisecond) // and 2,000 in a minute, so that every sketch is full
	full := heap()
	report(320_000, 340_000, 30*time.Millisecond)
	later := heap()
	t.Logf("%d MB with 320,000 keys, %d MB with another 20,000", (full-before)>>20, (later-before)>>20)
	if full-before > 40<<20 || later-full > 1<<20 {
		t.Errorf("%d bytes with 320,000 keys, %d more with another 20,000", full-before, later-full)
	}
	s := tr.Snapshot(Query{Range: Day, Top: 1000})
	if len(s.Keys) != maxTop || len(s.Limits) != maxTimelines+1 && len(s.Limits) != maxTimelines || s.Connected > maxWorkers {
		t.Errorf("%d keys, %d limits, %d workers", len(s.Keys), len(s.Limits), s.Connected)
	}
	if packed, err := tr.state(c.now, spans[:]...).pack(); err != nil || len(packed) > 200<<10 {
		t.Errorf("the others are told %d bytes, %v", len(packed), err)
	}
}

// A limit that leaves the policy leaves nothing behind but the keys and routes of its time.
func TestLimitsThatGo(t *testing.T) {
	c := &clock{now: start}
	tr := newTraffic(c, 1, "tenant")
	for i := range 3 * maxTimelines {
		limit := fmt.Sprint("limit-", i)
		tr.SetPolicy(shop("tenant", limit))
		tr.Reported(1, &wire.Report{Tallies: []wire.Tally{tally("tenant", wire.Admitted, 1), tally(limit, wire.Admitted, 1)}})
	}
	s := tr.Snapshot(Query{})
	if len(s.Limits) != 2 || s.Limits[0].Admitted != 3*maxTimelines || s.Total.Admitted != 6*maxTimelines {
		t.Errorf("%d limits, total %+v", len(s.Limits), s.Total)
	}
}

func TestFallbackPeriods(t *testing.T) {
	c := &clock{now: start}
	tr := newTraffic(c, 1, "tenant")
	away := wire.Tally{Limit: "tenant", Result: wire.Admitted, Source: uint8(admission.FromFallback), Count: 2}
	report := func(span time.Duration) { tr.Reported(1, &wire.Report{Span: span, Tallies: []wire.Tally{away}}) }
	periods := func() string {
		var all []string
		for _, f := range tr.Snapshot(Query{Range: Hour}).Fallbacks {
			all = append(all, fmt.Sprintf("%g-%g: %d %v", f.From-seconds(start), f.Until-seconds(start), f.Requests, f.Open))
		}
		return strings.Join(all, "; ")
	}
	want := func(want string) {
		t.Helper()
		if got := periods(); got != want {
			t.Errorf("periods %q; want %q", got, want)
		}
	}
	want("")
	report(0)
	c.pass(9 * time.Second)
	report(0)
	want("0-9: 4 true")
	c.pass(11 * time.Second)
	want("0-9: 4 false")
	report(time.Second / 2)
	want("19.5-20: 2 true; 0-9: 4 false")
	c.pass(time.Minute)
	report(time.Minute) // a worker that was cut off tells it afterwards
	want("19.5-80: 4 true; 0-9: 4 false")
	c.pass(time.Hour)
	want("19.5-80: 4 false")
	c.pass(time.Hour)
	want("")
	for range 2 * maxFallbacks {
		report(0)
		c.pass(time.Minute)
	}
	if n := len(tr.fallbacks); n != maxFallbacks {
		t.Errorf("%d periods are kept", n)
	}
}

func TestWorkersThatGo(t *testing.T) {
	c := &clock{now: start}
	tr := newTraffic(c, 1)
	for i := range 2 * maxWorkers {
		tr.Called(asking(uint64(i+1), "v1"))
	}
	if s := tr.Snapshot(Query{}); s.Connected != maxWorkers || len(s.Workers) != workersListed {
		t.Errorf("%d of %d listed", len(s.Workers), s.Connected)
	}
	c.pass(forgetWorker + time.Second)
	tr.Called(asking(5, "v2"))
	if s := tr.Snapshot(Query{}); s.Connected != 1 || s.Workers[0].Policy != "v2" {
		t.Errorf("%+v, of %d", s.Workers, s.Connected)
	}
}

// What stands in the store need not be what a replica wrote.
func FuzzState(f *testing.F) {
	c := &clock{now: start}
	tr := newTraffic(c, 7, "tenant")
	tr.Reported(1, drawExample())
	packed, err := tr.state(c.now, spans[:]...).pack()
	if err != nil {
		f.Fatal(err)
	}
	plain, err := json.Marshal(tr.state(c.now, spans[:]...))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed, plain)
	f.Add([]byte{}, []byte(`{"views":{"5m":{"total":{"from":-1,"step":1,"points":-9,"admitted":[1]},"store":{"-1":{"-1":1}}},"1h":null}}`))
	f.Add([]byte{}, []byte(`{"views":{"5m":{"total":{"from":9223372036854775807,"step":1,"points":9,"admitted":[1,2]}}}}`))
	f.Fuzz(func(t *testing.T, packed, plain []byte) {
		_, _ = unpack(packed)
		var s state
		if json.Unmarshal(plain, &s) != nil {
			return
		}
		for _, of := range spans {
			if _, err := json.Marshal(merge([]state{s, s}, of, Query{Top: 10}, start)); err != nil {
				t.Error(err)
			}
		}
	})
}

func drawExample() *wire.Report {
	return &wire.Report{
		Tallies: []wire.Tally{tally("tenant", wire.Denied, 3)}, UpstreamMicros: []uint32{5},
		Keys: []wire.KeyTally{{KeyRef: wire.KeyRef{Limit: "tenant", Key: "acme"}, Denied: 3}},
	}
}

// Of keys that are as long as keys can be the others are told of fewer, with what the rest may have had.
func TestPackIsBounded(t *testing.T) {
	c := &clock{now: start}
	tr := newTraffic(c, 1, "tenant")
	random := rand.New(rand.NewPCG(1, 2))
	for range keysKnown {
		long := make([]byte, policy.MaxKeyLength)
		for i := range long {
			long[i] = '0' + byte(random.IntN(64))
		}
		tr.Reported(1, &wire.Report{Keys: []wire.KeyTally{{KeyRef: wire.KeyRef{Limit: "tenant", Key: string(long)}, Denied: 5}}})
	}
	packed, err := tr.state(c.now, spans[:]...).pack()
	if err != nil || len(packed) > maxPacked {
		t.Fatalf("%d bytes, %v", len(packed), err)
	}
	s, err := unpack(packed)
	if keys := s.Views[Hour].Keys; err != nil || len(keys.Names) < 10 || len(keys.Names) >= ranksShared || keys.Floor != 5 {
		t.Errorf("%d keys, floor %d, %v", len(keys.Names), keys.Floor, err)
	}
}

// A bomb in the store is not unpacked.
func TestUnpackIsBounded(t *testing.T) {
	s := state{Replica: strings.Repeat("x", maxState)}
	packed, err := s.compress()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(packed); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v", err)
	}
}

// Callers whom the policy's block list denies are shown beside those whom limits do, and go by no other name.
func TestBlockedCallersAreShown(t *testing.T) {
	c := &clock{now: start}
	tr := newTraffic(c, 7, "tenant")
	blocked := wire.KeyRef{Limit: policy.BlockList, Key: "tenant=evil"}
	tr.Reported(1, &wire.Report{
		ID: 1, Tallies: []wire.Tally{{Limit: policy.BlockList, Result: wire.Denied, Source: uint8(admission.FromBlock), Count: 5}},
		Keys: []wire.KeyTally{{KeyRef: blocked, Denied: 5}},
	})
	s := tr.Snapshot(Query{})
	want := Counts{Denied: 5}
	if len(s.Limits) != 1 || s.Limits[0].Name != policy.BlockList || s.Limits[0].Counts != want {
		t.Errorf("limits %+v", s.Limits)
	}
	if diff := cmp.Diff([]Key{{Limit: blocked.Limit, Key: blocked.Key, Counts: want}}, s.Keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// Workers are those that decide: not a filter that has seen no request, and the replica's own apart. They age while they say
// nothing, and what is not known of one is not made up.
func TestWorkersThatDecide(t *testing.T) {
	const main, silent, telling, idle, own, ownIdle = 1, 2, 3, 4, 5, 6
	c := &clock{now: start}
	tr := newTraffic(c, 7, "tenant")
	report := &wire.Report{ID: 1, Age: time.Hour, Away: time.Millisecond, Tallies: []wire.Tally{tally("tenant", wire.Admitted, 1)}}
	call := func(worker uint64, asks int, active, own bool) {
		tr.Called(authority.Call{Worker: worker, Version: "v1", Asks: asks, Active: active, Own: own})
	}
	call(telling, 0, false, false)
	tr.Reported(telling, report)
	call(idle, 1, true, false)
	report.Away = 0
	tr.Reported(idle, report)
	for range 3 {
		c.pass(time.Second)
		call(main, 0, false, false)
		call(silent, 0, true, false) // it asked before this replica began
		call(telling, 0, false, false)
		call(idle, 0, true, false)
		call(own, 0, true, true)
		call(ownIdle, 0, false, true)
	}
	s := tr.Snapshot(Query{})
	var got []string
	for _, w := range s.Workers {
		got = append(got, fmt.Sprint(w.ID[15:], " ", w.Age, " ", w.Own))
	}
	if diff := cmp.Diff([]string{"2 0 false", "3 3603 false", "4 3603 false", "5 0 true"}, got); diff != "" || s.Connected != 3 {
		t.Errorf("%d workers; id, age, own (-want +got):\n%s", s.Connected, diff)
	}
	now := tr.Now()
	if now.Filters != 4 || now.Workers != 3 || now.Away != 1 || len(now.Ages) != 2 {
		t.Errorf("%+v", now)
	}
	c.pass(awayFor)
	if now = tr.Now(); now.Away != 0 {
		t.Errorf("%d are away although none has said so for %v", now.Away, awayFor)
	}
	if s.Calls != 1 {
		t.Errorf("%d calls, want the one that asked", s.Calls)
	}
}

// A replica that stops is not shown any longer; one that was stopped before it could say so goes by itself.
func TestAReplicaThatStopsSaysSo(t *testing.T) {
	c := &clock{now: start}
	store := memory.New(c.read, 10)
	here, there := newTraffic(c, 1, "tenant"), newTraffic(c, 2, "tenant")
	ctx, stop := context.WithCancel(t.Context())
	waits, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		there.Share(ctx, store, slog.New(slog.DiscardHandler), func(time.Duration) <-chan time.Time {
			close(waits)
			return nil
		})
	}()
	<-waits
	replicas := func(want int) {
		t.Helper()
		if err := here.exchange(t.Context(), store); err != nil {
			t.Error(err)
		}
		if got := len(here.Snapshot(Query{}).Replicas); got != want {
			t.Errorf("%d replicas are shown, want %d", got, want)
		}
	}
	replicas(2)
	stop()
	<-done
	replicas(1) // at the very instant
	c.pass(time.Millisecond)
	replicas(1)
}
